// The inner loops of the CPU backend, compiled once per instruction set from kernels.cpp. All give the same bits.
#pragma once
#include "core/layer_problem.h"
#include "numerics/fp8_scale.h"

namespace mxq::cpu {

// The memory that quantize and dequantize work in for one rectangle, and its alignment. It is no stack memory, since a
// caller's thread may have a stack of 64 KiB.
constexpr size_t kScratchBytes = size_t(640) << 10, kScratchAlignment = 64;

// A chunk of one matrix of a plain tensor, which is an expert or a group. Its rows and columns start at multiples of 128, so
// that no two chunks share a swizzled tile of scales, and end at multiples of 128 or at the matrix's end.
struct Rectangle {
    int64_t matrix, row, col, rows, cols;
};

// Where the largest magnitudes of a part are gathered, as fp32: one for each matrix or, where line_stride is not 0, for each
// K-major row.
struct Maxima {
    float* first;  // NULL where none are gathered
    int64_t matrix_stride, line_stride;

    MXQ_HD float* at(int64_t matrix, int64_t line) const { return first + matrix * matrix_stride + line * line_stride; }
};

// A quantize problem without groups, or one group of a problem as a matrix of its own: its pointers stand at the group's
// start, and its `source.rows` are the group's. A rowwise part may have more K-major rows than that, and the K-major rows of
// a columnwise part may be longer: they are padding, made as if rows of zeros followed.
struct QuantizeSlice {
    QuantizeProblem problem;
    Maxima rowwise, columnwise;
    int64_t first_row;    // the group's first line in the rowwise part
    int64_t first_chunk;  // the group's first code in a line of the columnwise part, divided by 16
};

// Returns whether quantize looks at several rows together, to find maxima down columns or to transpose.
MXQ_HD bool transposes(const QuantizeProblem& problem) {
    return problem.has_columnwise || problem.square_tiles ||
           (problem.source.is_quantized() && problem.source.quantized.columnwise);
}

namespace {

inline Fp8Rule fp8_rule_of(const QuantizeProblem& problem) {
    const float max = with_element(problem.format->element, []<class E>(E) { return E::max; });
    return {max, problem.epsilon, problem.power_of_two};
}

}  // namespace

struct Kernels {
    // Stores codes and scales, swizzled padding included, of the elements in the rectangle. Scales that stand for more than
    // a block are made from the maxima and not stored. `stream` writes past the caches, for outputs that they could not
    // hold. `scratch` is memory to work in, of kScratchBytes.
    void (*quantize)(const QuantizeSlice&, const Rectangle&, bool stream, void* scratch);
    void (*gather_maxima)(const QuantizeSlice&, const Rectangle&);
    // Stores the values of the rectangle, which counts rows and columns of the output. `stream` writes past the caches.
    // `scratch` is memory to work in, of kScratchBytes.
    void (*dequantize)(const DequantizeProblem&, const Rectangle&, bool stream, void* scratch);
    // Stores the numbers of the rectangle in the output's type, with the same arguments.
    void (*convert)(const ConvertProblem&, const Rectangle&, bool stream, void* scratch);
    // Stores the sums of the rectangle, which counts rows and columns of the output.
    void (*combine)(const CombineProblem&, const Rectangle&, void* scratch);
    // Stores what an activation makes, as plain numbers, with the same arguments.
    void (*activate)(const ActivateProblem&, const Rectangle&, bool stream, void* scratch);
    // Stores the sums of the rectangle's columns of gradients.
    void (*sum_gradients)(const ActivateProblem&, const Rectangle&, void* scratch, float* sums);
    float (*weight_gradient)(const ActivateProblem&, int64_t matrix, int64_t row);
};

extern const Kernels scalar_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512bw_kernels;
#endif

}  // namespace mxq::cpu
