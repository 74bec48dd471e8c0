// Holds what kernels receive: validated views. Everything that a descriptor may leave open is settled here.
#pragma once
#include <cstdint>

#include "core/formats.h"
#include "core/layout.h"
#include "core/tensor.h"
#include "numerics/activation.h"
#include "numerics/e8m0.h"

namespace mxq {

// Says where the matrices of a part lie: contiguous, at strides, or each at an address of its own. An implementation that
// takes one of these takes those before it, too. Plain matrices are dense, with any row stride, or listed.
enum class Addresses : int32_t { Dense, Strided, Listed };

// F32, F16 or BF16: `matrices` experts of rows x cols, expert e starting at row e * rows. With groups, each group's rows
// start at the sum of those before it rounded up to group_unit, and `rows` counts them without padding.
struct PlainMatrix {
    void* data;      // Listed: an array of addresses, one for each matrix
    int32_t format;  // MXQ_FORMAT_*
    int64_t matrices, rows, cols;
    int64_t row_stride;  // elements
    int32_t group_unit;  // 1 without groups
    Addresses addresses;

    int64_t elements() const { return matrices * rows * cols; }
    MXQ_HD int64_t element_bytes() const { return format == MXQ_FORMAT_F32 ? 4 : 2; }
};

// One part of a quantized tensor as stored: `matrices` x `lines` K-major rows of `length` codes. A rowwise part of (M, K)
// has M rows of K codes, a columnwise one K rows of M codes. With groups M is the padded capacity.
struct QuantizedPart {
    uint8_t* codes;
    uint8_t* scales;
    int64_t matrices, lines, length;
    int64_t line_bytes;    // from a K-major row to the next
    int64_t matrix_bytes;  // from a matrix to the next
    ScaleLayout layout;
    GroupUnits units;
    Element element;
    int32_t bits;  // of a code
    ScaleType scale_type;
    bool columnwise;
    bool transformed;  // by the random Hadamard transform, whose signs the mask has
    uint16_t hadamard_mask;
    // Holds the amax of NVFP4, and that of FP8, laid out like the scales (NULL: not wanted). With ROW scales of MX the CPU
    // keeps the maximum of each K-major row here; of columnwise groups the shape is (groups, lines).
    float* amax;
    const float* decode_scale;
    int32_t scale_max;     // NVFP4: T in docs/numerics.md, the largest block scale
    int32_t scope_stride;  // NVFP4: 1 with an amax for each expert or group, 0 with one for all
    Addresses addresses;   // Listed: codes and scales point to arrays of addresses, one for each matrix

    MXQ_HD uint8_t* line(int64_t matrix, int64_t index) const { return codes + matrix * matrix_bytes + index * line_bytes; }
};

// The groups of a call: `ends` on the device's side, in rows without padding, and how many rows they divide.
struct GroupedRows {
    Groups groups;
    int64_t rows;
    bool set() const { return groups.set; }
};

enum class FourOverSix : int32_t { None = 0, Mae = 1, Mse = 2 };  // values of MXQ_FOUR_OVER_SIX_*

// Numbers of F32, F16 or BF16, one after another.
struct PlainArray {
    const void* values;
    int32_t format;  // MXQ_FORMAT_*; 0: none
    MXQ_HD bool set() const { return format != 0; }
};

// Rows of gates and ups, or of the inputs of an activation without a gate. Element i of a row of the result comes from columns
// gate + i * step and up + i * step of `in`. Groups of its rows have no padding.
struct ActivatedMatrix {
    PlainMatrix in;
    Activation kind;
    ActivationNumbers numbers;
    int32_t step;
    int64_t gate, up;
    PlainArray bias;         // in.cols for each expert or group
    PlainArray row_weights;  // one for each row of all experts
};

// The gradients of gates and ups, in the columns of those: `result` has that of what the activation makes.
struct ActivationGradient {
    ActivatedMatrix from;
    PlainMatrix result;
};

enum class SourceKind : int32_t { Plain, Quantized, Activated, ActivationGradient };

// The input of a quantize: `matrices` experts of rows x cols, stored as plain numbers or as one part of a quantized tensor, or
// made by an activation or by its gradient. With groups, `rows` counts them without padding.
struct Source {
    SourceKind kind = SourceKind::Plain;
    int64_t matrices = 0, rows = 0, cols = 0;
    union {
        PlainMatrix plain{};
        QuantizedPart quantized;
        ActivatedMatrix activated;
        ActivationGradient gradient;
    };

