#include "cuda/block_scaled/product.h"

#include <algorithm>

#include "cuda/block_scaled/widen_codes.h"
#include "cuda/implementations.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

constexpr int64_t kAligned = 16;  // bytes, of codes and their rows

bool is_mx(const GemmOperand& operand) { return operand.scale_type == ScaleType::E8M0; }

bool is_aligned(const GemmOperand& operand) {
    return reinterpret_cast<uintptr_t>(operand.codes) % kAligned == 0 && operand.line_bytes % kAligned == 0;
}

// Groups along the contraction are whole blocks already. All other operands have rows of p.k codes.
bool must_move_codes(const GemmProblem& p, const GemmOperand& operand) {
    if (!is_mx(operand)) return false;
    const bool whole_blocks = p.grouping == Grouping::Contraction || p.k % kMxBlock == 0;
    return operand.bits != 8 || !whole_blocks || !is_aligned(operand);
}

void lay_out_codes(const BlockScaledOperand& operand, GemmOperand& to) {
    const bool e5m2 = to.element == Element::E5M2;
    const Format& format = *find_format(e5m2 ? MXQ_FORMAT_MXFP8_E5M2 : MXQ_FORMAT_MXFP8_E4M3);
    to.format = format.id;
    to.element = format.element;
    to.bits = format.bits;
    to.line_bytes = round_up(to.length, kMxBlock);
    if (operand.grouping != Grouping::Contraction) to.length = to.line_bytes;
}

void lay_out_scales(const BlockScaledOperand& operand, GemmOperand& to) {
    const ScaleLayout& compact = operand.from.layout;
    const auto block = int32_t(is_mx(to) ? kMxBlock : kNvBlock);
    const int32_t repeat = compact.block == MXQ_MAX_DIM ? kWholeLine : std::max(compact.block / block, 1);
    const SwizzledScales scales = lay_out_swizzled(to.lines, to.length, block, repeat, to.columnwise, to.units.codes,
                                                   operand.grouped.groups, operand.grouped.rows);
    to.layout = scales.layout;
    to.units.scales = scales.group_unit;
}

BlockScaledOperand plan_operand(const GemmProblem& p, Side side) {
    const GemmOperand& from = p.operand(side);
    BlockScaledOperand out{from, from, p.grouping_of(side), {}, must_move_codes(p, from), !from.layout.swizzled};
    if (out.grouping != Grouping::None) out.grouped = {p.groups, p.group_rows};
    if (out.moves_codes) lay_out_codes(out, out.to);
    if (out.swizzles) lay_out_scales(out, out.to);
    return out;
}

// Gives what moves its part of the workspace.
void place(BlockScaledOperand& operand, WorkspaceParts& workspace) {
    GemmOperand& to = operand.to;
    if (operand.moves_codes) to.codes = workspace.take<uint8_t>(to.matrices * to.lines * to.line_bytes);
    if (operand.swizzles) to.scales = workspace.take<uint8_t>(to.matrices * to.layout.matrix_scales);
}

}  // namespace

BlockScaledProduct block_scaled_product(const GemmProblem& p) {
    BlockScaledProduct out{p, plan_operand(p, Side::A), plan_operand(p, Side::B), 0};
    WorkspaceParts workspace;
    place(out.a, workspace);
    place(out.b, workspace);
    out.bytes = workspace.at;
    out.product.a = out.a.to;
    out.product.b = out.b.to;
    if (is_mx(p.a) && p.grouping != Grouping::Contraction) out.product.k = round_up(p.k, kMxBlock);
    return out;
}

BlockScaledProduct BlockScaledProduct::at(void* base) const {
    BlockScaledProduct out = *this;
    const auto move = [&](uint8_t*& offset) { offset = static_cast<uint8_t*>(base) + reinterpret_cast<uintptr_t>(offset); };
    for (BlockScaledOperand* operand : {&out.a, &out.b}) {
        if (operand->moves_codes) move(operand->to.codes);
        if (operand->swizzles) move(operand->to.scales);
    }
    out.product.a = out.a.to;
    out.product.b = out.b.to;
    return out;
}

SwizzleProblem swizzle_of(const BlockScaledOperand& operand) {
    const GemmOperand &from = operand.from, &to = operand.to;
    SwizzleProblem p{};
    p.count = 1;
    p.parts[0] = {from.scales, to.scales,  from.matrices, from.lines,      from.length,     from.layout,
                  to.layout,   from.units, to.units,      from.columnwise, Addresses::Dense};
    p.grouped = operand.grouped;
    return p;
}

void move_operand(const Context& context, const BlockScaledOperand& operand, void* stream) {
    if (operand.moves_codes) widen_codes(context, operand, stream);
    if (operand.swizzles) swizzle_scales.run(context, swizzle_of(operand), {nullptr, stream});
}

}  // namespace mxq::cuda
