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

int rceil_byte(float d);

// Returns the scale byte for a finite maximum a >= 0. It is 255 only for EVEN, where a rounds up to Inf.
int scale_byte(int32_t format, int32_t rounding, float a);

double scale_value(int scale);

uint32_t quantize_mx(const Spec& spec, const Block& block);

// Returns code * 2^(scale - 127), which is exact in double and rounded once, to fp32.
float decode(int32_t format, uint8_t code, uint8_t scale);

}  // namespace oracle

#endif
