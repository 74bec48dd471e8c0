// The order in which products sum the codes of a unit. Part of few_rows_kernels.cpp and gemm_kernels.cpp.
//
// The order decides which products a lane sums, so it is the same for all instruction sets. Codes come out of their bytes in
// it with the fewest shuffles, and the numbers of a lane are neighbours that share a factor.
#pragma once
#include "core/layout.h"
#include "cpu/transpose.h"

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

// Packs a unit to pairs of BF16, the first vector of two in the upper halves.
MXQ_HD void pack_unit(const float* unit, float* to) {
    for (int64_t i = 0; i < kUnit; i += 2 * kLanes)
        for (int64_t l = 0; l < kLanes; l++)
            to[i / 2 + l] = bits_float((float_bits(unit[i + l]) & 0xFFFF0000) | float_bits(unit[i + kLanes + l]) >> 16);
}

// Stores values in an order, unit by unit, as they are or as pairs of BF16. Fills up the last unit with zeros, for which
// `values` has room.
void store_units(Order order, bool packed, float* values, int64_t depth, float* to, int64_t stride) {
    for (int64_t i = depth; i % kUnit != 0; i++) values[i] = 0;
    for (int64_t i = 0; i < depth; i += kUnit, to += stride) {
        alignas(64) float unit[kUnit];
        arrange(order, values + i, packed ? unit : to);
        if (packed) pack_unit(unit, to);
    }
}

}  // namespace
}  // namespace mxq::cpu
