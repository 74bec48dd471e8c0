// The entry of one group in cuBLASLt's arrays: where its matrices lie and how large they are. For the kernel that fills the
// arrays, and for tests on the host.
//
//                      n                k                       A, B, D in cuBLASLt's order
//     groups of rows   rows of g        all                     matrix g of our B, rows of g in our A, rows of g in D
//     contraction      all              rows of g, padded       codes of g in every row of both, matrix g of D
//       plain          all              rows of g               rows of g of both, matrix g of D
#pragma once
#include "core/group_view.h"
#include "cuda/cublaslt/description.h"

namespace mxq::cuda::lt {

// fp32 scales of 128 of our A and B that have been put group after group (arrays.h); NULL: the operand's own are used.
struct PackedScales {
    const float *a, *b;
};

// The properties that all groups of a call share.
struct GroupedCall {
    GemmProblem p;
    PackedScales packed;
};

struct GroupEntry {
    const void *a, *b, *a_scales, *b_scales;
    void* d;
    int64_t m, n, k;
};

// Returns the units of a group's second start, which is in D and in the packed scales, or in our B; the first is in our A.
MXQ_HD GroupUnits second_units(const GroupedCall& call) {
    if (call.p.grouping == Grouping::Rows) return {call.p.d.group_unit, kPackedRows};
    return call.p.b.units;
}

// Returns the floats from one expert's packed scales to the next's.
MXQ_HD int64_t packed_matrix(const GemmOperand& operand) {
    const ScaleLayout& layout = operand.layout;
    if (layout.tile_rows == 1) return operand.lines * layout.columns;
    return ceil_div(operand.lines, layout.tile_rows) * round_up(layout.columns, kPackedColumns);
}

MXQ_HD GroupEntry entry_by_rows(const GroupedCall& call, const GroupStart& first, const GroupStart& second, int64_t rows) {
    const GemmProblem& p = call.p;
    const int64_t g = first.index;
    GroupEntry entry;
    entry.a = matrix_codes(p.b, g);
    entry.b = group_codes(p.a, first);
    entry.a_scales = matrix_scales(p.b, g);
    entry.b_scales = group_scales(p.a, first);
    if (call.packed.b) entry.a_scales = call.packed.b + g * packed_matrix(p.b);
    if (call.packed.a) entry.b_scales = call.packed.a + p.a.layout.columns * second.scales;
    entry.d = static_cast<uint8_t*>(p.d.data) + second.codes * p.d.row_stride * p.d.element_bytes();
    entry.m = p.n;
    entry.n = rows;
    entry.k = p.k;
    return entry;
}

MXQ_HD const void* contraction_scales(const GemmOperand& operand, const GroupStart& start, const float* packed) {
    if (packed) return packed + start.codes / kBlock128 * operand.lines;
    return group_scales(operand, start);
}

// Returns the codes of a group along the contraction: padding is part of it, but that of plain numbers, which may be anything.
MXQ_HD int64_t depth_of_group(const GemmProblem& p, int64_t rows) {
    return p.a.across || p.b.across ? rows : round_up(rows, p.a.units.codes);
}

// A group without rows has no size at all: what reads and writes nothing cannot go wrong.
MXQ_HD GroupEntry entry_by_contraction(const GroupedCall& call, const GroupStart& first, const GroupStart& second,
                                       int64_t rows) {
    const GemmProblem& p = call.p;
    GroupEntry entry;
    entry.a = group_codes(p.b, second);
    entry.b = group_codes(p.a, first);
    entry.a_scales = contraction_scales(p.b, second, call.packed.b);
    entry.b_scales = contraction_scales(p.a, first, call.packed.a);
    entry.d = static_cast<uint8_t*>(p.d.data) + first.index * p.m * p.d.row_stride * p.d.element_bytes();
    entry.m = rows == 0 ? 0 : p.n;
    entry.n = rows == 0 ? 0 : p.m;
    entry.k = depth_of_group(p, rows);
    return entry;
}

MXQ_HD GroupEntry entry_of_group(const GroupedCall& call, const GroupStart& first, const GroupStart& second, int64_t rows) {
    return call.p.grouping == Grouping::Rows ? entry_by_rows(call, first, second, rows)
                                             : entry_by_contraction(call, first, second, rows);
}

}  // namespace mxq::cuda::lt
