// Largest magnitudes, as a launch that quantize makes before its own.
#pragma once
#include "core/context.h"
#include "core/problem.h"
#include "cuda/launch.h"
#include "dispatch/implementation.h"

namespace mxq::cuda {

// The raw maxima of the problem's input, for each destination that is not NULL. NaN is ignored but for MX whose blocks hand it
// on, where it is the largest. `problem.tile` says what the maxima span:
//     NVFP4, TENSOR   everything, or an expert or group each (scope_stride), after the Hadamard transform of the part
//     ROW             rowwise a row each, as the part stores lines (padding: 0); columnwise a column of an expert or group
// All that the part names is written, 0 where there is no element. Returns how a kernel may start that waits for this one's
// results itself (memory/beside.cuh).
Start launch_amax(const Context& context, const QuantizeProblem& problem, float* rowwise_out, float* columnwise_out,
                 const Launch& call);

}  // namespace mxq::cuda
