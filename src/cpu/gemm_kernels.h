// The inner loops of the CPU product, compiled once per instruction set from gemm_kernels.cpp. All give the same bits.
#pragma once
#include <cstdint>

#include "core/problem.h"

namespace mxq::cpu {

// Codes of the contraction that are decoded and multiplied at a time. Part of what fixes the bits of a product: sums of
// kGemmDepth products, each in order from +0, are added in order.
constexpr int64_t kGemmDepth = 256;

// Lines [first, first + count) of one product's A or B, a part of one matrix.
struct OperandLines {
    QuantizedPart part;
    int64_t first, count;

    OperandLines some(int64_t from, int64_t lines) const {
        OperandLines result = *this;
        result.first += from;
        result.count = lines;
        return result;
    }
};

// Decodes codes [k, k + depth) of the lines to fp32 and fills up with zero lines; depth is at most kGemmDepth, k a multiple
// of it. Sets extreme[i] for a line with a nonzero value out of the range in which products are exact, or rounded to normal
// numbers. Returns whether any line of this call is extreme.
using DecodeLines = bool (*)(const OperandLines& lines, int64_t k, int64_t depth, float* out, uint8_t* extreme);

// A block of D: sums[row][stride], whole register tiles.
struct GemmBlock {
    float* rows;     // of A, as decoded
    float* columns;  // of B, as decoded
    float* sums;
    int64_t row_count, column_count, stride;
};

// What becomes of a row of sums: D = alpha sums + beta D + bias, with a rounding to fp32 after each step, then to D's type.
struct Finish {
    float alpha, beta;
    int32_t d_format, bias_format;  // MXQ_FORMAT_F32, _F16, _BF16; of the bias 0: none
};

struct GemmKernels {
    int64_t rows, columns;  // of D that a register tile holds
    DecodeLines decode_rows;     // out[line][kGemmDepth], to a multiple of `rows` lines
    DecodeLines decode_columns;  // out[line / columns][depth][columns], to a multiple of `columns` lines

    // sums = (first) or += products over `depth`. exact: all of them are, and in fp32's range.
    void (*multiply)(const GemmBlock& block, int64_t depth, bool first, bool exact);

    // A row of sums to D; `bias` has an element for each.
    void (*store)(const float* sums, int64_t count, const Finish& finish, const void* bias, void* d);
};

extern const GemmKernels scalar_gemm_kernels;
#if defined(__x86_64__)
extern const GemmKernels avx2_gemm_kernels;
extern const GemmKernels avx512_gemm_kernels;
#endif

}  // namespace mxq::cpu
