// Sixteen fp32 numbers that are worked on at once, in vectors as wide as each instruction set has them. Part of
// few_rows_kernels.cpp and gemm_kernels.cpp.
//
//     kWidth    lanes of a vector
//     kParts    vectors that make sixteen lanes: part p has lanes [p kWidth, (p + 1) kWidth)
#pragma once
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "cpu/few_rows_order.h"

namespace mxq::cpu {
namespace {

#if defined(__AVX512F__)
// Masks all lanes. GCC 12 warns of an uninitialized value in intrinsics without a mask.
constexpr __mmask16 kAll = 0xFFFF;

struct Lanes {
    __m512 all;
};
MXQ_HD Lanes no_lanes() { return {_mm512_setzero_ps()}; }
MXQ_HD Lanes load_lanes(const float* from) { return {_mm512_loadu_ps(from)}; }
MXQ_HD Lanes same_lanes(const float* from) { return {_mm512_set1_ps(*from)}; }
MXQ_HD void store_lanes(const Lanes& lanes, float* to) { _mm512_storeu_ps(to, lanes.all); }
MXQ_HD Lanes times(const Lanes& a, const Lanes& b) { return {_mm512_mul_ps(a.all, b.all)}; }
MXQ_HD Lanes plus(const Lanes& a, const Lanes& b) { return {_mm512_add_ps(a.all, b.all)}; }

// Keeps the compiler from loading a vector again for each use, and from computing it where it is used.
MXQ_HD Lanes in_register(Lanes lanes) {
    asm("" : "+v"(lanes.all));
    return lanes;
}

// Returns sum + a * b, with one rounding.
MXQ_HD Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& sum) {
    return {_mm512_fmadd_ps(a.all, b.all, sum.all)};
}
#elif defined(__AVX2__)
struct Lanes {
    __m256 all;
};
MXQ_HD Lanes no_lanes() { return {_mm256_setzero_ps()}; }
MXQ_HD Lanes load_lanes(const float* from) { return {_mm256_loadu_ps(from)}; }
MXQ_HD Lanes same_lanes(const float* from) { return {_mm256_broadcast_ss(from)}; }
MXQ_HD void store_lanes(const Lanes& lanes, float* to) { _mm256_storeu_ps(to, lanes.all); }
MXQ_HD Lanes times(const Lanes& a, const Lanes& b) { return {_mm256_mul_ps(a.all, b.all)}; }
MXQ_HD Lanes plus(const Lanes& a, const Lanes& b) { return {_mm256_add_ps(a.all, b.all)}; }
MXQ_HD Lanes in_register(Lanes lanes) {
    asm("" : "+v"(lanes.all));
    return lanes;
}
MXQ_HD Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& sum) {
    return {_mm256_fmadd_ps(a.all, b.all, sum.all)};
}

// Returns two neighbours again and again.
MXQ_HD Lanes same_pairs(const float* from) {
    double pair;
    memcpy(&pair, from, sizeof pair);
    return {_mm256_castpd_ps(_mm256_set1_pd(pair))};
}
#else
struct Lanes {
    Four all;
};
MXQ_HD Lanes no_lanes() { return {Four{}}; }
MXQ_HD Lanes load_lanes(const float* from) { return {load_four(from)}; }
MXQ_HD void store_lanes(const Lanes& lanes, float* to) { store_four(lanes.all, to); }
MXQ_HD Lanes plus(const Lanes& a, const Lanes& b) { return {a.all + b.all}; }
MXQ_HD Lanes in_register(Lanes lanes) { return lanes; }
MXQ_HD Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& sum) {
    Lanes result;
    for (int i = 0; i < 4; i++) result.all[i] = fused_multiply_add(a.all[i], b.all[i], sum.all[i]);
    return result;
}
#endif

#if defined(__AVX512BF16__)
constexpr bool kHasDots = true;

// Returns sum plus the dot products of pairs of BF16, of which the upper product is added first.
MXQ_HD Lanes add_dots(const Lanes& a, const Lanes& b, const Lanes& sum) {
    return {_mm512_dpbf16_ps(sum.all, __m512bh(b.all), __m512bh(a.all))};
}
#else
constexpr bool kHasDots = false;
MXQ_HD Lanes add_dots(const Lanes&, const Lanes&, const Lanes& sum) { return sum; }  // is never called
#endif

// Keeps the compiler from knowing what is stored there. GCC kept sums in registers that it did not have, and so on the stack
// as well: two rows that are decoded ahead took up to a tenth more.
MXQ_HD void reload(float*& stored) { asm("" : "+r"(stored)); }

// Returns sum + a * b, where the product is exact. Without an instruction with one rounding, two give the same bits.
MXQ_HD Lanes add_exact(const Lanes& a, const Lanes& b, const Lanes& sum) {
#if MXQ_HOST_FUSES
    return multiply_add(a, b, sum);
#else
    return {sum.all + a.all * b.all};
#endif
}

constexpr int64_t kWidth = int64_t(sizeof(Lanes) / sizeof(float)), kParts = kLanes / kWidth;

// Returns the sum of the sixteen numbers as a tree: lane l with l + 8, then l + 4, l + 2 and l + 1.
MXQ_HD float sum_of_lanes(const Lanes (&parts)[kParts]) {
#if defined(__AVX512F__)
    const __m512& all = parts[0].all;
    const __m256 low = __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 high = __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256 eight = _mm256_add_ps(low, high);
#elif defined(__AVX2__)
    const __m256 eight = _mm256_add_ps(parts[0].all, parts[1].all);
#else
    const Four four = (parts[0].all + parts[2].all) + (parts[1].all + parts[3].all);
    return add_rn(add_rn(four[0], four[2]), add_rn(four[1], four[3]));
#endif
#if defined(__AVX2__)
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#endif
}

}  // namespace
}  // namespace mxq::cpu
