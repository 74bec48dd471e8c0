// Stores what an activation makes, or its gradient, for the verbs that do.
#pragma once
#include "core/context.h"
#include "cpu/jobs.h"

namespace mxq::cpu {

// Returns the problem, or one for each group that has rows. Rectangles have kRectangleRows rows of one expert or group.
std::vector<Job<ActivateProblem>> jobs_of(const ActivateProblem& problem);

void run_activate(const Context& context, const ActivateProblem& problem);

}  // namespace mxq::cpu
