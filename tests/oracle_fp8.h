// FP8 codes with fp32 scales.
//
//     fp8_scale(spec, a)                   returns the quantization scale for a maximum of a
//     quantize_fp8(spec, block, s)         stores the codes of a block and returns the bits of its stored scale
//     decode_fp8(format, code, scale)      returns the value of a code
#ifndef MXQ_TESTS_ORACLE_FP8_H
#define MXQ_TESTS_ORACLE_FP8_H

#include "oracle_block.h"

namespace oracle {

float fp8_scale(const Spec& spec, float a);

uint32_t quantize_fp8(const Spec& spec, const Block& block, float s);

float decode_fp8(int32_t format, uint8_t code, uint32_t scale);

}  // namespace oracle

#endif
