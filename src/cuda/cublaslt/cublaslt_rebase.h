// What cublaslt_rebase and cublaslt_grouped_rebase do for a product, without a GPU: which passes, and what cuBLASLt multiplies.
#pragma once
#include "cuda/cublaslt/problem.h"
#include "cuda/rebase/rebase.h"

namespace mxq::cuda {

struct RebasedProduct {
    GemmProblem product;  // of what the passes write
    lt::Packed packed;
    RebaseCall a, b;
    bool moves_d;         // product.d is in the workspace: its rows are copied to their place
    uint64_t bytes;       // of the workspace up to where the product's own begins
};

// `base`: the workspace's address, or 0 for a query. Both operands are MX.
RebasedProduct rebased_product(const GemmProblem& p, uintptr_t base);

}  // namespace mxq::cuda
