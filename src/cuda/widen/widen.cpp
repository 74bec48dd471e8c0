// `cublaslt_widen`, `cublaslt_grouped_widen`, `wgmma_plain_widen`, `mma_bf16_widen`: passes dequantize operands to BF16 in
// the workspace. Then `cublaslt`, `cublaslt_grouped`, `wgmma_plain_sm90` or `mma_bf16` multiplies, in its own workspace
// after that of the passes. Three kinds of products come here:
//
//     input gradients whose B is MN-major, where it has no columnwise part
//     weight gradients, exact or with BF16
//     other products of many rows, by wgmma_plain_sm90 alone: weights are decoded once, not for every 128 or 256 rows
//
// BF16 operands are read where they are. Dequantized numbers are exact but for BF16's subnormals, so the class of bound is
// that of BF16. The passes make MN-major products 20 to 80 times as fast as mma_bf16 alone, which reads them code by code.
// wgmma_plain_sm90 alone takes fp32 factors of rows, with which it multiplies sums.
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/widen/pays_to_widen.h"
#include "cuda/widen/widen_operand.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

// The product of what the passes write, with pointers as if the workspace began at 0, and what multiplies it.
struct Steps {
    GemmProblem wide;
    uint64_t b_offset, bytes;  // of the passes; a widened A lies before B
    Prepared product;
};

// Returns whether A is transposed, as in a weight gradient.
bool is_transposed(const GemmOperand& a) { return a.across || a.columnwise; }

// Returns why the passes do not serve. `is_ours`: wgmma_plain_sm90 multiplies. It takes factors of rows, and is as fast as
// kernels that decode weights in the main loop.
Reason needs_operands(const GemmProblem& p, bool is_ours) {
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (!is_bf16(*operand) && (!can_widen(*operand) || (has_line_factors(*operand) && !is_ours)))
            return [is_ours, format = operand->format] {
                return format_text("needs operands in BF16 or %s, found %s",
                                   is_ours ? "quantized, without scales of 128 or of MN-major rows" : "MX",
                                   find_format(format)->name);
            };
    if (is_bf16(p.a) && is_bf16(p.b)) return "needs a quantized operand, found both in BF16";
    if (!reads_across(p) && p.grouping != Grouping::Contraction && !(is_ours && pays_to_widen(p)))
        return is_ours ? "needs an MN-major operand, groups along the contraction, or enough rows with weights of six or "
                         "eight bits for a pass over them, found none"
                       : "needs an MN-major operand or groups along the contraction, found neither";
    // A Hadamard transform spreads values into the padding of a group.
    if (p.grouping == Grouping::Contraction && (p.a.transformed || p.b.transformed))
        return "needs groups along the contraction without a Hadamard transform, found one";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    return {};
}

// mma_bf16 takes quantized groups along the contraction, too, without a pass, at a third of the rate of Hopper's tensor
// cores or less of later ones'. On older chips nobody measured which is faster.
Reason needs_chip(const Context& context, const GemmProblem& p) {
    const int32_t capability = context.cuda->compute_capability;
    if (reads_across(p) || capability >= 90) return {};
    return needs_capability("9.0 or an MN-major operand", capability);
}

// Some kernels of cuBLASLt multiply operands by alpha first. Values of MX may be as large as fp32's largest. An alpha above
// 1 then makes them Inf where D is finite (H200, 13.1: 5 x 8 x 12, an alpha of 2^100, NaN instead of 0).
Reason needs_small_alpha(const GemmProblem& p) {
    if (p.alpha >= -1 && p.alpha <= 1) return {};
    return [alpha = p.alpha] {
        return format_text("needs an alpha of at most 1 in magnitude, which cuBLASLt may multiply values by, found %g",
                           double(alpha));
    };
}

template <const GemmImplementation& multiply>
Prepared prepare_product(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p, &multiply == &wgmma_plain_sm90); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context, p); !reason.empty()) return {reason, 0, nullptr};
    if (&multiply == &mma_bf16 && is_transposed(p.a))
        return {"needs a along the contraction, found it transposed", 0, nullptr};
    if (auto reason = needs_no_limit(p); !reason.empty()) return {reason, 0, nullptr};
    if (&multiply == &cublaslt || &multiply == &cublaslt_grouped)
        if (auto reason = needs_small_alpha(p); !reason.empty()) return {reason, 0, nullptr};
    const auto steps = std::make_shared<Steps>(Steps{p, 0, 0, {}});
    uint64_t at = 0;
    if (!is_bf16(p.a)) {
        steps->wide.a = widened(p, Side::A, nullptr);
        at = steps->b_offset = widened_bytes(steps->wide.a);
    }
    if (!is_bf16(p.b)) {
        steps->wide.b = widened(p, Side::B, reinterpret_cast<void*>(uintptr_t(at)));
        at += widened_bytes(steps->wide.b);
    }
    steps->bytes = at;
    steps->product = prepare(multiply, context, steps->wide);
    return {steps->product.declines, steps->bytes + steps->product.workspace_bytes, steps};
}

template <const GemmImplementation& multiply>
void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const Steps& steps = *static_cast<const Steps*>(call.state);
    uint8_t* const at = static_cast<uint8_t*>(call.workspace);
    GemmProblem wide = steps.wide;
    if (!is_bf16(p.a)) {
        wide.a.codes = at;
        widen(context, p, Side::A, wide.a, call.stream);
    }
    if (!is_bf16(p.b)) {
        wide.b.codes = at + steps.b_offset;
        widen(context, p, Side::B, wide.b, call.stream);
    }
    multiply.run(context, wide, {at + steps.bytes, call.stream, steps.product.state.get()});
}

// Without an MN-major operand, it declines by the number of rows.
template <const GemmImplementation& multiply>
bool keeps_rows(const GemmProblem& p) {
    return reads_across(p) && multiply.keeps_rows && multiply.keeps_rows(p);
}

template <const GemmImplementation& multiply>
constexpr GemmImplementation widen_before(const char* name) {
    return {.name = name,  // nothing to load: mma_bf16_rows loads the passes, and each implementation its kernels
            .run = run<multiply>,
            .bound = bound_is<MXQ_BOUND_EXACT_PRODUCTS>,
            .prepare = prepare_product<multiply>,
            .reads_across = true,
            .keeps_rows = keeps_rows<multiply>};
}

}  // namespace

const GemmImplementation cublaslt_widen = widen_before<cublaslt>("cublaslt_widen");
const GemmImplementation cublaslt_grouped_widen = widen_before<cublaslt_grouped>("cublaslt_grouped_widen");
const GemmImplementation wgmma_plain_widen = widen_before<wgmma_plain_sm90>("wgmma_plain_widen");
const GemmImplementation mma_bf16_widen = widen_before<mma_bf16>("mma_bf16_widen");

}  // namespace mxq::cuda
