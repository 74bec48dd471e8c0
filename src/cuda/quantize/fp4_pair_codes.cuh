// E2M1 codes, rounded to nearest, of BF16 elements that stay packed in pairs: 16 of a row, or 16 of each of two columns.
//
//     MXFP4, row        8 words -> 8 pairs of codes -> pack_nibble_pairs -> 2 words
//     MXFP4, columns   16 words -> 16 pairs of codes, 4 to a word in either half -> 2 words of each column
//     NVFP4            eight halves of words -> eight products -> encode_e2m1_cut -> a word; of columns one at a time
#pragma once
#include "cuda/quantize/fp4_pairs.cuh"

namespace mxq::cuda::fp4_pairs {

// ---- Pairs ----------------------------------------------------------------------------------------------------------

// The factors of the two elements of a word, powers of two, as BF16.
struct PairFactors {
    uint32_t pair;
    E2m1LineFactors parts;  // of `pair`
};

__device__ __forceinline__ PairFactors pair_factors(float first, float second) {
    const uint32_t pair = __byte_perm(float_bits(first), float_bits(second), 0x7632);
    return {pair, e2m1_line_factors(pair)};
}

__device__ __forceinline__ float low_value(uint32_t pair) { return bits_float(pair << 16); }
__device__ __forceinline__ float high_value(uint32_t pair) { return bits_float(pair & 0xFFFF0000u); }

// Masks packed codes under a power of two as factor_mask does: a factor of NaN leaves none.
__device__ __forceinline__ uint32_t mask_nibbles(uint32_t codes, float factor) { return is_nan(factor) ? 0 : codes; }

// ---- MXFP4 -----------------------------------------------------------------------------------------------------------

// Makes codes of four words, under a power of two for each half. Plain products are below 7, and their codes have no signs.
template <bool plain>
__device__ __forceinline__ void four_pairs(const uint32_t* words, const PairFactors& factors, uint32_t (&pairs)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs[i] = plain ? encode_e2m1_products(words[i] & ~kSignsOfBothHalves, factors.parts)
                         : encode_e2m1_bf16(multiply_bf16_pairs(words[i], factors.pair));
}

// Makes the codes of eight elements of a row.
template <bool plain>
__device__ __forceinline__ uint32_t eight_mx_codes(const uint32_t* words, float factor) {
    uint32_t pairs[4];
    four_pairs<plain>(words, pair_factors(factor, factor), pairs);
    return mask_nibbles(plain ? pack_nibble_pairs(pairs, words) : pack_nibble_pairs(pairs), factor);
}

// Makes the codes of two neighbouring columns.
template <bool plain>
__device__ __forceinline__ void mx_column_codes(const uint32_t (&words)[kChunk], float first, float second,
                                                uint2 (&codes)[2]) {
    uint32_t lines[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        uint32_t pairs[4];
        four_pairs<plain>(words + 4 * g, pair_factors(first, second), pairs);
        lines[g] = plain ? pack_nibble_lines(pairs, words + 4 * g) : pack_nibble_lines(pairs);
    }
    codes[0] = {mask_nibbles(__byte_perm(lines[0], lines[1], 0x5410), first),
                mask_nibbles(__byte_perm(lines[2], lines[3], 0x5410), first)};
    codes[1] = {mask_nibbles(__byte_perm(lines[0], lines[1], 0x7632), second),
                mask_nibbles(__byte_perm(lines[2], lines[3], 0x7632), second)};
}

// ---- NVFP4 -----------------------------------------------------------------------------------------------------------

// Makes the codes of eight plain elements under a stored CuttingMultiplier, whose sign tells how ties go: value(i) is one.
template <bool to_even, class Value>
__device__ __forceinline__ uint32_t eight_cut_codes(float stored, const Value& value) {
    float products[8];
#pragma unroll
    for (int i = 0; i < 8; i++) products[i] = multiply_rn(value(i), fabsf(stored));
    return encode_e2m1_cut<to_even>(products, float_bits(stored) >> 31 ? 0 : kOneInBothHalves);
}

// Makes the codes of eight plain elements of a row.
template <bool to_even>
__device__ __forceinline__ uint32_t eight_nv_codes(const uint32_t* words, float stored) {
    return eight_cut_codes<to_even>(
        stored, [&](int i) { return i % 2 ? high_value(words[i / 2]) : low_value(words[i / 2]); });
}

// Makes the codes of eight plain elements of one of two neighbouring columns.
template <bool to_even, bool upper>
__device__ __forceinline__ uint32_t eight_column_codes(const uint32_t* words, float stored) {
    return eight_cut_codes<to_even>(stored, [&](int i) { return upper ? high_value(words[i]) : low_value(words[i]); });
}

// ---- Either ----------------------------------------------------------------------------------------------------------

// Makes the codes of a row's chunk. The fast form takes MXFP4 that needs no clamping, and NVFP4 multipliers under which all
// ties go up. NVFP4 elements are plain.
template <bool nvfp4, bool fast>
__device__ __forceinline__ uint2 row_codes(const uint32_t (&words)[kPairs], float multiplier) {
    if constexpr (nvfp4)
        return {eight_nv_codes<!fast>(words, multiplier), eight_nv_codes<!fast>(words + 4, multiplier)};
    else
        return {eight_mx_codes<fast>(words, multiplier), eight_mx_codes<fast>(words + 4, multiplier)};
}

// Makes the codes of chunks of two neighbouring columns, in the same two forms.
template <bool nvfp4, bool fast>
__device__ __forceinline__ void column_codes(const uint32_t (&words)[kChunk], float low, float high, uint2 (&codes)[2]) {
    if constexpr (nvfp4) {
        codes[0] = {eight_column_codes<!fast, false>(words, low), eight_column_codes<!fast, false>(words + 8, low)};
        codes[1] = {eight_column_codes<!fast, true>(words, high), eight_column_codes<!fast, true>(words + 8, high)};
    } else {
        mx_column_codes<fast>(words, low, high, codes);
    }
}

}  // namespace mxq::cuda::fp4_pairs
