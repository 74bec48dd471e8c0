// The part of a tensor that belongs to one group or one expert, for host and device: kernels see it as a matrix of its own.
//
//     expert e                   codes of K-major rows e * lines ...       scales from e * matrix_scales on
//     group of a rowwise part    codes of rows start.codes ...             scales from group_scale_offset on
//     group of a columnwise one  codes from start.codes on in every row    scales from group_scale_offset on
#pragma once
#include "core/problem.h"
#include "numerics/nvfp4.h"

namespace mxq {

// ---- Pointers and layouts --------------------------------------------------------------------------------------------------

MXQ_HD uint8_t* matrix_codes(const QuantizedPart& part, int64_t index) { return part.line(index, 0); }

MXQ_HD uint8_t* matrix_scales(const QuantizedPart& part, int64_t index) {
    return part.scales + index * part.layout.matrix_scales * part.layout.bytes;
}

MXQ_HD uint8_t* group_codes(const QuantizedPart& part, const GroupStart& start) {
    return part.codes + (part.columnwise ? start.codes * part.bits / 8 : start.codes * part.line_bytes);
}

MXQ_HD uint8_t* group_scales(const QuantizedPart& part, const GroupStart& start) {
    return part.scales + group_scale_offset(part.layout, start) * part.layout.bytes;
}

MXQ_HD uint8_t* address_in_list(const uint8_t* array, int64_t index) {
    return array ? reinterpret_cast<uint8_t* const*>(array)[index] : nullptr;  // NULL: there are no bytes
}

MXQ_HD uint8_t* expert_data(const PlainMatrix& plain, int64_t index) {
    if (plain.addresses == Addresses::Listed) return address_in_list(static_cast<const uint8_t*>(plain.data), index);
    return static_cast<uint8_t*>(plain.data) + index * plain.rows * plain.row_stride * plain.element_bytes();
}

MXQ_HD uint8_t* element_address(const PlainMatrix& plain, int64_t index, int64_t row, int64_t col) {
    return expert_data(plain, index) + (row * plain.row_stride + col) * plain.element_bytes();
}

// Return where the codes and the scales of an expert begin, also where experts are listed.
MXQ_HD uint8_t* expert_codes(const QuantizedPart& part, int64_t index) {
    return part.addresses == Addresses::Listed ? address_in_list(part.codes, index) : matrix_codes(part, index);
}
MXQ_HD uint8_t* expert_scales(const QuantizedPart& part, int64_t index) {
    return part.addresses == Addresses::Listed ? address_in_list(part.scales, index) : matrix_scales(part, index);
}

// Returns the layout of the scales of a group with `rows` rows. Those along the contraction are a matrix of as many columns as
// the group needs; swizzled ones have columns for the padding of its codes too. Rows and a block are fewer than 2^31 each.
MXQ_HD ScaleLayout group_layout(const QuantizedPart& part, int64_t rows) {
    ScaleLayout layout = part.layout;
    if (!part.columnwise) return layout;
    const int64_t codes = layout.swizzled ? round_up_to_power(rows, part.units.codes) : rows;
    layout.columns = (uint32_t(codes) + uint32_t(layout.block) - 1) / uint32_t(layout.block);
    return layout;
}

// Returns which amax and which decode scale of NVFP4 belong to expert or group `scope`.
MXQ_HD int64_t scope_index(const QuantizedPart& part, int64_t scope) { return scope * part.scope_stride; }

// Returns the factor above the block scales of an expert or group: the decode scale of NVFP4, else 1.
MXQ_HD float global_scale(const QuantizedPart& part, int64_t scope) {
    if (part.scale_type != ScaleType::E4M3) return 1.0f;
    const int64_t at = scope_index(part, scope);
    return part.decode_scale ? part.decode_scale[at] : nvfp4_decode_scale(part.amax[at], part.scale_max);
}

// ---- Tensors of one matrix -------------------------------------------------------------------------------------------------

// Rows [first, first + rows) of a plain tensor, `first` as stored.
inline PlainMatrix rows_of(const PlainMatrix& plain, int64_t first, int64_t rows) {
    PlainMatrix group = plain;
    group.data = static_cast<uint8_t*>(plain.data) + first * plain.row_stride * plain.element_bytes();
    group.matrices = 1;
    group.rows = rows;
    return group;
}

// Returns the numbers from number `first` on.
inline PlainArray numbers_from(const PlainArray& numbers, int64_t first) {
    if (!numbers.set()) return numbers;
    return {static_cast<const uint8_t*>(numbers.values) + first * (find_format(numbers.format)->bits / 8), numbers.format};
}

// Returns a group's rows, which have no padding, with their weights and the group's bias.
inline ActivatedMatrix group_of(const ActivatedMatrix& matrix, const GroupStart& start, int64_t rows) {
    ActivatedMatrix group = matrix;
    group.in = rows_of(matrix.in, start.codes, rows);
    group.bias = numbers_from(matrix.bias, start.index * matrix.in.cols);
    group.row_weights = numbers_from(matrix.row_weights, start.codes);
    return group;
}

inline ActivationGradient group_of(const ActivationGradient& gradient, const GroupStart& start, int64_t rows) {
    return {group_of(gradient.from, start, rows), rows_of(gradient.result, start.codes, rows)};
}

// Returns the rows of a group of what an activation makes, or of its gradient.
inline Source group_of(const Source& source, const GroupStart& start, int64_t rows) {
    Source group = source;
    if (source.is_gradient()) group.gradient = group_of(source.gradient, start, rows);
    else group.activated = group_of(source.activated, start, rows);
    group.rows = rows;
    return group;
}

// Works for a QuantizedPart and for what derives from it.
template <class Part>
Part part_of_matrix(const Part& part, int64_t index) {
    Part matrix = part;
    matrix.codes = expert_codes(part, index);
    matrix.scales = expert_scales(part, index);
    matrix.addresses = part.addresses == Addresses::Dense ? Addresses::Dense : Addresses::Strided;
    matrix.matrices = 1;
    if (part.scale_type != ScaleType::E4M3) return matrix;
    if (part.amax) matrix.amax += scope_index(part, index);
    if (part.decode_scale) matrix.decode_scale += scope_index(part, index);
    return matrix;
}

// Returns where the amaxes of a group start, among those of all.
inline int64_t amax_offset(const QuantizedPart& part, const GroupStart& start) {
    switch (part.scale_type) {
        case ScaleType::E4M3: return scope_index(part, start.index);
        case ScaleType::E8M0: return part.columnwise ? start.index * part.lines : start.codes;
        default: return group_scale_offset(part.layout, start);
    }
}

// Has the group's `rows` rows, without padding unless they count it.
template <class Part>
Part part_of_group(const Part& part, const GroupStart& start, int64_t rows) {
    Part group = part;
    group.codes = group_codes(part, start);
    group.scales = group_scales(part, start);
    group.layout = group_layout(part, rows);
    group.matrices = 1;
    (part.columnwise ? group.length : group.lines) = rows;
    if (part.amax) group.amax += amax_offset(part, start);
    if (part.decode_scale) group.decode_scale += scope_index(part, start.index);
    return group;
}

// Returns `rows` codes of every K-major row of an operand, from the start of a group along the contraction on.
inline GemmOperand contraction_of_group(const GemmOperand& operand, const GroupStart& start, int64_t rows) {
    GemmOperand group = part_of_group(operand, start, rows);
    if (operand.across) group.lines = operand.lines, group.length = rows;
    return group;
}

}  // namespace mxq
