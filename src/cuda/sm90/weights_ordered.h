// The kernels of weights_sm90 whose sums run over the contraction from its beginning to its end, whatever the number of
// rows: for few rows where rows must be invariant.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"

namespace mxq::cuda::sm90::weights {

// Enqueues the product of tokens, A as BF16 or in two parts. B is FP8 E4M3 with scales of 128, or MXFP4, NVFP4 or MXFP8.
void run_ordered(const Context& context, const GemmProblem& p, const GemmOperand& tokens, void* stream);

void load_ordered();

}  // namespace mxq::cuda::sm90::weights
