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

// A scale rounding as numbers, so that one code serves all of them: the exponent of the maximum (RCEIL: times 1/max) after an
// addition to its bits, less the element's largest. FLOOR, CEIL and EVEN are defined on the bits: arithmetic with 2^-emax would
// differ at 0x047FFFFF.
struct ScaleSteps {
    float factor;
    uint32_t add, add_subnormal;
    uint32_t subtract;
    uint32_t nan_from, nan_scale;  // maxima from these bits on have this scale
};

template <class E>
MXQ_HD constexpr ScaleSteps scale_steps(ScaleRounding rounding, Nonfinite policy) {
    constexpr uint32_t ones = 0x7FFFFF, half = 1u << (22 - E::mantissa_bits);
    const uint32_t nan_scale = policy == Nonfinite::Saturate ? 0xFE : kScaleNan;
    switch (rounding) {
        case ScaleRounding::Rceil: return {1.0f / E::max, ones, 0x3FFFFF, 0, kInfinityBits, nan_scale};
        case ScaleRounding::Ceil: return {1, ones, ones, E::emax, kInfinityBits, nan_scale};
        case ScaleRounding::Even: return {1, half, half, E::emax, kInfinityBits - half, nan_scale};
        case ScaleRounding::Floor: break;
    }
    return {1, 0, 0, E::emax, kInfinityBits, nan_scale};
}

// The scale byte of a block whose largest magnitude has these bits.
MXQ_HD uint32_t scale_of(uint32_t amax, const ScaleSteps& steps) {
    const float scaled = multiply_rn(bits_float(amax), steps.factor);
#if MXQ_SMALL_FLOATS
    // RCEIL's quotients are below the largest scale, or above nan_from: the instruction rounds all others up as it does, those
    // up to 2^-127 to the least scale. CEIL's may be above the largest scale before the exponent is subtracted.
    if (steps.add != steps.add_subnormal) {
        const uint32_t up = __nv_cvt_float_to_e8m0(scaled, __NV_NOSAT, cudaRoundPosInf);
        return amax >= steps.nan_from ? steps.nan_scale : up;
    }
#endif
    const uint32_t bits = float_bits(scaled);
    const uint32_t exponent = (bits + (bits < 0x800000 ? steps.add_subnormal : steps.add)) >> 23;
    const uint32_t scale = exponent > steps.subtract ? exponent - steps.subtract : 0;
    return amax >= steps.nan_from ? steps.nan_scale : scale;
}

template <class E, ScaleRounding rounding, Nonfinite policy>
MXQ_HD uint32_t scale_of(uint32_t amax) {
    constexpr ScaleSteps steps = scale_steps<E>(rounding, policy);
    return scale_of(amax, steps);
}

#if MXQ_SMALL_FLOATS
// 2^(scale - 127) of the low byte, as BF16: all of its values are there, the subnormal 2^-127 too. Of NaN these are other bits
// than below, of which products have none.
__device__ __forceinline__ float scale_instruction(uint32_t scale) {
    return bits_float(uint32_t(__nv_cvt_e8m0x2_to_bf162raw(static_cast<__nv_fp8x2_storage_t>(scale)).x) << 16);
}
#endif

// 2^(127 - scale), exact: what elements are multiplied by. Scale 254 gives the subnormal 2^-127, 255 NaN.
MXQ_HD float scale_reciprocal(uint32_t scale) {
#if MXQ_SMALL_FLOATS
    return scale_instruction(254 - scale);  // of 255: of 255
#else
    const uint32_t normal = (254 - scale) << 23;
    const uint32_t special = scale == 254 ? 0x00400000u : kNanBits;
    return bits_float(scale < 254 ? normal : special);
#endif
}

// 2^(scale - 127), exact: what codes are multiplied by. Scale 0 gives the subnormal 2^-127, 255 NaN.
MXQ_HD float scale_value(uint32_t scale) {
#if MXQ_SMALL_FLOATS
    return scale_instruction(scale);
#else
    const uint32_t normal = scale << 23;
    const uint32_t special = scale == 0 ? 0x00400000u : kNanBits;
    return bits_float(scale != 0 && scale != 255 ? normal : special);
#endif
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
