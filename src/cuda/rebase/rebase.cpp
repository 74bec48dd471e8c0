#include "cuda/rebase/rebase.h"

namespace mxq::cuda {
namespace {

// Lines or codes that all groups together take at most.
int64_t padded(const RebaseCall& call, int32_t unit) {
    return padded_rows_bound(call.grouped.rows, call.grouped.groups.count, unit);
}

// What cuBLASLt takes: (ceil(k / 128), lines), or (ceil(lines / 128), ceil(k / 128) rounded up to 4).
ScaleLayout rebased_layout(const GemmOperand& to, int32_t tile_lines) {
    constexpr int64_t kColumnUnit = 4;
    ScaleLayout layout{};
    layout.block = kWideBlock;
    layout.bytes = sizeof(float);
    layout.repeat = layout.group_rows = 1;
    layout.tile_rows = tile_lines;
    layout.columns = ceil_div(to.length, kWideBlock);
    const bool squares = tile_lines > 1;
    layout.line_stride = squares ? round_up(layout.columns, kColumnUnit) : 1;
    layout.column_stride = squares ? 1 : to.lines;
    layout.matrix_scales = squares ? ceil_div(to.lines, tile_lines) * layout.line_stride : layout.columns * to.lines;
    return layout;
}

// As the pass writes them; codes that are kept stay where they are.
void lay_out_codes(const RebaseCall& call, int32_t line_unit, GemmOperand& to) {
    const bool by_codes = call.grouping == Grouping::Contraction;
    to.units = by_codes ? GroupUnits{int32_t(kWideBlock), int32_t(kWideBlock)} : GroupUnits{line_unit, line_unit};
    to.length = by_codes ? padded(call, to.units.codes) : round_up(to.length, kWideBlock);
    to.lines = call.grouping == Grouping::Rows ? padded(call, to.units.codes) : round_up(to.lines, line_unit);
    to.line_bytes = to.length;
    to.bits = 8;
}

}  // namespace

GemmOperand rebased_operand(const RebaseCall& call, int32_t tile_lines, int32_t line_unit) {
    GemmOperand to = call.from;
    const bool e5m2 = to.element == Element::E5M2;
    to.element = e5m2 ? Element::E5M2 : Element::E4M3;
    to.format = e5m2 ? MXQ_FORMAT_FP8_E5M2 : MXQ_FORMAT_FP8_E4M3;
    to.scale_type = ScaleType::F32;
    to.tile_lines = tile_lines;
    to.scales = nullptr;
    if (!call.keeps_codes) {
        lay_out_codes(call, line_unit, to);
        to.codes = nullptr;
    }
    const bool by_rows = call.grouping == Grouping::Rows;
    to.units.scales = by_rows ? line_unit : to.units.codes;
    to.layout = rebased_layout(to, tile_lines);
    if (by_rows) to.layout.matrix_scales = to.layout.columns * padded(call, line_unit);
    return to;
}

uint64_t rebased_code_bytes(const GemmOperand& to) { return uint64_t(to.matrices * to.lines * to.line_bytes); }

uint64_t rebased_scale_bytes(const GemmOperand& to) { return uint64_t(to.matrices * to.layout.matrix_scales) * sizeof(float); }

}  // namespace mxq::cuda
