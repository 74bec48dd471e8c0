#include "cuda/rebase/rebase.h"

namespace mxq::cuda {
namespace {

// Returns the most rows or codes that all groups together take.
int64_t padded(const RebaseCall& call, int32_t unit) {
    return padded_rows_bound(call.grouped.rows, call.grouped.groups.count, unit);
}

// Returns the layout of scales: of 1x128 (ceil(k / 128), rows), of 128x128 (ceil(rows / 128), ceil(k / 128) rounded up), of
// rows (rows). Rows are K-major rows.
ScaleLayout scale_layout(const GemmOperand& to, const RebasedLayout& as) {
    ScaleLayout layout{};
    layout.block = as.by_lines ? MXQ_MAX_DIM : kBlock128;
    layout.bytes = sizeof(float);
    layout.repeat = layout.group_rows = 1;
    layout.tile_rows = as.tile_lines;
    layout.columns = as.by_lines ? 1 : ceil_div(to.length, kBlock128);
    const bool squares = as.tile_lines > 1;
    layout.line_stride = squares ? round_up(layout.columns, as.column_unit) : 1;
    layout.column_stride = squares ? 1 : as.by_lines ? 0 : to.lines;
    layout.matrix_scales = squares ? ceil_div(to.lines, as.tile_lines) * layout.line_stride : layout.columns * to.lines;
    return layout;
}

// Returns the format that codes of an element are moved to, by the rule of numerics/rebase.h.
const Format& rebased_format(Element element) {
    return *find_format(with_element(element, []<class E>(E) -> int32_t {
        return Rebase<E>::is_e5m2 ? MXQ_FORMAT_FP8_E5M2 : MXQ_FORMAT_FP8_E4M3;
    }));
}

// As the pass writes them; codes that are kept stay where they are.
void lay_out_codes(const RebaseCall& call, int32_t line_unit, GemmOperand& to) {
    const bool by_codes = call.grouping == Grouping::Contraction;
    to.units = by_codes ? GroupUnits{int32_t(kBlock128), int32_t(kBlock128)} : GroupUnits{line_unit, line_unit};
    to.length = by_codes ? padded(call, to.units.codes) : round_up(to.length, kBlock128);
    to.lines = call.grouping == Grouping::Rows ? padded(call, to.units.codes) : round_up(to.lines, line_unit);
    to.line_bytes = to.length;
    to.matrix_bytes = to.lines * to.line_bytes;
    to.bits = 8;
}

}  // namespace

GemmOperand rebased_operand(const RebaseCall& call, const RebasedLayout& layout) {
    GemmOperand to = call.from;
    const Format& format = rebased_format(to.element);
    to.format = format.id;
    to.element = format.element;
    to.scale_type = format.scale;
    to.tile_lines = layout.tile_lines;
    to.scales = nullptr;
    if (!call.keeps_codes) {
        lay_out_codes(call, layout.line_unit, to);
        to.codes = nullptr;
    }
    const bool by_rows = call.grouping == Grouping::Rows;
    to.units.scales = by_rows ? layout.line_unit : to.units.codes;
    to.layout = scale_layout(to, layout);
    if (by_rows) to.layout.matrix_scales = to.layout.columns * padded(call, layout.line_unit);
    return to;
}

uint64_t rebased_code_bytes(const GemmOperand& to) { return uint64_t(to.matrices * to.lines * to.line_bytes); }

uint64_t rebased_scale_bytes(const GemmOperand& to) { return uint64_t(to.matrices * to.layout.matrix_scales) * sizeof(float); }

}  // namespace mxq::cuda
