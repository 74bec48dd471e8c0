// The pass that turns FP8 codes: matrices of k lines of n codes to n lines of k codes.
#pragma once
#include "core/context.h"
#include "core/problem.h"

namespace mxq::cuda {

// Enqueues the pass. `from` is read across; `to` has its values along its lines, which begin at multiples of 4 bytes.
void turn_codes(const Context& context, const GemmOperand& from, const GemmOperand& to, void* stream);

void load_turn_codes();

}  // namespace mxq::cuda
