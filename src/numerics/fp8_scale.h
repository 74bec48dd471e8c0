// FP8 with fp32 scales. The quantization scale multiplies elements; what is stored, for decoding, is its reciprocal.
#pragma once
#include "numerics/bits.h"

namespace mxq {

struct Fp8Rule {
    float max;          // of the element type
    float epsilon;      // smaller maxima count as this; 0 unless set
    bool power_of_two;  // the scale loses its mantissa
};

// The quantization scale for a maximum (which ignores NaN).
MXQ_HD float fp8_quantization_scale(float amax, const Fp8Rule& rule) {
    const float a = amax < rule.epsilon ? rule.epsilon : amax;
    const bool usable = a != 0 && a < bits_float(kInfinityBits);
    const float scale = usable ? at_most_float_max(divide_rn(rule.max, a)) : 1.0f;
    return rule.power_of_two ? bits_float(float_bits(scale) & kInfinityBits) : scale;
}

MXQ_HD float fp8_stored_scale(float quantization_scale) { return reciprocal_rn(quantization_scale); }

}  // namespace mxq
