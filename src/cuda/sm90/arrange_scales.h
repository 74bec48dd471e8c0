// The pass of wgmma_bf16_sm90 over the block scales of its weights, however they lie, to the order in which its tiles take them:
//
//     expert    128 lines    64 codes, a step    line    the scales of those codes: two bytes, or four BF16 numbers of NVFP4
//
// so that a step's are bytes in a row. NVFP4's are what codes are multiplied with, as scale_factor makes it; NaN is NaN. Past the
// end of a line scales are 1, and lines that are not there have the scales of the last.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"

namespace mxq::cuda::sm90 {

constexpr int kArrangedLines = 128, kArrangedCodes = 64, kArrangedSteps = 16;  // steps that share a flag

// Returns the bytes of the scales of a line in a step.
MXQ_HD constexpr int arranged_step_bytes(bool nvfp4) { return nvfp4 ? 8 : 2; }

// Says where arranged scales lie, and their flags: one for each expert, 128 lines and 16 steps, set where some of these scales
// need more than one factor.
struct ArrangedScales {
    uint8_t *bytes, *flags;  // NULL: weights have no block scales
};

MXQ_HD uint32_t arranged_tiles_of(const GemmProblem& p) { return uint32_t(ceil_div(p.n, int64_t(kArrangedLines))); }
MXQ_HD uint32_t arranged_steps_of(const GemmProblem& p) { return uint32_t(ceil_div(p.k, int64_t(kArrangedCodes))); }
MXQ_HD uint32_t arranged_flags_of(const GemmProblem& p) {
    return uint32_t(ceil_div(int64_t(arranged_steps_of(p)), int64_t(kArrangedSteps)));
}

// Returns the bytes of all scales of B and their flags.
uint64_t arranged_bytes(const GemmProblem& p);

// Returns where they lie in so many bytes from `at` on.
ArrangedScales arranged_at(const GemmProblem& p, uint8_t* at);

void arrange_scales(const Context& context, const GemmProblem& p, const ArrangedScales& to, void* stream);

void load_arrange_scales();

}  // namespace mxq::cuda::sm90
