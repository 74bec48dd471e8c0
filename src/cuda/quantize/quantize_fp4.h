// Quantizing to E2M1 with its options, as a launch that requantize can make: the problem's input may be a quantized part.
#pragma once
#include "core/context.h"
#include "core/problem.h"
#include "dispatch/implementation.h"

namespace mxq::cuda {

// Takes every problem whose output is NVFP4 or MXFP4.
void launch_quantize_fp4(const Context& context, const QuantizeProblem& problem, const Launch& call);

}  // namespace mxq::cuda
