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

// Returns whether so many rows, of a product or of a group on average, share the weights that a pass which makes BF16 of them
// costs less than decoding them in the loop of wgmma_bf16_sm90. An H100, whose passes cost more than an H200's, us of that and
// of wgmma_plain_widen, BF16 activations:
//
//     groups, (N,K), rows                             MXFP8                       MXFP6
//     8, (2048,7168), 4096, 8192, 16384 and 32768     277 355 453 495 808 720     384 355 624 493 1026 717
//                                                     1450 1303                   1800 1301
//     8, (8192,5120), 8192, 16384 and 32768           1209 1261 2254 2075         1506 1249 2762 2063
//                                                     4272 3807                   5265 3802
//     32, (5760,2880), 16384 and 65536                1099 1358 3620 3434         1354 1339 4399 3412
//
// FP8 with one scale a line, whose sums have factors: 16384 and 32768 rows of the first 809 757 and 1458 1379, 65536 of the
// last 3678 3803. Codes of four bits gain 6% at most, for four times their bytes in the workspace: NVFP4 1348 and 1321, 65536
// rows 2678 and 2535; MXFP4 1270 and 1266, 2532 and 2430.
inline bool pays_to_widen(const GemmProblem& p) {
    if (can_split(p.a) || p.b.bits == 16 || p.b.bits == 4 || p.grouping == Grouping::Contraction) return false;
    const int64_t least_rows = p.b.bits == 6 ? 512 : p.b.scale_type == ScaleType::F32 ? 4096 : 2048;
    return p.m >= least_rows * (p.grouping == Grouping::Rows ? p.groups.count : 1);
}

// Returns the bytes that an operand takes which a pass writes, whole units of a workspace.
uint64_t widened_bytes(const GemmOperand& wide);

// Enqueues the pass.
void widen(const Context& context, const GemmProblem& p, Side side, const GemmOperand& wide, void* stream);

void load_widen(const Context& context);

}  // namespace mxq::cuda
