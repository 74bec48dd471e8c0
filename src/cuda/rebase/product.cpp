#include "cuda/rebase/product.h"

#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

template <class T>
T* moved(T* offset, void* base) {
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(offset) + reinterpret_cast<uintptr_t>(base));
}

// Returns whether D is padded in the workspace. Groups take any number of rows.
bool moves_d(const GemmProblem& p, const RebaseTarget& target) {
    return p.grouping == Grouping::None && !p.reads_d() && p.m % target.line_unit != 0;
}

// Returns whether codes can be multiplied where they are: whole blocks of 128, and no rows of padding.
bool keeps_codes(const GemmProblem& p, const GemmOperand& operand, bool pads_lines, const RebaseTarget& target) {
    if (operand.bits != 8 || !operand.layout.has_one_of_128() || pads_lines) return false;
    if (reinterpret_cast<uintptr_t>(operand.codes) % uintptr_t(target.alignment) != 0) return false;
    if (p.grouping == Grouping::Contraction) return operand.units.codes == kBlock128;
    return operand.length % kBlock128 == 0;
}

// Returns whether one fp32 scale a row serves both operands: rows have one scale, codes stay, and D is the caller's.
bool multiplies_lines(const GemmProblem& p, const RebaseTarget& target) {
    const auto keeps = [&](const GemmOperand& operand) {
        return operand.layout.has_one_of_line() && keeps_codes(p, operand, false, target);
    };
    return p.grouping == Grouping::None && !moves_d(p, target) && keeps(p.a) && keeps(p.b);
}

RebaseCall call_of(const GemmProblem& p, Side side, const RebaseTarget& target) {
    const GemmOperand& operand = p.operand(side);
    const bool is_a = side == Side::A, is_weight = !is_a && !p.a.columnwise, pads_d = moves_d(p, target);
    RebaseCall call{};
    call.from = operand;
    call.grouped = {p.groups, p.group_rows};
    call.grouping = p.grouping_of(side);
    call.keeps_codes = keeps_codes(p, operand, is_a && pads_d, target);
    const bool by_lines = multiplies_lines(p, target);
    const bool squares = is_weight && (!call.keeps_codes || operand.tile_lines == kBlock128);
    const bool pads_lines = is_a && (p.grouping == Grouping::Rows || pads_d);
    call.to = rebased_operand(call, {squares ? int32_t(kBlock128) : 1, pads_lines ? target.line_unit : 1, target.column_unit,
                                      by_lines});
    return call;
}

void place(RebaseCall& call, WorkspaceParts& workspace) {
    if (!call.keeps_codes) call.to.codes = workspace.take<uint8_t>(int64_t(rebased_code_bytes(call.to)));
    call.to.scales = workspace.take<uint8_t>(int64_t(rebased_scale_bytes(call.to)));
}

void place_d(GemmProblem& p, int32_t line_unit, WorkspaceParts& workspace) {
    p.m = p.d.rows = round_up(p.m, line_unit);
    p.d.row_stride = p.n;
    p.d.data = workspace.take<void>(p.m * p.n * p.d.element_bytes());
}

}  // namespace

RebasedProduct rebased_product(const GemmProblem& p, const RebaseTarget& target) {
    WorkspaceParts workspace;
    RebasedProduct out{p, call_of(p, Side::A, target), call_of(p, Side::B, target), moves_d(p, target), 0};
    place(out.a, workspace);
    place(out.b, workspace);
    if (out.moves_d) place_d(out.product, target.line_unit, workspace);
    out.product.a = out.a.to;
    out.product.b = out.b.to;
    out.product.k = out.a.to.length;
    out.bytes = workspace.at;
    return out;
}

RebasedProduct RebasedProduct::at(void* base) const {
    RebasedProduct out = *this;
    for (RebaseCall* call : {&out.a, &out.b}) {
        if (!call->keeps_codes) call->to.codes = moved(call->to.codes, base);
        call->to.scales = moved(call->to.scales, base);
    }
    if (moves_d) out.product.d.data = moved(product.d.data, base);
    out.product.a = out.a.to;
    out.product.b = out.b.to;
    return out;
}

}  // namespace mxq::cuda
