// Opens contexts on the CPU.
#pragma once
#include "core/context.h"

namespace mxq::cpu {

// Fills context.cpu and context.description. 0 threads means one for each core that the process may use.
void open(Context& context, int threads);

}  // namespace mxq::cpu
