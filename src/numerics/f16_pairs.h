// Pairs of F16 numbers in the two halves of a word: products, and decoding of 8-bit codes, whose values are all exact in F16.
#pragma once
#include <type_traits>

#include "numerics/encode_sub_byte.h"
#include "numerics/e8m0.h"

namespace mxq {

// Multiplies F16 numbers in both halves. Each product is rounded once, with subnormals in and out.
MXQ_HD uint32_t multiply_f16_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
#else
    return multiply_halves<F16>(a, b);
#endif
}

// Decodes two codes of 8 bits, the first in the low byte, to F16.
template <class E>
MXQ_HD uint32_t decode_pair_to_f16(uint32_t codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if constexpr (Conversion<E>::exists)
        return __builtin_bit_cast(uint32_t,
                                  __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), Conversion<E>::kind));
    else
#endif
        return from_float<F16>(decode<E>(codes & 0xFF)).bits |
               uint32_t(from_float<F16>(decode<E>(codes >> 8 & 0xFF)).bits) << 16;
}

// Decodes the four codes of 8 bits of a word to F16, the lower two to `low`. On CUDA the instruction takes the upper half as it
// is, where a shift would come first.
template <class E>
MXQ_HD void decode_word_to_f16(uint32_t word, uint32_t& low, uint32_t& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if constexpr (std::is_same_v<E, E4M3>)
        asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
            : "=r"(low), "=r"(high) : "r"(word));
    else
#endif
        low = decode_pair_to_f16<E>(word & 0xFFFF), high = decode_pair_to_f16<E>(word >> 16);
}

}  // namespace mxq
