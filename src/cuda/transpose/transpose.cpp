// `wgmma_fp8_transpose`, `mma_bf16_transpose`: products with MN-major FP8 weights. Input gradients have these where weights
// have no columnwise part. A pass transposes the codes to K-major rows in the workspace. It leaves scales of tensors and of
// 128x128 where they are: other strides transpose them. Then `wgmma_fp8_sm90` (with FP8) or `mma_bf16` multiplies, in its own
// workspace after the codes. `mma_bf16` alone reads MN-major operands code by code, a sixth to a fourteenth as fast.
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/transpose/transpose_codes.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

// The product of the transposed weights, with pointers as if the workspace began at 0, and what multiplies it.
struct Steps {
    GemmProblem transposed;
    uint64_t bytes;  // of the transposed codes
    Prepared product;
};

// Returns the K-major operand, with a row stride that is a multiple of 16 bytes, its codes at 0.
GemmOperand transposed(const GemmOperand& from) {
    constexpr int64_t whole = 16;
    GemmOperand to = from;
    to.across = false;
    to.codes = nullptr;
    to.line_bytes = round_up(from.length, whole);
    to.matrix_bytes = from.lines * to.line_bytes;
    to.layout = transposed_layout(from);
    return to;
}

Reason needs_mn_major(const GemmProblem& p) {
    if (!p.b.across || !has_transposable_scales(p.b))
        return needs("MN-major FP8 weights with scales of tensors or 128X128", find_format(p.b.format)->name);
    if (p.a.across || p.a.columnwise) return "needs a along the contraction, found it transposed";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    return needs_no_limit(p);
}

template <const GemmImplementation& multiply>
Prepared prepare_product(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (auto reason = needs_mn_major(p); !reason.empty()) return {reason, 0, nullptr};
    const auto steps = std::make_shared<Steps>(Steps{p, 0, {}});
    steps->transposed.b = transposed(p.b);
    steps->bytes = uint64_t(round_up(p.b.matrices * steps->transposed.b.matrix_bytes, int64_t(kWorkspaceAlignment)));
    steps->product = prepare(multiply, context, steps->transposed);
    return {steps->product.declines, steps->bytes + steps->product.workspace_bytes, steps};
}

template <const GemmImplementation& multiply>
void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const Steps& steps = *static_cast<const Steps*>(call.state);
    GemmProblem product = steps.transposed;
    product.b.codes = static_cast<uint8_t*>(call.workspace);
    transpose_codes(context, p.b, product.b, call.stream);
    multiply.run(context, product, {product.b.codes + steps.bytes, call.stream, steps.product.state.get()});
}

template <const GemmImplementation& multiply>
bool keeps_rows(const GemmProblem& p) {
    return multiply.keeps_rows && multiply.keeps_rows(p);
}

template <const GemmImplementation& multiply>
constexpr GemmImplementation transpose_before(const char* name, int32_t (*bound)(const Context&, const GemmProblem&)) {
    return {.name = name,
            .run = run<multiply>,
            .load = load_transpose_codes,
            .bound = bound,
            .prepare = prepare_product<multiply>,
            .reads_across = true,
            .keeps_rows = keeps_rows<multiply>};
}

}  // namespace

const GemmImplementation wgmma_fp8_transpose =
    transpose_before<wgmma_fp8_sm90>("wgmma_fp8_transpose", bound_is<MXQ_BOUND_FP8_TENSOR_CORES>);
const GemmImplementation mma_bf16_transpose =
    transpose_before<mma_bf16>("mma_bf16_transpose", bound_is<MXQ_BOUND_EXACT_PRODUCTS>);

}  // namespace mxq::cuda
