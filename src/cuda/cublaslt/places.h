// Where one group of a grouped product lies, and how large it is, in cuBLASLt's terms: for the kernel that fills its arrays,
// and for tests on the host.
//
//                      their n        their k                 their A, B, D
//     groups of rows   rows of g      all                     matrix g of our B, lines of g in our A, rows of g in D
//     contraction      all            rows of g, padded       codes of g in every line of both, matrix g of D
#pragma once
#include "cuda/cublaslt/problem.h"

namespace mxq::cuda::lt {

// fp32 scales of 128 that have been put group after group (arrays.h); NULL: the operand's own are used. Ours.
struct PackedScales {
    const float *a, *b;
};

struct GroupedCall {
    GemmProblem p;
    PackedScales packed;
    int32_t d_bytes;  // of an element
};

struct Places {
    const void *a, *b, *a_scales, *b_scales;  // theirs
    void* d;
    int64_t m, n, k;
};

// The units in which the starts of a group are counted: in our A, and in D and the packed scales or in our B.
MXQ_HD GroupUnits second_units(const GroupedCall& call) {
    if (call.p.grouping == Grouping::Rows) return {call.p.d.group_unit, kPackedRows};
    return call.p.b.units;
}

MXQ_HD const void* scales_at(const GemmOperand& operand, int64_t offset) {
    return operand.scales + offset * operand.layout.bytes;
}

// Floats from one expert's packed scales to the next's.
MXQ_HD int64_t packed_matrix(const GemmOperand& operand) {
    const ScaleLayout& layout = operand.layout;
    if (layout.tile_rows == 1) return operand.lines * layout.columns;
    return ceil_div(operand.lines, layout.tile_rows) * round_up(layout.columns, kPackedColumns);
}

MXQ_HD Places places_by_rows(const GroupedCall& call, const GroupStart& first, const GroupStart& second, int64_t rows) {
    const GemmProblem& p = call.p;
    const int64_t g = first.index;
    Places at;
    at.a = p.b.codes + g * p.b.lines * p.b.line_bytes;
    at.b = p.a.codes + first.codes * p.a.line_bytes;
    at.a_scales = call.packed.b ? call.packed.b + g * packed_matrix(p.b) : scales_at(p.b, g * p.b.layout.matrix_scales);
    at.b_scales = call.packed.a ? call.packed.a + p.a.layout.columns * second.scales
                                : scales_at(p.a, group_scale_offset(p.a.layout, first));
    at.d = static_cast<uint8_t*>(p.d.data) + second.codes * p.d.row_stride * call.d_bytes;
    at.m = p.n;
    at.n = rows;
    at.k = p.k;
    return at;
}

MXQ_HD const void* contraction_scales(const GemmOperand& operand, const GroupStart& start, const float* packed) {
    if (packed) return packed + start.codes / kWideBlock * operand.lines;
    return scales_at(operand, group_scale_offset(operand.layout, start));
}

// A group without rows has no size at all: what reads and writes nothing cannot go wrong.
MXQ_HD Places places_by_contraction(const GroupedCall& call, const GroupStart& first, const GroupStart& second,
                                           int64_t rows) {
    const GemmProblem& p = call.p;
    Places at;
    at.a = p.b.codes + second.codes * p.b.bits / 8;
    at.b = p.a.codes + first.codes * p.a.bits / 8;
    at.a_scales = contraction_scales(p.b, second, call.packed.b);
    at.b_scales = contraction_scales(p.a, first, call.packed.a);
    at.d = static_cast<uint8_t*>(p.d.data) + first.index * p.m * p.d.row_stride * call.d_bytes;
    at.m = rows == 0 ? 0 : p.n;
    at.n = rows == 0 ? 0 : p.m;
    at.k = round_up(rows, p.a.units.codes);
    return at;
}

MXQ_HD Places places_of_group(const GroupedCall& call, const GroupStart& first, const GroupStart& second, int64_t rows) {
    return call.p.grouping == Grouping::Rows ? places_by_rows(call, first, second, rows)
                                             : places_by_contraction(call, first, second, rows);
}

}  // namespace mxq::cuda::lt
