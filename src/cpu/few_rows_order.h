// The order in which products of few rows sum the codes of a unit. Part of few_rows_kernels.cpp and few_rows_scalar.cpp.
//
// The order decides which products a lane sums, so it is the same for all instruction sets. Codes come out of their bytes in
// it with the fewest shuffles, and the numbers of a lane are neighbours that share a factor.
#pragma once
#include <cstdint>
#include <cstring>

#include "numerics/bits.h"

namespace mxq::cpu {
namespace {

// Lanes of a sum.
constexpr int64_t kLanes = 16;

// nibbles, bytes    of codes of four bits, and of six and eight: see code_at()
// pairs, sixteens   of plain numbers: 2 l + 1 and 2 l in lane l, or l and l + 16
enum class Order { nibbles, bytes, pairs, sixteens };

// How many codes or numbers are decoded together, and to how many vectors of sixteen.
constexpr int64_t kUnit = 128;
constexpr int kUnitVectors = int(kUnit / kLanes);

// MX codes have a factor for so many of them: those of larger blocks have copies.
constexpr int64_t kMxBlock = 32;

// Returns which number of a unit lies in a lane of a vector. A lane of 4-bit codes has the eight codes of its four bytes:
// the fifth, the first, the sixth, the second and so on. Sixteen wider codes lie in four lanes. Lane d of these has codes 2
// d, 2 d + 1, 8 + 2 d and 9 + 2 d, each odd one before its even one.
constexpr int64_t code_at(Order order, int64_t vector, int64_t lane) {
    if (order == Order::pairs) return vector / 2 * 32 + 2 * lane + 1 - vector % 2;
    if (order == Order::sixteens) return kLanes * vector + lane;
    const int64_t group = lane / 4, odd = 1 - vector % 2, pair = vector / 2;
    if (order == Order::bytes) return 64 * (pair / 2) + 16 * group + 8 * (pair % 2) + 2 * (lane % 4) + odd;
    return 8 * lane + 4 * odd + pair;
}

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

// Arranges eight neighbours: the odd ones before the even ones.
MXQ_HD void arrange_bytes(const float* codes, float* to) {
    const Four a = load_four(codes), b = load_four(codes + 4);
    store_four(__builtin_shufflevector(a, b, 1, 3, 5, 7), to);
    store_four(__builtin_shufflevector(a, b, 0, 2, 4, 6), to + kLanes);
}

// Arranges the numbers of a unit, one vector after another.
template <Order order>
MXQ_HD void arrange_as(const float* unit, float* to) {
    if constexpr (order == Order::nibbles) {
        for (int64_t i = 0; i < kUnit; i += 32) {
            transpose(unit + i + 4, 8, to + i / 8, 2 * kLanes);
            transpose(unit + i, 8, to + kLanes + i / 8, 2 * kLanes);
        }
    } else if constexpr (order == Order::bytes) {
        for (int64_t i = 0; i < kUnit; i += 8)
            arrange_bytes(unit + i, to + (i / 64 * 4 + i % 16 / 8 * 2) * kLanes + i % 64 / 16 * 4);
    } else if constexpr (order == Order::pairs) {
        for (int64_t i = 0; i < kUnit; i += 2 * kLanes)
            for (int64_t l = 0; l < kLanes; l++) to[i + l] = unit[i + 2 * l + 1], to[i + kLanes + l] = unit[i + 2 * l];
    } else {
        memcpy(to, unit, size_t(kUnit) * sizeof(float));
    }
}
void arrange(Order order, const float* unit, float* to) {
    order == Order::nibbles ? arrange_as<Order::nibbles>(unit, to)
    : order == Order::bytes ? arrange_as<Order::bytes>(unit, to)
    : order == Order::pairs ? arrange_as<Order::pairs>(unit, to)
                            : arrange_as<Order::sixteens>(unit, to);
}

}  // namespace
}  // namespace mxq::cpu
