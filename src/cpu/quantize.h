// Quantizes any source, for the verbs that do.
#pragma once
#include "core/context.h"
#include "core/problem.h"

namespace mxq::cpu {

void run_quantize(const Context& context, const QuantizeProblem& problem);

}  // namespace mxq::cpu
