// The pass that makes BF16 of a quantized operand of a product: its codes times their block scales, each of which is a BF16
// number but for BF16's subnormals. Fp32 factors, of whole lines, of NVFP4 and of 128 codes, stay out of it, for sums.
//
//     an operand that is read across    matrices x k lines of n codes  ->  matrices x n lines of k BF16 numbers
//     groups along the contraction      lines of k codes               ->  k rows of numbers, group after group without padding
//     all else                          lines of k codes               ->  the same as BF16
#pragma once
#include "core/context.h"
#include "core/problem.h"
#include "cuda/turn/turn_codes.h"
#include "cuda/widen/split_f16.h"

namespace mxq::cuda {

// Returns whether an operand is quantized and its fp32 scales, if it has some, are factors of lines of the product.
bool can_widen(const GemmOperand& operand);

// Returns whether an operand is FP8 whose scales of 128 stay beside it when its codes become BF16.
inline bool can_widen_codes(const GemmOperand& operand) {
    return has_scales_of_128(operand) && (!operand.across || has_turned_scales(operand));
}

// Returns a power of two that multiplies the scales of 128 while sums are added up under them, and D divides by: where an operand
// has the range of BF16, a small scale would make totals subnormal.
inline float lift_of_scales(const GemmProblem& p) {
    const auto is_wide = [](const GemmOperand& operand) {
        return operand.scale_type == ScaleType::None || operand.scale_type == ScaleType::E8M0;
    };
    return is_wide(p.a) || is_wide(p.b) ? 0x1p64f : 1.0f;
}

// Returns the widened operand of a side, at `to`: a plain one of BF16, whose lines or rows are whole 16 bytes apart. Fp32
// factors, of which no plain operand has any, are those of the operand that it was.
GemmOperand widened(const GemmProblem& p, Side side, void* to);

inline bool is_bf16(const GemmOperand& operand) { return operand.format == MXQ_FORMAT_BF16; }

// Returns whether an operand is BF16, or becomes so by a pass.
inline bool can_be_bf16(const GemmOperand& operand) { return is_bf16(operand) || can_widen(operand) || can_split(operand); }

// Returns the operand of a side as BF16: as it is where it is that, in two parts at `to` where it is F16, else widened
// there.
inline GemmOperand as_bf16(const GemmProblem& p, Side side, void* to) {
    const GemmOperand& from = p.operand(side);
    return is_bf16(from) ? from : can_split(from) ? split(from, to) : widened(p, side, to);
}

// Returns the bytes that an operand takes which a pass writes, whole units of a workspace.
uint64_t widened_bytes(const GemmOperand& wide);

// Enqueues the pass.
void widen(const Context& context, const GemmProblem& p, Side side, const GemmOperand& wide, void* stream);

void load_widen(const Context& context);

}  // namespace mxq::cuda
