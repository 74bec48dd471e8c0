// Codes of a wide tile of MXFP8 under scales that are more than a block's: those of ROW (wide_row.cuh) and of 128x128
// (wide_squares.cuh), which are known before the first code is made.
//
//     codes, scales --> shared memory, F16 pairs over units of lines (wide_mxfp8.cuh) --factors--> codes, 256 bytes a line
//
// A factor is a unit times what the position's values are multiplied by: up to that of WideSource, 2^15 where all is exact,
// and down to 0, where products are below half of the least code, from E5M2 to 2^-24. A lane that has a larger one or a NaN
// makes its codes again, in fp32 and out of line.
#pragma once
#include "cuda/memory/kept_store.cuh"
#include "cuda/requantize/chunks_across.cuh"
#include "cuda/requantize/wide_mxfp8.cuh"
#include "numerics/fp8_scale.h"

namespace mxq::cuda {

// A tile, and where it is: slow ways look there, since what they took as arguments would stay in registers of the fast ones.
struct WideGivenTile : WideMxfp8Tile<> {
    WidePlace place;
};

// Returns which tile a block of threads takes: the last one first, since the L2 may have what a kernel before read last. A
// barrier must follow.
__device__ __forceinline__ WidePlace given_tile(const WideArguments& a, WideGivenTile& shared) {
    const uint32_t rows = uint32_t(a.from.matrices) * a.strips, row = row_of_blocks();
    const WidePlace place(a, WideIndex::in_strips(a, row < rows ? rows - 1 - row : row, gridDim.x - 1 - blockIdx.x));
    if (threadIdx.x == 0) shared.place = place;
    return place;
}

// Makes codes under powers of two, in F16.
template <class From, class To>
struct PowerEncoder {
    static constexpr float least = 0x1p-24f;  // of factors, which F16 has
    template <bool of_second>
    static __device__ __forceinline__ ChunkCodes<To> encode(const WideValues<From>& values, float factor) {
        return values.template encode<To, of_second>(factor);
    }
};

// Makes codes under any factors, in fp32.
template <class From, class To>
struct FloatEncoder {
    static constexpr float least = 0;
    template <bool of_second>
    static __device__ __forceinline__ ChunkCodes<To> encode(const WideValues<From>& values, float factor) {
        return TwoHalfChunks::codes_of<To, false>(of_second ? values.second : values.first, 1, factor);
    }
};

// Makes and stores scales of MX, bytes, of codes of F that become those of T. Fp8Scales does so with those of FP8, fp32
// numbers.
template <class F, class T>
struct MxScales {
    using From = F;
    using To = T;
    using Encoder = PowerEncoder<F, T>;
    static constexpr bool is_byte = true;
    static __device__ __forceinline__ Nonfinite policy(const WideArguments& a) { return a.nonfinite; }
    static __device__ __forceinline__ uint32_t scale(const WideArguments& a, uint32_t largest, float& multiplier) {
        const uint32_t scale = scale_of(largest, a.steps);
        multiplier = scale_reciprocal(scale);
        return scale;
    }
    static __device__ __forceinline__ void store(const QuantizedPart& to, int64_t at, bool, uint32_t scale) {
        store_kept(to.scales + at, uint8_t(scale));
    }
};

template <class F, class T>
struct Fp8Scales {
    using From = F;
    using To = T;
    using Encoder = FloatEncoder<F, T>;
    static constexpr bool is_byte = false;
    static __device__ __forceinline__ Nonfinite policy(const WideArguments&) { return Nonfinite::Saturate; }
    static __device__ __forceinline__ uint32_t scale(const WideArguments& a, uint32_t largest, float& multiplier) {
        multiplier = fp8_quantization_scale(bits_float(largest), a.rule);
        return float_bits(fp8_stored_scale(multiplier));
    }
    // The last of a row of scales has the padding, too.
    static __device__ __forceinline__ void store(const QuantizedPart& to, int64_t at, bool last, uint32_t scale) {
        auto* const scales = reinterpret_cast<uint32_t*>(to.scales) + at;
        store_kept(scales, scale);
        for (int64_t i = 1; last && i <= to.layout.line_stride - to.layout.columns; i++) scales[i] = 0;
    }
};

// Makes and stores the codes of a lane's 4 positions in fp32, each multiplied by its own of `by`. Out of line: few need it.
template <class From, class To>
__device__ __noinline__ void emit_any_given(const WideArguments& a, const WideGivenTile& tile, uint8_t* to, int chunk,
                                            int first, float4 by) {
    const WidePlace place = tile.place;
#pragma unroll 1
    for (int position = first; position < first + 4; position++) {
        const auto* codes = tile.byte(chunk * kChunk, position);
        float values[kChunk];
#pragma unroll 1
        for (int i = 0; i < kChunk; i++) {
            const int64_t column = (place.position + position) / kMxBlock, line = place.line + chunk * kChunk + i;
            const uint32_t scale = a.from.scales[a.from.layout.offset(place.matrix, line, column)];
            values[i] = multiply_rn(decode_pair<From>(codes[i * kWide]).x, scale_value(scale));
        }
        store_chunk(to + position * a.to.line_bytes, quantize_values<To>(values, by.x));
        by = make_float4(by.y, by.z, by.w, 0);
    }
}

// Makes and stores the codes of a tile. given(chunk, first) returns what four positions of a chunk of lines are multiplied by;
// it may be NaN where F16 does not serve, and exact(chunk, first) returns the same for fp32.
template <class Scales, class Given, class Exact>
__device__ __forceinline__ void emit_wide_given(const WideArguments& a, const WidePlace& place, const WideGivenTile& tile,
                                                const Given& given, const Exact& exact) {
    using From = typename Scales::From;
    using To = typename Scales::To;
    using Encoder = typename Scales::Encoder;
    constexpr float most = WideSource<From>::template factor<To>;
    const int lane = threadIdx.x % 32, chunk = lane % 8 + lane / 16 * 8, half = lane / 8 % 2;
    uint8_t* const to = a.to.line(place.matrix, place.position) + place.line + chunk * kChunk;
    const uint32_t line_bytes = uint32_t(a.to.line_bytes);
    const int length = chunk * kChunk < place.lines ? place.length : 0;
#pragma unroll 1
    for (int step = threadIdx.x / 32; step < 2 * kWideChunks; step += kWideThreads / 32) {
        const int piece = step / 2, first = piece * kChunk + half * 8 + step % 2 * 4;
        const WideCodes codes(tile, chunk, first);
        const WideUnit of_lines = tile.units[piece / 2][chunk / 2];
        const float unit = of_lines.value, limit = of_lines.whole ? 0x1p15f : most;
        const float4 four = given(chunk, first);
        const float factors[] = {multiply_rn(four.x, unit), multiply_rn(four.y, unit), multiply_rn(four.z, unit),
                                 multiply_rn(four.w, unit)};
        uint8_t* at = to + uint64_t(uint32_t(first)) * line_bytes;
        bool plain = true;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const WideValues<From> values(codes, pair);
            if (first < length) store_chunk(at, Encoder::template encode<false>(values, factors[2 * pair]));
            at += line_bytes;
            if (first < length) store_chunk(at, Encoder::template encode<true>(values, factors[2 * pair + 1]));
            at += line_bytes;
#pragma unroll
            for (int i = 2 * pair; i < 2 * pair + 2; i++) {
                plain = plain && factors[i] <= limit;
                if (most < 1) plain = plain && (factors[i] >= Encoder::least || factors[i] == 0);
            }
        }
        if (!plain && first < length) emit_any_given<From, To>(a, tile, to, chunk, first, exact(chunk, first));
    }
}

}  // namespace mxq::cuda
