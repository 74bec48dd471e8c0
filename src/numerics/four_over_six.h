// Four over six, 16 elements at a time: what their codes under one candidate scale miss by, and the codes on the way.
//
// An error has no sign, so that all of this is about magnitudes. Its rules are nvfp4.h's; here is only how to get there fast.
#pragma once
#include "numerics/nvfp4.h"

namespace mxq {

// On the device for operands: bits that are masked cost an instruction.
MXQ_HD float magnitude_of(float value) {
#if defined(__CUDA_ARCH__)
    return fabsf(value);
#else
    return bits_float(float_bits(value) & kMagnitudeMask);
#endif
}

// The value of the E2M1 code of a magnitude; NaN counts as 6.
MXQ_HD float round_to_e2m1(float magnitude) {
    constexpr uint32_t one = 127u << 23, shift = 22u << 23;
#if defined(__CUDA_ARCH__)
    const float clamped = fminf(magnitude, E2M1::max);
    const uint32_t exponent = __viaddmax_u32(float_bits(clamped), shift, one + shift) & kInfinityBits;
#else
    const float clamped = magnitude < E2M1::max ? magnitude : E2M1::max;
    const uint32_t field = float_bits(clamped) & kInfinityBits;
    const uint32_t exponent = (field > one ? field : one) + shift;
#endif
    const float magic = bits_float(exponent);  // its last place is that of the code: the addition rounds
    return add_rn(add_rn(clamped, magic), -magic);
}

// Of products from 2^-99 to 2^116, or zero, the quotient by `divisor`, T * 6 or 6, is made of its reciprocal and one
// correction: the remainder is exact, and what it adds rounds to the bits of the division. (So it is for every fp32
// significand and these divisors.) That is no fused multiply-add of the contract's: no rounding of it is seen.
struct ErrorDivisor {
    float divisor, reciprocal;

    MXQ_HD static bool serves(float amax) { return amax == 0 || (amax >= 0x1p-80f && amax <= 0x1p+100f); }
    MXQ_HD static bool divides(float magnitude) { return magnitude == 0 || (magnitude >= 0x1p-99f && magnitude <= 0x1p+116f); }
    MXQ_HD float divide(float product) const {
#if defined(__CUDA_ARCH__)
        const float quotient = __fmul_rn(product, reciprocal);
        return __fmaf_rn(__fmaf_rn(-quotient, divisor, product), reciprocal, quotient);
#else
        return divide_rn(product, divisor);
#endif
    }
};

// nvfp4_candidates, mostly without a division.
MXQ_HD Nvfp4Candidates nvfp4_candidates_soon(float block_amax, const Nvfp4Global& global) {
    const ErrorDivisor six{6, 1.0f / 6};
    return nvfp4_candidates_of_sixth(six.divides(block_amax) ? six.divide(block_amax) : divide_rn(block_amax, 6.0f), global);
}

// The sum in order of the 16 errors under a candidate scale. `corrects`: ErrorDivisor serves the global maximum. (Under scale
// 0 no element counts, whatever it rounds to.)
template <bool squared, bool corrects>
MXQ_HD float nvfp4_errors_16(const float (&values)[16], uint32_t scale, const Nvfp4Global& global) {
    const float multiplier = nvfp4_multiplier(scale, global), block_scale_value = decode<E4M3>(scale);
    const ErrorDivisor divisor{global.largest, reciprocal_rn(global.largest)};
    float sum = 0;
    for (int i = 0; i < 16; ++i) {
        const float magnitude = magnitude_of(values[i]);
        const float element = round_to_e2m1(multiply_rn(magnitude, multiplier));
        const float product = nvfp4_product(element, block_scale_value, global.amax);
        const float decoded = corrects ? divisor.divide(product) : divide_rn(product, global.largest);
        const float difference = add_rn(decoded, -magnitude);
        sum = add_rn(sum, squared ? multiply_rn(difference, difference) : magnitude_of(difference));
    }
    return sum;
}

// ---- Which of two, mostly without the errors --------------------------------------------------------------------------
//
// An error's estimate takes half the operations: the same codes, but values and differences with fewer roundings, and sums
// in another order. Where two estimates are further apart than all that can make, the errors are in their order; else they
// are needed.
//
// With u = 2^-24, n elements, a their maximum, D the value of 1 under its scale and e the errors: products are below 7 and
// D <= a / 2, so that differences differ by 10 u a at most, all of them under two scales by 20 n u a; the sums round by 19 u e
// each, e <= n D: 58 n u a in all, of which is_clear allows 64. In squares, 2 |d| of each count, of which Cauchy's inequality
// makes 20 u (n a^2 / 16 + 8 (e4 + e6)), to which the roundings of squares and sums add 60 u (e4 + e6): 32 and 256 are allowed.
//
// Codes come out of an estimate, too. v being the contract's product, t = 2^22 v, but 1.5 * 2^22 at least, t - v is rounded to
// the distance between the codes around v (or to less where v is next to a power of two, which is a code), so that t less that
// is the code's value. Ties go to even, as they should: a v that is one has so few bits that t is even.
//
// All of it is 2^-14 times as large: so the bits of E5M2 and the upper ones of F16 are those of the code, moved up by one.

// What is multiplied in an estimate: the contract's multiplier times 2^-14, and nearly the value of 1 times 2^14.
struct ErrorScale {
    static constexpr float one = 0x1p-14f;
    float multiplier, unit;
};

// Of a scale that is not 0, under error_unit of the global maximum.
MXQ_HD float error_unit(const Nvfp4Global& global) { return divide_rn(global.amax, global.largest); }

// `multiplier` is nvfp4_multiplier's.
MXQ_HD ErrorScale error_scale(uint32_t scale, float multiplier, float unit) {
    return {multiply_rn(multiplier, ErrorScale::one), multiply_rn(decode<E4M3>(scale), multiply_rn(unit, 1 / ErrorScale::one))};
}

// Whether estimates are what is said above: of all blocks, and of one.
MXQ_HD bool can_estimate(const Nvfp4Global& global) { return global.amax >= 0x1p-40f && global.amax <= 0x1p+40f; }

// Of zeros they are, too: 0.
MXQ_HD bool can_estimate(float amax, const ErrorScale& four, const ErrorScale& six) {
    constexpr float seven = 7 * ErrorScale::one;
    const bool below = (multiply_rn(amax, four.multiplier) < seven) & (multiply_rn(amax, six.multiplier) < seven);
    return below & ((amax == 0) | ((amax >= 0x1p-50f) & (six.multiplier != 0)));
}

MXQ_HD float fused_multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

// Adds an element's error to a sum, or begins it. The value of its code, times 2^-14, without a sign.
template <bool squared>
MXQ_HD float add_error(float value, const ErrorScale& scale, bool begins, float& sum) {
    constexpr uint32_t shift = 22u << 23, least = __builtin_bit_cast(uint32_t, 0x1.8p22f * ErrorScale::one);
    const float magnitude = magnitude_of(value), product = multiply_rn(magnitude, scale.multiplier);
#if defined(__CUDA_ARCH__)
    const float step = bits_float(__viaddmax_u32(float_bits(product), shift, least));
#else
    const uint32_t shifted = float_bits(product) + shift;
    const float step = bits_float(shifted > least ? shifted : least);
#endif
    const float element = add_rn(step, -add_rn(step, -product));
    const float difference = fused_multiply_add(element, scale.unit, -magnitude);
    if (begins) sum = squared ? multiply_rn(difference, difference) : magnitude_of(difference);
    else if (squared) sum = fused_multiply_add(difference, difference, sum);
    else sum = add_rn(sum, magnitude_of(difference));
    return element;
}

#if defined(__CUDACC__)
// code_bytes where E5M2 has no instructions.
__device__ __forceinline__ uint32_t code_bytes_by_halves(float first, float second, float third, float fourth) {
    uint32_t low, high;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(second), "f"(first));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(fourth), "f"(third));
    return permute_bytes(low, high, 0x7531);
}
#endif

