// The pass that makes two BF16 numbers of each F16 number of an operand (numerics/split_f16.h): a matrix of high parts, and
// behind it one of low parts.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"

namespace mxq::cuda {

// Returns whether an operand is K-major F16 numbers.
inline bool can_split(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::None && operand.element == Element::F16 && !operand.across;
}

// Returns the operand's parts at `to`: two matrices of BF16 with a row stride that is a multiple of 16 bytes.
GemmOperand split(const GemmOperand& from, void* to);

// Enqueues the pass. The next kernel may start before it ends (programmatic dependent launch) and then waits for it.
void split_f16(const Context& context, const GemmOperand& from, const GemmOperand& parts, void* stream);

void load_split_f16();

}  // namespace mxq::cuda
