// `cublaslt`: D = A B^T by one call of cuBLASLt. Groups take a call each, which needs their ends on the host.
//
// Sums are fp32: c = 13 K / 10 + 40, as for mma_bf16. Those of FP8 codes keep 14 bits inside Hopper's tensor cores and are
// added to fp32 every 128 of the contraction, since fast accumulation is off: 4 instructions add 32 products and the sum each,
// cut at 2^-13 of the largest, which gives c another 4 * 33 * 2^11 at worst.
// Scales of tensors and NVFP4's global ones are multiplied with each other first: c holds where that product is a normal
// number.
#include "core/groups.h"
#include "cuda/cublaslt/products.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace lt {

Session* session_of(const Context& context, std::string& missing) {
    missing = needs_cuda(context);
    if (!missing.empty()) return nullptr;
    missing = context.cuda->cublaslt ? "" : context.cuda->cublaslt_missing;
    return context.cuda->cublaslt.get();
}

// Relaxed: loading a kernel is none of the captured work, but a stricter capture would break at it.
Scope::Scope(const Context& context) : current_(*context.cuda) {
    exchanged_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
}

Scope::~Scope() {
    if (exchanged_) cudaThreadExchangeStreamCaptureMode(&mode_);
}

namespace {

Problem described(const Context& context, const GemmProblem& p) {
    Problem theirs{};
    const std::string reason = describe(p, context.cuda->cublaslt->machine(), theirs);
    if (!reason.empty()) fail(MXQ_STATUS_UNSUPPORTED, "cublaslt %s", reason.c_str());
    return theirs;
}

// Copies scales where they lie otherwise.
void pack(const Context& context, const GemmProblem& p, Side side, Operand& theirs, void* to, void* stream) {
    if (!theirs.packs) return;
    pack_scales(context, p, side, static_cast<float*>(to), stream);
    theirs.scales = to;
}

}  // namespace

std::string declines_product(const Context& context, const GemmProblem& p) {
    std::string reason;
    Session* const session = session_of(context, reason);
    if (!session) return reason;
    Problem theirs{};
    reason = describe(p, session->machine(), theirs);
    if (!reason.empty()) return reason;
    const Scope scope(context);
    return session->declines(theirs);
}

uint64_t product_workspace(const Context& context, const GemmProblem& p) {
    return workspace_layout(p, described(context, p)).bytes;
}

void run_product(const Context& context, const GemmProblem& p, const Launch& launch) {
    Problem theirs = described(context, p);
    const WorkspaceLayout layout = workspace_layout(p, theirs);
    uint8_t* const workspace = static_cast<uint8_t*>(launch.workspace);
    pack(context, p, Side::A, theirs.b, workspace + layout.packed_a, launch.stream);
    pack(context, p, Side::B, theirs.a, workspace + layout.packed_b, launch.stream);
    Factors factors{&p.alpha, &p.beta};
    if (theirs.alpha != Alpha::Host) {
        float* const on_device = reinterpret_cast<float*>(workspace + layout.arrays);
        fill_factors(context, p, on_device, launch.stream);
        factors = {on_device, on_device + 1};
    }
    const Scope scope(context);
    context.cuda->cublaslt->multiply(theirs, nullptr, factors, workspace, static_cast<cudaStream_t>(launch.stream));
}

}  // namespace lt

namespace {

// Calls `look` with the product of every group that has one.
template <class Look>
void each_group(const GemmProblem& p, const Look& look) {
    Groups on_host = p.groups;
    on_host.ends = p.host_ends;
    const std::vector<Group> groups = read_groups({on_host, p.group_rows}, "a");
    const bool by_rows = p.grouping == Grouping::Rows;
    const std::vector<GroupStart> a = group_starts(groups, p.a.units);
    const std::vector<GroupStart> b = group_starts(groups, by_rows ? GroupUnits{p.d.group_unit, 1} : p.b.units);
    for (size_t g = 0; g < groups.size(); g++) {
        const int64_t d_row = by_rows ? b[g].codes : int64_t(g) * p.m;
        if (groups[g].rows > 0) look(lt::product_of_group(p, a[g], b[g], d_row, groups[g].rows));
    }
}

std::string declines(const Context& context, const GemmProblem& p) {
    if (p.grouping == Grouping::None) return lt::declines_product(context, p);
    std::string reason;
    if (!lt::session_of(context, reason)) return reason;
    if (!p.host_ends) return "needs the ends of the groups on the host, found them on the device alone";
    reason = lt::check_groups(p);
    each_group(p, [&](const GemmProblem& one) {
        if (reason.empty()) reason = lt::declines_product(context, one);
    });
    return reason;
}

uint64_t workspace_bytes(const Context& context, const GemmProblem& p) {
    if (p.grouping == Grouping::None) return lt::product_workspace(context, p);
    uint64_t most = lt::kWorkspaceBytes;
    each_group(p, [&](const GemmProblem& one) { most = std::max(most, lt::product_workspace(context, one)); });
    return most;
}

void run(const Context& context, const GemmProblem& p, const Launch& launch) {
    if (p.grouping == Grouping::None) return lt::run_product(context, p, launch);
    each_group(p, [&](const GemmProblem& one) { lt::run_product(context, one, launch); });
    lt::zero_rest(context, p, launch.stream);
}

void load(const Context&) { lt::load_arrays(); }

}  // namespace

const GemmImplementation cublaslt{"cublaslt", declines, workspace_bytes, run, load};

}  // namespace mxq::cuda
