// `cublaslt_rebase`, `cublaslt_grouped_rebase`: MX operands on a chip whose tensor cores have FP8 without E8M0 scales. A pass
// over each operand moves its scales of 32 into the codes, so that one of 128 remains, and cuBLASLt multiplies what comes out:
//
//     A                           1x128                one pass, rebase.cu
//     B as a weight               128x128              one pass; of (N,T), (N,N)
//     B beside a transposed A     1x128                one pass
//     scales of 128 already       as they are          the scales alone, as floats
//     ragged rows of one D        in the workspace     padded to fours, copied to their place behind the product
//
// The workspace: codes and scales of A and of B, D, then what the product takes.
//
// Bound: that of `cublaslt` for FP8, and sum_k (e_a |b_k| + |a_k| e_b + e_a e_b) for what the codes lose: e is 0 for those that
// stay normal, else 2^-10 * 2^(S - 127), 2^-17 * 2^(S - 127) for E5M2, S being the tile's scale. It holds where the product of
// two tiles' scales is a normal number.
#include "cuda/cublaslt/cublaslt_rebase.h"

#include "cuda/cublaslt/products.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

constexpr int32_t kCapability = 90;
static_assert(kRebaseLines % lt::kPackedRows == 0);

struct Workspace {
    uintptr_t at;
    void* take(uint64_t bytes) {
        const uintptr_t taken = at;
        at += uintptr_t(round_up(int64_t(bytes), kWorkspaceAlignment));
        return reinterpret_cast<void*>(taken);
    }
};

int64_t d_bytes(const GemmProblem& p) { return p.d.format == MXQ_FORMAT_F32 ? 4 : 2; }

// Whether the library writes rows of D that are not the caller's. Groups have any number of rows.
bool moves_d(const GemmProblem& p) { return p.grouping == Grouping::None && !p.reads_d() && p.m % lt::kPackedRows != 0; }

bool has_wide_scales(const GemmOperand& operand) {
    return operand.layout.block == kWideBlock || operand.layout.repeat == kWideBlock / kMxBlock;
}

// Codes can be multiplied where they are: whole blocks of 128, lines where the library wants them.
bool keeps_codes(const GemmProblem& p, const GemmOperand& operand, bool pads_lines) {
    if (operand.bits != 8 || !has_wide_scales(operand) || pads_lines) return false;
    if (reinterpret_cast<uintptr_t>(operand.codes) % 16 != 0) return false;
    if (p.grouping == Grouping::Contraction) return operand.units.codes == kWideBlock;
    return operand.length % kWideBlock == 0;
}

// What lines of A are padded to, with their scales.
int32_t line_unit(const GemmProblem& p) { return p.grouping == Grouping::Rows || moves_d(p) ? lt::kPackedRows : 1; }

RebaseCall call_of(const GemmProblem& p, Side side) {
    const GemmOperand& operand = p.operand(side);
    const bool is_a = side == Side::A, is_weight = !is_a && !p.a.columnwise;
    RebaseCall call{};
    call.from = operand;
    call.grouped = {p.groups, p.group_rows};
    call.grouping = p.grouping_of(side);
    call.keeps_codes = keeps_codes(p, operand, is_a && moves_d(p));
    const bool squares = is_weight && (!call.keeps_codes || operand.tile_lines == kWideBlock);
    call.to = rebased_operand(call, squares ? int32_t(kWideBlock) : 1, is_a ? line_unit(p) : 1);
    return call;
}

void place(RebaseCall& call, Workspace& workspace) {
    if (!call.keeps_codes) call.to.codes = static_cast<uint8_t*>(workspace.take(rebased_code_bytes(call.to)));
    call.to.scales = static_cast<uint8_t*>(workspace.take(rebased_scale_bytes(call.to)));
}

void place_d(GemmProblem& p, Workspace& workspace) {
    p.m = p.d.rows = round_up(p.m, lt::kPackedRows);
    p.d.row_stride = p.n;
    p.d.data = workspace.take(uint64_t(p.m * p.n * d_bytes(p)));
}

}  // namespace

RebasedProduct rebased_product(const GemmProblem& p, uintptr_t base) {
    Workspace workspace{base};
    RebasedProduct out{p, {}, call_of(p, Side::A), call_of(p, Side::B), moves_d(p), 0};
    place(out.a, workspace);
    place(out.b, workspace);
    if (out.moves_d) place_d(out.product, workspace);
    out.product.a = out.a.to;
    out.product.b = out.b.to;
    out.product.k = out.a.to.length;
    out.packed = {p.grouping != Grouping::None, p.grouping == Grouping::Contraction};
    out.bytes = workspace.at - base;
    return out;
}

namespace {

std::string needs_chip(const Context& context) {
    const int32_t capability = context.cuda->compute_capability;
    if (capability == kCapability) return "";
    return format_text("needs compute capability 9.0, found %d.%d", capability / 10, capability % 10);
}

std::string needs_mx(const GemmProblem& p) {
    for (const GemmOperand* operand : {&p.a, &p.b})
        if (operand->scale_type != ScaleType::E8M0)
            return format_text("needs MX operands, found %s", find_format(operand->format)->name);
    if (p.exact_products) return "needs leave to round operands, found exact products asked for";
    return "";
}

std::string declines(const Context& context, const GemmProblem& p) {
    std::string reason = needs_cuda(context);
    if (reason.empty()) reason = needs_mx(p);
    if (reason.empty()) reason = needs_chip(context);
    if (!reason.empty()) return reason;
    const RebasedProduct steps = rebased_product(p, 0);
    return p.grouping == Grouping::None ? lt::declines_product(context, steps.product)
                                        : lt::declines_groups(context, steps.product, steps.packed);
}

uint64_t workspace_bytes(const Context& context, const GemmProblem& p) {
    const RebasedProduct steps = rebased_product(p, 0);
    return steps.bytes + (p.grouping == Grouping::None ? lt::product_workspace(context, steps.product)
                                                            : lt::groups_workspace(context, steps.product, steps.packed));
}

// D without the rows that pad it.
void move_rows(const Context& context, const GemmProblem& p, const PlainMatrix& from, const Launch& call) {
    const CurrentDevice current(*context.cuda);
    const size_t row = size_t(p.n * d_bytes(p));
    check(cudaMemcpy2DAsync(p.d.data, size_t(p.d.row_stride * d_bytes(p)), from.data, row, row, size_t(p.m),
                            cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(call.stream)),
          "cudaMemcpy2DAsync");
}

void run(const Context& context, const GemmProblem& p, const Launch& call) {
    const RebasedProduct steps = rebased_product(p, reinterpret_cast<uintptr_t>(call.workspace));
    rebase(context, steps.a, call.stream);
    rebase(context, steps.b, call.stream);
    const Launch product{static_cast<uint8_t*>(call.workspace) + steps.bytes, call.stream};
    if (p.grouping == Grouping::None) lt::run_product(context, steps.product, product);
    else lt::run_groups(context, steps.product, steps.packed, product);
    if (steps.moves_d) move_rows(context, p, steps.product.d, call);
}

void load(const Context&) {
    lt::load_arrays();
    load_rebase();
}

}  // namespace

const GemmImplementation cublaslt_rebase{"cublaslt_rebase", declines, workspace_bytes, run, load};
const GemmImplementation cublaslt_grouped_rebase{"cublaslt_grouped_rebase", declines, workspace_bytes, run, load};

}  // namespace mxq::cuda
