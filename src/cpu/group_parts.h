// One group or expert of a tensor, as a tensor of one matrix: the kernels know no groups.
#pragma once
#include "core/problem.h"

namespace mxq::cpu {

// Rows [first, first + rows) of a plain tensor, `first` as stored.
inline PlainMatrix rows_of(const PlainMatrix& plain, int64_t first, int64_t rows) {
    PlainMatrix group = plain;
    const int64_t row_bytes = plain.row_stride * (find_format(plain.format)->bits / 8);
    group.data = static_cast<uint8_t*>(plain.data) + first * row_bytes;
    group.matrices = 1;
    group.rows = rows;
    return group;
}

inline QuantizedPart part_of_matrix(const QuantizedPart& part, int64_t index) {
    QuantizedPart matrix = part;
    matrix.codes = part.line(index, 0);
    matrix.scales += index * part.layout.matrix_scales * part.layout.bytes;
    matrix.matrices = 1;
    if (part.scale_type != ScaleType::E4M3) return matrix;
    if (part.amax) matrix.amax += index * part.scope_stride;
    if (part.decode_scale) matrix.decode_scale += index * part.scope_stride;
    return matrix;
}

// Without its padding, but for the columns that a swizzled part's scales have.
inline QuantizedPart part_of_group(const QuantizedPart& part, const GroupStart& start, int64_t rows) {
    QuantizedPart group = part;
    const int64_t scales = group_scale_offset(part.layout, start);
    group.codes += part.columnwise ? start.codes * part.bits / 8 : start.codes * part.line_bytes;
    group.scales += scales * part.layout.bytes;
    group.matrices = 1;
    (part.columnwise ? group.length : group.lines) = rows;
    if (part.columnwise && part.layout.swizzled)
        group.layout.columns = ceil_div(round_up(rows, part.units.codes), part.layout.block);
    const bool has_scope = part.scale_type == ScaleType::E4M3;
    const int64_t scope = start.index * part.scope_stride;
    if (part.amax) group.amax += has_scope ? scope : scales;
    if (part.decode_scale) group.decode_scale += scope;
    return group;
}

}  // namespace mxq::cpu
