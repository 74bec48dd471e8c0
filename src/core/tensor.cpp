#include "core/tensor.h"

#include <algorithm>

using namespace mxq;

int32_t mxq_tensor_s::least_alignment(int32_t part) const {
    if (part == MXQ_PART_ROWWISE || !format->quantized()) return 1;
    if (tile().length != 0) return tile().length;
    return int32_t(format->is_mx() ? kMxBlock : kNvBlock);  // swizzled ROW scales of MX are those of blocks of 32
}

int32_t mxq_tensor_s::alignment(int32_t part) const {
    if (part == MXQ_PART_ROWWISE) return rowwise_alignment;
    if (columnwise_alignment != 0) return columnwise_alignment;
    return tile().length == 0 ? int32_t(kMxBlock) : tile().length;
}

int64_t mxq_tensor_s::data_bytes() const {
    if (cols == 0 || (!row_indices.set && elements() == 0)) return 0;
    const int64_t matrices = rowwise.listed ? 1 : experts;
    const int64_t stored_rows = row_indices.set ? row_indices.source_rows
                                : groups.set    ? padded_rows_bound(rows, groups.count, rowwise_alignment) : matrices * rows;
    if (stored_rows == 0) return 0;
    int64_t elements_spanned, bytes;
    const bool overflows = __builtin_mul_overflow(stored_rows - 1, row_stride, &elements_spanned) ||
                           __builtin_add_overflow(elements_spanned, cols, &elements_spanned) ||
                           __builtin_mul_overflow(elements_spanned, format->bits / 8, &bytes);
    return overflows ? -1 : bytes;
}

namespace {

// Lays out the scales of ROW, one for each K-major row, and of TENSOR, one for all rows.
void lay_out_whole_lines(const mxq_tensor_s& t, bool columnwise, Storage& s) {
    ScaleLayout& layout = s.scales;
    const bool row = t.tile().is_row();
    layout.block = MXQ_MAX_DIM;
    layout.columns = 1;
    layout.line_stride = row ? 1 : 0;
    layout.column_stride = 0;
    layout.matrix_scales = row ? s.lines : t.per_expert ? 1 : 0;
    layout.group_index_stride = !row ? (t.per_expert ? 1 : 0) : columnwise ? s.lines : 0;
    layout.group_stride = row && !columnwise ? 1 : 0;
    s.units.scales = s.units.codes;
    const bool row_per_group = row && columnwise && t.groups.set;
    s.scale_count = !row ? t.scope_count() : row_per_group ? t.groups.count * s.lines : t.experts * s.lines;
    s.scale_lines = row ? s.lines : 1;
    s.scale_width = 1;
}

// Lays out one-byte scales in 128 x 4 tiles.
void lay_out_swizzled_bytes(const mxq_tensor_s& t, bool columnwise, Storage& s) {
    const int32_t block = int32_t(t.format->is_nvfp4() ? kNvBlock : kMxBlock);
    const int32_t repeat = t.tile().is_row() ? kWholeLine : std::max(t.tile().length / block, 1);
    const SwizzledScales scales =
        lay_out_swizzled(s.lines, s.length, block, repeat, columnwise, s.units.codes, t.groups, t.rows);
    s.scales = scales.layout;
    s.units.scales = scales.group_unit;
    s.scale_count = t.experts * s.scales.matrix_scales;
    s.scale_lines = 1;
    s.scale_width = s.scales.matrix_scales;
}

// Lays out compact scales, and fp32 block scales in either layout. Compact 16x16 scales are stored as 1x16, a copy per row.
void lay_out_blocks(const mxq_tensor_s& t, bool columnwise, Storage& s) {
    ScaleLayout& layout = s.scales;
    const int32_t block = t.tile().length;
    const bool square = t.tile().is_square() && !t.format->is_nvfp4();
    layout.block = block;
    layout.tile_rows = square ? block : 1;
    s.units.scales = square ? block : s.units.codes;

    const bool restarts = t.groups.set && square;  // each group starts a new tile
    const int64_t capacity = restarts ? padded_rows_bound(t.rows, t.groups.count, block) / block : 0;
    layout.columns = restarts && columnwise ? capacity : ceil_div(s.length, block);
    const int64_t scale_rows = restarts && !columnwise ? capacity : ceil_div(s.lines, layout.tile_rows);
    layout.column_stride = 1;
    layout.line_stride = layout.columns;
    if (t.swizzled && square) layout.line_stride = round_up(layout.columns, 4);
    if (t.swizzled && !square) layout.line_stride = 1, layout.column_stride = s.lines;
    layout.group_rows = columnwise || square ? block : 1;
    layout.group_stride = columnwise ? layout.column_stride : layout.line_stride;
    layout.matrix_scales = t.swizzled && !square ? layout.columns * s.lines : scale_rows * layout.line_stride;
    s.scale_count = t.experts * layout.matrix_scales;
    s.scale_lines = t.swizzled ? 1 : scale_rows;
    s.scale_width = t.swizzled ? layout.matrix_scales : layout.columns;
}

// Returns how many units lie from the first of `matrices` matrices to the end of the last.
int64_t spanned(int64_t matrices, int64_t matrix_stride, int64_t lines, int64_t line_stride, int64_t width) {
    if (matrices == 0 || lines == 0 || width == 0) return 0;
    return (matrices - 1) * matrix_stride + (lines - 1) * line_stride + width;
}

// Applies the strides of rows and experts. Counts the bytes of one expert where experts are listed.
void spread(const Part& part, int64_t experts, Storage& s) {
    const Strides& strides = part.strides;
    const int64_t matrices = part.listed ? std::min<int64_t>(experts, 1) : experts;
    if (strides.code_line != 0) s.line_stride = strides.code_line, s.matrix_stride = s.lines * s.line_stride;
    if (strides.code_expert != 0) s.matrix_stride = strides.code_expert;
    s.code_bytes = spanned(matrices, s.matrix_stride, s.lines, s.line_stride, s.line_bytes);
    if (strides.scale_line == 0 && strides.scale_expert == 0 && !part.listed) return;
    ScaleLayout& layout = s.scales;
    if (strides.scale_line != 0) {
        layout.line_stride = strides.scale_line / layout.bytes;
        layout.matrix_scales = s.scale_lines * layout.line_stride;
    }
    if (strides.scale_expert != 0) layout.matrix_scales = strides.scale_expert / layout.bytes;
    s.scale_count = spanned(matrices, layout.matrix_scales, s.scale_lines, layout.line_stride, s.scale_width);
}

}  // namespace

