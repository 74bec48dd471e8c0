// The layer's own kernels: which ranks a token goes to, fields of rows from here to there, and the activation's gradient.
// Everything else is done by verbs of the library.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

using bf16 = __nv_bfloat16;

// Writes the ranks of each token's experts, each rank once and in order, then -1: (tokens, most). A rank has `own` experts,
// one after another; numbers below 0 are no choice.
void find_ranks(const int32_t* experts, int64_t tokens, int32_t top, int32_t own, int32_t most, int32_t* ranks,
                cudaStream_t stream);

// Where rows of a token go that have a place among as many for each rank.
struct Places {
    int32_t* token_of_place;  // (ranks, capacity), -1: none
    int32_t* place_of_row;    // (tokens, most), -1: none
};
// Gives the first `capacity` tokens of each rank a place. ranks, rows and ends are those of a routing over ranks.
void find_places(const int32_t* ranks, const int32_t* rows, const int32_t* ends, int64_t tokens, int32_t most,
                 int32_t rank_count, int32_t capacity, const Places& places, cudaStream_t stream);

// Describes a copy of the same bytes of each row, and the strides of rows on both sides.
struct Field {
    const void* from;
    int64_t from_stride;
    void* to;
    int64_t to_stride;
    int64_t bytes;
};
// Copies the fields (four at most) of row index[r] to row r. A row with an index of -1 stays as it is; without an index rows
// stand as they were.
void copy_fields(const std::vector<Field>& fields, const int32_t* index, int64_t rows, cudaStream_t stream);

// Writes dz = weight dh silu'(z), h = weight silu(z), and the gradient of each row's weight: the sum of dh silu(z). h may be
// where dh is.
void activate_backward(const bf16* z, const bf16* dh, const float* weights, int64_t rows, int64_t cols, bf16* dz, bf16* h,
                       float* weight_gradients, cudaStream_t stream);

// Brings a number a row to the choices of each token; 0 where a choice has no row.
void number_choices(const float* of_rows, const int32_t* choice_rows, int64_t tokens, int32_t top, void* out,
                    int64_t out_stride, cudaStream_t stream);

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
