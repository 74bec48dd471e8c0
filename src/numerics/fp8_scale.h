// FP8 with fp32 scales: elements are multiplied by the quantization scale, and its reciprocal is stored for decoding.
#pragma once
#include "numerics/bits.h"

namespace mxq {

struct Fp8Rule {
    float max;          // the element type's largest value
    float epsilon;      // what smaller maxima are replaced by; 0 unless set
    bool power_of_two;  // whether the mantissa of the scale is cleared
};

// Returns the quantization scale for an amax, which is no NaN.
MXQ_HD float fp8_quantization_scale(float amax, const Fp8Rule& rule) {
    const float a = amax < rule.epsilon ? rule.epsilon : amax;
    const bool usable = a != 0 && a < bits_float(kInfinityBits);
    const float scale = usable ? at_most_float_max(divide_rn(rule.max, a)) : 1.0f;
    return rule.power_of_two ? bits_float(float_bits(scale) & kInfinityBits) : scale;
}

// Returns the scale that is stored for a quantization scale.
MXQ_HD float fp8_stored_scale(float quantization_scale) { return reciprocal_rn(quantization_scale); }

}  // namespace mxq
