// Words of two BF16 elements, and the factors of both.
#pragma once
#include "numerics/encode_sub_byte.h"

namespace mxq::cuda {

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

// Returns E2M1 codes of a word under powers of two, as encode_e2m1_signed gives them.
__device__ __forceinline__ uint32_t quantize_e2m1_pair(uint32_t word, const PairFactors& factors) {
    return encode_e2m1_bf16(multiply_bf16_pairs(word, factors.pair));
}

// Returns E2M1 codes of a word without signs, where products are below 7.
__device__ __forceinline__ uint32_t round_e2m1_pair(uint32_t word, const PairFactors& factors) {
    return encode_e2m1_products(word & ~kSignsOfBothHalves, factors.parts);
}

// Masks packed codes under a power of two as factor_mask does: a factor of NaN leaves none.
__device__ __forceinline__ uint32_t mask_nibbles(uint32_t codes, float factor) { return is_nan(factor) ? 0 : codes; }

}  // namespace mxq::cuda
