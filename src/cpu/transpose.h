// Four fp32 numbers at once, and the transpose of 4 x 4.
#pragma once
#include <cstdint>
#include <cstring>

#include "numerics/bits.h"

namespace mxq::cpu {
namespace {

typedef float Four __attribute__((vector_size(16)));

MXQ_HD Four load_four(const float* from) {
    Four four;
    memcpy(&four, from, sizeof four);
    return four;
}
MXQ_HD void store_four(Four four, float* to) { memcpy(to, &four, sizeof four); }

// Stores the transpose of 4 x 4 numbers. A stride is that of rows.
MXQ_HD void transpose(const float* from, int64_t stride, float* to, int64_t to_stride) {
    const Four a = load_four(from), b = load_four(from + stride), c = load_four(from + 2 * stride),
               d = load_four(from + 3 * stride);
    const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store_four(__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), to);
    store_four(__builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7), to + to_stride);
    store_four(__builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), to + 2 * to_stride);
    store_four(__builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7), to + 3 * to_stride);
}

}  // namespace
}  // namespace mxq::cpu
