// About how long a product takes on a Hopper chip by each implementation, so that dispatch asks the cheapest first.
#pragma once
#include <cstdint>

#include "core/problem.h"
#include "dispatch/implementation.h"

namespace mxq {

// Returns microseconds on so many multiprocessors; infinite where the table has no implementation like this one. It is for
// K-major operands, dense or in groups of rows, and does not say whether the implementation takes the product.
double product_cost(const GemmImplementation& implementation, const GemmProblem& p, int32_t multiprocessors);

}  // namespace mxq
