// The exponential and the error function, from additions, multiplications and fused multiply-adds alone, so that every
// device gives the same bits. docs/numerics.md lists the steps and the errors; tests/numerics/exponential_test.cpp proves
// them.
#pragma once
#include "numerics/bits.h"

namespace mxq {

// Returns `most` where the value is above it. NaN stays.
MXQ_HD float at_most(float value, float most) { return value > most ? most : value; }
MXQ_HD float at_least(float value, float least) { return value < least ? least : value; }

// Returns -104 where the value is below it. NaN stays.
MXQ_HD float at_least_smallest_exponent(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float larger;
    asm("max.NaN.f32 %0, %1, 0fC2D00000;" : "=f"(larger) : "f"(value));
    return larger;
#else
    return at_least(value, -104.0f);
#endif
}

// Returns 1 / x, rounded, for x from 1 to 2 or NaN. There one step makes the device's estimate exact, for every such number:
// tests/cuda/device_numerics.cu. The general reciprocal branches for each number, which keeps neighbours from overlapping.
MXQ_HD float reciprocal_of_1_to_2(float x) {
#if defined(__CUDA_ARCH__)
    float estimate;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
    return fused_multiply_add(fused_multiply_add(-x, estimate, 1.0f), estimate, estimate);
#else
    return reciprocal_rn(x);
#endif
}

// Returns e^x for x of at most 0, which -Inf and NaN may be.
MXQ_HD float exp_of_nonpositive(float given) {
    // x = k ln 2 + r. Adding the magic number leaves k, and the exponent field of 2^(k + 24), in the low bits of the sum.
    constexpr float magic = 0x1.8p23f + 151, log2_of_e = 0x1.715476p+0f;
    constexpr float minus_ln2 = -0x1.62e430p-1f, minus_ln2_low = 0x1.05c610p-29f;
    const float x = at_least_smallest_exponent(given);  // e^-104 rounds to 0
    const float shifted = fused_multiply_add(x, log2_of_e, magic), k = add_rn(shifted, -magic);
    const float r = fused_multiply_add(k, minus_ln2_low, fused_multiply_add(k, minus_ln2, x));
    float p = fused_multiply_add(0x1.6a50bcp-10f, r, 0x1.123976p-7f);
    p = fused_multiply_add(p, r, 0x1.5558acp-5f);
    p = fused_multiply_add(p, r, 0x1.555492p-3f);
    p = fused_multiply_add(p, r, 0x1.fffffcp-2f);
    p = fused_multiply_add(p, r, 1.0f);
    p = fused_multiply_add(p, r, 1.0f);
    // The second product alone may be subnormal, and rounds.
    return multiply_rn(multiply_rn(p, bits_float(float_bits(shifted) << 23)), 0x1p-24f);
}

// Returns erf(x).
MXQ_HD float error_function(float x) {
    const float s = multiply_rn(x, x), t = at_most(magnitude_of(x), 4.0f);  // erf(4) rounds to 1
    float near = fused_multiply_add(-0x1.3c6124p-11f, s, 0x1.47c716p-8f);
    near = fused_multiply_add(near, s, -0x1.b6a24ep-6f);
    near = fused_multiply_add(near, s, 0x1.ce1bf0p-4f);
    near = fused_multiply_add(near, s, -0x1.8126eep-2f);
    near = fused_multiply_add(near, s, 0x1.06eba6p-3f);
    near = fused_multiply_add(near, x, x);
    float far = fused_multiply_add(0x1.c24ccap-13f, t, -0x1.a62eeap-9f);
    far = fused_multiply_add(far, t, 0x1.7758a2p-6f);
    far = fused_multiply_add(far, t, -0x1.af469ep-4f);
    far = fused_multiply_add(far, t, -0x1.4579e2p-1f);
    far = fused_multiply_add(far, t, -0x1.20e6c2p+0f);
    const float one_less = add_rn(1.0f, -exp_of_nonpositive(multiply_rn(far, t)));
    const float signed_far = bits_float(float_bits(one_less) | (float_bits(x) & ~kMagnitudeMask));
    return t < 0.8984375f ? near : signed_far;
}

}  // namespace mxq
