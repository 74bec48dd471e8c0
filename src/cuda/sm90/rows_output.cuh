// From sums of a tile to rows of D, as the kernels of this folder have them whose operands both lie in shared memory. A warp
// has 16 rows, in halves of as many columns as `count` accumulators are:
//
//     sums[half][4 j + 2 h + i] of lane l    row 8 h + l / 4, column 8 j + 2 (l % 4) + i of the half
//
//     shared    128 bytes of each row in a turn, as elements that D takes as they are, or as fp32
//     D         as elements of 16 bits from there, or fp32 from registers, where alpha, beta D and bias have been added;
//               element by element where D does not take 16 bytes
//
// Rows that are not the tile's stay untouched either way.
#pragma once
#include "cuda/memory/plain_elements.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90 {

constexpr int kWarpRows = 16;
// Says how rows lie in a turn; neither stores nor loads conflict.
constexpr int kTurnBytes = 128, kTurnPitch = 144;

// Tells where the rows of a warp lie in D, and how many rows and columns of the tile D has.
struct RowsOfWarp {
    int64_t d_row;          // of the first
    int32_t rows, columns;  // of the tile, that D has
    int32_t column, group;
    bool copied;  // by 16 bytes, as elements of D
};

// Returns whether all that is more than the sums is an F32 D, to which they are added.
__device__ __forceinline__ bool adds_to_floats(const GemmProblem& p) {
    return p.d.format == MXQ_FORMAT_F32 && p.alpha == 1 && p.beta == 1 && p.bias.format == 0;
}

// Returns the rows of a warp from the tile's row `first_row` on; `wide`: D takes copies of 16 bytes.
template <class Tile>
__device__ __forceinline__ RowsOfWarp rows_of_warp(const GemmProblem& p, const Tile& tile, int first_row, bool wide) {
    return {tile.d_row + first_row, min(tile.rows - first_row, kWarpRows), tile.columns, tile.column, tile.group, wide};
}

// Returns the type that sums leave registers as.
__device__ __forceinline__ int32_t format_of_sums(const GemmProblem& p, const RowsOfWarp& of) {
    return of.copied || p.is_sum_alone() ? p.d.format : MXQ_FORMAT_F32;
}

// Rounds two numbers to elements of 16 bits, the first in the lower half.
template <class T>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.%3x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low), "C"(CodeName<T>::text));
    return pair;
}

// Stores two neighbouring elements to shared memory.
__device__ __forceinline__ void put_pair(float* to, float low, float high) {
    *reinterpret_cast<float2*>(to) = {low, high};
}
template <class T>
__device__ __forceinline__ void put_pair(T* to, float low, float high) {
    *reinterpret_cast<uint32_t*>(to) = round_pair<T>(low, high);
}

// Stores the turn's columns, from the tile's column `first` on, from shared memory to D.
template <class T>
__device__ __forceinline__ void store_turn(const GemmProblem& p, const RowsOfWarp& of, int first, const uint8_t* from) {
    const PlainMatrix& d = p.d;
    const int lane = int(read_thread() % 32);
    const int columns = min(of.columns - first, kTurnBytes / int(sizeof(T)));
    const int64_t corner = of.d_row * d.row_stride + of.column + first;
#pragma unroll 1
    for (int row = 0; row < of.rows; row++)
#pragma unroll 1
        for (int i = lane; i < columns; i += 32) {
            const T value = reinterpret_cast<const T*>(from + row * kTurnPitch)[i];
            const int64_t to = corner + row * d.row_stride + i;
            if constexpr (std::is_same_v<T, float>)
                store_element(d.data, d.format, to, add_more(p, of.group, of.d_row + row, of.column + first + i, value));
            else
                static_cast<T*>(d.data)[to] = value;
        }
}

// Writes sums by way of shared memory, as elements of this type, some columns of each row in a turn. `store` brings those from
// the tile's column `first` on to D.
template <class T, int halves, int count, class Store>
__device__ __forceinline__ void write_turns(const float (&sums)[halves][count], uint8_t* rows, const Store& store) {
    constexpr int columns = kTurnBytes / int(sizeof(T)), all_columns = 2 * halves * count;
    static_assert(all_columns % columns == 0, "whole turns");
    const uint32_t lane = read_thread() % 32;
    T* const place = reinterpret_cast<T*>(rows + lane / 4 * kTurnPitch) + 2 * (lane % 4);
#pragma unroll
    for (int first = 0; first < all_columns; first += columns) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < columns / 2; i += 4) {
            const int at = first / 2 + i;
            const float* const four = &sums[at / count][at % count];
            put_pair(place + 2 * i, four[0], four[1]);
            put_pair(place + 2 * i + 8 * kTurnPitch / sizeof(T), four[2], four[3]);
        }
        __syncwarp();
        store(first);
    }
}

