// E8M0 scales of MX blocks: a scale is one byte of value 2^(byte - 127), and 255 is NaN.
#pragma once
#include "numerics/bits.h"
#include "numerics/convert.h"
#include "numerics/element.h"

namespace mxq {

enum class ScaleRounding : int32_t { Floor = 1, Ceil = 2, Even = 3, Rceil = 4 };  // values of MXQ_SCALE_ROUNDING_*
enum class Nonfinite : int32_t { Propagate = 1, Saturate = 2 };                    // values of MXQ_NONFINITE_*

constexpr uint32_t kScaleNan = 255;

// Returns an element's magnitude bits, as the block's maximum takes them: the maximum of magnitudes is the maximum of these
// integers, with NaN above Inf above every number. SATURATE ignores NaN.
template <Nonfinite policy>
MXQ_HD uint32_t amax_bits(float value) {
    const uint32_t magnitude = float_bits(value) & kMagnitudeMask;
    return policy == Nonfinite::Saturate && magnitude > kInfinityBits ? 0 : magnitude;
}

// A scale rounding as numbers, so that the same code serves all of them: the scale is the exponent of the maximum times
// `factor` after an addition to its bits, less `subtract`. RCEIL multiplies by 1 / max; FLOOR, CEIL and EVEN subtract emax
// instead, because they are defined on the bits, where a multiplication by 2^-emax would differ at 0x047FFFFF.
struct ScaleSteps {
    float factor;
    uint32_t add, add_subnormal;   // what is added to the bits of a normal number, and of a subnormal one
    uint32_t subtract;
    uint32_t nan_from, nan_scale;  // maxima of bits `nan_from` or more have the scale `nan_scale`
};

template <class E>
MXQ_HD constexpr ScaleSteps scale_steps(ScaleRounding rounding, Nonfinite policy) {
    constexpr uint32_t ones = 0x7FFFFF, half = 1u << (22 - E::mantissa_bits);
    const uint32_t nan_scale = policy == Nonfinite::Saturate ? 0xFE : kScaleNan;
    switch (rounding) {
        case ScaleRounding::Rceil: return {1.0f / E::max, ones, 0x3FFFFF, 0, kInfinityBits, nan_scale};
        case ScaleRounding::Ceil: return {1, ones, ones, E::emax, kInfinityBits, nan_scale};
        case ScaleRounding::Even: return {1, half, half, E::emax, kInfinityBits - half, nan_scale};
        case ScaleRounding::Floor: return {1, 0, 0, E::emax, kInfinityBits, nan_scale};
    }
    __builtin_unreachable();
}

// Returns the scale byte of a block whose largest magnitude has the bits `amax`.
MXQ_HD uint32_t scale_of(uint32_t amax, const ScaleSteps& steps) {
    const float scaled = multiply_rn(bits_float(amax), steps.factor);
#if MXQ_SMALL_FLOATS
    // RCEIL's products are below the largest scale unless the maximum is at least nan_from, and the instruction rounds them
    // up as the code below does, up to 2^-127 to the least scale. CEIL cannot use it: its bits may be above the largest
    // scale before the exponent is subtracted.
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
// Returns 2^(scale - 127) for the low byte of `scale`. The instruction makes a BF16 number, which has all of these values, the
// subnormal 2^-127 too. Its NaN has other bits than kNanBits; products with it do not show them.
__device__ __forceinline__ float scale_instruction(uint32_t scale) {
    return bits_float(uint32_t(__nv_cvt_e8m0x2_to_bf162raw(static_cast<__nv_fp8x2_storage_t>(scale)).x) << 16);
}
#endif

// Returns 2^(127 - scale), exact, by which elements are multiplied. Scale 254 gives the subnormal 2^-127, scale 255 NaN.
MXQ_HD float scale_reciprocal(uint32_t scale) {
#if MXQ_SMALL_FLOATS
    return scale_instruction(254 - scale);  // the low byte for scale 255 is 255 again
#else
    const uint32_t normal = (254 - scale) << 23;
    const uint32_t special = scale == 254 ? 0x00400000u : kNanBits;
    return bits_float(scale < 254 ? normal : special);
#endif
}

// Returns 2^(scale - 127), exact, by which codes are multiplied. Scale 0 gives the subnormal 2^-127, scale 255 NaN.
MXQ_HD float scale_value(uint32_t scale) {
#if MXQ_SMALL_FLOATS
    return scale_instruction(scale);
#else
    const uint32_t normal = scale << 23;
    const uint32_t special = scale == 0 ? 0x00400000u : kNanBits;
    return bits_float(scale != 0 && scale != 255 ? normal : special);
#endif
}

// Returns the bits that codes of a block may have, the same for each byte and for stored codes. Under scale 255 the codes of
// a type without NaN are 0, which encoding a product with NaN does not give: whoever calls encode<E> or encode_pair<E>
// applies this mask to the codes.
template <class E>
MXQ_HD uint32_t code_mask(uint32_t scale) {
    return !has_nan<E> && scale == kScaleNan ? 0 : ~0u;
}

#if defined(__CUDACC__)
// Returns the fp32 values of two codes, the first in the low byte, under their scales' values. A NaN has any bits: rounding
// to the output's type gives it those of the library.
template <class E>
__device__ __forceinline__ float2 dequantize_pair(uint32_t codes, float first_scale, float second_scale) {
    const float2 decoded = decode_pair<E>(codes);
    return make_float2(multiply_rn(decoded.x, first_scale), multiply_rn(decoded.y, second_scale));
}
#endif

}  // namespace mxq
