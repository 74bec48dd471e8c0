// `cublaslt_rebase`, `cublaslt_grouped_rebase`: MX operands on a chip whose tensor cores have FP8 without E8M0 scales. A
// pass over each operand replaces its scales of 32 codes by one of 128, and cuBLASLt multiplies the result.
// rebase/product.h plans it. The workspace of the product follows that of the passes.
//
// The bound is MXQ_BOUND_REBASED, for operands of any tiles: docs/numerics.md has its formula and conditions.
#include "cuda/cublaslt/cublaslt_rebase.h"

#include "cuda/cublaslt/products.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

constexpr int32_t kCapability = 90;

struct Steps {
    RebasedProduct rebased;
    lt::PreparedProduct product;
};

Reason needs_chip(const Context& context) {
    const int32_t capability = context.cuda->compute_capability;
    if (capability == kCapability) return {};
    return needs_capability("9.0", capability);
}

Reason needs_mx(const GemmProblem& p) {
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (operand->scale_type != ScaleType::E8M0) return needs("MX operands", find_format(operand->format)->name);
    if (p.exact_products) return "needs leave to round operands, found exact products asked for";
    return {};
}

Reason check_product(const Context& context, const GemmProblem& p) {
    if (auto reason = needs_cuda(context); !reason.empty()) return reason;
    if (auto reason = needs_mx(p); !reason.empty()) return reason;
    if (auto reason = needs_no_limit(p); !reason.empty()) return reason;
    return needs_chip(context);
}

Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = check_product(context, p); !reason.empty()) return {reason, 0, nullptr};
    const auto steps = std::make_shared<Steps>(Steps{rebased_product(p, lt::kRebaseTarget), {}});
    const GemmProblem& product = steps->rebased.product;
    const auto reason = lt::prepare_product(context, product, lt::rebased_in_groups(p), steps->product);
    return {reason, steps->rebased.bytes + steps->product.workspace.bytes, steps};
}

// Enqueues a copy of D to the caller's D, without the rows that pad it.
void move_rows(const Context& context, const GemmProblem& p, const PlainMatrix& from, const Launch& call) {
    const CurrentDevice current(*context.cuda);
    const int64_t element = p.d.element_bytes();
    const size_t row = size_t(p.n * element);
    check(cudaMemcpy2DAsync(p.d.data, size_t(p.d.row_stride * element), from.data, row, row, size_t(p.m),
                            cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(call.stream)),
          "cudaMemcpy2DAsync");
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const Steps& steps = *static_cast<const Steps*>(call.state);
    const RebasedProduct rebased = steps.rebased.at(call.workspace);
    rebase(context, rebased.a, call.stream);
    rebase(context, rebased.b, call.stream);
    const Launch launch{static_cast<uint8_t*>(call.workspace) + rebased.bytes, call.stream};
    if (p.grouping == Grouping::None) lt::run_product(context, rebased.product, steps.product, launch);
    else lt::run_groups(context, rebased.product, lt::rebased_in_groups(p), steps.product, launch);
    if (rebased.moves_d) move_rows(context, p, rebased.product.d, call);
}

}  // namespace

const GemmImplementation cublaslt_rebase{
    .name = "cublaslt_rebase", .run = run, .load = load_rebase, .bound = bound_is<MXQ_BOUND_REBASED>, .prepare = prepare};
const GemmImplementation cublaslt_grouped_rebase{.name = "cublaslt_grouped_rebase",
                                                 .run = run,
                                                 .load = load_rebase,
                                                 .bound = bound_is<MXQ_BOUND_REBASED>,
                                                 .prepare = prepare};

}  // namespace mxq::cuda