    MXQ_HD bool is_plain() const { return kind == SourceKind::Plain; }
    MXQ_HD bool is_quantized() const { return kind == SourceKind::Quantized; }
    MXQ_HD bool is_activated() const { return kind == SourceKind::Activated; }
    MXQ_HD bool is_gradient() const { return kind == SourceKind::ActivationGradient; }
    // Returns what the start of each group is rounded up to: among its rows, and among its scales.
    MXQ_HD GroupUnits group_units() const {
        return is_quantized() ? quantized.units : GroupUnits{is_plain() ? plain.group_unit : 1, 1};
    }
};

inline Source plain_source(const PlainMatrix& plain) {
    Source source{};
    source.kind = SourceKind::Plain;
    source.matrices = plain.matrices, source.rows = plain.rows, source.cols = plain.cols;
    source.plain = plain;
    return source;
}

inline Source quantized_source(const QuantizedPart& part, int64_t rows, int64_t cols) {
    Source source{};
    source.kind = SourceKind::Quantized;
    source.matrices = part.matrices, source.rows = rows, source.cols = cols;
    source.quantized = part;
    return source;
}

static_assert(sizeof(ActivationGradient) <= sizeof(QuantizedPart), "the argument of quantize kernels does not grow");

inline Source activated_source(const ActivatedMatrix& matrix, int64_t cols) {
    Source source{};
    source.kind = SourceKind::Activated;
    source.matrices = matrix.in.matrices, source.rows = matrix.in.rows, source.cols = cols;
    source.activated = matrix;
    return source;
}

inline Source gradient_source(const ActivationGradient& gradient) {
    Source source{};
    const PlainMatrix& in = gradient.from.in;
    source.kind = SourceKind::ActivationGradient;
    source.matrices = in.matrices, source.rows = in.rows, source.cols = in.cols;
    source.gradient = gradient;
    return source;
}

// Quantizes a source to the parts of `out`. Kernels get it as an argument, which no launch finds in the constant cache: each
// 64 bytes that a thread block reads cost about 0.07 us. So the fields that all kernels need come first, and are small.
struct QuantizeProblem {
    GroupedRows grouped;
    bool has_rowwise, has_columnwise;
    bool square_tiles;             // tile.lines > 1: both parts have the same values
    bool compute_amax;             // NVFP4: into the parts' amax, before all else
    bool power_of_two;             // FP8
    float epsilon;                 // FP8
    ScaleRounding scale_rounding;  // MX
    Nonfinite nonfinite;           // MX
    Source source{};
    QuantizedPart rowwise, columnwise;

