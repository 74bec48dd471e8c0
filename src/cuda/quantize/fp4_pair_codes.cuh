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

// Returns the codes of two words' elements, signs among them, in the low nibbles of the bytes: the lower half of each, then
// the upper ones. Bytes `low` and low + 2 of one random word are added to the lower halves, `high` and high + 2 of another to
// the upper ones.
template <bool plain>
__device__ __forceinline__ uint32_t stochastic_bytes(uint32_t first, uint32_t second, float low_factor, float high_factor,
                                                     uint32_t low_random, int low, uint32_t high_random, int high) {
    const auto code = [](float value, float factor, uint32_t random, int i) {
        const uint32_t key = stochastic_key(~random, i);
        return plain ? (e2m1_place(multiply_rn(fabsf(value), factor)) << 2) + key
                     : stochastic_e2m1_byte(multiply_rn(value, factor), key);
    };
    const uint32_t lows = __byte_perm(code(low_value(first), low_factor, low_random, low),
                                      code(low_value(second), low_factor, low_random, low + 2), 0x0073);
    const uint32_t highs = __byte_perm(code(high_value(first), high_factor, high_random, high),
                                       code(high_value(second), high_factor, high_random, high + 2), 0x0073);
    const uint32_t bytes = __byte_perm(lows, highs, 0x5410);
    if constexpr (!plain) return (bytes | bytes >> 4) & 0x0F0F0F0Fu;
    // Code 8 becomes 7: what lies between 6 and 8 is 6.
    return (bytes - (bytes >> 3 & 0x01010101u)) | (spread_signs(first, second) & 0x08080808u);
}

template <bool nvfp4, bool plain>
__device__ __forceinline__ uint2 stochastic_row_codes(const uint32_t (&words)[kPairs], float multiplier,
                                                      const PhiloxWords& random) {
    uint32_t codes[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const auto four = [&](int word) {
            const uint32_t bytes = random.words[word / 2];
            return stochastic_bytes<plain>(words[word], words[word + 1], multiplier, multiplier, bytes, 0, bytes, 1);
        };
        codes[i] = masked<nvfp4>(pack_nibble_bytes(four(4 * i), four(4 * i + 2)), multiplier);
    }
    return {codes[0], codes[1]};
}

// Makes stochastic codes of two neighbouring columns. random: one Philox block for each column.
template <bool nvfp4, bool plain>
__device__ __forceinline__ void stochastic_column_codes(const uint32_t (&words)[kChunk], float low, float high,
                                                        const PhiloxWords (&random)[2], uint2 (&codes)[2]) {
    uint32_t lines[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        const auto rows = [&](int i) {
            return stochastic_bytes<plain>(words[4 * g + i], words[4 * g + i + 2], low, high, random[0].words[g], i,
                                           random[1].words[g], i);
        };
        lines[g] = rows(0) + rows(1) * 16;  // no carry: a NaN leaves at most 10 in a byte, which fits a nibble
    }
    codes[0] = column_line<nvfp4>(lines, 0x5410, low);
    codes[1] = column_line<nvfp4>(lines, 0x7632, high);
}

}  // namespace mxq::cuda::fp4_pairs
