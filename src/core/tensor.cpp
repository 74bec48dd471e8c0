#include "core/tensor.h"

using namespace mxq;

int64_t mxq_tensor_s::data_bytes() const {
    if (elements() == 0) return 0;
    int64_t elements_spanned, bytes;
    const bool overflows = __builtin_mul_overflow(experts * rows - 1, row_stride, &elements_spanned) ||
                           __builtin_add_overflow(elements_spanned, cols, &elements_spanned) ||
                           __builtin_mul_overflow(elements_spanned, format->bytes(), &bytes);
    return overflows ? -1 : bytes;
}

Storage mxq_tensor_s::storage(int32_t which) const {
    const bool columnwise_part = which == MXQ_PART_COLUMNWISE;
    const int64_t contraction = columnwise_part && groups.set ? padded_rows_bound(rows, groups.count, kMxBlock)
                                : columnwise_part             ? rows
                                                              : cols;
    Storage s;
    s.lines = columnwise_part ? cols : rows;
    s.length = contraction;
    s.scales.columns = ceil_div(s.length, format->block);
    s.scales.tile_rows = scaling == MXQ_SCALING_32X32 ? 32 : 1;
    s.scales.swizzled = swizzled;

    int64_t scale_lines = s.lines, scale_columns = s.scales.columns;
    if (groups.set && !columnwise_part && (swizzled || s.scales.tile_rows > 1))
        scale_lines = padded_rows_bound(rows, groups.count, swizzled ? kSwizzleRows : s.scales.tile_rows);
    if (groups.set && columnwise_part && swizzled)
        scale_columns = padded_rows_bound(rows, groups.count, kSwizzleRows) / kMxBlock;
    s.scales.matrix_bytes = swizzled ? swizzled_scale_bytes(scale_lines, scale_columns)
                                     : compact_scale_bytes(scale_lines, scale_columns, s.scales.tile_rows);
    s.code_bytes = experts * s.lines * s.length * format->bytes();
    s.scale_bytes = experts * s.scales.matrix_bytes;
    return s;
}
