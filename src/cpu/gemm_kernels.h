// The inner loops of the CPU product, compiled once per instruction set from gemm_kernels.cpp. Every one gives the same bits.
#pragma once
#include <cstdint>

#include "core/problem.h"

namespace mxq::cpu {

// How many codes of the contraction are decoded and multiplied at a time. It is part of what fixes the bits of a product:
// sums of kGemmDepth products, each summed in order from +0, are added in order.
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

// Decodes codes [k, k + depth) of the K-major rows to fp32 and fills up with zero K-major rows; depth is at most kGemmDepth,
// k a multiple of it. Sets extreme[i] for a K-major row with a nonzero value out of the range in which products are exact,
// or rounded to normal numbers. Returns whether any K-major row of this call is extreme.
using DecodeLines = bool (*)(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme);

// A block of D in whole register tiles, with the K-major rows that it is made of.
struct GemmBlock {
    float* rows;     // the lines of A, from decode_rows
    float* columns;  // the lines of B, from decode_columns
    float* sums;     // sums[row][stride]
    int64_t row_count, column_count, stride;
};

// Describes what becomes of a row of sums: D = alpha sums + beta D + bias, with a rounding to fp32 after each step, then to
// D's type.
struct Finish {
    float alpha, beta;
    int32_t d_format, bias_format;  // MXQ_FORMAT_F32, _F16 or _BF16; bias_format is 0 without a bias
};

struct GemmKernels {
    int64_t rows, columns;       // the size of a register tile of D
    DecodeLines decode_rows;     // fills out[line][kGemmDepth] up to a multiple of `rows` lines
    DecodeLines decode_columns;  // fills out[line / columns][depth][columns] up to a multiple of `columns` lines

    // Sets the sums to those of the products over `depth` if `first`, else adds them. `exact` tells that every product is
    // exact and in fp32's range.
    void (*multiply)(const GemmBlock& block, int64_t depth, bool first, bool exact);

    // Stores a row of sums to D. `bias` has an element for each column.
    void (*store)(const float* sums, int64_t count, const Finish& finish, const void* bias, void* d);
};

extern const GemmKernels scalar_gemm_kernels;
#if defined(__x86_64__)
extern const GemmKernels avx2_gemm_kernels;
extern const GemmKernels avx512bw_gemm_kernels;
#endif

}  // namespace mxq::cpu
