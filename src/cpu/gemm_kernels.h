// The inner loops of the CPU product, compiled once per instruction set from gemm_kernels.cpp. Every one gives the same bits.
#pragma once
#include <cstdint>

#include "core/problem.h"

namespace mxq::cpu {

// How many codes of the contraction are decoded at a time.
constexpr int64_t kGemmDepth = 256;

// K-major rows [first, first + count) of A or B of one product. The part has one matrix.
struct OperandLines {
    GemmOperand part;
    int64_t first, count;

    // Returns `lines` of these K-major rows, from K-major row `from` on.
    OperandLines some(int64_t from, int64_t lines) const {
        OperandLines result = *this;
        result.first += from;
        result.count = lines;
        return result;
    }
};

// How the products of a block are made. All give the same bits, but that `values` has another order of sums for B whose
// blocks have scales.
//
//     fast      codes; what of B may not be multiplied so is told in `again`, and A has no extreme row
//     codes     sums of codes that share a scale are multiplied by it, for rows of A and of B that are not extreme
//     values    codes are multiplied by their scales first
enum class Way : uint8_t { fast, codes, values };

// Rows of A and of B, counted from the first of each, and where their sums go: sums[row][column].
struct GemmBlock {
    const OperandLines *a, *b;
    int64_t k;
    const int32_t *rows, *columns;
    int64_t row_count, column_count;
    float* sums;
    int64_t stride;
    uint8_t *extreme, *nonzero;  // set for a row of A with a nonzero value out of range, and for one that is not all zeros
    uint8_t* again;              // set for a row of B whose sums are wrong
    float* memory;               // floats_of_block() of them, in whole cache lines
    int64_t depth;               // codes of the contraction that a pass takes as fp32; twice as many as pairs of BF16
};

// Describes what becomes of a row of sums: D = alpha sums + beta D + bias, with a rounding to fp32 after each step, then to
// D's type.
struct Finish {
    float alpha, beta;
    int32_t d_format, bias_format;  // MXQ_FORMAT_F32, _F16 or _BF16; bias_format is 0 without a bias
};

struct GemmKernels {
    // Sets the sums of a block.
    void (*multiply)(const GemmBlock& block, Way way);

    // Stores codes [k, k + depth) of one K-major row as fp32. Depth is at most kGemmDepth, for which `out` has room. Returns
    // whether the row is extreme: a nonzero value is out of the range in which products are exact, or normal numbers where
    // they are rounded.
    bool (*read)(const OperandLines& line, int64_t k, int64_t depth, float* out);

    // Returns whether no scale of blocks takes a code of a K-major row out of that range.
    bool (*is_safe)(const OperandLines& line, int64_t k);

    // Stores a row of sums to D. `bias` has an element for each column.
    void (*store)(const float* sums, int64_t count, const Finish& finish, const void* bias, void* d);
};

// Rows of A that are multiplied with rows of B in L1, and rows of B that are decoded before A is multiplied with them: whole
// register tiles for every instruction set.
constexpr int64_t kGroupRows = 12, kPanelColumns = 36;

// The most rows of A, and of B, of a block.
constexpr int64_t kMostRowsOfBlock = 1024;

// Returns how many floats of memory a block takes at most.
constexpr MXQ_HD int64_t floats_of_block(int64_t rows, int64_t columns, int64_t k, int64_t depth) {
    constexpr int64_t lanes = 16;
    const int64_t all_rows = (rows + kGroupRows - 1) / kGroupRows * kGroupRows;
    const int64_t all_columns = (columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
    const int64_t of_lanes = k > depth ? all_rows * all_columns * lanes : kGroupRows * kPanelColumns * lanes;
    return (all_rows + kPanelColumns) * depth + kPanelColumns * (depth / 4 + kGemmDepth + lanes) + of_lanes;
}

extern const GemmKernels scalar_gemm_kernels;
#if defined(__x86_64__)
extern const GemmKernels avx2_gemm_kernels;
extern const GemmKernels avx512bw_gemm_kernels;
extern const GemmKernels avx512bf16_gemm_kernels;
#endif

}  // namespace mxq::cpu
