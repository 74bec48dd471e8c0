// The layer's own kernels: where each token goes, rows in the order of destinations, the activation, and sums of what came
// back.
//
// A slot is a choice of a token: slot t * top + j is choice j of token t. Rows are sent in the order of experts, and for one
// expert in the order of slots.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

using bf16 = __nv_bfloat16;

// Holds what each slot chose; another number than that of an expert is no choice.
struct Choices {
    const int32_t* experts;
    int64_t tokens;
    int32_t top, expert_count;
    int64_t slots() const { return tokens * top; }
};

// Counts the slots of each expert.
void count_slots(const Choices& choices, int32_t* counts, cudaStream_t stream);

// Writes which row each slot becomes (-1: none), and which slot each of `rows` rows is (-1: none). capacity: the rows of
// each expert, used or not; slots beyond are dropped. 0: as many as it has slots.
void place_slots(const Choices& choices, const int32_t* counts, int32_t capacity, int64_t rows, int32_t* row_of_slot,
                 int32_t* slot_of_row, cudaStream_t stream);

// Writes the ends of the groups of rows that arrive for the experts from `first` on; counts are (ranks, expert_count).
void group_ends(const int32_t* counts, int32_t ranks, int32_t expert_count, int32_t first, int32_t own, int32_t* ends,
                cudaStream_t stream);

// Copies row slot_of_row[r] / divisor to row r, zeros where it has no slot. Rows have a multiple of 4 bytes.
void order_rows(const void* from, const int32_t* slot_of_row, int32_t divisor, int64_t rows, int64_t row_bytes, void* to,
                cudaStream_t stream);

// h = weight silu(z), row by row.
void activate(const bf16* z, const float* weights, int64_t rows, int64_t cols, bf16* h, cudaStream_t stream);

// dz = weight dh silu'(z), and the gradient of each row's weight: the sum of dh silu(z).
void activate_backward(const bf16* z, const bf16* dh, const float* weights, int64_t rows, int64_t cols, bf16* dz,
                       float* weight_gradients, cudaStream_t stream);

// Sums the rows of each token's slots, in their order; columns are even.
void combine(const bf16* rows, const int32_t* row_of_slot, int64_t tokens, int32_t top, int64_t cols, bf16* out,
             cudaStream_t stream);

// Brings a number a row to its slot; 0 where the slot has no row.
void return_numbers(const float* of_rows, const int32_t* row_of_slot, int64_t slots, float* of_slots, cudaStream_t stream);

// Numbers that host and device make alike: number `index` of a sequence, near a normal distribution, times a power of two.
struct Numbers {
    uint64_t seed;
    float scale;
    __host__ __device__ float operator()(uint64_t index) const {
        uint64_t bits = index + seed * 0x9E3779B97F4A7C15;
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9;
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB;
        bits ^= bits >> 31;
        const int sum = int(bits & 255) + int(bits >> 8 & 255) + int(bits >> 16 & 255) + int(bits >> 24 & 255);
        return __bfloat162float(__float2bfloat16_rn(float(sum - 510) * (scale / 128)));
    }
};
void fill(Numbers numbers, uint64_t first, int64_t count, bf16* out, cudaStream_t stream);
