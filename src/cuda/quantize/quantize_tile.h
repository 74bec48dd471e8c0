// Launches the kernels that hold a tile's values in registers, for any source.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"
#include "dispatch/implementation.h"

namespace mxq::cuda {

// Returns why these kernels decline what a problem asks of its output; empty if they do not.
Reason declines_tile_options(const QuantizeProblem& problem);

// Runs a problem that has no such reason. `name` is the implementation that asks.
void launch_quantize_tile(const Context& context, const QuantizeProblem& problem, const Launch& call, const char* name);

// Returns the bytes of workspace for the maxima of ROW and TENSOR scales.
uint64_t tile_workspace_bytes(const Context& context, const QuantizeProblem& problem);

}  // namespace mxq::cuda
