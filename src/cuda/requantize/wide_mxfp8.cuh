// The way of requantize_wide for MXFP8 E4M3 to MXFP8 E4M3; wide_mxfp4.cuh has the one to MXFP4.
//
//     codes ---cp.async, 256 bytes a line---> shared memory --16 lines x 4 positions a lane--> F16 pairs
//     scales --8 bytes a line, a thread each--> units and factors of lines -----------------------^
//     F16 pairs --two lanes, 32 lines--> maxima --> scales, by way of shared memory; factors --> codes, 256 bytes a line
//
// The 32 lines of a block of 32 positions share a unit: 2^-6 of the largest of their 32 scales. A line's codes times its
// scale over that unit are F16 numbers, and so are their products with the unit over the new scale:
//
//     - A scale 2^30 or less below the largest leaves products exact, or below 2^-21.
//     - One further below counts as 0, where the products are below 2^-16.
//     - From 2^22 below on, products may vanish where codes are not 0: that all are 0 then says nothing of the codes.
//     - The second product is exact, or below half of E4M3's least code. With a factor of at most 2^6 all that was not exact
//       is below that half, too: only its sign is left, which all products keep. Half of E2M1's least code is larger yet;
//       its signs are those of the source's codes.
//
// A warp that has a larger factor or a NaN makes its codes again, in fp32 and out of line.
#pragma once
#include "cuda/requantize/wide_tile.cuh"

namespace mxq::cuda {

// Holds the unit that 32 lines share in a block of 32 positions.
struct WideUnit {
    float value;     // 2^-6 of the largest scale
    uint32_t whole;  // no line's products vanish
};

struct WideMxfp8Tile : WideCodeTile<8> {
    alignas(16) uint16_t factors[kWideScales][kWideChunks][kChunk + 8];  // scales over units in F16, by block of positions
    WideUnit units[kWideScales][kWideScales];                            // by block of positions, and of lines
};

struct WideMxfp8Shared : WideMxfp8Tile {
    alignas(8) uint32_t from_scales[kWide][2], to_scales[kWide][2];  // bytes of a line
};

// Loads the scales that a tile has of one line of the source, zeros where there are none: `left` are there from `column` on.
__device__ __forceinline__ uint2 load_wide_line(const uint8_t* from, int64_t left, bool swizzled) {
    if (left >= 8 && !swizzled && reinterpret_cast<uintptr_t>(from) % 8 == 0) return *reinterpret_cast<const uint2*>(from);
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

// Loads the scales of the thread's line, which it returns, and sets them under the units of its warp, which has 32 lines. A
// barrier must follow.
__device__ __forceinline__ uint2 load_wide_units(const WideArguments& a, const WidePlace& place, WideMxfp8Tile& shared) {
    static_assert(kWideThreads == kWide);
    const int line = threadIdx.x, lane = line % 32;
    const ScaleLayout& layout = a.from.layout;
    const int64_t column = place.position / kMxBlock;
    const bool exists = line < place.lines;
    const uint2 scales = load_wide_line(a.from.scales + layout.offset(place.matrix, place.line + line, column),
                                        exists ? layout.columns - column : 0, layout.swizzled);
    uint32_t mine = 0;       // the largest scale of the lane's block
    uint32_t vanishing = 0;  // bits of the blocks where the line's products may
#pragma unroll
    for (int block = 0; block < kWideScales; block++) {
        const uint32_t scale = (block < 4 ? scales.x : scales.y) >> (block % 4 * 8) & 0xFF;
        const uint32_t largest = __reduce_max_sync(kAllLanes, scale);
        const int below = exists ? int(largest - scale) : 0;
        const float factor = bits_float(uint32_t(max(127 + 6 - below, 0)) << 23);  // the scale over 2^-6 of the largest
        shared.factors[block][line / kChunk][line % kChunk] = uint16_t(f16_pair_of(factor));
        if (below > 21) vanishing |= 1u << block;
        if (lane == block) mine = largest;
    }
    vanishing = __reduce_or_sync(kAllLanes, vanishing);
    if (lane < kWideScales) shared.units[lane][line / 32] = {multiply_rn(scale_value(mine), 0x1p-6f), ~vanishing >> lane & 1};
    return scales;
}

__device__ __forceinline__ void load_wide_scales(const WideArguments& a, const WidePlace& place, WideMxfp8Shared& shared) {
    const uint2 scales = load_wide_units(a, place, shared);
    shared.from_scales[threadIdx.x][0] = scales.x, shared.from_scales[threadIdx.x][1] = scales.y;
}

// The codes of 4 positions of 16 lines, and what they are multiplied by.
struct WideCodes {
    uint32_t lines[kChunk];
    uint32_t factors[kChunk / 2];

    __device__ __forceinline__ WideCodes(const WideMxfp8Tile& shared, int chunk, int position) {
        const uint32_t* words = shared.word(chunk, position / 4);
#pragma unroll
        for (int i = 0; i < kChunk; i++) lines[i] = words[i * WideMxfp8Tile::line_words];
        const auto* four = reinterpret_cast<const uint4*>(shared.factors[position / kMxBlock][chunk]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 of = four[i];
            factors[4 * i] = of.x, factors[4 * i + 1] = of.y, factors[4 * i + 2] = of.z, factors[4 * i + 3] = of.w;
        }
    }
};

// The values of two neighbouring positions, over their unit.
struct WideValues : WidePairs {
    __device__ __forceinline__ WideValues(const WideCodes& of, int pair) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const uint32_t codes = __byte_perm(of.lines[2 * i], of.lines[2 * i + 1], pair == 0 ? 0x5140 : 0x7362);
            decode_word_to_f16<E4M3>(codes, first[i], second[i]);
            first[i] = multiply_f16_pairs(first[i], of.factors[i]);
            second[i] = multiply_f16_pairs(second[i], of.factors[i]);
        }
    }
    // Returns the codes of a position under a factor that F16 has.
    template <bool of_second>
    __device__ __forceinline__ ChunkCodes<E4M3> encode(float factor) const {
        const uint32_t(&pairs)[count] = of_second ? second : first;
        const uint32_t both = f16_pair_of(factor);
        ChunkCodes<E4M3> to;
#pragma unroll
        for (int w = 0; w < 4; w++)
            to.words[w] = encode_pair_from_f16<E4M3>(multiply_f16_pairs(pairs[2 * w], both)) |
                          encode_pair_from_f16<E4M3>(multiply_f16_pairs(pairs[2 * w + 1], both)) << 16;
        return to;
    }
};

