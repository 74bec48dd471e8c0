// Philox, stochastic rounding to E2M1, and the random Hadamard transform.
//
//     philox(counter, key)                 returns 4 words of Philox4x32-10
//     Origin                               where a matrix starts in the operand, which its random bytes depend on
//     random_chunk, random_bytes           return the bytes r of the contract
//     stochastic_code                      returns the E2M1 code of a scaled value
//     hadamard_16, hadamard_lines          transform values in place
//     undo_hadamard_16, undo_hadamard_lines
#ifndef MXQ_TESTS_ORACLE_RANDOM_H
#define MXQ_TESTS_ORACLE_RANDOM_H

#include "oracle_layout.h"

#include <array>

namespace oracle {

using Words = std::array<uint32_t, 4>;

Words philox(Words counter, std::array<uint32_t, 2> key);

// Where a matrix of lines starts in the operand: its line 0 is stored row `row`, from element `position` of that row on.
struct Origin {
    int32_t part = MXQ_PART_ROWWISE;
    int64_t row = 0, position = 0;
};

// Returns the 16 random bytes of a chunk, which is 16 elements of a row.
std::array<uint8_t, 16> random_chunk(const Spec& spec, int32_t part, int64_t row, int64_t chunk);

Bytes random_bytes(const Spec& spec, int64_t rows, int64_t cols, Origin origin);

// Returns the E2M1 code of a scaled value under the random byte r.
uint8_t stochastic_code(float value, uint8_t r);

void hadamard_16(float* x, uint32_t mask);

void hadamard_lines(Floats& lines, int64_t cols, uint32_t mask);

// Undoes the transform of 16 values: the same butterflies, then a quarter, then the signs.
void undo_hadamard_16(float* x, uint32_t mask);

void undo_hadamard_lines(Floats& lines, uint32_t mask);

}  // namespace oracle

#endif
