// Sums of the rows of each token's choices and their gradients, written from docs/numerics.md, one rounding after another.
#ifndef MXQ_TESTS_COMBINE_H
#define MXQ_TESTS_COMBINE_H

#include "routing.h"

namespace testing {

// Returns the sums by their rule, one rounding after another.
inline oracle::Floats combined(const Choices& c, const std::vector<int32_t>& choice_rows, const oracle::Floats& x,
                               const oracle::Floats& residual, int64_t cols) {
    oracle::Floats out;
    for (int64_t t = 0; t < c.tokens; ++t)
        for (int64_t col = 0; col < cols; ++col) {
            volatile float sum = residual.empty() ? 0.0f : residual[static_cast<size_t>(t * cols + col)];
            for (int64_t i = t * c.choices; i < (t + 1) * c.choices; ++i) {
                const int32_t row = choice_rows[static_cast<size_t>(i)];
                if (row < 0) continue;
                const float weight = c.weights.empty() ? 1.0f : c.weights[static_cast<size_t>(i)];
                const volatile float product = weight * x[static_cast<size_t>(row * cols + col)];
                sum = sum + product;
            }
            out.push_back(static_cast<float>(sum));
        }
    return out;
}

inline float times(float a, float b) {
    const volatile float product = a * b;
    return product;
}
inline float plus(float a, float b) {
    const volatile float sum = a + b;
    return sum;
}

// Returns the sum of 256 sums of products, as a tree.
inline float sum_of_products(const float* a, const float* b, int64_t cols) {
    oracle::Floats sums(256, 0.0f);
    for (int64_t i = 0; i < cols; ++i) {
        float& sum = sums[static_cast<size_t>(i % 256)];
        sum = plus(sum, times(a[i], b[i]));
    }
    for (size_t distance = 128; distance; distance /= 2)
        for (size_t i = 0; i < distance; ++i) sums[i] = plus(sums[i], sums[i + distance]);
    return sums[0];
}

}  // namespace testing

#endif
