// Combine: 1024 sums at a time, which start as the residual or 0. Rows of choices are loaded as fp32, multiplied and added
// one after another. Part of kernels.cpp.
#pragma once
#include "cpu/convert_kernels.h"

namespace mxq::cpu {
namespace {

// Adds values times a weight to the sums. Each product is rounded before it is added.
inline void add_products(const float* values, float weight, int64_t count, float* sums) {
    for (int64_t i = 0; i < count; i++) sums[i] = add_rn(sums[i], multiply_rn(weight, values[i]));
}

// Sums columns [col, col + count) of the choices of one token.
inline void sum_choices(const CombineProblem& problem, int64_t token, int64_t col, int64_t count, LoadRow load, float* sums) {
    if (problem.has_residual)
        load_row_of(problem.residual.format)(element_address(problem.residual, 0, token, col), count, sums);
    else
        memset(sums, 0, size_t(count) * sizeof(float));
    for (int64_t i = token * problem.choices; i < (token + 1) * problem.choices; i++) {
        const int64_t row = problem.choice_rows[i];
        if (row < 0) continue;
        alignas(64) float values[kPatchCols];
        load(element_address(problem.in, 0, row, col), count, values);
        add_products(values, problem.weights.at(i), count, sums);
    }
}

void combine_rectangle(const CombineProblem& problem, const Rectangle& region, void* scratch) {
    const LoadRow load = load_row_of(problem.in.format);
    store_rectangle(problem.out, region, false, scratch, [&](int64_t row, int64_t col, int64_t count, float* sums) {
        sum_choices(problem, row, col, count, load, sums);
    });
}

}  // namespace
}  // namespace mxq::cpu
