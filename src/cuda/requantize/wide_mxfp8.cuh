// MXFP8 as the source of requantize_wide: codes and scales in shared memory, values in F16. wide_positions.cuh has the way
// to scales of blocks, wide_given.cuh those to coarser ones, of E5M2 too.
//
//     codes ---cp.async, 256 bytes a line---> shared memory --16 lines x 4 positions a lane--> F16 pairs
//     scales --8 bytes a line, a thread each--> units and factors of lines -----------------------^
//
// The 32 lines of a block of 32 positions share a unit: 2^-6 of the largest of their 32 scales, of E5M2 that scale. A line's
// codes times its scale over that unit are F16 numbers, and so are their products with the unit over the new scale
// (WideSource has these bounds; for E4M3, in brackets for E5M2):
//
//     - A scale 2^30 (2^24) or less below the largest leaves products exact, or below 2^-21.
//     - One further below counts as 0, where the products are below 2^-16 (2^-9).
//     - From 2^22 (2^9) below on, products may vanish or be rounded where codes are not 0: that all are 0 then says
//       nothing of the codes.
//     - The second product is exact, or below half of E4M3's least code. With a factor of at most 2^6 (2^-1; to E5M2 2^-8)
//       all that was not exact is below that half, too: only its sign is left, which all products keep. Half of E2M1's
//       least code is larger yet; its signs are those of the source's codes.
//
// A warp that has a larger factor or a NaN makes its codes again, in fp32 and out of line.
#pragma once
#include "cuda/requantize/wide_tile.cuh"

namespace mxq::cuda {

constexpr float two_to(int exponent) {
    return exponent >= 0 ? float(uint64_t(1) << exponent) : 1.0f / float(uint64_t(1) << -exponent);
}

// Tells how far products of codes of S are exact in F16 when their scales are taken over the unit of 32 lines (WideUnit).
template <class S>
struct WideSource {
    static constexpr int lift = 14 - S::emax > 0 ? 14 - S::emax : 0;  // a unit is 2^-lift of the largest scale
    static constexpr float unit = two_to(-lift);
    static constexpr int exact = 24 + lift + 1 - S::bias - S::mantissa_bits;  // a scale so far below it has exact products
    static constexpr float sure = two_to(S::emax + 1 - 25);                   // maxima from here on are exact
    // The largest factor under which what is not exact is below half of the least code of To.
    template <class To>
    static constexpr float factor = two_to(24 - S::emax - To::bias - To::mantissa_bits);
};

// Holds the unit that 32 lines share in a block of 32 positions.
struct WideUnit {
    float value;        // 2^-6 of the largest scale, of E5M2 that scale
    uint16_t whole;     // all lines' products are exact
    uint16_t exponent;  // the value over 2^(scale - 127) has this one less the scale, as fp32 stores it
};

template <int tile_lines = kWide>
struct WideMxfp8Tile : WideCodeTile<8, tile_lines> {
    static constexpr int skew = tile_lines == kWide ? 8 : 0;  // moves chunks to other banks, where there is room
    alignas(16) uint16_t factors[kWideScales][tile_lines / kChunk][kChunk + skew];  // scales over units in F16, by block
    WideUnit units[kWideScales][tile_lines / kMxBlock];                             // by block of positions, and of lines
};

template <int tile_lines = kWide>
struct WideMxfp8Shared : WideMxfp8Tile<tile_lines> {
    alignas(8) uint32_t from_scales[tile_lines][2], to_scales[kWide][tile_lines / kTile];  // bytes of a line
};

// As many blocks share an SM as kernels ask for: each takes 1 KiB more than it asks for.
static_assert(6 * (sizeof(WideMxfp8Shared<kLowTile>) + 1024) <= 228 * 1024);

// Loads the scales that a tile has of one line of the source, zeros where there are none: `left` are there from `column` on.
__device__ __forceinline__ uint2 load_wide_line(const uint8_t* from, int64_t left, bool swizzled) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(from);
    if (left >= 8 && !swizzled && address % 8 == 0) return *reinterpret_cast<const uint2*>(from);
    if (left >= 8 && swizzled && address % 4 == 0)  // at once: below one word is waited for before the next is asked for
        return {*reinterpret_cast<const uint32_t*>(from), *reinterpret_cast<const uint32_t*>(from + kSwizzleBytes)};
    uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t rest = left - i * 4;
        if (rest <= 0) continue;
        words[i] = load_scale_word(from + i * (swizzled ? kSwizzleBytes : 4), rest);
        if (rest < 4) words[i] &= ~0u >> (32 - 8 * rest);
    }
    return make_uint2(words[0], words[1]);
}

// Loads the scales of the thread's line.
__device__ __forceinline__ uint2 load_scales_of_line(const WideArguments& a, const WidePlace& place) {
    const ScaleLayout& layout = a.from.layout;
    const int line = threadIdx.x;
    const int64_t column = place.position / kMxBlock;
    return load_wide_line(a.from.scales + layout.offset(place.matrix, place.line + line, column),
                          line < place.lines ? layout.columns - column : 0, layout.swizzled);
}

