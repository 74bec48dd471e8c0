// The inner loops of the CPU backend, compiled once per instruction set from kernels.cpp. All give the same bits.
#pragma once
#include "core/problem.h"

namespace mxq::cpu {

// A piece of one matrix of a plain tensor: of an expert or a group. It starts on a multiple of 128 rows and of 128 columns, so
// that no two pieces share a swizzled tile of scales, and ends there or at the matrix's end.
struct Rectangle {
    int64_t matrix, row, col, rows, cols;
};

// Where the largest magnitudes of a part are gathered, as fp32: for each matrix, and each line where line_stride is not 0.
struct Maxima {
    float* first;  // NULL: nowhere
    int64_t matrix_stride, line_stride;

    MXQ_HD float* at(int64_t matrix, int64_t line) const { return first + matrix * matrix_stride + line * line_stride; }
};

// A quantize problem without groups, or one group of it: a matrix of its own, whose pointers stand at the group's start and
// whose `source.rows` are the group's. The parts may have more lines (rowwise) or longer ones (columnwise): padding, as if
// rows of zeros followed.
struct QuantizeSlice {
    QuantizeProblem problem;
    Maxima rowwise, columnwise;
    int64_t first_row, first_chunk;  // of the group among the rowwise lines, and in a columnwise line by sixteens
};

// Work goes in tiles: columns are seen together.
MXQ_HD bool transposes(const QuantizeProblem& problem) {
    return problem.has_columnwise || problem.square_tiles ||
           (problem.source.is_quantized() && problem.source.quantized.columnwise);
}

struct Kernels {
    const char* name;  // "scalar", "avx2", "avx512"
    // Codes and scales, swizzled padding included, of what lies in the rectangle. Scales that stand for more than blocks are
    // made from the maxima and not stored. `stream`: past the caches, for outputs that they could not hold.
    void (*quantize)(const QuantizeSlice&, const Rectangle&, bool stream);
    // Raises the maxima to those of the rectangle.
    void (*gather_maxima)(const QuantizeSlice&, const Rectangle&);
    void (*dequantize)(const DequantizeProblem&, const Rectangle&, bool stream);
};

extern const Kernels scalar_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif

}  // namespace mxq::cpu