// Codes of four such values, moved up by one, a byte each.
MXQ_HD uint32_t code_bytes(float first, float second, float third, float fourth) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    return encode_pair<E5M2>(first, second) | encode_pair<E5M2>(third, fourth) << 16;
#elif defined(__CUDA_ARCH__)
    return code_bytes_by_halves(first, second, third, fourth);
#else
    return encode<E5M2>(first) | encode<E5M2>(second) << 8 | encode<E5M2>(third) << 16 | encode<E5M2>(fourth) << 24;
#endif
}

// The estimate of 16 elements, and their codes as code_bytes has them.
template <bool squared>
MXQ_HD float error_estimate_16(const float (&values)[16], const ErrorScale& scale, uint32_t (&codes)[4]) {
    float sums[2] = {};
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int i = 0; i < 4; ++i) {
        float elements[4];
        for (int j = 0; j < 4; ++j)
            elements[j] = add_error<squared>(values[4 * i + j], scale, 4 * i + j < 2, sums[j % 2]);
        codes[i] = code_bytes(elements[0], elements[1], elements[2], elements[3]);
    }
    return add_rn(sums[0], sums[1]);
}

#if defined(__CUDACC__)
// Eight codes to a word, of code_bytes and of words of 16-bit elements, which have the signs.
__device__ __forceinline__ uint32_t pack_code_bytes(uint32_t first, uint32_t second, const uint32_t* signs) {
    // Nibbles from bit 1 of each byte: moved up by 7 and by 3 neighbours meet in bytes 1 and 3.
    const uint32_t low = (first | (permute_bytes(signs[0], signs[1], 0xFDB9) & 0x10101010u)) * 136;
    const uint32_t high = (second | (permute_bytes(signs[2], signs[3], 0xFDB9) & 0x10101010u)) * 136;
    return permute_bytes(low, high, 0x7531);
}
#endif

// Whether estimates of so many lines of 16 are far enough apart; not where one is NaN.
template <bool squared>
MXQ_HD bool is_clear(float four, float six, float amax, int lines) {
    const float apart = magnitude_of(add_rn(four, -six)), both = add_rn(four, six);
    if constexpr (!squared) return apart > multiply_rn(amax, float(lines) * 0x1p-14f);
    return apart > add_rn(multiply_rn(multiply_rn(amax, amax), float(lines) * 0x1p-19f), multiply_rn(both, 0x1p-16f));
}

}  // namespace mxq
