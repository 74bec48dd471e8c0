// `cublaslt_grouped`: every group's product in one call of cuBLASLt, through its grouped matrix layout.
//
//     ends on the device -> prepare_groups -> sizes, leading dimensions, pointers, packed scales -> cuBLASLt
//
// The host knows averages alone, which the heuristic is given. What the library leaves is zeroed: the padding of D before it, D
// of groups with an empty contraction behind it.
#include "cuda/cublaslt/products.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace lt {
namespace {

Problem described(const Context& context, const GemmProblem& p, const Packed& packed) {
    Problem theirs{};
    const std::string reason = describe_grouped(p, context.cuda->cublaslt->machine(), packed, theirs);
    if (!reason.empty()) fail(MXQ_STATUS_UNSUPPORTED, "cublaslt_grouped %s", reason.c_str());
    return theirs;
}

// Where the packed scales of an operand are: in its own scales, in the workspace, or nowhere.
const float* packed_scales(const GemmOperand& operand, bool already, bool packs, const uint8_t* room) {
    return reinterpret_cast<const float*>(already ? operand.scales : packs ? room : nullptr);
}

}  // namespace

std::string declines_groups(const Context& context, const GemmProblem& p, const Packed& packed) {
    std::string reason;
    Session* const session = session_of(context, reason);
    if (!session) return reason;
    Problem theirs{};
    reason = describe_grouped(p, session->machine(), packed, theirs);
    if (!reason.empty()) return reason;
    const Scope scope(context);
    return session->declines(theirs);
}

uint64_t groups_workspace(const Context& context, const GemmProblem& p, const Packed& packed) {
    return workspace_layout(p, described(context, p, packed)).bytes;
}

void run_groups(const Context& context, const GemmProblem& p, const Packed& packed, const Launch& launch) {
    const Problem theirs = described(context, p, packed);
    const WorkspaceLayout layout = workspace_layout(p, theirs);
    uint8_t* const workspace = static_cast<uint8_t*>(launch.workspace);
    const Packing packs{theirs.b.packs && !packed.a, theirs.a.packs && !packed.b};
    const PackedScales scales{packed_scales(p.a, packed.a, packs.a, workspace + layout.packed_a),
                              packed_scales(p.b, packed.b, packs.b, workspace + layout.packed_b)};
    const GroupArrays arrays = group_arrays(workspace + layout.arrays, p.groups.count);
    prepare_groups(context, p, scales, packs, arrays, launch.stream);
    const Factors factors{theirs.alpha == Alpha::DevicePerGroup ? static_cast<const void*>(arrays.alphas) : arrays.alpha,
                          arrays.beta};
    {
        const Scope scope(context);
        context.cuda->cublaslt->multiply(with_arrays(theirs, arrays), &arrays.sizes, factors, workspace,
                                         static_cast<cudaStream_t>(launch.stream));
    }
    if (p.grouping == Grouping::Contraction) zero_rest(context, p, launch.stream);
}

}  // namespace lt

namespace {

std::string declines(const Context& context, const GemmProblem& p) { return lt::declines_groups(context, p, {}); }

uint64_t workspace_bytes(const Context& context, const GemmProblem& p) { return lt::groups_workspace(context, p, {}); }

void run(const Context& context, const GemmProblem& p, const Launch& launch) { lt::run_groups(context, p, {}, launch); }

void load(const Context&) { lt::load_arrays(); }

}  // namespace

const GemmImplementation cublaslt_grouped{"cublaslt_grouped", declines, workspace_bytes, run, load, lt::product_bound};

}  // namespace mxq::cuda
