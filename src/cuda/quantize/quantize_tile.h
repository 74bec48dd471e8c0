// The kernels that hold a tile's values in registers, as a launch: the problem's source may be anything.
#pragma once
#include "core/context.h"
#include "core/problem.h"
#include "dispatch/implementation.h"

namespace mxq::cuda {

// Returns why these kernels do not take what a problem asks of its output; empty where they do.
Reason declines_tile_options(const QuantizeProblem& problem);

// Runs a problem that has none of these reasons; `name` is the implementation that asks.
void launch_quantize_tile(const Context& context, const QuantizeProblem& problem, const Launch& call, const char* name);

// Returns the bytes of workspace for maxima that scales of ROW and TENSOR are made from.
uint64_t tile_workspace_bytes(const Context& context, const QuantizeProblem& problem);

}  // namespace mxq::cuda
