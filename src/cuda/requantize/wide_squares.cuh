// The way of requantize_wide for MXFP8 to 128x128, across the source's lines: MXFP8, and FP8 under fp32 scales. A tile is
// four blocks of the output.
//
//     codes --a warp 32 lines of 128 positions--> F16 pairs over their units --> maximum of a block --> scale --> codes
//
// Codes are read twice from shared memory (wide_given.cuh has the second time). Where maxima may not be exact over their
// unit, or are no numbers, the tile's are made again, value by value and out of line. Bytes an element: 1.03 read, 1
// written.
#pragma once
#include "cuda/requantize/wide_given.cuh"

namespace mxq::cuda {

constexpr int kSides = kWide / kTile, kWideSquares = kSides * kSides;

struct WideSquareShared : WideGivenTile {
    alignas(8) uint32_t to_scales[kWide][kSides];  // of MX: the scales of a line of the output, in each byte
    uint32_t maxima[kWideSquares];                 // of the blocks, as square() numbers them
    uint32_t scales[kWideSquares];                 // as they are stored
    float multipliers[kWideSquares];               // of values

    // Returns the number of the block of a position and a line.
    static __device__ __forceinline__ int square(int position, int line) { return position / kTile * kSides + line / kTile; }
};

// Raises the maxima of the tile's blocks by those of the warp's lines; false: one of
// them may differ from what fp32 gives.
template <class S>
__device__ __forceinline__ bool raise_square_maxima(WideSquareShared& shared) {
    const int lane = threadIdx.x % 32, of_lines = threadIdx.x / 32;  // a warp has 32 lines
    bool sure = true;
#pragma unroll 1
    for (int side = 0; side < kSides; side++) {
        const int piece = side * 8 + lane % 8, first = of_lines * 32 + lane / 8;
        uint32_t even, odd;
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            const uint4 codes = shared.codes[shared.slot(first + i, piece)];
            const uint32_t factor = shared.factors[piece / 2][(first + i) / kChunk][(first + i) % kChunk] * 0x00010001u;
            const uint32_t words[] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
            for (int w = 0; w < 4; w++) {
                uint32_t low, high;
                decode_word_to_f16<S>(words[w], low, high);
                low = multiply_f16_pairs(low, factor), high = multiply_f16_pairs(high, factor);
                even = i + w == 0 ? low : max_abs_f16_pairs(even, low);
                odd = i + w == 0 ? high : max_abs_f16_pairs(odd, high);
            }
        }
        // Reduces to the largest of the unit's 32 positions: lanes that differ in bits 0, 3 and 4 have its other pieces.
        uint32_t pair = max_abs_f16_pairs(even, odd) & 0x7FFF7FFFu;
        for (const int distance : {1, 8, 16}) pair = max_abs_f16_pairs(pair, __shfl_xor_sync(kAllLanes, pair, distance));
        const float over_unit = max_abs_of_f16_pair(pair);
        const WideUnit unit = shared.units[piece / 2][of_lines];
        sure = sure && (unit.whole || over_unit >= WideSource<S>::sure);
        const uint32_t largest = __reduce_max_sync(kAllLanes, float_bits(multiply_rn(over_unit, unit.value)));
        sure = sure && largest < kInfinityBits;
        if (lane == 0) atomicMax(&shared.maxima[shared.square(side * kTile, first)], largest);
    }
    return sure;
}

// Raises the maxima of the tile's blocks value by value, a line a thread. Out of line: few need it.
template <class S>
__device__ __noinline__ void raise_any_square_maxima(const WideArguments& a, WideSquareShared& shared, Nonfinite policy) {
    const WidePlace place = shared.place;
    const int line = threadIdx.x;
    if (line >= place.lines) return;
#pragma unroll 1
    for (int position = 0; position < place.length; position++) {
        const int64_t column = (place.position + position) / kMxBlock;
        const uint32_t scale = a.from.scales[a.from.layout.offset(place.matrix, place.line + line, column)];
        const float value = multiply_rn(decode_pair<S>(*shared.byte(line, position)).x, scale_value(scale));
        const uint32_t bits =
            policy == Nonfinite::Saturate ? amax_bits<Nonfinite::Saturate>(value) : amax_bits<Nonfinite::Propagate>(value);
        if (bits != 0) atomicMax(&shared.maxima[shared.square(position, line)], bits);
    }
}

// Stores the scales of the tile's blocks.
template <class Scales>
__device__ __forceinline__ void store_wide_squares(const WideArguments& a, const WidePlace& place,
                                                   const WideSquareShared& shared) {
    const ScaleLayout& layout = a.to.layout;
    if (layout.swizzled) return store_wide_scales(a, place, shared);
    const int square = threadIdx.x, position = square / kSides * kTile, line = square % kSides * kTile;
    if (square >= kWideSquares || position >= place.length || line >= place.lines) return;
    const int64_t column = (place.line + line) / kTile;
    Scales::store(a.to, layout.offset(place.matrix, place.position + position, column), column + 1 == layout.columns,
                  shared.scales[square]);
}

template <class Scales>
__global__ void __launch_bounds__(kWideThreads, kWideBlocks)
    requantize_wide_squares_kernel(const __grid_constant__ WideArguments a) {
    alignas(128) extern __shared__ uint4 wide_memory[];
    auto& shared = *reinterpret_cast<WideSquareShared*>(wide_memory);
    const WidePlace place = given_tile(a, shared);
    if (!place.exists(a)) return;
    const int thread = threadIdx.x;
    start_in_turn<kWideBlocks>(a);
    copy_wide_codes(a, place, shared);
    put_wide_units<typename Scales::From>(place, load_scales_of_line(a, place), shared);
    if (thread < kWideSquares) shared.maxima[thread] = 0;
    wait_for_pieces();
    __syncthreads();
    if (__syncthreads_or(!raise_square_maxima<typename Scales::From>(shared))) {
        if (thread < kWideSquares) shared.maxima[thread] = 0;
        __syncthreads();
        raise_any_square_maxima<typename Scales::From>(a, shared, Scales::policy(a));
        __syncthreads();
    }
    if (thread < kWideSquares) shared.scales[thread] = Scales::scale(a, shared.maxima[thread], shared.multipliers[thread]);
    __syncthreads();
    for (int i = 0; i < kSides; i++)
        shared.to_scales[thread][i] = shared.scales[shared.square(thread, i * kTile)] * 0x01010101u;
    const auto four_of = [](float value) { return make_float4(value, value, value, value); };
    const auto exact = [&](int chunk, int first) {
        return four_of(shared.multipliers[shared.square(first, chunk * kChunk)]);
    };
    const auto given = [&](int chunk, int first) {
        const int square = shared.square(first, chunk * kChunk);
        const uint32_t largest = shared.maxima[square];
        const float number = largest < kInfinityBits ? shared.multipliers[square] : bits_float(kNanBits);
        return four_of(largest == 0 ? 0.0f : number);
    };
    emit_wide_given<Scales>(a, place, shared, given, exact);
    __syncthreads();
    store_wide_squares<Scales>(a, place, shared);
}

}  // namespace mxq::cuda
