// `cublaslt_widen`, `cublaslt_grouped_widen`, `wgmma_plain_widen`, `mma_bf16_widen`: passes dequantize MX operands to BF16, then
// `cublaslt`, `cublaslt_grouped`, `wgmma_plain_sm90` or `mma_bf16` multiplies, in its own workspace behind what the passes wrote.
// Two kinds of products come here:
//
//     input gradients whose B is read across its lines, where it has no columnwise part
//     weight gradients, exact or beside BF16
//
//     B, across                   matrices x k lines of n codes  ->  matrices x n lines of k BF16 numbers
//     groups along the lines      lines of k codes               ->  k rows of numbers, group after group without padding
//     all else                    lines of k codes               ->  the same as BF16
//
// BF16 is read where it lies. A code times its scale is a BF16 number but for BF16's subnormals, so that products stay exact: the
// class of bound is that of BF16. Reading across code by code instead, as mma_bf16 does, takes 20 to 80 times as long.
#include <utility>

#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "dispatch/choice.h"

namespace mxq::cuda {
namespace {

// Holds the product of what the passes write, as if the workspace began at 0, and what multiplies it made of it.
struct Steps {
    GemmProblem wide;
    uint64_t b_offset, bytes;  // of the passes; a widened A lies before B
    Prepared product;
};

bool is_widened(const GemmOperand& operand) { return operand.scale_type == ScaleType::E8M0; }

// Returns the operand as BF16 at `to`, its lines or rows in whole 16 bytes.
GemmOperand widened(const GemmProblem& p, const GemmOperand& operand, void* to) {
    constexpr int64_t whole = 8;  // numbers
    GemmOperand wide{};
    wide.codes = static_cast<uint8_t*>(to);
    wide.across = p.grouping == Grouping::Contraction;
    wide.matrices = operand.matrices, wide.lines = operand.lines;
    wide.length = wide.across ? p.group_rows : operand.length;
    wide.line_bytes = 2 * round_up(wide.across ? wide.lines : wide.length, whole);
    wide.matrix_bytes = (wide.across ? wide.length : wide.lines) * wide.line_bytes;
    wide.units.codes = wide.across ? 1 : operand.units.codes;
    wide.units.scales = 1;
    wide.element = Element::Bf16, wide.bits = 16, wide.scale_type = ScaleType::None, wide.format = MXQ_FORMAT_BF16;
    wide.layout.block = MXQ_MAX_DIM;
    wide.layout.tile_rows = wide.layout.group_rows = 1;
    return wide;
}

uint64_t bytes_of(const GemmOperand& wide) {
    return uint64_t(round_up(wide.matrices * wide.matrix_bytes, int64_t(kWorkspaceAlignment)));
}

// Returns the pass over the operand of a side. What is written with other lines than it was read with is dequantized as if it
// were a columnwise part.
DequantizeProblem pass_over(const GemmProblem& p, Side side, const GemmOperand& to) {
    const GemmOperand& from = p.operand(side);
    DequantizeProblem pass{};
    pass.format = find_format(from.format);
    pass.columnwise = from.across || to.across;
    pass.in = from;
    pass.in.columnwise = pass.columnwise, pass.in.transformed = false;
    if (from.across) std::swap(pass.in.lines, pass.in.length);  // as they are stored
    const int64_t rows = to.across ? to.length : to.lines, cols = to.across ? to.lines : to.length;
    pass.out = {to.codes, MXQ_FORMAT_BF16, to.matrices, rows, cols, to.line_bytes / 2, 1, Addresses::Dense};
    if (p.grouping_of(side) != Grouping::None) {
        pass.grouped = {p.groups, p.group_rows};
        pass.out.rows = p.group_rows, pass.out.group_unit = to.units.codes;
    }
    return pass;
}

void dequantize(const Context& context, const DequantizeProblem& pass, void* stream) {
    (pass.columnwise ? dequantize_columnwise : dequantize_rowwise).run(context, pass, {nullptr, stream});
}

// Returns whether A is transposed, as in a weight gradient.
bool is_transposed(const GemmOperand& a) { return a.across || a.columnwise; }

bool is_bf16(const GemmOperand& operand) { return operand.format == MXQ_FORMAT_BF16; }

Reason needs_operands(const GemmProblem& p) {
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (!is_widened(*operand) && !is_bf16(*operand))
            return [format = operand->format] {
                return format_text("needs operands in BF16 or MX, found %s", find_format(format)->name);
            };
    if (is_bf16(p.a) && is_bf16(p.b)) return "needs an operand in MX, found both in BF16";
    if (!reads_across(p) && p.grouping != Grouping::Contraction)
        return "needs an operand that is read across its lines or groups along the contraction, found neither";
    if (p.grouping == Grouping::Contraction && (p.a.transformed || p.b.transformed))  // whose groups go on behind their last row
        return "needs groups along the contraction without a Hadamard transform, found one";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    return {};
}

// Groups of MX operands that lie along the contraction are mma_bf16's too, which needs no pass and has a third of the rate of
// Hopper's tensor cores, or less of later ones'. On chips before them nobody measured which is faster.
Reason needs_chip(const Context& context, const GemmProblem& p) {
    const int32_t capability = context.cuda->compute_capability;
    if (reads_across(p) || capability >= 90) return {};
    return [capability] {
        return format_text("needs compute capability 9.0 or an operand that is read across its lines, found %d.%d",
                           capability / 10, capability % 10);
    };
}

template <const GemmImplementation& multiply>
Prepared prepare_product(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_operands(p); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_chip(context, p); !reason.empty()) return {reason, 0, nullptr};
    if (&multiply == &mma_bf16 && is_transposed(p.a)) return {"needs a along the contraction, found it transposed", 0, nullptr};
    if (auto reason = needs_no_limit(p); !reason.empty()) return {reason, 0, nullptr};
    const auto steps = std::make_shared<Steps>(Steps{p, 0, 0, {}});
    uint64_t at = 0;
    if (is_widened(p.a)) {
        steps->wide.a = widened(p, p.a, nullptr);
        at = steps->b_offset = bytes_of(steps->wide.a);
    }
    if (is_widened(p.b)) {
        steps->wide.b = widened(p, p.b, reinterpret_cast<void*>(uintptr_t(at)));
        at += bytes_of(steps->wide.b);
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
    if (is_widened(p.a)) {
        wide.a.codes = at;
        dequantize(context, pass_over(p, Side::A, wide.a), call.stream);
    }
    if (is_widened(p.b)) {
        wide.b.codes = at + steps.b_offset;
        dequantize(context, pass_over(p, Side::B, wide.b), call.stream);
    }
    multiply.run(context, wide, {at + steps.bytes, call.stream, steps.product.state.get()});
}

template <const GemmImplementation& multiply>
void load(const Context& context) {
    dequantize_rowwise.load(context);
    dequantize_columnwise.load(context);
    if (multiply.load) multiply.load(context);
}

int32_t bound(const Context&, const GemmProblem&) { return MXQ_BOUND_EXACT_PRODUCTS; }

template <const GemmImplementation& multiply>
constexpr GemmImplementation widen_before(const char* name) {
    return {.name = name,
            .run = run<multiply>,
            .load = load<multiply>,
            .bound = bound,
            .prepare = prepare_product<multiply>,
            .reads_across = true};
}

}  // namespace

const GemmImplementation cublaslt_widen = widen_before<cublaslt>("cublaslt_widen");
const GemmImplementation cublaslt_grouped_widen = widen_before<cublaslt_grouped>("cublaslt_grouped_widen");
const GemmImplementation wgmma_plain_widen = widen_before<wgmma_plain_sm90>("wgmma_plain_widen");
const GemmImplementation mma_bf16_widen = widen_before<mma_bf16>("mma_bf16_widen");

}  // namespace mxq::cuda
