// Shared by the kernels with sums in registers and those with strips of decoded weights: the lines of B that are multiplied
// together, the rows' numbers, and what becomes of their sums. Part of few_rows_kernels.cpp.
#pragma once
#include "cpu/few_rows_kernels.h"
#include "cpu/few_rows_weights.h"

namespace mxq::cpu {
namespace {

// How many rows and lines have their sums in registers. More rows take strips (few_rows_strips.h), which with AVX-512 are
// faster from four rows on, with AVX2 from five. Scalar code takes them early, to have fewer kernels.
#if defined(__AVX512F__)
constexpr int kRegisterRows = 3, kRegisterLines = 4;
#elif defined(__AVX2__)
constexpr int kRegisterRows = 4, kRegisterLines = 2;
#else
constexpr int kRegisterRows = 1, kRegisterLines = 1;
#endif

MXQ_HD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Lines of B that are multiplied together.
struct Columns {
    const uint8_t* codes[kFewColumns];
    const uint8_t* last[kFewColumns];  // the last unit, filled up with zeros, where the depth is no multiple of it
    const float* factors[kFewColumns];
    int64_t units;                   // whole ones
    int64_t to_next;                 // bytes from a line to the one that takes its place next
    int64_t count;                   // how many lines there are; the others repeat one
    float line_factor[kFewColumns];  // what sums are multiplied by
};

// How many floats of memory a row's numbers of a unit take.
template <Products products>
constexpr int64_t kRowFloats = products == Products::dots ? kUnit / 2 : kUnit;

// Returns vector n of a row's numbers of a unit.
template <Products products>
MXQ_HD Lanes row_lanes(const float* row, int n) {
#if defined(__AVX512BF16__)
    if constexpr (products == Products::dots) {
        const Words pairs = _mm512_loadu_si512(row + n / 2 * kLanes);
        return as_lanes(n % 2 ? lower_of(pairs) : upper_of(pairs));
    }
#endif
    return load_lanes(row + n * kLanes);
}

// Stores the sum of the lanes of a row and a line, times what all of them are multiplied by.
MXQ_HD void finish_sum(const FewRowsPass& pass, const Columns& b, int64_t row, int64_t first_column, int64_t column,
                       const Lanes (&lanes)[kParts], float scale) {
    const float sum = multiply_rn(sum_of_lanes(lanes), scale);
    pass.sums[row * pass.stride + first_column + column] = multiply_rn(sum, b.line_factor[column]);
}

}  // namespace
}  // namespace mxq::cpu