// Sets the scales of the thread's line under the units of its warp, which has 32 lines. A barrier must follow.
template <class S, int tile_lines>
__device__ __forceinline__ void put_wide_units(const WidePlace& place, uint2 scales, WideMxfp8Tile<tile_lines>& shared) {
    constexpr int lift = WideSource<S>::lift;
    const int line = threadIdx.x, lane = line % 32;
    const bool exists = line < place.lines;
    uint32_t mine = 0;       // the largest scale of the lane's block
    uint32_t vanishing = 0;  // bits of the blocks where the line's products may
#pragma unroll
    for (int block = 0; block < kWideScales; block++) {
        const uint32_t scale = (block < 4 ? scales.x : scales.y) >> (block % 4 * 8) & 0xFF;
        const uint32_t largest = __reduce_max_sync(kAllLanes, scale);
        const int exponent = int(scale) + (127 + lift - int(largest));  // of the scale over the unit
        shared.factors[block][line / kChunk][line % kChunk] =
            uint16_t(f16_pair_of(bits_float(uint32_t(max(exponent, 0)) << 23)));
        if (exists && exponent < 127 + lift - WideSource<S>::exact) vanishing |= 1u << block;
        if (lane == block) mine = largest;
    }
    vanishing = __reduce_or_sync(kAllLanes, vanishing);
    if (lane < kWideScales)
        shared.units[lane][line / 32] = {multiply_rn(scale_value(mine), WideSource<S>::unit),
                                         uint16_t(~vanishing >> lane & 1), uint16_t(mine + 127 - lift)};
}

// The codes of 4 positions of 16 lines, and what they are multiplied by.
struct WideCodes {
    uint32_t lines[kChunk];
    uint32_t factors[kChunk / 2];

    template <int tile_lines>
    __device__ __forceinline__ WideCodes(const WideMxfp8Tile<tile_lines>& shared, uint32_t chunk, uint32_t position) {
        const uint32_t* words = shared.word(chunk, position / 4);
#pragma unroll
        for (int i = 0; i < kChunk; i++) lines[i] = words[i * shared.line_words];
        const auto* four = reinterpret_cast<const uint4*>(shared.factors[position / kMxBlock][chunk]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 of = four[i];
            factors[4 * i] = of.x, factors[4 * i + 1] = of.y, factors[4 * i + 2] = of.z, factors[4 * i + 3] = of.w;
        }
    }
};

// The values of two neighbouring positions, over their unit.
template <class S>
struct WideValues : WidePairs {
    __device__ __forceinline__ WideValues(const WideCodes& of, int pair) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const uint32_t codes = __byte_perm(of.lines[2 * i], of.lines[2 * i + 1], pair == 0 ? 0x5140 : 0x7362);
            decode_word_to_f16<S>(codes, first[i], second[i]);
            first[i] = multiply_f16_pairs(first[i], of.factors[i]);
            second[i] = multiply_f16_pairs(second[i], of.factors[i]);
        }
    }
    // Returns the codes of a position under a factor that F16 has.
    template <class E, bool of_second>
    __device__ __forceinline__ ChunkCodes<E> encode(float factor) const {
        const uint32_t(&pairs)[count] = of_second ? second : first;
        const uint32_t both = f16_pair_of(factor);
        ChunkCodes<E> to;
#pragma unroll
        for (int w = 0; w < 4; w++)
            to.words[w] = encode_pair_from_f16<E>(multiply_f16_pairs(pairs[2 * w], both)) |
                          encode_pair_from_f16<E>(multiply_f16_pairs(pairs[2 * w + 1], both)) << 16;
        return to;
    }
};

// Makes and stores the codes and scales of a lane's 4 positions in fp32, for all lanes of a warp. Out of line: few need it.
template <class E, int tile_lines>
__device__ __noinline__ void emit_any_wide(const WideArguments& a, WideMxfp8Shared<tile_lines>& shared, uint8_t* to, int chunk,
                                           int first, int length) {
#pragma unroll 1
    for (int position = first; position < first + 4; position++) {
        const auto* codes = shared.byte(chunk * kChunk, position);
        float values[kChunk];
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < kChunk; i++) {
            const auto* scales = reinterpret_cast<const uint8_t*>(shared.from_scales[chunk * kChunk + i]);
            values[i] = multiply_rn(decode_pair<E4M3>(codes[i * kWide]).x, scale_value(scales[position / kMxBlock]));
            largest = max(largest, a.nonfinite == Nonfinite::Saturate ? amax_bits<Nonfinite::Saturate>(values[i])
                                                                      : amax_bits<Nonfinite::Propagate>(values[i]));
        }
        const uint32_t scale = scale_of(max(largest, __shfl_xor_sync(kAllLanes, largest, 1)), a.steps);
        // The lane that made the scale before makes it again.
        if (chunk % 2 == position / 2 % 2)
            reinterpret_cast<uint8_t*>(shared.to_scales[position])[chunk / 2] = uint8_t(scale);
        const ChunkCodes<E> out = quantize_values<E>(values, scale_reciprocal(scale));
        if (first < length) store_chunk(to + position * a.to.line_bytes, out);
    }
}

}  // namespace mxq::cuda
