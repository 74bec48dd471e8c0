// The pass of wgmma_bf16_sm90 over the block scales of its weights, however they lie, to the order in which its tiles take them:
//
//     expert    128 lines    64 codes, a step    line    the scales of those codes: two bytes, or four BF16 numbers of NVFP4
//
// so that a step's are bytes in a row. NVFP4's are what codes are multiplied with, as scale_factor makes it; NaN is NaN. Past the
// end of a line scales are 1, and lines that are not there have the scales of the last.
#pragma once
#include "core/context.h"
#include "core/problem.h"

namespace mxq::cuda::sm90 {

constexpr int kArrangedLines = 128, kArrangedCodes = 64;

// Returns the bytes of the scales of a line in a step.
MXQ_HD constexpr int arranged_step_bytes(bool nvfp4) { return nvfp4 ? 8 : 2; }

// Returns the bytes of all scales of B.
uint64_t arranged_bytes(const GemmProblem& p);

void arrange_scales(const Context& context, const GemmProblem& p, uint8_t* to, void* stream);

void load_arrange_scales();

}  // namespace mxq::cuda::sm90
