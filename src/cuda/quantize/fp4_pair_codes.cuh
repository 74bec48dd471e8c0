// E2M1 codes of elements that stay packed in pairs: to nearest and stochastic, of a row's 16 elements or of two columns'.
//
//     row        8 words -> 8 pairs of codes -> pack_nibble_pairs -> 2 words
//     columns   16 words -> 16 pairs of codes, 4 to a word in either half -> 2 words of each column
#pragma once
#include "cuda/quantize/fp4_pairs.cuh"

namespace mxq::cuda::fp4_pairs {

// Makes codes of four words, under a factor for each half; `odd` makes their cut products odd.
template <bool nvfp4, bool plain>
__device__ __forceinline__ void four_pairs(const uint32_t* words, const PairFactors& factors, uint32_t odd,
                                           uint32_t (&pairs)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs[i] = plain ? round_e2m1_pair<!nvfp4>(words[i], factors, odd) : quantize_e2m1_pair(words[i], factors);
}

// Masks codes under a scale of NaN. Plain NVFP4 codes under scale 0 are zeros with signs by themselves.
template <bool nvfp4>
__device__ __forceinline__ uint32_t masked(uint32_t codes, float multiplier) {
    return nvfp4 ? codes : mask_nibbles(codes, multiplier);
}

// Makes the codes of eight elements of a row.
template <bool nvfp4, bool plain>
__device__ __forceinline__ uint32_t eight_codes(const uint32_t* words, float multiplier) {
    const float factor = nvfp4 ? fabsf(multiplier) : multiplier;
    uint32_t pairs[4];
    four_pairs<nvfp4, plain>(words, pair_factors(factor, factor), odd_halves(multiplier), pairs);
    return masked<nvfp4>(plain ? pack_nibble_pairs(pairs, words) : pack_nibble_pairs(pairs), factor);
}

template <bool nvfp4, bool plain>
__device__ __forceinline__ uint2 row_codes(const uint32_t (&words)[kPairs], float multiplier) {
    return {eight_codes<nvfp4, plain>(words, multiplier), eight_codes<nvfp4, plain>(words + 4, multiplier)};
}

// Returns a column's 16 codes, from four of each in the halves of words.
template <bool nvfp4>
__device__ __forceinline__ uint2 column_line(const uint32_t (&lines)[4], uint32_t halves, float factor) {
    return {masked<nvfp4>(__byte_perm(lines[0], lines[1], halves), factor),
            masked<nvfp4>(__byte_perm(lines[2], lines[3], halves), factor)};
}

// Makes the codes of two neighbouring columns.
template <bool nvfp4, bool plain>
__device__ __forceinline__ void column_codes(const uint32_t (&words)[kChunk], float low, float high, uint2 (&codes)[2]) {
    const float first = nvfp4 ? fabsf(low) : low, second = nvfp4 ? fabsf(high) : high;
    const uint32_t odd = select_bits(0xFFFF, odd_halves(low), odd_halves(high));
    uint32_t lines[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        uint32_t pairs[4];
        four_pairs<nvfp4, plain>(words + 4 * g, pair_factors(first, second), odd, pairs);
        lines[g] = plain ? pack_nibble_lines(pairs, words + 4 * g) : pack_nibble_lines(pairs);
    }
    codes[0] = column_line<nvfp4>(lines, 0x5410, first);
    codes[1] = column_line<nvfp4>(lines, 0x7632, second);
}

// ---- Stochastic codes ------------------------------------------------------------------------------------------------

// Masks codes under a scale of NaN.
template <bool nvfp4>
__device__ __forceinline__ uint2 masked(uint2 codes, float multiplier) {
    return {masked<nvfp4>(codes.x, multiplier), masked<nvfp4>(codes.y, multiplier)};
}

template <bool nvfp4>
__device__ __forceinline__ uint2 stochastic_row_codes(const uint32_t (&words)[kPairs], float multiplier,
                                                      const PhiloxWords& random) {
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kPairs; i++) values[2 * i] = low_value(words[i]), values[2 * i + 1] = high_value(words[i]);
    return masked<nvfp4>(stochastic_codes(values, multiplier, random), multiplier);
}

// Makes stochastic codes of one of two neighbouring columns.
template <bool nvfp4>
__device__ __forceinline__ uint2 stochastic_column_codes(const uint32_t (&words)[kChunk], bool upper, float multiplier,
                                                         const PhiloxWords& random) {
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; i++) values[i] = bits_float(__byte_perm(words[i], 0, upper ? 0x3244 : 0x1044));
    return masked<nvfp4>(stochastic_codes(values, multiplier, random), multiplier);
}

}  // namespace mxq::cuda::fp4_pairs
