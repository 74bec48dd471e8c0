// Shared by the kernels with sums in registers, those of blocks and those with strips of decoded weights: the rows of B that
// are multiplied together, the rows' numbers, and what becomes of their sums. Part of few_rows_kernels.cpp.
#pragma once
#include "cpu/few_rows_kernels.h"
#include "cpu/few_rows_weights.h"

namespace mxq::cpu {
namespace {

// How many rows of plain numbers, and of B, have their sums in registers. Strips (few_rows_strips.h) are faster for more
// rows. Codes have blocks of a few rows with AVX-512 (few_rows_blocks.h), and AVX2 decodes them ahead (few_rows_ahead.h). Up
// to kTurnRows rows of plain numbers are multiplied with 64 bytes of each row of B in round-robin, which is slower with
// more.
#if defined(__AVX512F__)
constexpr int kRegisterRows = 3, kRegisterLines = 4, kTurnRows = 2;
#else
constexpr int kRegisterRows = 2, kRegisterLines = 2, kTurnRows = 1;
#endif
constexpr int kStripLines = kFewColumns;  // of a block, too

// Tells whether weights are codes.
template <class Weights>
constexpr bool has_codes = Weights::unit_bytes <= kUnit;

// Tells whether weights are plain numbers as they are stored.
template <class Weights>
constexpr bool is_plain = false;
template <class T>
constexpr bool is_plain<PlainWeights<T>> = true;

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

// Looks for codes of E4M3 that are NaN: all ones but for the sign. Without `searches` it does nothing.
template <bool searches>
struct NanSearch {
    // Looks at 32 codes. Twice those of NaN are the largest.
    MXQ_HD void look_at([[maybe_unused]] __m256i codes) {
        if constexpr (searches) most = _mm256_max_epu8(most, _mm256_add_epi8(codes, codes));
    }
    // Looks at a unit of each row of B.
    MXQ_HD void look_at([[maybe_unused]] const uint8_t* const (&codes)[kStripLines]) {
        if constexpr (searches)
            for (int c = 0; c < kStripLines; c++)
                for (int64_t i = 0; i < kUnit; i += 32)
                    look_at(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes[c] + i)));
    }
    bool found() const {
        if constexpr (searches) return _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(char(0xFE)))) != 0;
        return false;
    }

    __m256i most = _mm256_setzero_si256();  // of twice the codes
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
