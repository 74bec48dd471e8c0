// The values of operands, by lanes that each look for one kind of mistake.
#ifndef MXQ_TESTS_SEARCH_VALUES_H
#define MXQ_TESTS_SEARCH_VALUES_H

#include "call.h"

namespace search {

// Values of a plain tensor, or from which a quantized one is made:
//
//     normal     close to a normal distribution
//     bits       random bits of the format
//     wide       magnitudes over all of fp32
//     specials   one in three is a value at which a rule of the contract changes
//     planted    finite values, and every few elements a special one: each meets every place of a word, a warp and a tile
//     sizes      each line, each column and each tile has its own power of two
//     ties       halfway between two codes, or one bit beside it, under maxima that are near a tie of the scale
//     even       with NVFP4's four-over-six both scales of a block have errors that are equal but for roundings
//     equal      one value everywhere
//     zeros      zeros of both signs
//     far        near the largest number of F32 and BF16, or near the least, with another seed; some halfway between two codes
extern const std::vector<std::string> plain_kinds;

// Codes and scales of a quantized tensor that no quantization made:
//
//     raw        random codes, random scales
//     raw_mid    random codes without NaN and infinity, scales near 1
//     raw_edge   random codes, scales at the ends of their range and near ties of 16-bit types
//     opposite   as raw_mid with scales of whole lines or tensors that are very large, or very small with another seed
extern const std::vector<std::string> raw_kinds;

bool is_raw(const Values& values);

// Returns a dense (experts, rows, cols) tensor of a plain format. `target` is what it is quantized to.
oracle::Bytes draw_plain(const Values& values, const oracle::Spec& target, int32_t format, oracle::Shape shape);

// Returns one number for each matrix as a caller may pass amaxes or scales: mostly ordinary, else 0, Inf or of an extreme
// size.
oracle::Floats draw_numbers(uint64_t seed, int64_t count);

// Returns the same with numbers of extreme sizes alone.
oracle::Floats draw_far_numbers(uint64_t seed, int64_t count);

// Returns a matrix of codes and scales.
oracle::Matrix raw_matrix(const Values& values, const oracle::Spec& spec, int64_t rows, int64_t cols, cases::Random& random);

}  // namespace search

#endif
