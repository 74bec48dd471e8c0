// The pass that dequantizes an operand of a product to BF16: codes times their block scales, exact but for BF16's
// subnormals. Fp32 factors (of rows, of NVFP4, of 128 codes) are not applied: they multiply sums.
//
//     an MN-major operand               matrices x k rows of n codes   ->  matrices x n rows of k BF16 numbers
//     groups along the contraction      rows of k codes                ->  k rows of numbers, group after group without padding
//     all else                          rows of k codes                ->  the same as BF16
#pragma once
#include "core/context_type.h"
#include "core/problem.h"
#include "cuda/transpose/transpose_codes.h"
#include "cuda/widen/split_f16.h"

namespace mxq::cuda {

// Returns whether an operand is quantized and its fp32 scales, if it has some, are factors of K-major rows.
bool can_widen(const GemmOperand& operand);

// Returns whether an operand is FP8 whose codes become BF16 while its scales of 128 stay fp32.
inline bool can_widen_codes(const GemmOperand& operand) {
    return has_scales_of_128(operand) && (!operand.across || has_transposable_scales(operand));
}

// Returns a power of two that multiplies the scales of 128 in the main loop and divides D. Where an operand has the range
// of BF16, small scales would make totals subnormal.
inline float lift_of_scales(const GemmProblem& p) {
    const auto is_wide = [](const GemmOperand& operand) {
        return operand.scale_type == ScaleType::None || operand.scale_type == ScaleType::E8M0;
    };
    return is_wide(p.a) || is_wide(p.b) ? 0x1p64f : 1.0f;
}

// Returns the widened operand of a side, at `to`: a plain one of BF16, with a row stride that is a multiple of 16 bytes. It
// keeps the fp32 factors of the operand, which no plain one has.
GemmOperand widened(const GemmProblem& p, Side side, void* to);

inline bool is_bf16(const GemmOperand& operand) { return operand.format == MXQ_FORMAT_BF16; }

// Returns whether an operand is BF16, or becomes so by a pass.
inline bool can_be_bf16(const GemmOperand& operand) { return is_bf16(operand) || can_widen(operand) || can_split(operand); }

// Returns the operand of a side as BF16: BF16 as it is, F16 as two parts at `to`, all else widened at `to`.
inline GemmOperand as_bf16(const GemmProblem& p, Side side, void* to) {
    const GemmOperand& from = p.operand(side);
    return is_bf16(from) ? from : can_split(from) ? split(from, to) : widened(p, side, to);
}

// Returns the bytes of an operand that a pass writes, a multiple of the workspace's alignment.
uint64_t widened_bytes(const GemmOperand& wide);

// Enqueues the pass.
void widen(const Context& context, const GemmProblem& p, Side side, const GemmOperand& wide, void* stream);

// Loads the kernel that no verb has.
void load_widen(const Context& context);

}  // namespace mxq::cuda
