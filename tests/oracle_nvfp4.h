// NVFP4 codes with E4M3 block scales and one fp32 amax, g. T is the largest block scale. The names on the right are those of
// the contract.
//
//     nvfp4_encode_scale(t, g), nvfp4_decode_scale(t, g)    S_enc, S_dec
//     nvfp4_scale(t, g, a)                                  S_blk of a block, without four-over-six
//     nvfp4_multiplier(t, g, scale)                         enc
//     quantize_nvfp4(spec, block, g, columnwise)            stores the codes of a block and returns its scale
//     decode_nvfp4(code, scale, decode_scale)               returns the value of a code
#ifndef MXQ_TESTS_ORACLE_NVFP4_H
#define MXQ_TESTS_ORACLE_NVFP4_H

#include "oracle_block.h"

namespace oracle {

inline bool says_nothing(float g) { return g == 0 || std::isinf(g); }

float nvfp4_encode_scale(float t, float g);
float nvfp4_decode_scale(float t, float g);

uint8_t nvfp4_scale(float t, float g, float a);

float nvfp4_multiplier(float t, float g, uint8_t scale);

// Stores the codes of a block under a given scale.
void nvfp4_codes(const Spec& spec, const Block& block, float g, uint8_t scale);

// ---- Four-over-six -----------------------------------------------------------------------------------------------------

float nvfp4_error(const Spec& spec, float g, uint8_t scale, uint8_t code, float x);

// Returns the error of a block with its present codes. The errors of 16 elements in a row of the tensor are added in order,
// and the sums of the rows of a 16x16 tile as a tree. In a columnwise tile the rows of the tensor are columns of the block.
float nvfp4_block_error(const Spec& spec, const Block& block, float g, uint8_t scale, bool columnwise);

uint8_t nvfp4_better_scale(const Spec& spec, const Block& block, float g, bool columnwise);

// ------------------------------------------------------------------------------------------------------------------------

uint32_t quantize_nvfp4(const Spec& spec, const Block& block, float g, bool columnwise);

float decode_nvfp4(uint8_t code, uint8_t scale, float decode_scale);

}  // namespace oracle

#endif
