// Four over six, 16 elements at a time: the error of their codes under a candidate scale, and the codes as a by-product. The
// rules are those of nvfp4.h; this is the fast way to the same choice. Errors have no sign, so that all of it works on
// magnitudes.
//
//     16 elements, two candidate scales
//         error_estimate_16     half the operations of the errors; gives the codes too
//         estimates_decide              true: the estimates are further apart than all that they can be wrong, and they decide
//         nvfp4_errors_16       false: the contract's errors decide
//
// docs/four-over-six.md derives how much an estimate can be wrong, and why the codes that come out of it are the contract's.
#pragma once
#include "numerics/nvfp4.h"

namespace mxq {

// Returns the value of the E2M1 code of a magnitude; NaN counts as 6.
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
    const float magic = bits_float(exponent);  // has its last place where the code has it: the addition rounds
    return add_rn(add_rn(clamped, magic), -magic);
}

// Divides by T * 6 or 6 without a division: the product with the reciprocal is corrected once by its remainder, which is
// exact. For dividends that are 0 or from 2^-99 to 2^116 this gives the bits of the division, for every fp32 significand and
// these divisors. The fused multiply-adds break no rule of the contract, because no rounding of theirs is seen.
struct ErrorDivisor {
    float divisor, reciprocal;

    // Returns whether the products of all elements may be divided, under this global maximum.
    MXQ_HD static bool serves(float amax) { return amax == 0 || (amax >= 0x1p-80f && amax <= 0x1p+100f); }
    // Returns whether this magnitude may be divided.
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

// Returns nvfp4_candidates, in most cases without a division.
MXQ_HD Nvfp4Candidates fast_nvfp4_candidates(float block_amax, const Nvfp4Global& global) {
    const ErrorDivisor six{6, 1.0f / 6};
    return nvfp4_candidates_of_sixth(six.divides(block_amax) ? six.divide(block_amax) : divide_rn(block_amax, 6.0f), global);
}

// Returns the sum, in order, of the errors of 16 elements under a candidate scale. `corrects` tells that ErrorDivisor serves
// the global maximum. Under scale 0 no element counts, whatever it rounds to.
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

// ---- Estimates of errors ----------------------------------------------------------------------------------------------

// The factors of an estimate: the contract's multiplier times 2^-14, and nearly the value of a code of 1 times 2^14. All
// numbers of an estimate are 2^-14 times those of the contract. So the bits of E5M2, and the upper bits of F16, are those
// of the code, shifted left by one.
struct ErrorScale {
    static constexpr float one = 0x1p-14f;
    float multiplier, unit;
};

// Returns `unit` for error_scale, computed once for the global maximum.
MXQ_HD float error_unit(const Nvfp4Global& global) { return divide_rn(global.amax, global.largest); }

// Returns the factors under a scale that is not 0. `multiplier` comes from nvfp4_multiplier, `unit` from error_unit.
MXQ_HD ErrorScale error_scale(uint32_t scale, float multiplier, float unit) {
    return {multiply_rn(multiplier, ErrorScale::one), multiply_rn(decode<E4M3>(scale), multiply_rn(unit, 1 / ErrorScale::one))};
}

// Returns whether blocks under this global maximum may be estimated at all.
MXQ_HD bool can_estimate(const Nvfp4Global& global) { return global.amax >= 0x1p-40f && global.amax <= 0x1p+40f; }

// Returns whether a block of this maximum may be estimated under these candidates. A block of zeros may: its estimates are 0.
MXQ_HD bool can_estimate(float amax, const ErrorScale& four, const ErrorScale& six) {
    constexpr float seven = 7 * ErrorScale::one;
    const bool below = (multiply_rn(amax, four.multiplier) < seven) & (multiply_rn(amax, six.multiplier) < seven);
    return below & ((amax == 0) | ((amax >= 0x1p-50f) & (six.multiplier != 0)));
}

// Rounds a magnitude below 7, which is given times 2^-14 as is what it returns, to the value of its E2M1 code, or to 8.
MXQ_HD float round_small_to_e2m1(float product) {
    constexpr uint32_t shift = 22u << 23, least = __builtin_bit_cast(uint32_t, 0x1.8p22f * ErrorScale::one);
#if defined(__CUDA_ARCH__)
    const float step = bits_float(__viaddmax_u32(float_bits(product), shift, least));
#else
    const uint32_t shifted = float_bits(product) + shift;
    const float step = bits_float(shifted > least ? shifted : least);
#endif
    return add_rn(step, -add_rn(step, -product));
}

// Adds an element's error to a sum, or begins the sum. Returns the magnitude of its code's value, times 2^-14.
template <bool squared>
MXQ_HD float add_error(float value, const ErrorScale& scale, bool begins, float& sum) {
    const float magnitude = magnitude_of(value), element = round_small_to_e2m1(multiply_rn(magnitude, scale.multiplier));
    const float difference = fused_multiply_add(element, scale.unit, -magnitude);
    if (begins) sum = squared ? multiply_rn(difference, difference) : magnitude_of(difference);
    else if (squared) sum = fused_multiply_add(difference, difference, sum);
    else sum = add_rn(sum, magnitude_of(difference));
    return element;
}

#if defined(__CUDACC__)
// Does what shifted_codes does, for devices without instructions for E5M2.
__device__ __forceinline__ uint32_t shifted_codes_via_f16(float first, float second, float third, float fourth) {
    uint32_t low, high;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(second), "f"(first));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(fourth), "f"(third));
    return permute_bytes(low, high, 0x7531);
}
#endif

// Returns the codes of four values that add_error returned, moved up by one, a byte each.
MXQ_HD uint32_t shifted_codes(float first, float second, float third, float fourth) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    return encode_pair<E5M2>(first, second) | encode_pair<E5M2>(third, fourth) << 16;
#elif defined(__CUDA_ARCH__)
    return shifted_codes_via_f16(first, second, third, fourth);
#else
    return encode<E5M2>(first) | encode<E5M2>(second) << 8 | encode<E5M2>(third) << 16 | encode<E5M2>(fourth) << 24;
#endif
}

// Returns the estimate of the error of 16 elements, and stores their codes as shifted_codes returns them.
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
        codes[i] = shifted_codes(elements[0], elements[1], elements[2], elements[3]);
    }
    return add_rn(sums[0], sums[1]);
}

#if defined(__CUDACC__)
// Packs eight codes to a word. `first` and `second` come from shifted_codes; the signs are those of the 16-bit elements in
// `signs`.
__device__ __forceinline__ uint32_t pack_shifted_codes(uint32_t first, uint32_t second, const uint32_t* signs) {
    // Nibbles from bit 1 of each byte: moved up by 7 and by 3 neighbours meet in bytes 1 and 3.
    const uint32_t low = (first | (permute_bytes(signs[0], signs[1], 0xFDB9) & 0x10101010u)) * 136;
    const uint32_t high = (second | (permute_bytes(signs[2], signs[3], 0xFDB9) & 0x10101010u)) * 136;
    return permute_bytes(low, high, 0x7531);
}
#endif

// Returns whether the estimates of `lines` rows of 16 elements are far enough apart to decide; false where one is NaN.
template <bool squared>
MXQ_HD bool estimates_decide(float four, float six, float amax, int lines) {
    const float apart = magnitude_of(add_rn(four, -six)), both = add_rn(four, six);
    if constexpr (!squared) return apart > multiply_rn(amax, float(lines) * 0x1p-14f);
    return apart > add_rn(multiply_rn(multiply_rn(amax, amax), float(lines) * 0x1p-19f), multiply_rn(both, 0x1p-16f));
}

}  // namespace mxq
