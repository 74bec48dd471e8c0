// A product of MX or NVFP4 operands as block-scaled tensor cores take them: scales in 128 x 4 tiles, codes of MX in eight
// bits, in K-major rows of whole blocks. Anything else is moved into the workspace first, and nothing is rounded:
//
//     compact scales                            swizzled, by the kernel of swizzle_scales
//     codes of E2M1, E2M3 and E3M2 under E8M0   E4M3 codes of the same values under the same scales, by widen_codes
//     MXFP8 in rows that are no whole blocks    copied by widen_codes, zeros behind them
//
// The workspace: codes and scales of A, then of B, of those that move.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"

namespace mxq::cuda {

struct BlockScaledOperand {
    GemmOperand from, to;
    Grouping grouping;    // of this operand: None for single matrices and experts
    GroupedRows grouped;  // not set where it has no groups
    bool moves_codes, swizzles;
};

struct BlockScaledProduct {
    GemmProblem product;  // of what the passes write
    BlockScaledOperand a, b;
    uint64_t bytes;  // of the workspace

    bool moves() const { return a.moves_codes || a.swizzles || b.moves_codes || b.swizzles; }
    // Returns the same product with a workspace at `base`: as planned, its pointers into the workspace count from 0.
    BlockScaledProduct at(void* base) const;
};

// Plans a product without a GPU. Both operands are MX, or both are NVFP4.
BlockScaledProduct block_scaled_product(const GemmProblem& p);

// Returns what swizzles an operand's scales.
SwizzleProblem swizzle_of(const BlockScaledOperand& operand);

// Enqueues the passes over an operand.
void move_operand(const Context& context, const BlockScaledOperand& operand, void* stream);

}  // namespace mxq::cuda
