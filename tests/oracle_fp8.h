// FP8 codes with fp32 scales.
//
//     fp8_scale(spec, a)                   returns the quantization scale for a maximum of a
//     quantize_fp8(spec, block, s)         stores the codes of a block and returns the bits of its stored scale
//     decode_fp8(format, code, scale)      returns the value of a code
#ifndef MXQ_TESTS_ORACLE_FP8_H
#define MXQ_TESTS_ORACLE_FP8_H

#include "oracle_block.h"

namespace oracle {

inline float fp8_scale(const Spec& spec, float a) {
    a = std::max(a, spec.eps);
    float s = a == 0 || !std::isfinite(a) ? 1 : divide(element_type(spec.format).max(), a);
    if (std::isinf(s)) s = flt_max;
    return spec.power_of_two ? float_of(bits_of(s) & 0xFF800000u) : s;
}

inline uint32_t quantize_fp8(const Spec& spec, const Block& block, float s) {
    for (int64_t i = 0; i < block.count(); ++i) block.put(element_type(spec.format), i, multiply(block.value(i), s));
    return bits_of(divide(1, s));
}

inline float decode_fp8(int32_t format, uint8_t code, uint32_t scale) {
    return multiply(static_cast<float>(decode_element(format, code)), float_of(scale));
}

}  // namespace oracle

#endif
