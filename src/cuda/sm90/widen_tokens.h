// The pass of wgmma_bf16_sm90 where A is quantized: its codes times their block scales as BF16, line by line as they lie. Each is
// exact but for BF16's subnormals; fp32 factors of lines stay out of it, for sums.
#pragma once
#include "core/context.h"
#include "core/problem.h"

namespace mxq::cuda::sm90 {

// Returns whether A can be widened: its fp32 scales, if it has some, are of whole lines.
bool can_widen_tokens(const GemmOperand& a);

// Returns the bytes that the widened lines take.
uint64_t widened_bytes(const GemmProblem& p);

// Enqueues the pass, for dense products and groups of rows.
void widen_tokens(const Context& context, const GemmProblem& p, void* to, void* stream);

void load_widen_tokens(const Context& context);

}  // namespace mxq::cuda::sm90
