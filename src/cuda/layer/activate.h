// Launches the kernel that stores what an activation makes as plain numbers.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"
#include "dispatch/implementation.h"

namespace mxq::cuda {

// Rows in no group are left as they are. `activate` loads the kernel.
void launch_activate(const Context& context, const ActivatedMatrix& from, const GroupedRows& grouped, const PlainMatrix& out,
                     const Launch& call);

}  // namespace mxq::cuda
