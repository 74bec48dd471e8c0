// `cublaslt_widen`, `cublaslt_grouped_widen`, `mma_bf16_widen`: MX weights that are read across their lines, in an input gradient
// where they have no columnwise part. A pass dequantizes them to BF16 as if they were the columnwise part of their transpose, so
// that lines run along the contraction; another does so with an MX operand beside them. Then `cublaslt`, `cublaslt_grouped` or
// `mma_bf16` multiplies, in its own workspace behind what the passes write:
//
//     B    matrices x k lines of n codes     ->  matrices x n lines of k BF16 numbers
//     A    lines of k codes, groups padded   ->  the same as BF16; BF16 is read where it lies
//
// A code times its scale is a BF16 number but for BF16's subnormals, so that products stay exact: the class of bound is that of
// BF16. Reading across code by code instead, as mma_bf16 does, takes 20 to 80 times as long.
#include <utility>

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

// Returns the operand as BF16 at `to`, lines along the contraction, in whole 16 bytes.
GemmOperand widened(const GemmOperand& operand, void* to) {
    constexpr int64_t whole = 8;  // numbers
    GemmOperand wide{};
    wide.codes = static_cast<uint8_t*>(to);
    wide.matrices = operand.matrices, wide.lines = operand.lines, wide.length = operand.length;
    wide.line_bytes = 2 * round_up(operand.length, whole);
    wide.matrix_bytes = wide.lines * wide.line_bytes;
    wide.units = {operand.units.codes, 1};
    wide.element = Element::Bf16, wide.bits = 16, wide.scale_type = ScaleType::None, wide.format = MXQ_FORMAT_BF16;
    wide.layout.block = MXQ_MAX_DIM;
    wide.layout.tile_rows = wide.layout.group_rows = 1;
    return wide;
}

uint64_t bytes_of(const GemmOperand& wide) {
    return uint64_t(round_up(wide.matrices * wide.matrix_bytes, int64_t(kWorkspaceAlignment)));
}

// Returns the pass over an operand. `grouped` is not set where it has no groups.
DequantizeProblem pass_over(const GemmOperand& from, const GemmOperand& to, const GroupedRows& grouped) {
    DequantizeProblem pass{};
    pass.format = find_format(from.format);
    pass.columnwise = from.across;
    pass.in = from;
    pass.in.columnwise = from.across, pass.in.transformed = false;
    if (from.across) std::swap(pass.in.lines, pass.in.length);  // as they are stored
    pass.out = {to.codes, MXQ_FORMAT_BF16, to.matrices, to.lines, to.length, to.line_bytes / 2, 1, Addresses::Dense};
    if (grouped.set()) {
        pass.grouped = grouped;
        pass.out.rows = grouped.rows, pass.out.group_unit = to.units.codes;
    }
    return pass;
}

Reason needs_across(const GemmProblem& p) {
    if (!p.b.across || !is_widened(p.b))
        return [format = p.b.format] {
            return format_text("needs MX weights that are read across their lines, found %s", find_format(format)->name);
        };
    if (p.a.across || p.a.columnwise || (!is_widened(p.a) && p.a.format != MXQ_FORMAT_BF16))
        return [format = p.a.format] {
            return format_text("needs a in BF16 or MX, along the contraction, found %s", find_format(format)->name);
        };
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    return needs_no_limit(p);
}

template <const GemmImplementation& multiply>
Prepared prepare_product(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_across(p); !reason.empty()) return {reason, 0, nullptr};
    const auto steps = std::make_shared<Steps>(Steps{p, 0, 0, {}});
    if (is_widened(p.a)) {
        steps->wide.a = widened(p.a, nullptr);
        steps->b_offset = bytes_of(steps->wide.a);
    }
    steps->wide.b = widened(p.b, reinterpret_cast<void*>(uintptr_t(steps->b_offset)));
    steps->bytes = steps->b_offset + bytes_of(steps->wide.b);
    steps->product = prepare(multiply, context, steps->wide);
    return {steps->product.declines, steps->bytes + steps->product.workspace_bytes, steps};
}

template <const GemmImplementation& multiply>
void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const Steps& steps = *static_cast<const Steps*>(call.state);
    uint8_t* const at = static_cast<uint8_t*>(call.workspace);
    GemmProblem wide = steps.wide;
    wide.b.codes = at + steps.b_offset;
    if (is_widened(p.a)) {
        wide.a.codes = at;
        dequantize_rowwise.run(context, pass_over(p.a, wide.a, {p.groups, p.group_rows}), {nullptr, call.stream});
    }
    dequantize_columnwise.run(context, pass_over(p.b, wide.b, {}), {nullptr, call.stream});
    multiply.run(context, wide, {at + steps.bytes, call.stream, steps.product.state.get()});
}

template <const GemmImplementation& multiply>
void load(const Context& context) {
    dequantize_rowwise.load(context);
    dequantize_columnwise.load(context);
    multiply.load(context);
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
const GemmImplementation mma_bf16_widen = widen_before<mma_bf16>("mma_bf16_widen");

}  // namespace mxq::cuda
