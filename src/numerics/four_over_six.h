// Four over six, 16 elements at a time: what their codes under one candidate scale miss by, without making the codes.
//
// An error has no sign, so that all of this is about magnitudes. Its rules are nvfp4.h's; here is only how to get there fast.
#pragma once
#include "numerics/bf16_codes.h"
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
// With u = 2^-24, a the block's maximum, D the value of 1 under its scale and e the errors: products are below 7 and
// D <= a / 2, so that differences differ by 10 u a at most, 16 of them under two scales by 320 u a; the sums round by 15 u e
// each, e <= 16 D. In squares, 2 |d| of each count, of which Cauchy's inequality makes 20 u (a^2 + 8 (e4 + e6)), to which the
// roundings of squares and sums add 50 u (e4 + e6).

// What is multiplied in an estimate: the contract's multiplier, and nearly its value of 1.
struct ErrorScale {
    float multiplier, unit;
};

// Of a scale that is not 0, under error_unit of the global maximum.
MXQ_HD float error_unit(const Nvfp4Global& global) { return divide_rn(global.amax, global.largest); }

// `multiplier` is nvfp4_multiplier's.
MXQ_HD ErrorScale error_scale(uint32_t scale, float multiplier, float unit) {
    return {multiplier, multiply_rn(decode<E4M3>(scale), unit)};
}

// Whether estimates are what is said above: of all blocks, and of one.
MXQ_HD bool can_estimate(const Nvfp4Global& global) { return global.amax >= 0x1p-40f && global.amax <= 0x1p+40f; }

MXQ_HD bool can_estimate(float block_amax, uint32_t scale_of_six, const ErrorScale& four, const ErrorScale& six) {
    return scale_of_six != 0 && block_amax >= 0x1p-50f && multiply_rn(block_amax, four.multiplier) < 7 &&
           multiply_rn(block_amax, six.multiplier) < 7;
}

MXQ_HD float fused_multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

template <bool squared>
MXQ_HD float error_estimate_16(const float (&values)[16], const ErrorScale& scale) {
    // As in round_to_e2m1, but for both signs: one and a half times a power of two.
    constexpr uint32_t one = 127u << 23, shift = (22u << 23) + (1u << 22);
    float sums[2] = {};
    for (int i = 0; i < 16; ++i) {
        const float scaled = multiply_rn(values[i], scale.multiplier);
        const uint32_t exponent = float_bits(scaled) & kInfinityBits;
#if defined(__CUDA_ARCH__)
        const float magic = bits_float(__viaddmax_u32(exponent, shift, one + shift));
#else
        const float magic = bits_float((exponent > one ? exponent : one) + shift);
#endif
        const float element = add_rn(add_rn(scaled, magic), -magic);
        const float difference = fused_multiply_add(element, scale.unit, -values[i]);
        float& sum = sums[i % 2];
        sum = squared ? fused_multiply_add(difference, difference, sum) : add_rn(sum, magnitude_of(difference));
    }
    return add_rn(sums[0], sums[1]);
}

// The same estimate of BF16 elements, two to a word.
//
// With t = 2^22 v, or any number within an eighth of that, but 1.5 * 2^22 at least, t - v is rounded to the distance between
// the codes around v, or to less where v is next to a power of two, which is a code: t less that is the code's value. So t
// may come from a product in BF16 with a factor that is cut to BF16, and the upper half's from all of the word.
//
// A factor that misses by its last place (CutMultiplier) moves products by 2 u v, which adds 12 u a to each difference: 22
// of them, 32 times, is less than the 1024 u a that is_clear asks for.
struct PairErrorScale {
    float multiplier, unit;
    uint32_t steps;  // the multiplier times 2^22, cut, in both halves

    MXQ_HD explicit PairErrorScale(const ErrorScale& scale)
        : multiplier(scale.multiplier), unit(scale.unit),
          steps(upper_halves(multiply_rn(multiplier, 0x1p22f), multiply_rn(multiplier, 0x1p22f))) {}
};

MXQ_HD float error_of_step(float magnitude, float step, const PairErrorScale& scale) {
    const float value = add_rn(step, -fused_multiply_add(-magnitude, scale.multiplier, step));
    return fused_multiply_add(value, scale.unit, -magnitude);
}

// Adds the errors of a word's two elements to those of lower and upper halves.
template <bool squared>
MXQ_HD void add_pair_errors(uint32_t word, const PairErrorScale& scale, float (&sums)[2]) {
    const uint32_t steps = farther_bf16_pairs(multiply_bf16_pairs(word, scale.steps), bf16_twice(0x1.8p22f));
    const float step[2] = {magnitude_of(bits_float(steps << 16)), magnitude_of(bits_float(steps))};
    const float magnitude[2] = {magnitude_of(bits_float(word << 16)), magnitude_of(bits_float(word & 0xFFFF0000u))};
    for (int i = 0; i < 2; ++i) {
        const float difference = error_of_step(magnitude[i], step[i], scale);
        sums[i] =
            squared ? fused_multiply_add(difference, difference, sums[i]) : add_rn(sums[i], magnitude_of(difference));
    }
}

// Whether estimates are far enough apart; not where one is NaN.
template <bool squared>
MXQ_HD bool is_clear(float four, float six, float block_amax) {
    const float apart = magnitude_of(add_rn(four, -six)), both = add_rn(four, six);
    if constexpr (!squared) return apart > multiply_rn(block_amax, 0x1p-14f);
    return apart > add_rn(multiply_rn(multiply_rn(block_amax, block_amax), 0x1p-19f), multiply_rn(both, 0x1p-16f));
}

}  // namespace mxq
