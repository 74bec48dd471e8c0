// Computes on the host, in the plainest way, what the kernels of examples/expert_parallel do on a device.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels.hpp"

void count_slots(const Choices& choices, int32_t* counts, cudaStream_t) {
    for (int32_t e = 0; e < choices.expert_count; ++e)
        counts[e] = int32_t(std::count(choices.experts, choices.experts + choices.slots(), e));
}

void place_slots(const Choices& choices, const int32_t* counts, int32_t capacity, int64_t rows, int32_t* row_of_slot,
                 int32_t* slot_of_row, cudaStream_t) {
    std::fill(row_of_slot, row_of_slot + choices.slots(), -1);
    std::fill(slot_of_row, slot_of_row + rows, -1);
    int32_t first = 0;
    for (int32_t e = 0; e < choices.expert_count; ++e) {
        int32_t row = first;
        first += capacity > 0 ? capacity : counts[e];
        for (int64_t slot = 0; slot < choices.slots(); ++slot) {
            if (choices.experts[slot] != e || row == first) continue;
            row_of_slot[slot] = row;
            slot_of_row[row++] = int32_t(slot);
        }
    }
}

void group_ends(const int32_t* counts, int32_t ranks, int32_t expert_count, int32_t first, int32_t own, int32_t* ends,
                cudaStream_t) {
    for (int32_t e = 0, end = 0; e < own; ++e) {
        for (int32_t rank = 0; rank < ranks; ++rank) end += counts[rank * expert_count + first + e];
        ends[e] = end;
    }
}

void order_rows(const void* from, const int32_t* slot_of_row, int32_t divisor, int64_t rows, int64_t row_bytes, void* to,
                cudaStream_t) {
    for (int64_t row = 0; row < rows; ++row) {
        auto* target = static_cast<std::byte*>(to) + row * row_bytes;
        std::memset(target, 0, size_t(row_bytes));
        if (slot_of_row[row] < 0) continue;
        std::memcpy(target, static_cast<const std::byte*>(from) + slot_of_row[row] / divisor * row_bytes, size_t(row_bytes));
    }
}

void activate(const bf16* z, const float* weights, int64_t rows, int64_t cols, bf16* h, cudaStream_t) {
    for (int64_t i = 0; i < rows * cols; ++i) {
        const float value = __bfloat162float(z[i]);
        h[i] = __float2bfloat16_rn(weights[i / cols] * (value / (1 + std::exp(-value))));
    }
}

void activate_backward(const bf16* z, const bf16* dh, const float* weights, int64_t rows, int64_t cols, bf16* dz,
                       float* weight_gradients, cudaStream_t) {
    std::fill(weight_gradients, weight_gradients + rows, 0.0f);
    for (int64_t i = 0; i < rows * cols; ++i) {
        const float value = __bfloat162float(z[i]), gradient = __bfloat162float(dh[i]), s = 1 / (1 + std::exp(-value));
        weight_gradients[i / cols] += gradient * value * s;
        dz[i] = __float2bfloat16_rn(weights[i / cols] * gradient * (s * (1 + value * (1 - s))));
    }
}

void combine(const bf16* rows, const int32_t* row_of_slot, int64_t tokens, int32_t top, int64_t cols, bf16* out,
             cudaStream_t) {
    for (int64_t token = 0; token < tokens; ++token)
        for (int64_t c = 0; c < cols; ++c) {
            float sum = 0;
            for (int32_t j = 0; j < top; ++j) {
                const int32_t row = row_of_slot[token * top + j];
                if (row >= 0) sum += __bfloat162float(rows[row * cols + c]);
            }
            out[token * cols + c] = __float2bfloat16_rn(sum);
        }
}

void return_numbers(const float* of_rows, const int32_t* row_of_slot, int64_t slots, float* of_slots, cudaStream_t) {
    for (int64_t slot = 0; slot < slots; ++slot) of_slots[slot] = row_of_slot[slot] < 0 ? 0 : of_rows[row_of_slot[slot]];
}

void fill(Numbers numbers, uint64_t first, int64_t count, bf16* out, cudaStream_t) {
    for (int64_t i = 0; i < count; ++i) out[i] = __float2bfloat16_rn(numbers(first + uint64_t(i)));
}
