// The inner loops of the CPU backend, compiled once per instruction set from kernels.cpp. All give the same bits.
#pragma once
#include "core/problem.h"

namespace mxq::cpu {

// A piece of one expert's plain matrix. It starts on a multiple of 128 rows and of 128 columns, so that no two pieces
// share a swizzled tile of scales, and ends there or at the matrix's end.
struct Rectangle {
    int64_t matrix, row, col, rows, cols;
};

struct Kernels {
    const char* name;  // "scalar", "avx2", "avx512"
    // Codes and scales, swizzled padding included, of what lies in the rectangle. `stream`: past the caches, for outputs
    // that they could not hold.
    void (*quantize)(const QuantizeProblem&, const Rectangle&, bool stream);
    void (*dequantize)(const DequantizeProblem&, const Rectangle&, bool stream);
};

extern const Kernels scalar_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif

}  // namespace mxq::cpu
