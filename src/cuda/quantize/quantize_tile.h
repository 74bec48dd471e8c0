// Answers for all kernels that hold a tile's values in registers, whatever their source.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"
#include "dispatch/implementation.h"

namespace mxq::cuda {

// Returns why these kernels decline what a problem asks of its output; empty if they do not.
Reason declines_tile_options(const QuantizeProblem& problem);

// Returns the bytes of workspace for the maxima of ROW and TENSOR scales.
uint64_t tile_workspace_bytes(const Context& context, const QuantizeProblem& problem);

}  // namespace mxq::cuda
