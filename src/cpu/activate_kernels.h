// Activates rectangles to plain numbers, 1024 of a row at a time, and sums gradients. Part of kernels.cpp.
#pragma once
#include "cpu/convert_kernels.h"

namespace mxq::cpu {
namespace {

void activate_rectangle(const ActivateProblem& problem, const Rectangle& region, bool stream, void* scratch) {
    const LoadValues load = loader_of(problem.quantize);
    store_rectangle(problem.out, region, stream, scratch, [&](int64_t row, int64_t col, int64_t count, float* values) {
        load(problem.quantize, {region.matrix, row, col, 1, count}, 1, count, values);
    });
}

// Stores the sums of the columns of a rectangle of gradients, row after row.
void sum_gradients(const ActivateProblem& problem, const Rectangle& region, void* scratch, float* sums) {
    auto* const values = static_cast<float*>(scratch);
    const LoadValues load = loader_of(problem.quantize);
    memset(sums, 0, size_t(region.cols) * sizeof(float));
    for (int64_t row = region.row; row < region.row + region.rows; row++)
        for (int64_t col = 0; col < region.cols; col += kPatchCols) {
            const int64_t count = least(kPatchCols, region.cols - col);
            load(problem.quantize, {region.matrix, row, region.col + col, 1, count}, 1, count, values);
            for (int64_t i = 0; i < count; i++) sums[col + i] = add_rn(sums[col + i], values[i]);
        }
}

constexpr int64_t kWeightSums = 256;  // of a row: each has the columns that are as far apart

// Adds products of what the activation makes of elements [col, col + count) of a row and of its gradient to the sums.
template <class T>
void add_row_products(const ActivationGradient& gradient, int64_t matrix, int64_t row, int64_t col, int64_t count,
                      float (&sums)[kWeightSums]) {
    float values[kWeightSums], result[kWeightSums];
    ActivatedMatrix unweighted = gradient.from;
    unweighted.row_weights = {};
    activate_row(unweighted, input_line<T>(gradient.from.in, matrix, row, 0), matrix, row, col, count, values);
    with_plain(gradient.result.format, [&]<class D>(D) {
        load_row(reinterpret_cast<const D*>(element_address(gradient.result, matrix, row, col)), count, result);
    });
    for (int64_t i = 0; i < count; i++) sums[i] = add_rn(sums[i], multiply_rn(result[i], values[i]));
}

// Returns the gradient of a row's weight, whose sums are added as a tree.
float weight_gradient(const ActivateProblem& problem, int64_t matrix, int64_t row) {
    const ActivationGradient& gradient = problem.quantize.source.gradient;
    const int64_t width = gradient.result.cols;
    float sums[kWeightSums] = {};
    for (int64_t col = 0; col < width; col += kWeightSums)
        with_plain(gradient.from.in.format, [&]<class T>(T) {
            add_row_products<T>(gradient, matrix, row, col, least(kWeightSums, width - col), sums);
        });
    for (int64_t distance = kWeightSums / 2; distance > 0; distance /= 2)
        for (int64_t i = 0; i < distance; i++) sums[i] = add_rn(sums[i], sums[i + distance]);
    return from_float<float>(sums[0]);
}

}  // namespace
}  // namespace mxq::cpu
