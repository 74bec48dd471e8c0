// How a context is opened on the CPU.
#pragma once
#include "core/context.h"

namespace mxq::cpu {

// Fills context.cpu and context.description. threads 0: one per core that the process may use.
void open(Context& context, int threads);

}  // namespace mxq::cpu