// Has `add(sums, d)` add D to two neighbouring sums, of all of a warp's. A quarter of D is loaded before the first of it is
// added, so that loads do not wait for each other; `load(at, left, pairs)` loads as load_pairs does.
template <int halves, int count, class Load, class Add>
__device__ __forceinline__ void add_d(const GemmProblem& p, const RowsOfWarp& of, float (&sums)[halves][count],
                                      const Load& load, const Add& add) {
    constexpr int pairs = count / 4;
    const int lane = int(read_thread() % 32), row = lane / 4, column = 2 * (lane % 4), columns = of.columns - column;
    const int64_t from = (of.d_row + row) * p.d.row_stride + of.column + column;
#pragma unroll
    for (int quarter = 0; quarter < 2 * halves; quarter++) {
        const int half = quarter / 2, h = quarter % 2, left = row + 8 * h < of.rows ? columns - half * 2 * count : 0;
        float2 d[pairs];
        load(from + 8 * h * p.d.row_stride + half * 2 * count, left, d);
#pragma unroll
        for (int i = 0; i < pairs; i++) add(&sums[half][4 * i + 2 * h], d[i]);
    }
}

// Multiplies sums with alpha and adds the bias of their columns, some of it loaded before the first is added.
template <int halves, int count>
__device__ __forceinline__ void add_bias(const GemmProblem& p, const RowsOfWarp& of, float alpha,
                                         float (&sums)[halves][count]) {
    constexpr int pairs = count / 8;
    const int column = 2 * int(read_thread() % 4), columns = p.bias.format == 0 ? 0 : of.columns - column;
    const int64_t from = of.group * p.n + of.column + column;
#pragma unroll
    for (int first = 0; first < halves * count; first += 4 * pairs) {
        float2 bias[pairs];
        load_pairs(p.bias.values, p.bias.format, from + 2 * first, columns - 2 * first, bias);
#pragma unroll
        for (int i = 0; i < 4 * pairs; i++) {
            float& sum = sums[first / count][first % count + i];
            sum = add_rn(multiply_rn(alpha, sum), i % 2 ? bias[i / 4].y : bias[i / 4].x);
        }
    }
}

// Adds to sums that are copied what D has beside them. Gradients that accumulate in fp32 have a way of their own, since it
// is their most common.
template <int halves, int count>
__device__ __forceinline__ void add_more_to_sums(const GemmProblem& p, const RowsOfWarp& of, float (&sums)[halves][count]) {
    if (p.is_sum_alone() || !of.copied) return;
    if (adds_to_floats(p))
        return add_d(
            p, of, sums,
            [&](int64_t at, int left, auto& to) { load_pairs(static_cast<const float*>(p.d.data) + at, left, to); },
            [](float* two, const float2& d) { two[0] = add_rn(two[0], d.x), two[1] = add_rn(two[1], d.y); });
    if (p.beta != 0)
        add_d(
            p, of, sums, [&](int64_t at, int left, auto& to) { load_pairs(p.d.data, p.d.format, at, left, to); },
            [&](float* two, const float2& d) {
                two[0] = add_rn(multiply_rn(p.alpha, two[0]), multiply_rn(p.beta, d.x));
                two[1] = add_rn(multiply_rn(p.alpha, two[1]), multiply_rn(p.beta, d.y));
            });
    if (p.beta == 0 || p.bias.format != 0) add_bias(p, of, p.beta == 0 ? p.alpha : 1, sums);
}

// Writes sums as they are to an F32 D: eight columns of a row are 32 bytes of four lanes.
template <int halves, int count>
__device__ __forceinline__ void write_floats(const GemmProblem& p, const RowsOfWarp& of, const float (&sums)[halves][count]) {
    const int lane = int(read_thread() % 32), row = lane / 4, column = 2 * (lane % 4), columns = of.columns - column;
    const int64_t stride = p.d.row_stride;
    float* const to = static_cast<float*>(p.d.data) + (of.d_row + row) * stride + of.column + column;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (row + 8 * h >= of.rows) continue;
#pragma unroll
        for (int i = 0; i < halves * count; i += 4) {
            const float* const two = &sums[i / count][i % count + 2 * h];
            float* const at = to + 8 * h * stride + 2 * i;
            if (2 * i + 1 < columns)
                *reinterpret_cast<float2*>(at) = {two[0], two[1]};
            else if (2 * i < columns)
                *at = two[0];
        }
    }
}

// Makes the rows of D that pad the tile's group +0.
template <class Tile>
__device__ __forceinline__ void clear_padding(const GemmProblem& p, const Tile& tile, int first_row) {
    const PlainMatrix& d = p.d;
    if (p.beta != 0) return;
    const int begin = max(tile.rows, first_row), end = min(tile.padded_rows, first_row + kWarpRows);
#pragma unroll 1
    for (int row = begin; row < end; row++)
#pragma unroll 1
        for (int i = int(read_thread() % 32); i < tile.columns; i += 32)
            store_element(d.data, d.format, (tile.d_row + row) * d.row_stride + tile.column + i, 0.0f);
}

}  // namespace mxq::cuda::sm90
