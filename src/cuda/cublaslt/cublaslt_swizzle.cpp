// `cublaslt_swizzle`, `cublaslt_grouped_swizzle`: MX and NVFP4 operands on a chip whose tensor cores take their scales,
// where their layout is not the one that cuBLASLt takes. A pass over an operand swizzles compact scales, and converts codes
// of four and six bits to E4M3 (block_scaled/product.h). Then `cublaslt` or `cublaslt_grouped` multiplies. Its workspace
// follows that of the passes.
//
// Nothing is rounded on the way, so the class of bound is that of the product.
#include "cuda/block_scaled/product.h"
#include "cuda/block_scaled/widen_codes.h"
#include "cuda/cublaslt/products.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

// Holds the passes, and what the implementation that multiplies prepared for the product after them.
struct Steps {
    BlockScaledProduct moved;
    Prepared product;
};

Reason needs_block_scales(const GemmProblem& p) {
    const auto fits = [&](ScaleType type) { return p.a.scale_type == type && p.b.scale_type == type; };
    if (fits(ScaleType::E8M0) || fits(ScaleType::E4M3)) return {};
    return [a = p.a.format, b = p.b.format] {
        return format_text("needs MX operands or NVFP4 ones, found %s and %s", find_format(a)->name, find_format(b)->name);
    };
}

Reason check_product(const Context& context, const GemmProblem& p) {
    if (auto reason = lt::needs_session(context); !reason.empty()) return reason;
    if (auto reason = needs_block_scales(p); !reason.empty()) return reason;
    if (auto reason = lt::needs_blackwell(context.cuda->compute_capability); !reason.empty()) return reason;
    return needs_no_limit(p);
}

template <const GemmImplementation& multiply>
Prepared prepare(const Context& context, const GemmProblem& p) {
    if (auto reason = check_product(context, p); !reason.empty()) return {reason, 0, nullptr};
    const auto steps = std::make_shared<Steps>(Steps{block_scaled_product(p), {}});
    if (!steps->moved.moves()) return {"needs compact scales or codes to be widened, found neither", 0, nullptr};
    steps->product = multiply.prepare(context, steps->moved.product);
    return {steps->product.declines, steps->moved.bytes + steps->product.workspace_bytes, steps};
}

template <const GemmImplementation& multiply>
void run(const Context& context, const GemmProblem&, const Launch& call) {
    const Steps& steps = *static_cast<const Steps*>(call.state);
    const BlockScaledProduct moved = steps.moved.at(call.workspace);
    move_operand(context, moved.a, call.stream);
    move_operand(context, moved.b, call.stream);
    uint8_t* const behind = static_cast<uint8_t*>(call.workspace) + moved.bytes;
    multiply.run(context, moved.product, {behind, call.stream, steps.product.state.get()});
}

}  // namespace

const GemmImplementation cublaslt_swizzle{.name = "cublaslt_swizzle",
                                          .run = run<cublaslt>,
                                          .load = load_widen_codes,
                                          .bound = lt::product_bound,
                                          .prepare = prepare<cublaslt>};
const GemmImplementation cublaslt_grouped_swizzle{.name = "cublaslt_grouped_swizzle",
                                                  .run = run<cublaslt_grouped>,
                                                  .load = load_widen_codes,
                                                  .bound = lt::product_bound,
                                                  .prepare = prepare<cublaslt_grouped>};

}  // namespace mxq::cuda
