// Requantizes MX codes to MX codes of other scales by way of F16, two at a time, in the two halves of a word.
//
// The values of all codes are exact in F16. A block's source scale s and new scale t are powers of two, and
//
//     code'  =  RNE_sat(value(code) * 2^(s - t))
//
// is what dequantizing and quantizing give wherever value(code) * 2^(s - 127) is finite, because fp32 has all of these
// products. In F16 the product with 2^(s - t) is exact, or so far below half of the least code that only its sign is left of
// it.
#pragma once
#include <type_traits>

#include "numerics/encode_sub_byte.h"
#include "numerics/e8m0.h"

namespace mxq {

// Returns whether codes of From may be multiplied by 2^(s - t) in F16: if F16 has the factor, or if the factor is 0 there
// and every product is 0 in To. Factors that are too large are those of blocks of nothing but small codes. E2M1 needs twice
// the factor too.
template <class From, class To>
MXQ_HD bool can_requantize_via_f16(float factor) {
    constexpr float half_of_least = 1.0f / float(1 << (To::bias + To::mantissa_bits));
    constexpr bool vanishes = From::max * 0x1p-25f < half_of_least;
    return factor <= (To::bits == 4 ? 0x1p14f : 0x1p15f) && (vanishes || factor >= 0x1p-24f);
}

// Returns a value as F16 in both halves.
MXQ_HD uint32_t f16_pair_of(float value) {
#if defined(__CUDA_ARCH__)
    return __builtin_bit_cast(uint32_t, static_cast<__half2_raw>(__floats2half2_rn(value, value)));
#else
    return from_float<F16>(value).bits * 0x00010001u;
#endif
}

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

// Returns the larger magnitude in both halves, with any sign. PROPAGATE prefers a NaN, SATURATE a number. On CUDA neither may be
// a zero that the compiler knows: of 0 and a negative number ptxas 13.0 then makes 0.
template <Nonfinite policy = Nonfinite::Propagate>
MXQ_HD uint32_t max_abs_f16_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 860
    uint32_t larger;
    if constexpr (policy == Nonfinite::Saturate)
        asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    else
        asm("max.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
#else
    constexpr uint32_t infinity = 0x7C00;
    const auto half = [](uint32_t x, uint32_t y) {
        if (policy == Nonfinite::Saturate && x > infinity) return y;
        if (policy == Nonfinite::Saturate && y > infinity) return x;
        return x > y ? x : y;  // the bits of NaN are above those of numbers
    };
    return by_halves(half, a & ~kSignsOfBothHalves, b & ~kSignsOfBothHalves);
#endif
}

// Returns the larger of the two magnitudes, or NaN if one is NaN.
MXQ_HD float max_abs_of_f16_pair(uint32_t pair) {
    const uint32_t low = pair & 0x7FFF, high = pair >> 16 & 0x7FFF;
    return to_float(F16{uint16_t(low > high ? low : high)});
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

// Encodes two F16 numbers to codes of 8 bits, the first in the low byte; NaN to NaN.
template <class E>
MXQ_HD uint32_t encode_pair_from_f16(uint32_t pair) {
    static_assert(E::bits == 8);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if constexpr (Conversion<E>::exists)
        return __nv_cvt_halfraw2_to_fp8x2(__builtin_bit_cast(__half2_raw, pair), __NV_SATFINITE, Conversion<E>::kind);
    else
#endif
        return encode<E>(to_float(F16{uint16_t(pair)})) | encode<E>(to_float(F16{uint16_t(pair >> 16)})) << 8;
}

// Returns the smaller magnitude in both halves; no sign may be set.
MXQ_HD uint32_t min_f16_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint32_t smaller;
    asm("min.f16x2 %0, %1, %2;" : "=r"(smaller) : "r"(a), "r"(b));
    return smaller;
#else
    return by_halves([](uint32_t x, uint32_t y) { return x < y ? x : y; }, a, b);
#endif
}

// What encode_e2m1_from_f16 multiplies magnitudes by, in both halves.
struct E2m1Factors {
    uint32_t twice, once, half;

    MXQ_HD explicit E2m1Factors(float factor)
        : twice(f16_pair_of(multiply_rn(factor, 2.0f))),
          once(f16_pair_of(factor)),
          half(f16_pair_of(multiply_rn(factor, 0.5f))) {}
};

// Returns the magnitude whose product with a factor is 6, or F16's largest if that is smaller, in both halves.
MXQ_HD uint32_t e2m1_limit(float factor) {
    const float inverse = bits_float((254u << 23) - float_bits(factor)), largest = multiply_rn(6.0f, inverse);
    return f16_pair_of(largest < 65504.0f ? largest : 65504.0f);
}

// Encodes the products of two magnitudes with a factor to E2M1, in the low bytes of both halves; the upper bytes are those
// of 1024. Products must be below 7. They are rounded by three lines, as encode_e2m1_above_base does it.
MXQ_HD uint32_t encode_e2m1_from_f16(uint32_t magnitudes, const E2m1Factors& factors) {
#if defined(__CUDA_ARCH__)
    uint32_t line, above, code;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(code) : "r"(magnitudes), "r"(factors.twice), "r"(0x64006400));  // 2 v + 1024
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(line) : "r"(magnitudes), "r"(factors.once), "r"(0x64026402));   // v + 1026
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(above) : "r"(magnitudes), "r"(factors.half), "r"(0x64046404));  // v / 2 + 1028
    asm("min.f16x2 %0, %0, %1;" : "+r"(code) : "r"(line));
    asm("min.f16x2 %0, %0, %1;" : "+r"(code) : "r"(above));
    return code;
#else
    const auto half = [&](uint32_t bits) {
        const auto line = [&](uint32_t factor, float above) {
            const float product = multiply_rn(value_of_bits<F16>(bits), value_of_bits<F16>(factor));
            return to_float(from_float<F16>(add_rn(product, above)));
        };
        const float code = line(factors.twice, 1024), once = line(factors.once, 1026), below = line(factors.half, 1028);
        const float least = code < once ? code : once;
        return uint32_t(least < below ? least : below) - 1024;
    };
    return by_halves(half, magnitudes);
#endif
}

#if defined(__CUDACC__)
// Returns eight E2M1 codes as they are stored, from four results of encode_e2m1_from_f16 and the signs of two words' bytes.
__device__ __forceinline__ uint32_t pack_signed_e2m1(const uint32_t (&pairs)[4], uint32_t low_signs, uint32_t high_signs) {
    const uint32_t low = __byte_perm(pairs[0], pairs[1], 0x6420) | (low_signs >> 4 & 0x08080808u);
    const uint32_t high = __byte_perm(pairs[2], pairs[3], 0x6420) | (high_signs >> 4 & 0x08080808u);
    return __byte_perm(low + (low >> 4), high + (high >> 4), 0x6420);  // bytes 0 and 2 have two codes each
}
#endif

}  // namespace mxq