    const Format* format;             // of out
    Scaling tile;                     // what shares a scale
    FourOverSix four_over_six;        // NVFP4
    const uint64_t* seed_offset;      // stochastic rounding of E2M1; NULL: to nearest
    const float* quantization_scale;  // FP8 TENSOR, delayed; NULL: from the amax
    RowIndices by_index;              // of a plain source
};

inline bool is_transformed(const QuantizeProblem& p) { return p.rowwise.transformed || p.columnwise.transformed; }

// Returns whether a run would write nothing.
template <class Problem>
bool is_nothing(const Problem&) {
    return false;
}

// An amax or a scale that stands for all elements is written without any, too.
inline bool is_nothing(const QuantizeProblem& p) {
    return p.source.matrices * p.source.rows * p.source.cols == 0 && !p.compute_amax && p.tile.lines != 0;
}

// Computes the amax of the source for each part of `out` that has a buffer for it.
struct AmaxProblem {
    QuantizeProblem quantize;
};

// Quantizes the source of `quantize`, which is what an activation makes or its gradient, or stores it in a plain `out`.
struct ActivateProblem {
    QuantizeProblem quantize;
    bool quantizes;
    PlainMatrix out;         // where it does not
    float* bias_gradient;    // of each expert or group, in.cols each; NULL: not wanted
    float* weight_gradient;  // of each row; NULL: not wanted
    int64_t first_bias;      // where this is one group: its number
};

inline bool is_nothing(const ActivateProblem& p) {
    if (p.bias_gradient || p.weight_gradient) return false;
    return p.quantizes ? is_nothing(p.quantize) : p.out.elements() == 0;
}

struct DequantizeProblem {
    const Format* format;
    bool columnwise;   // which part `in` is
    QuantizedPart in;  // `transformed` where the transform is undone
    PlainMatrix out;
    GroupedRows grouped;
};
inline bool is_nothing(const DequantizeProblem& p) { return p.out.elements() == 0; }

// Converts plain numbers from one type to another.
struct ConvertProblem {
    PlainMatrix in, out;
    RowIndices by_index;  // of in
};
inline bool is_nothing(const ConvertProblem& p) { return p.out.elements() == 0; }

// Moves scales from one layout to another, part by part.
struct SwizzleProblem {
    struct Scales {
        const uint8_t* in;
        uint8_t* out;
        int64_t matrices, lines, length;
        ScaleLayout in_layout, out_layout;
        GroupUnits in_units, out_units;
        bool columnwise;
        Addresses in_addresses;
    };
    int32_t count;
    Scales parts[2];
    GroupedRows grouped;
};

// Groups without rows may have compact scales.
inline bool is_nothing(const SwizzleProblem& p) {
    const SwizzleProblem::Scales& first = p.parts[0];
    return first.matrices * first.lines * first.length == 0 && (!p.grouped.set() || first.out_layout.swizzled);
}

// Moves groups of rows from one padding to another, for pad_groups and unpad_groups alike. A plain tensor is one
// rowwise part without scales. Rowwise: a row of a group has `line_bytes` bytes. Columnwise: a group is a range of columns
// of each of `lines` K-major rows, `bits` each.
struct PadProblem {
    struct Side {
        uint8_t* codes;
        int64_t line_stride;  // bytes
        uint8_t* scales;      // NULL: a plain tensor
        ScaleLayout layout;
        GroupUnits units;
    };
    struct Part {
        Side in, out;
        bool columnwise;
        int64_t lines;       // columnwise
        int64_t line_bytes;  // rowwise
        int32_t bits;
        void *starts, *ends;  // NULL: not wanted; integers of the groups' type
        int32_t tile_lines;   // that share a scale, as in Scaling
    };
    int32_t count;
    Part parts[2];
    GroupedRows grouped;
    RowIndices by_index;  // of a plain tensor that is padded
};
inline bool is_nothing(const PadProblem& p) { return p.grouped.groups.count == 0; }

enum class Grouping { None, Rows, Contraction };

enum class Side { A, B };  // which operand of a product

// Codes and scales, or with ScaleType::None plain elements. The product takes `lines` K-major rows of `length` codes. Where
// `across` is set, the operand is stored MN-major. A stored row then has code k of each of the `lines`, and the next,
// `line_bytes` further, code k + 1. `layout` describes the scales of stored rows.
struct GemmOperand : QuantizedPart {
    int32_t format;
    int32_t tile_lines;  // that share a scale, as in Scaling, however it is stored
    bool across;         // MN-major
};

// Returns whether the sums of each K-major row of an operand have one fp32 factor: the scale of FP8, or the global scale of
// NVFP4, which multiplies its block scales.
MXQ_HD bool has_line_factors(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::E4M3 ||
           (operand.scale_type == ScaleType::F32 && operand.layout.block == MXQ_MAX_DIM);
}

// Returns whether an operand has an fp32 scale for every 128 codes, which multiplies sums of as many products.
MXQ_HD bool has_scales_of_128(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::F32 && operand.layout.block == kBlock128;
}

// One number for each column of D; of groups of rows, n of them for each group, group after group.
using Bias = PlainArray;

// D (m x n) = alpha A B^T + beta D + bias per product. A has m and B has n K-major rows of k codes. Every transpose case
// looks like this once the part is picked.
//   None:         one product
//   Rows:         A's K-major rows are the rows of all groups, B has a matrix per group, D one row per row of A
//   Contraction:  a group is the codes from its start on in every K-major row of A and of B; D has a matrix per group
struct GemmProblem {
    GemmOperand a, b;
    PlainMatrix d;
    Grouping grouping;
    Groups groups;
    int64_t group_rows;  // rows that the groups divide; ends beyond are clamped
    int64_t m, n, k;     // k: of a dense product or a group of rows; the stored length under Contraction
    float alpha = 1, beta = 0;
    Bias bias{};
    bool exact_products;    // no operand may be rounded before it is multiplied
    int32_t sm_count;       // SMs that the product may take; 0: all
    bool row_invariant;     // the bits of a row of D depend on no other row of A
    const void* host_ends;  // the values of groups.ends, in host memory; NULL: the device alone has them
    RowIndices a_by_index, b_by_index;  // of plain operands

