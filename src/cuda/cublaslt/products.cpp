#include "cuda/cublaslt/products.h"

namespace mxq::cuda::lt {
namespace {

// The library is asked with the context's device current; what is known needs no device.
Session::Choice choose(const Context& context, const MatmulDescription& matmul) {
    Session& session = *context.cuda->cublaslt;
    if (auto known = session.known(matmul)) return *known;
    const Scope scope(context);
    return session.choose(matmul);
}

// Copies the scales of an operand to `to` where they lie otherwise than cuBLASLt wants them.
void pack(const Context& context, const GemmProblem& p, Side side, MatrixDescription& matrix, void* to, void* stream) {
    if (!matrix.packs) return;
    pack_scales(context, p, side, static_cast<float*>(to), stream);
    matrix.scales = to;
}

// Returns where the packed scales of an operand are: in its own scales, in the workspace, or nowhere.
const float* packed_scales(const GemmOperand& operand, bool already, bool packs, const uint8_t* room) {
    return reinterpret_cast<const float*>(already ? operand.scales : packs ? room : nullptr);
}

}  // namespace

Reason needs_session(const Context& context) {
    if (auto reason = needs_cuda(context); !reason.empty()) return reason;
    return context.cuda->cublaslt ? "" : context.cuda->cublaslt_missing.c_str();
}

Reason needs_blackwell(int32_t capability) {
    if (capability >= kBlackwellCapability) return {};
    return needs_capability("10.0 or later", capability);
}

// The mode is relaxed: loading a kernel is none of the captured work, but a stricter capture would break at it.
Scope::Scope(const Context& context) : current_(*context.cuda) {
    exchanged_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
}

Scope::~Scope() {
    if (exchanged_) cudaThreadExchangeStreamCaptureMode(&mode_);
}

Reason prepare_product(const Context& context, const GemmProblem& p, const Sides& packed, PreparedProduct& out) {
    if (auto reason = needs_session(context); !reason.empty()) return reason;
    Session& session = *context.cuda->cublaslt;
    const auto reason = p.grouping == Grouping::None ? describe(p, session.machine(), out.matmul)
                                                     : describe_grouped(p, session.machine(), packed, out.matmul);
    if (!reason.empty()) return reason;
    const Session::Choice choice = choose(context, out.matmul);
    out.algorithm = choice.algorithm;
    out.workspace = workspace_layout(p, out.matmul);
    return choice.declines;
}

Prepared prepare_as_is(const Context& context, const GemmProblem& p) {
    PreparedProduct product;
    if (auto reason = prepare_product(context, p, {}, product); !reason.empty()) return {reason, 0, nullptr};
    return {{}, product.workspace.bytes, std::make_shared<const PreparedProduct>(std::move(product))};
}

int32_t bound_on(int32_t capability, const GemmProblem& p) {
    if (p.a.scale_type == ScaleType::None) return MXQ_BOUND_EXACT_PRODUCTS;
    return capability >= kBlackwellCapability ? MXQ_BOUND_BLACKWELL_TENSOR_CORES : MXQ_BOUND_FP8_TENSOR_CORES;
}

int32_t product_bound(const Context& context, const GemmProblem& p) { return bound_on(context.cuda->compute_capability, p); }

void run_product(const Context& context, const GemmProblem& p, const PreparedProduct& prepared, const Launch& launch) {
    MatmulDescription matmul = prepared.matmul;
    point_at(p, matmul);
    uint8_t* const workspace = static_cast<uint8_t*>(launch.workspace);
    pack(context, p, Side::A, matmul.b, workspace + prepared.workspace.packed_a, launch.stream);
    pack(context, p, Side::B, matmul.a, workspace + prepared.workspace.packed_b, launch.stream);
    Factors factors{&p.alpha, &p.beta};
    if (matmul.alpha != Alpha::Host) {
        float* const on_device = reinterpret_cast<float*>(workspace + prepared.workspace.arrays);
        fill_factors(context, p, on_device, launch.stream);
        factors = {on_device, on_device + 1};
    }
    const Scope scope(context);
    context.cuda->cublaslt->multiply(matmul, *prepared.algorithm, nullptr, factors, workspace,
                                     static_cast<cudaStream_t>(launch.stream));
}

void run_groups(const Context& context, const GemmProblem& p, const Sides& packed, const PreparedProduct& prepared,
                const Launch& launch) {
    MatmulDescription matmul = prepared.matmul;
    point_at(p, matmul);
    const WorkspaceLayout& layout = prepared.workspace;
    uint8_t* const workspace = static_cast<uint8_t*>(launch.workspace);
    const Sides packs{matmul.b.packs && !packed.a, matmul.a.packs && !packed.b};
    const PackedScales scales{packed_scales(p.a, packed.a, packs.a, workspace + layout.packed_a),
                              packed_scales(p.b, packed.b, packs.b, workspace + layout.packed_b)};
    const GroupArrays arrays = group_arrays(workspace + layout.arrays, p.groups.count);
    prepare_groups(context, p, scales, packs, arrays, launch.stream);
    const bool per_group = matmul.alpha == Alpha::DevicePerGroup;
    const Factors factors = per_group ? Factors{arrays.alphas, arrays.betas} : Factors{arrays.alpha, arrays.beta};
    {
        const Scope scope(context);
        context.cuda->cublaslt->multiply(with_arrays(matmul, arrays), *prepared.algorithm, &arrays.sizes, factors, workspace,
                                         static_cast<cudaStream_t>(launch.stream));
    }
    if (p.grouping == Grouping::Contraction) zero_rest(context, p, launch.stream);
}

}  // namespace mxq::cuda::lt
