// Sixteen fp32 numbers that are worked on at once, as each instruction set has them. Part of few_rows_kernels.cpp.
#pragma once
#include <cstdint>

#include "numerics/bits.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace mxq::cpu {
namespace {

constexpr int64_t kLanes = 16;

#if defined(__AVX512F__)
// Masks all lanes. GCC 12 warns of an uninitialized value in intrinsics without a mask.
constexpr __mmask16 kAll = 0xFFFF;

struct Lanes {
    __m512 all;
};
MXQ_HD Lanes no_lanes() { return {_mm512_setzero_ps()}; }
MXQ_HD Lanes load_lanes(const float* from) { return {_mm512_loadu_ps(from)}; }
MXQ_HD void store_lanes(const Lanes& lanes, float* to) { _mm512_storeu_ps(to, lanes.all); }
MXQ_HD Lanes times(const Lanes& lanes, float factor) { return {_mm512_mul_ps(lanes.all, _mm512_set1_ps(factor))}; }

// Returns sum + a * b, with one rounding if `fused` and the instruction set has it, else with two.
template <bool fused>
MXQ_HD Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& sum) {
    if constexpr (fused) return {_mm512_fmadd_ps(a.all, b.all, sum.all)};
    return {_mm512_add_ps(sum.all, _mm512_mul_ps(a.all, b.all))};
}
#elif defined(__AVX2__)
struct Lanes {
    __m256 low, high;
};
MXQ_HD Lanes no_lanes() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
MXQ_HD Lanes load_lanes(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
MXQ_HD void store_lanes(const Lanes& lanes, float* to) {
    _mm256_storeu_ps(to, lanes.low);
    _mm256_storeu_ps(to + 8, lanes.high);
}
MXQ_HD Lanes times(const Lanes& lanes, float factor) {
    const __m256 all = _mm256_set1_ps(factor);
    return {_mm256_mul_ps(lanes.low, all), _mm256_mul_ps(lanes.high, all)};
}
template <bool fused>
MXQ_HD Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& sum) {
    if constexpr (fused) return {_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
    return {_mm256_add_ps(sum.low, _mm256_mul_ps(a.low, b.low)), _mm256_add_ps(sum.high, _mm256_mul_ps(a.high, b.high))};
}
#else
struct Lanes {
    float values[kLanes];
};
MXQ_HD Lanes no_lanes() { return {}; }
MXQ_HD Lanes load_lanes(const float* from) {
    Lanes lanes;
    for (int64_t i = 0; i < kLanes; i++) lanes.values[i] = from[i];
    return lanes;
}
MXQ_HD void store_lanes(const Lanes& lanes, float* to) {
    for (int64_t i = 0; i < kLanes; i++) to[i] = lanes.values[i];
}
MXQ_HD Lanes times(const Lanes& lanes, float factor) {
    Lanes products;
    for (int64_t i = 0; i < kLanes; i++) products.values[i] = multiply_rn(lanes.values[i], factor);
    return products;
}
template <bool fused>
MXQ_HD Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& sum) {
    Lanes result;
    for (int64_t i = 0; i < kLanes; i++) result.values[i] = add_rn(sum.values[i], multiply_rn(a.values[i], b.values[i]));
    return result;
}
#endif

// Returns the sum of the numbers as a tree: lane l with l + 8, then l + 4, l + 2 and l + 1.
MXQ_HD float sum_of_lanes(const Lanes& lanes) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
    const __m256 low = __builtin_shufflevector(lanes.all, lanes.all, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 high = __builtin_shufflevector(lanes.all, lanes.all, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256 eight = _mm256_add_ps(low, high);
#else
    const __m256 eight = _mm256_add_ps(lanes.low, lanes.high);
#endif
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
    float sums[kLanes / 2];
    for (int64_t i = 0; i < kLanes / 2; i++) sums[i] = add_rn(lanes.values[i], lanes.values[i + kLanes / 2]);
    for (int64_t half = kLanes / 4; half > 0; half /= 2)
        for (int64_t i = 0; i < half; i++) sums[i] = add_rn(sums[i], sums[i + half]);
    return sums[0];
#endif
}

}  // namespace
}  // namespace mxq::cpu
