// Largest magnitudes, as a launch that quantize makes before its own.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"
#include "cuda/launch.h"
#include "dispatch/implementation.h"

namespace mxq::cuda {

// Enqueues the maxima of the problem's input, for each destination that is not NULL. NaN is ignored, except for MX under
// PROPAGATE, where it is the largest. `problem.tile` says what a maximum spans:
//     NVFP4, TENSOR   everything, or an expert or group (scope_stride), after the Hadamard transform of the part
//     ROW             rowwise a row, as the part stores rows (padding: 0); columnwise a column of an expert or group
// All maxima of the part are written, 0 where there is no element. Returns how a kernel may start that waits for these
// maxima itself (memory/dependent_launch.cuh).
Start launch_amax(const Context& context, const QuantizeProblem& problem, float* rowwise_out, float* columnwise_out,
                 const Launch& call);

// Returns how many TENSOR scales, or global maxima of NVFP4, a part has.
inline int64_t scope_count(const QuantizeProblem& problem, const QuantizedPart& part) {
    if (part.scope_stride == 0) return 1;
    return problem.grouped.set() ? problem.grouped.groups.count : problem.source.matrices;
}

// ---- Maxima of codes (requantize/amax_codes.cu) -------------------------------------------------------------------------

void load_amax_codes();

// Returns whether the source of a problem without a transform is of such codes.
bool takes_amax_codes(const QuantizeProblem& problem);

// Raises the maxima, which are zeroed, as launch_amax describes; false: there is nothing to read, and no kernel.
bool run_amax_codes(const Context& context, const QuantizeProblem& problem, float* rowwise, float* columnwise,
                    int scope_stride, bool propagates, const Launch& call, Start start);

}  // namespace mxq::cuda
