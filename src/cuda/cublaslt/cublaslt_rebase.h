// Names the layout that cuBLASLt wants of rebased operands, for cublaslt_rebase, cublaslt_grouped_rebase and tests without a GPU.
#pragma once
#include "cuda/cublaslt/description.h"
#include "cuda/rebase/product.h"

namespace mxq::cuda::lt {

constexpr RebaseTarget kRebaseTarget{kPackedRows, kPackedColumns, 16};
static_assert(kRebaseLines % kRebaseTarget.line_unit == 0);

// Returns whose scales lie group after group: those that a pass over groups wrote.
inline Sides rebased_in_groups(const GemmProblem& p) {
    return {p.grouping_of(Side::A) != Grouping::None, p.grouping_of(Side::B) != Grouping::None};
}

}  // namespace mxq::cuda::lt
