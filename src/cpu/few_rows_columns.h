// Shared by all kernels of few rows: the rows of B that are multiplied together, and what becomes of their sums. Part of
// few_rows_kernels.cpp.
#pragma once
#include "cpu/few_rows_kernels.h"
#include "cpu/few_rows_weights.h"

namespace mxq::cpu {
namespace {

constexpr int kStripLines = kFewColumns;  // of a block, too

// Tells whether weights are codes.
template <class Weights>
constexpr bool has_codes = Weights::unit_bytes <= kUnit;

// The most factors of a row of B that a pass takes, with some to read beyond the last.
constexpr int64_t kMostFactors = kMostDepth / kSixteen + kLanes;

// Rows of B that are multiplied together. With AVX2 they lie at equal distances, and their factors kMostFactors apart.
struct Columns {
    const uint8_t* codes[kFewColumns];
    const uint8_t* last[kFewColumns];  // the last unit, filled up with zeros, where the depth is no multiple of it
    const float* factors[kFewColumns];
    int64_t units;                   // whole ones
    int64_t to_next;                 // bytes from a line to the one that is prefetched meanwhile
    int64_t first, apart, count;     // lines first, first + apart, ... of those of the task: `count`, the others repeat one
    float line_factor[kFewColumns];  // what sums are multiplied by
};

// How many floats of memory a row's numbers of a unit take.
template <Products products>
constexpr int64_t kRowFloats = products == Products::dots ? kUnit / 2 : kUnit;

// Returns the sum of the lanes as sum_of_lanes() does, where they are interleaved as those of codes of four bits may be.
MXQ_HD float sum_of_placed_lanes([[maybe_unused]] Order order, const Lanes (&lanes)[kParts]) {
#if !defined(__AVX512F__)
    if (order == Order::nibbles) {
        const __m256 eight = _mm256_hadd_ps(lanes[0].all, lanes[1].all);  // of lanes 0 1 4 5 | 2 3 6 7
        const __m128 low = _mm256_castps256_ps128(eight), high = _mm256_extractf128_ps(eight, 1);
        const __m128 two = _mm_add_ps(_mm_add_ps(low, _mm_movehl_ps(low, low)), _mm_add_ps(high, _mm_movehl_ps(high, high)));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }
#endif
    return sum_of_lanes(lanes);
}

// Stores the sum of the lanes of a row and a row of B, times what all of them are multiplied by.
MXQ_HD void finish_sum(const FewRowsPass& pass, const Columns& b, int64_t row, int64_t column, const Lanes (&lanes)[kParts],
                       Order order, float scale) {
    const float sum = multiply_rn(sum_of_placed_lanes(order, lanes), scale);
    pass.sums[row * pass.stride + b.first + column * b.apart] = multiply_rn(sum, b.line_factor[column]);
}

}  // namespace
}  // namespace mxq::cpu
