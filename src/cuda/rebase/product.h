// A product of MX operands in two steps: a pass over each operand (rebase.h), and a product of what the passes write. Any
// kernel that multiplies FP8 codes under fp32 scales of 1x128 and 128x128 can make it:
//
//     A                           1x128                one pass
//     B as a weight               128x128              one pass; of (N,T), (N,N)
//     B with a transposed A       1x128                one pass
//     scales of 128 already       as they are          the scales alone, as floats
//     of rows, both operands      as they are          one float a row; without groups
//     ragged rows of one D        in the workspace     padded to whole units, copied to the caller's D after the product
//
// The workspace: codes and scales of A and of B, then D where it is moved.
#pragma once
#include "cuda/rebase/rebase.h"

namespace mxq::cuda {

// Describes what the kernel that multiplies wants.
struct RebaseTarget {
    int32_t line_unit;    // rows of A, and of a D without groups: a power of two up to kRebaseLines
    int32_t column_unit;  // columns of the scales of 128x128
    int32_t alignment;    // bytes; of codes that stay where they are
};

struct RebasedProduct {
    GemmProblem product;  // of what the passes write
    RebaseCall a, b;
    bool moves_d;         // product.d is in the workspace: its rows are copied to the caller's D
    uint64_t bytes;       // of the workspace

    // Returns the same product with a workspace at `base`: as planned, its pointers into the workspace count from 0.
    RebasedProduct at(void* base) const;
};

// Plans a product without a GPU. Both operands are MX.
RebasedProduct rebased_product(const GemmProblem& p, const RebaseTarget& target);

}  // namespace mxq::cuda