// Returns whether values of this largest magnitude, as bits, may be multiplied by a factor over their unit. Zeros may by any
// number.
__device__ __forceinline__ bool takes_factor(uint32_t largest, const WideUnit& unit, float factor) {
    return (largest < kInfinityBits) & ((factor <= 64.0f) | ((largest == 0) & (unit.whole != 0)));
}

// Makes and stores the codes and scales of a lane's 4 positions in fp32, for all lanes of a warp. Out of line: few need it.
template <class E>
__device__ __noinline__ void emit_any_wide(const WideArguments& a, WideMxfp8Shared& shared, uint8_t* to, int chunk, int first,
                                           int length) {
#pragma unroll 1
    for (int position = first; position < first + 4; position++) {
        const auto* codes = reinterpret_cast<const uint8_t*>(shared.word(chunk, 0)) + position;
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
        // The lane that made the scale before makes it again: of four positions every other one, to E2M1 two neighbours.
        if (chunk % 2 == (E::bits == 8 ? position : position / 2) % 2)
            reinterpret_cast<uint8_t*>(shared.to_scales[position])[chunk / 2] = uint8_t(scale);
        const ChunkCodes<E> out = quantize_values<E>(values, scale_reciprocal(scale));
        if (first < length) store_chunk(to + position * a.to.line_bytes, out);
    }
}

// Makes and stores the codes of the part across the source's lines, and leaves its scales in shared memory.
__device__ __forceinline__ void emit_wide_mxfp8(const WideArguments& a, const WidePlace& place, WideMxfp8Shared& shared) {
    const int lane = threadIdx.x % 32, chunk = lane % 8 + lane / 16 * 8, half = lane / 8 % 2;
    uint8_t* const to = a.to.line(place.matrix, place.position) + place.line + chunk * kChunk;
    const uint32_t line_bytes = uint32_t(a.to.line_bytes);
    const bool odd = chunk % 2;
    auto* const scales = reinterpret_cast<uint8_t*>(shared.to_scales[odd]) + chunk / 2;
    int length = chunk * kChunk < place.lines ? place.length : 0;
    asm("" : "+r"(length));  // kept: else it is made again for every pair
#pragma unroll 1
    for (int step = threadIdx.x / 32; step < 2 * kWideChunks; step += kWideThreads / 32) {
        const int piece = step / 2, first = piece * kChunk + half * 8 + step % 2 * 4;
        const WideCodes codes(shared, chunk, first);
        const WideUnit unit = shared.units[piece / 2][chunk / 2];
        uint8_t* at = to + uint64_t(uint32_t(first)) * line_bytes;
        asm("" : "+l"(at));  // kept: else it is made again for every pair
        bool plain = true;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const WideValues values(codes, pair);
            // Two lanes have the 32 lines of a block: each makes the scale of one position.
            const uint32_t largest_of_both = values.block_maxima();
            const F16 over_unit{uint16_t(odd ? largest_of_both >> 16 : largest_of_both)};
            const float largest = multiply_rn(to_float(over_unit), unit.value);
            const uint32_t scale = scale_of(float_bits(largest), a.steps);
            scales[(first + 2 * pair) * sizeof(shared.to_scales[0])] = uint8_t(scale);
            const float factor = multiply_rn(scale_reciprocal(scale), unit.value);
            const float mine = fminf(factor, 64.0f), other = __shfl_xor_sync(kAllLanes, mine, 1);
            plain = plain && takes_factor(float_bits(largest), unit, factor);
            if (first < length) store_chunk(at, values.encode<false>(odd ? other : mine));
            at += line_bytes;
            if (first < length) store_chunk(at, values.encode<true>(odd ? mine : other));
            at += line_bytes;
        }
        if (!__all_sync(kAllLanes, plain)) emit_any_wide<E4M3>(a, shared, to, chunk, first, length);
    }
}

}  // namespace mxq::cuda
