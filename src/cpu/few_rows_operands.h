// Prepares the operands of few rows for their kernels. Part of few_rows_kernels.cpp and
// few_rows_scalar.cpp.
#pragma once
#include "cpu/few_rows_kernels.h"
#include "cpu/few_rows_order.h"
#include "cpu/operand_reader.h"

namespace mxq::cpu {
namespace {

MXQ_HD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Tells whether one fp32 scale stands for a whole row of B.
bool has_line_scale(const QuantizedPart& part) {
    return part.scale_type == ScaleType::F32 && part.layout.block == MXQ_MAX_DIM;
}

// Returns what the sums of a row of B are multiplied by: FP8's scale of a whole row, or NVFP4's global scale.
float factor_of_sums(const QuantizedPart& b, int64_t line) {
    if (!has_line_scale(b)) return global_scale(b, 0);
    float factor;
    load_factors(b, 0, line, 0, 1, &factor);
    return factor;
}

// Returns the order of the products with these weights.
Order order_of(const QuantizedPart& b) {
    if (b.scale_type != ScaleType::None) return b.bits == 4 ? Order::nibbles : Order::bytes;
    return b.element == Element::Bf16 ? Order::pairs : Order::sixteens;
}

// Sums of products of rows in range with BF16 numbers that are zero or in [2^-45, 2^62), which are multiples of 2^-74, are
// zero or normal numbers. These are the magnitudes' bits.
constexpr uint16_t kLeastExact = (127 - 45) << 7, kBeyondExact = (127 + 62) << 7;

// Returns whether all these BF16 numbers are zero or in [kLeastExact, kBeyondExact).
bool are_exact(const uint8_t* numbers, int64_t count) {
    uint16_t smallest = 0xFFFF, largest = 0;  // the first of all but zeros, less one
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, numbers + i * int64_t(sizeof bits), sizeof bits);
        const uint16_t magnitude = bits & 0x7FFF, less_one = uint16_t(magnitude - 1);
        smallest = less_one < smallest ? less_one : smallest;
        largest = magnitude > largest ? magnitude : largest;
    }
    return smallest >= kLeastExact - 1 && largest < kBeyondExact;
}

// Stores the values of a unit in an order.
using Arrange = void (*)(Order order, const float* unit, float* to);

// Stores `depth` values in an order, unit by unit, and fills up the last unit with zeros. `values` has room for that.
void arrange_units(Arrange arrange, Order order, float* values, int64_t depth, float* to, int64_t to_stride) {
    const int64_t whole = round_up(depth, kUnit);
    for (int64_t i = depth; i < whole; i++) values[i] = 0;
    for (int64_t i = 0; i < whole; i += kUnit) arrange(order, values + i, to + i / kUnit * to_stride);
}

// Tells whether one of the values is not zero.
bool has_nonzero(const float* values, int64_t count) {
    uint32_t any = 0;
    for (int64_t i = 0; i < count; i++) any |= float_bits(values[i]) & kMagnitudeMask;
    return any != 0;
}

// Implements FewRowsKernels::prepare, but for what becomes of products that are dots.
void prepare_rows(FewRowsPass& pass, const OperandLines& a, const QuantizedPart& b, Arrange arrange, uint8_t* extreme,
                  uint8_t* nonzero) {
    const OperandReader reader(a.part);
    const Order order = order_of(b);
    alignas(64) float values[kGemmDepth];
    bool any_extreme = false;
    for (int64_t line = 0; line < a.count; line++) {
        for (int64_t at = 0; at < pass.depth; at += kGemmDepth) {
            const int64_t depth = least(kGemmDepth, pass.depth - at);
            if (reader.read(a.first + line, pass.k + at, depth, values)) extreme[line] = true;
            if (has_nonzero(values, depth)) nonzero[line] = true;
            float* const to = pass.rows + at * pass.row_count + line * kUnit;
            arrange_units(arrange, order, values, depth, to, pass.row_count * kUnit);
        }
        any_extreme |= extreme[line] != 0;
    }
    if (any_extreme) pass.products = Products::scaled;
}

}  // namespace
}  // namespace mxq::cpu
