// About how long a product takes on a Hopper chip by each implementation, so that dispatch asks the cheapest first.
#pragma once
#include <cstdint>

#include "core/problem.h"
#include "dispatch/implementation.h"

namespace mxq {

// Estimates the costs of one product on so many SMs. Its operands are K-major; it is dense, or in groups of rows.
class ProductCosts {
public:
    ProductCosts(const GemmProblem& p, int32_t multiprocessors);

    // Returns microseconds; infinite where the table has no row of the implementation. Says nothing of whether it takes the
    // product.
    double of(const GemmImplementation& implementation) const;

private:
    const GemmProblem& problem_;
    int32_t multiprocessors_;
    double rows_, groups_, filled_;  // of A; groups, and those that have rows
};

}  // namespace mxq
