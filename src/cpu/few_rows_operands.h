// Prepares the operands of few rows for their kernels. Part of few_rows_kernels.cpp.
#pragma once
#include "cpu/few_rows_kernels.h"
#include "cpu/few_rows_order.h"
#include "cpu/operand_reader.h"

namespace mxq::cpu {
namespace {

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

// Implements FewRowsKernels::prepare, but for what becomes of products that are dots.
void prepare_rows(FewRowsPass& pass, const OperandLines& a, const QuantizedPart& b, Arrange arrange, uint8_t* extreme,
                  uint8_t* nonzero) {
    const OperandReader reader(a.part);
    const Order order = order_of(b);
    alignas(64) float values[kGemmDepth];
    for (int64_t line = 0; line < a.count; line++) {
        for (int64_t at = 0; at < pass.depth; at += kGemmDepth) {
            const int64_t depth = least(kGemmDepth, pass.depth - at);
            if (reader.read(a.first + line, pass.k + at, depth, values)) extreme[line] = true;
            if (has_nonzero(values, depth)) nonzero[line] = true;
            float* const to = pass.rows + at * pass.row_count + line * kUnit;
            arrange_units(arrange, order, values, depth, to, pass.row_count * kUnit);
        }
    }
}

}  // namespace
}  // namespace mxq::cpu
