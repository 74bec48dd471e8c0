// Combine: 1024 sums at a time, which start as the residual or 0. Rows of choices are loaded as fp32, multiplied and added
// one after another. Part of kernels.cpp.
#pragma once
#include "cpu/convert_kernels.h"

namespace mxq::cpu {
namespace {

struct CombineBuffers {
    alignas(64) float sums[kPatchCols] = {};
    alignas(64) float values[kPatchCols] = {};
    alignas(64) uint8_t out[kPatchCols * sizeof(float)];
};

inline float choice_weight(const ChoiceWeights& weights, int64_t choice) {
    if (!weights.set()) return 1.0f;
    return weights.format == MXQ_FORMAT_F32 ? static_cast<const float*>(weights.values)[choice]
                                            : to_float(static_cast<const Bf16*>(weights.values)[choice]);
}

// Adds values times a weight to the sums. Each product is rounded before it is added.
inline void add_products(const float* values, float weight, int64_t count, float* sums) {
    for (int64_t i = 0; i < count; i++) sums[i] = add_rn(sums[i], multiply_rn(weight, values[i]));
}

// Sums columns [col, col + count) of the choices of one token.
inline void sum_choices(const CombineProblem& problem, int64_t token, int64_t col, int64_t count, LoadRow load,
                        CombineBuffers& buffers) {
    if (problem.has_residual)
        load_row_of(problem.residual.format)(number_at(problem.residual, 0, token, col), count, buffers.sums);
    else
        memset(buffers.sums, 0, size_t(count) * sizeof(float));
    for (int64_t i = token * problem.choices; i < (token + 1) * problem.choices; i++) {
        const int64_t row = problem.choice_rows[i];
        if (row < 0) continue;
        load(number_at(problem.in, 0, row, col), count, buffers.values);
        add_products(buffers.values, choice_weight(problem.weights, i), count, buffers.sums);
    }
}

void combine_rectangle(const CombineProblem& problem, const Rectangle& region, void* scratch) {
    static_assert(sizeof(CombineBuffers) <= kScratchBytes && alignof(CombineBuffers) <= kScratchAlignment);
    CombineBuffers& buffers = *::new (scratch) CombineBuffers;
    const LoadRow load = load_row_of(problem.in.format);
    const auto convert = with_plain(problem.out.format, []<class T>(T) { return &convert_values<T>; });
    for (int64_t row = region.row; row < region.row + region.rows; row++)
        for (int64_t col = region.col; col < region.col + region.cols; col += kPatchCols) {
            const int64_t count = least(kPatchCols, region.col + region.cols - col);
            sum_choices(problem, row, col, count, load, buffers);
            convert(buffers.sums, count, buffers.out);
            memcpy(number_at(problem.out, 0, row, col), buffers.out, size_t(count * number_bytes(problem.out)));
        }
}

}  // namespace
}  // namespace mxq::cpu