SwizzledScales mxq::lay_out_swizzled(int64_t lines, int64_t length, int32_t block, int32_t repeat, bool columnwise,
                                     int32_t code_unit, const Groups& groups, int64_t rows) {
    ScaleLayout layout{};
    layout.swizzled = layout.bytes = layout.tile_rows = 1;
    layout.block = block;
    layout.repeat = repeat;
    layout.columns = ceil_div(length, int64_t(block));
    layout.group_rows = columnwise ? block : 1;
    layout.group_stride = columnwise ? round_up(lines, kSwizzleRows) : round_up(layout.columns, kSwizzleColumns);
    const int32_t unit = columnwise ? std::max(code_unit, int32_t(kSwizzleColumns) * block) : int32_t(kSwizzleRows);
    int64_t tiled_lines = lines, columns = layout.columns;
    if (groups.set && !columnwise) tiled_lines = padded_rows_bound(rows, groups.count, unit);
    if (groups.set && columnwise) columns = padded_rows_bound(rows, groups.count, unit) / block;
    layout.matrix_scales = swizzled_scale_bytes(tiled_lines, columns);
    return {layout, unit};
}

Storage mxq_tensor_s::storage(int32_t part) const {
    const bool columnwise_part = part == MXQ_PART_COLUMNWISE;
    const int64_t stored_rows = groups.set ? padded_rows_bound(rows, groups.count, alignment(part)) : rows;
    Storage s{};
    s.lines = columnwise_part ? cols : stored_rows;
    s.length = columnwise_part ? stored_rows : cols;
    s.line_bytes = s.line_stride = format->bytes_of(s.length);
    s.matrix_stride = s.lines * s.line_bytes;
    s.units.codes = groups.set ? alignment(part) : 1;
    s.code_bytes = experts * s.lines * s.line_bytes;
    s.scales.tile_rows = s.scales.group_rows = s.scales.repeat = 1;
    s.scales.bytes = int32_t(format->scale_bytes());
    if (swizzled && !format->is_fp8())
        lay_out_swizzled_bytes(*this, columnwise_part, s);
    else if (tile().length == 0)
        lay_out_whole_lines(*this, columnwise_part, s);
    else
        lay_out_blocks(*this, columnwise_part, s);
    s.amax_count = format->is_nvfp4() ? scope_count() : s.scale_count;
    const Part& given = this->part(part);
    if (given.strides.set() || given.listed) spread(given, experts, s);
    return s;
}