    const GemmOperand& operand(Side side) const { return side == Side::A ? a : b; }
    // Grouping::Rows divides the rows of A alone: B has a matrix for each group.
    Grouping grouping_of(Side side) const {
        return grouping == Grouping::Rows && side == Side::B ? Grouping::None : grouping;
    }
    MXQ_HD bool reads_d() const { return !is_zero(beta); }
    // Returns whether D = A B^T, without alpha, beta and bias.
    MXQ_HD bool is_sum_alone() const { return alpha == 1 && !reads_d() && bias.format == 0; }
    // Returns whether a contraction over `depth` codes leaves D as it is.
    MXQ_HD bool leaves_d(int64_t depth) const { return depth == 0 && beta == 1 && bias.format == 0; }
};
inline bool is_nothing(const GemmProblem& p) { return p.d.elements() == 0; }

// Returns how far apart the matrices that a problem reads may lie. What it writes is dense.
template <class Problem>
Addresses addresses_of(const Problem&) {
    return Addresses::Dense;
}
inline Addresses addresses_of(const QuantizeProblem& p) {
    const Source& from = p.source;
    switch (from.kind) {
        case SourceKind::Quantized: return from.quantized.addresses;
        case SourceKind::Activated: return from.activated.in.addresses;
        case SourceKind::ActivationGradient: {
            const Addresses in = from.gradient.from.in.addresses, result = from.gradient.result.addresses;
            return in > result ? in : result;
        }
        default: return from.plain.addresses;
    }
}
inline Addresses addresses_of(const ActivateProblem& p) { return addresses_of(p.quantize); }
inline Addresses addresses_of(const AmaxProblem& p) { return addresses_of(p.quantize); }
inline Addresses addresses_of(const ConvertProblem& p) { return p.in.addresses; }
inline Addresses addresses_of(const DequantizeProblem& p) { return p.in.addresses; }
inline Addresses addresses_of(const GemmProblem& p) { return p.a.addresses > p.b.addresses ? p.a.addresses : p.b.addresses; }
inline Addresses addresses_of(const SwizzleProblem& p) {
    Addresses most = Addresses::Dense;
    for (int32_t i = 0; i < p.count; i++)
        if (p.parts[i].in_addresses > most) most = p.parts[i].in_addresses;
    return most;
}

// Returns whether a problem has an MN-major operand.
template <class Problem>
bool reads_across(const Problem&) {
    return false;
}
inline bool reads_across(const GemmProblem& p) { return p.a.across || p.b.across; }

// Returns whether the bits of a row must not depend on other rows.
template <class Problem>
bool is_row_invariant(const Problem&) {
    return false;
}
inline bool is_row_invariant(const GemmProblem& p) { return p.row_invariant; }

}  // namespace mxq
