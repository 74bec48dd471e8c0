// FP8 codes to fp32, sixteen at a time: decode() by way of F16, for which GCC's vectoriser does not find the instruction.
#pragma once
#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>

#include "numerics/element.h"

namespace mxq::cpu {
namespace {

struct SixteenFloats {
    __m256 low, high;
};

// E fits into an F16 of another bias, and F16 to fp32 is one instruction that is quick for subnormals too. Exact; the bits of
// a NaN are left open.
template <class E>
MXQ_HD SixteenFloats decode_16(const uint8_t* codes) {
    constexpr int sign = int(0xFFFF8000), magnitude = 0x7FFF & (0x7F << (10 - E::mantissa_bits));
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
    __m256i halves = _mm256_and_si256(_mm256_srai_epi16(high, E::mantissa_bits - 2), _mm256_set1_epi16(short(sign | magnitude)));
    if constexpr (E::first_special == E::nan_code) {  // all ones is NaN, but in an F16 a number
        const __m256i specials = _mm256_set1_epi16(short(magnitude));
        const __m256i special = _mm256_cmpeq_epi16(_mm256_and_si256(halves, specials), specials);
        halves = _mm256_or_si256(halves, special);
    }
    const __m256 rebias = _mm256_set1_ps(float(1 << (15 - E::bias)));
    return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), rebias),
            _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), rebias)};
}

}  // namespace
}  // namespace mxq::cpu
#endif
