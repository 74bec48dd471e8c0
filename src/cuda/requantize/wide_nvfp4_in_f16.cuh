// The way of requantize_wide for NVFP4 in F16, to E4M3 and E2M1, for tiles whose block scales are not negative, where a F16
// number stands for the scale above them (numerics/nvfp4_via_f16.h); wide_nvfp4.cuh has the way for all others. Nibbles
// become bytes, so that four positions of a line are a word of E4M3 codes, and the rest is as from MXFP8
// (wide_positions.cuh):
//
//     word of a line    p0 p1 .. p7 --lower nibbles--> p0 p2 p4 p6 --> F16 pairs (p0 p2) (p4 p6) times the line's scale
//                                   --upper nibbles--> p1 p3 p5 p7
//
// A factor is the scale above over the new scale; it has a mantissa, and is rounded to F16.
#pragma once
#include "cuda/requantize/wide_positions.cuh"
#include "cuda/requantize/wide_nvfp4.cuh"

namespace mxq::cuda {

// Makes and stores the scales of the lane's two of four positions, and gives the factors of both pairs of them; false: these
// do not serve.
template <class E, bool clamps>
__device__ __forceinline__ bool make_nvfp4_scales(const WideArguments& a, const WideNvfp4Shared& shared, uint32_t of_both,
                                                  bool odd, uint8_t* scales, uint32_t (&pairs)[2], uint32_t (&limits)[2]) {
    constexpr float least = E::bits == 8 ? 0x1p-22f : 0x1p-14f;  // all that zeros are made of is below half a code under it
    bool plain = true;
    float factors[2], limit[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t largest = float_bits(multiply_rn(to_float(F16{uint16_t(of_both >> (16 * i))}), shared.global));
        const uint32_t scale = scale_of(largest, a.steps);
        scales[2 * i * sizeof(shared.to_scales[0])] = uint8_t(scale);
        plain = plain & is_plain_product(largest, shared.global, scale_reciprocal(scale), factors[i]) &
                ((largest == 0) | is_nvfp4_factor_in_f16<E>(factors[i]));
        factors[i] = fmaxf(factors[i], least);
        if (clamps) limit[i] = fminf(__fdividef(6.0f, factors[i]), 65504.0f);  // codes are 7 there, and some way below
    }
    exchange_pairs(odd, step_f16_pairs(f16_of_two(factors[0], factors[1]), shared.step), pairs);
    if (clamps) exchange_pairs(odd, f16_of_two(limit[0], limit[1]), limits);
    return plain;
}

// Makes and stores the codes of four positions of a word, those of its lower or of its upper nibbles; false: some must be
// made again. `to` is that of the word's first position.
template <class E, bool clamps, bool upper>
__device__ __forceinline__ bool emit_nibbles(const WideArguments& a, WideNvfp4Shared& shared, uint32_t chunk, int word,
                                             uint8_t* to, bool exists) {
    const bool odd = chunk % 2;
    const WideWords words(shared, chunk, word);
    WideMagnitudes values;
    uint32_t signs[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; i++) {
        values.set(i, (upper ? words.lines[i] >> 2 : words.lines[i] << 2) & 0x1C1C1C1Cu, words.scales[i / 2]);
        signs[i] = upper ? words.lines[i] : words.lines[i] << 4;
    }
    const uint32_t of_low = values.largest(values.low), of_high = values.largest(values.high);
    const uint32_t others = __shfl_xor_sync(kAllLanes, odd ? of_low : of_high, 1);
    auto* const scales = reinterpret_cast<uint8_t*>(shared.to_scales[word * 8 + upper + 4 * odd]) + chunk / 2;
    uint32_t factors[2], limits[2] = {};
    const bool plain = make_nvfp4_scales<E, clamps>(a, shared, larger_magnitudes_of(odd ? of_high : of_low, others), odd,
                                                    scales, factors, limits);
    const uint32_t line_bytes = uint32_t(a.to.line_bytes);
    PositionsEncoder<E, clamps>(factors, limits).store(signs, values, to + (upper ? line_bytes : 0), 2 * line_bytes, exists);
    return plain;
}

// Makes and stores the codes of a tile, and leaves its scales in shared memory.
template <class E, bool clamps>
__device__ __forceinline__ void emit_nvfp4_in_f16(const WideArguments& a, const WidePlace& place, WideNvfp4Shared& shared) {
    const WideLane<kWide> lane;
    uint32_t chunk = lane.chunk;
    uint8_t* to = a.to.line(place.matrix, place.position) + (place.line + chunk * kChunk) * E::bits / 8;
    asm("" : "+r"(chunk), "+l"(to));  // kept: else they are made again for every word
    const int length = int(chunk * kChunk) < place.lines ? place.length : 0;
#pragma unroll 1
    for (int word = lane.unit; word < WideNvfp4Shared::line_words; word += lane.at_once) {
        uint8_t* const at = to + uint64_t(uint32_t(word * 8)) * uint32_t(a.to.line_bytes);
        const bool of_lower = emit_nibbles<E, clamps, false>(a, shared, chunk, word, at, word * 8 < length);
        const bool of_upper = emit_nibbles<E, clamps, true>(a, shared, chunk, word, at, word * 8 < length);
        __syncwarp();  // another lane may make a scale again than made it before
        if (!__all_sync(kAllLanes, of_lower & of_upper)) emit_any_wide<E>(a, shared, to, chunk, word, shared.global, length);
    }
}

}  // namespace mxq::cuda
