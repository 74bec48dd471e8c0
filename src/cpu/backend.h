// Opens contexts on the CPU.
#pragma once
#include "core/context.h"
#include "core/options.h"

namespace mxq::cpu {

// Fills context.cpu and context.description.
void open(Context& context, const mxq_context_options_s& options);

}  // namespace mxq::cpu
