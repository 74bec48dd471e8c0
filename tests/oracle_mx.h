// MX codes with E8M0 scales.
//
//     rceil_byte, scale_byte(format, rounding, a), scale_value
//     quantize_mx(spec, block)             stores the codes of a block and returns its scale
//     decode(format, code, scale)          returns the value of a code
#ifndef MXQ_TESTS_ORACLE_MX_H
#define MXQ_TESTS_ORACLE_MX_H

#include "oracle_block.h"

namespace oracle {

inline int biased_exponent(uint32_t bits) { return static_cast<int>(bits >> 23 & 0xFF); }
inline uint32_t mantissa(uint32_t bits) { return bits & 0x7FFFFF; }

inline int rceil_byte(float d) {
    uint32_t bits = bits_of(d);
    int exponent = biased_exponent(bits);
    int up = exponent == 0 ? mantissa(bits) > 0x400000 : mantissa(bits) != 0;
    return std::min(exponent + up, 255);
}

// Returns the scale byte for a finite maximum a >= 0. It is 255 only for EVEN, where a rounds up to Inf.
inline int scale_byte(int32_t format, int32_t rounding, float a) {
    const Type& type = element_type(format);
    int emax = type.emax();
    uint32_t bits = bits_of(a);
    switch (rounding) {
        case MXQ_SCALE_ROUNDING_FLOOR: return std::max(biased_exponent(bits) - emax, 0);
        case MXQ_SCALE_ROUNDING_CEIL: return std::max(biased_exponent(bits) + (mantissa(bits) != 0) - emax, 0);
        case MXQ_SCALE_ROUNDING_EVEN: {
            int exponent = biased_exponent(bits + (1u << (22 - type.mantissa_bits)));
            return exponent == 255 ? 255 : std::max(exponent - emax, 0);
        }
        case MXQ_SCALE_ROUNDING_RCEIL: return rceil_byte(multiply(a, divide(1, type.max())));
    }
    throw std::logic_error("oracle: unknown scale rounding");
}

inline double scale_value(int scale) { return scale == 255 ? NAN : std::ldexp(1.0, scale - 127); }

inline uint32_t quantize_mx(const Spec& spec, const Block& block) {
    const Type& type = element_type(spec.format);
    float a = 0;
    bool any_nan = false, any_inf = false;
    for (int64_t i = 0; i < block.count(); ++i) {
        float x = block.value(i);
        any_nan |= std::isnan(x);
        any_inf |= std::isinf(x);
        if (std::isfinite(x)) a = std::max(a, std::fabs(x));
    }
    bool saturate = spec.nonfinite == MXQ_NONFINITE_SATURATE;
    int scale = any_inf ? 255 : scale_byte(spec.format, spec.rounding, a);
    if (saturate) scale = std::min(scale, 0xFE);
    if (!saturate && any_nan) scale = 255;
    float reciprocal = scale == 255 ? NAN : std::ldexp(1.0f, 127 - scale);
    for (int64_t i = 0; i < block.count(); ++i)
        if (scale == 255) block.codes[block.at(i)] = type.has_nan() ? 0x7F : 0;
        else block.put(type, i, multiply(block.value(i), reciprocal));
    return static_cast<uint32_t>(scale);
}

// Returns code * 2^(scale - 127), which is exact in double and rounded once, to fp32.
inline float decode(int32_t format, uint8_t code, uint8_t scale) {
    return static_cast<float>(decode_element(format, code) * scale_value(scale));
}

}  // namespace oracle

#endif
