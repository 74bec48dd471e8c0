// E8M0 scales: one byte, value 2^(byte - 127), 255 is NaN.
#pragma once
#include "numerics/bits.h"
#include "numerics/convert.h"
#include "numerics/element.h"

namespace mxq {

enum class ScaleRounding : int32_t { Floor = 1, Ceil = 2, Even = 3, Rceil = 4 };  // values of MXQ_SCALE_ROUNDING_*
enum class Nonfinite : int32_t { Propagate = 1, Saturate = 2 };                    // values of MXQ_NONFINITE_*

constexpr uint32_t kScaleNan = 255;

// What an element adds to the block's maximum, as magnitude bits: maxima of floats are maxima of these integers, with NaN
// above Inf above every number.
template <Nonfinite policy>
MXQ_HD uint32_t amax_bits(float value) {
    const uint32_t magnitude = float_bits(value) & kMagnitudeMask;
    return policy == Nonfinite::Saturate && magnitude > kInfinityBits ? 0 : magnitude;
}

// The scale byte for finite magnitude bits, up to 255. FLOOR, CEIL and EVEN are defined on the bits: arithmetic with
// 2^-emax would differ at 0x047FFFFF.
template <class E, ScaleRounding rounding>
MXQ_HD uint32_t scale_of_finite(uint32_t amax) {
    if constexpr (rounding == ScaleRounding::Rceil) {
        const uint32_t d = float_bits(multiply_rn(bits_float(amax), 1.0f / E::max));
        const uint32_t exponent = d >> 23, mantissa = d & 0x7FFFFF;
        return exponent + (exponent == 0 ? mantissa > 0x400000 : mantissa != 0);
    } else {
        uint32_t bits = amax;
        if constexpr (rounding == ScaleRounding::Ceil) bits += 0x7FFFFF;
        if constexpr (rounding == ScaleRounding::Even) bits += 1u << (22 - E::mantissa_bits);
        const uint32_t exponent = bits >> 23;
        const uint32_t scale = exponent > uint32_t(E::emax) ? exponent - E::emax : 0;
        return rounding == ScaleRounding::Even && exponent == 255 ? kScaleNan : scale;
    }
}

// The scale byte of a block whose largest magnitude has these bits.
template <class E, ScaleRounding rounding, Nonfinite policy>
MXQ_HD uint32_t scale_of(uint32_t amax) {
    const uint32_t scale = amax >= kInfinityBits ? kScaleNan : scale_of_finite<E, rounding>(amax);
    return policy == Nonfinite::Saturate && scale == kScaleNan ? 0xFE : scale;
}

// 2^(127 - scale), exact: what elements are multiplied by. Scale 254 gives the subnormal 2^-127, 255 NaN.
MXQ_HD float scale_reciprocal(uint32_t scale) {
    const uint32_t normal = (254 - scale) << 23;
    const uint32_t special = scale == 254 ? 0x00400000u : kNanBits;
    return bits_float(scale < 254 ? normal : special);
}

// 2^(scale - 127), exact: what codes are multiplied by. Scale 0 gives the subnormal 2^-127, 255 NaN.
MXQ_HD float scale_value(uint32_t scale) {
    const uint32_t normal = scale << 23;
    const uint32_t special = scale == 0 ? 0x00400000u : kNanBits;
    return bits_float(scale != 0 && scale != 255 ? normal : special);
}

// The bits that codes of a block may have, in every byte and for stored codes alike. Under scale 255 a type without NaN has
// codes 0, which a product with NaN does not give: kernels that build words of encode<E> or encode_pair<E> mask them.
template <class E>
MXQ_HD uint32_t code_mask(uint32_t scale) {
    return !has_nan<E> && scale == kScaleNan ? 0 : ~0u;
}

// The code of one element under a scale's reciprocal, masked already. Where the scale is no NaN, NaN gives the type's NaN or
// its largest value.
template <class E>
MXQ_HD uint32_t quantize_element(float value, float reciprocal) {
    const uint32_t code = encode<E>(multiply_rn(value, reciprocal));
    return !has_nan<E> && is_nan(reciprocal) ? 0 : code;
}

// The fp32 value of a code under a scale's value: one rounding, and the library's NaN.
template <class E>
MXQ_HD float dequantize_element(uint32_t code, float scale) {
    return from_float<float>(multiply_rn(decode<E>(code), scale));
}

#if defined(__CUDACC__)
// Two of them, the first code in the low byte; what rounds them to the output's type gives NaN the library's bits.
template <class E>
__device__ __forceinline__ float2 dequantize_pair(uint32_t codes, float first_scale, float second_scale) {
    const float2 decoded = decode_pair<E>(codes);
    return make_float2(multiply_rn(decoded.x, first_scale), multiply_rn(decoded.y, second_scale));
}
#endif

}  // namespace mxq
