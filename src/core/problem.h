// What kernels receive: validated views. Everything that a descriptor may leave open is settled here.
#pragma once
#include <cstdint>

#include "core/formats.h"
#include "core/layout.h"
#include "core/tensor.h"
#include "numerics/e8m0.h"

namespace mxq {

// F32, F16 or BF16: `matrices` experts of rows x cols, expert e starting at row e * rows.
struct PlainMatrix {
    void* data;
    int32_t format;  // MXQ_FORMAT_*
    int64_t matrices, rows, cols;
    int64_t row_stride;  // elements
};

// One part of a quantized tensor as stored: `matrices` x `lines` lines of `length` codes, contiguous along the contraction.
// A rowwise part of (M, K) has M lines of K, a columnwise one K lines of M.
struct QuantizedPart {
    uint8_t* codes;
    uint8_t* scales;
    int64_t matrices, lines, length;
    ScaleLayout layout;
};

struct QuantizeProblem {
    PlainMatrix in;
    int32_t format;  // of the codes
    bool has_rowwise, has_columnwise;
    bool square_tiles;  // 32x32; else 1x32
    QuantizedPart rowwise, columnwise;
    ScaleRounding scale_rounding;
    Nonfinite nonfinite;
};

struct DequantizeProblem {
    int32_t format;
    bool columnwise;  // which part `in` is
    QuantizedPart in;
    PlainMatrix out;
};

// Scales from one layout to another, part by part. in_layout and out_layout differ in `swizzled` only.
struct SwizzleProblem {
    struct Scales {
        const uint8_t* in;
        uint8_t* out;
        int64_t matrices, lines;
        ScaleLayout in_layout, out_layout;
    };
    int32_t count;
    Scales parts[2];
};

enum class Grouping { None, Rows, Contraction };

struct GemmOperand {
    const uint8_t* codes;
    const uint8_t* scales;
    int32_t format;
    int64_t matrices, lines, length;  // length: the contraction as stored
    ScaleLayout layout;
};

// D (m x n) = A B^T per product, A being m lines and B n lines of k codes: every transpose case looks like this once the
// part is picked.
//   None:         one product
//   Rows:         A's lines are the rows of all groups, B has a matrix per group, D one row per line of A
//   Contraction:  a group is the codes from 32 * start.tiles on in every line of A and of B; D has a matrix per group
struct GemmProblem {
    GemmOperand a, b;
    PlainMatrix d;
    Grouping grouping;
    Groups groups;
    int64_t group_rows;  // rows that the groups divide; ends beyond are clamped
    int64_t m, n, k;     // k: of a dense product or a group of rows; the stored length under Contraction
    bool accumulate;
};

}  // namespace mxq
