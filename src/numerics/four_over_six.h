// Four over six, 16 elements at a time: what their codes under one candidate scale miss by, without making the codes.
//
// An error has no sign, so that all of this is about magnitudes. Its rules are nvfp4.h's; here is only how to get there fast.
#pragma once
#include "numerics/nvfp4.h"

namespace mxq {

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

// Of products from 2^-99 to 2^116, or zero, the quotient by `divisor`, T * 6, is made of its reciprocal and one correction:
// the remainder is exact, and what it adds rounds to the bits of the division. (So it is for every fp32 significand and
// both divisors.) That is no fused multiply-add of the contract's: no rounding of it is seen.
struct ErrorDivisor {
    float divisor, reciprocal;

    MXQ_HD static bool serves(float amax) { return amax == 0 || (amax >= 0x1p-80f && amax <= 0x1p+100f); }
    MXQ_HD float divide(float product) const {
#if defined(__CUDA_ARCH__)
        const float quotient = __fmul_rn(product, reciprocal);
        return __fmaf_rn(__fmaf_rn(-quotient, divisor, product), reciprocal, quotient);
#else
        return divide_rn(product, divisor);
#endif
    }
};

// The sum in order of the 16 errors under a candidate scale. `corrects`: ErrorDivisor serves the global maximum. (Under scale
// 0 no element counts, whatever it rounds to.)
template <bool squared, bool corrects>
MXQ_HD float nvfp4_errors_16(const float (&values)[16], uint32_t scale, const Nvfp4Global& global) {
    const float multiplier = nvfp4_multiplier(scale, global), block_scale_value = decode<E4M3>(scale);
    const ErrorDivisor divisor{global.largest, reciprocal_rn(global.largest)};
    float sum = 0;
    for (int i = 0; i < 16; ++i) {
        const float magnitude = bits_float(float_bits(values[i]) & kMagnitudeMask);
        const float element = round_to_e2m1(multiply_rn(magnitude, multiplier));
        const float product = nvfp4_product(element, block_scale_value, global.amax);
        const float decoded = corrects ? divisor.divide(product) : divide_rn(product, global.largest);
        const float difference = add_rn(decoded, -magnitude);
        sum = add_rn(sum, squared ? multiply_rn(difference, difference)
                                  : bits_float(float_bits(difference) & kMagnitudeMask));
    }
    return sum;
}

}  // namespace mxq
