// From the sums of wgmma_fp8_sm90 to D: factors of lines, alpha, beta D, bias, one rounding, and the stores.
//
//     registers of a warp    16 rows of 192 sums, in the order of the instruction, times the factors of their lines
//     shared                 whole rows of 16-bit elements that D takes as they are; else 96 bytes of each row in a turn, of
//                            those or of fp32
//     D                      whole rows by the copy engine, a copy each, while the next tile is multiplied; fp32 that D takes
//                            as it is from the registers, added to D where gradients accumulate; else by elements, with
//                            alpha, beta and bias
//
// Rows that are not the tile's stay untouched either way.
#pragma once
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/fp8_tiles.cuh"
#include "cuda/sm90/output.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90 {

constexpr int kSums = kWideAccumulators;  // of a half

// ---- A warp's rows ---------------------------------------------------------------------------------------------------

// Returns the sum times the factors of its row and column, two powers of two. Their product is exact where it is a normal
// number; elsewhere one after the other leave fp32's range only where the result does.
template <bool multiplied>
__device__ __forceinline__ float scale_sum(float sum, float of_row, float of_column) {
    const float both = multiply_rn(of_row, of_column);
    if constexpr (multiplied) return multiply_rn(sum, both);
    const bool normal = float_bits(both) - (1u << 23) < kInfinityBits - (1u << 23);
    return normal ? multiply_rn(sum, both) : multiply_rn(multiply_rn(sum, of_row), of_column);
}

// Loads two factors from shared memory here and not further ahead, for which there are no registers.
__device__ __forceinline__ float2 load_factors(const float* from) {
    float2 factors;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(factors.x), "=f"(factors.y)
                 : "r"(uint32_t(__cvta_generic_to_shared(from))));
    return factors;
}

template <bool multiplied>
__device__ __forceinline__ void scale_sums(float (&sums)[2][kSums], const float2& of_rows, const float* of_columns) {
#pragma unroll
    for (int i = 0; i < 2 * kSums; i += 4) {
        float* const four = &sums[i / kSums][i % kSums];  // columns 2 i and 2 i + 1 of two rows
        const float2 factors = load_factors(of_columns + 2 * i);
        four[0] = scale_sum<multiplied>(four[0], of_rows.x, factors.x);
        four[1] = scale_sum<multiplied>(four[1], of_rows.x, factors.y);
        four[2] = scale_sum<multiplied>(four[2], of_rows.y, factors.x);
        four[3] = scale_sum<multiplied>(four[3], of_rows.y, factors.y);
        hold_accumulators(sums[i / kSums]);
    }
}

// Stores two neighbouring elements to shared memory.
__device__ __forceinline__ void put_pair(float* to, float low, float high) {
    *reinterpret_cast<float2*>(to) = {low, high};
}
template <class T>
__device__ __forceinline__ void put_pair(T* to, float low, float high) {
    *reinterpret_cast<uint32_t*>(to) = uint32_t(from_float<T>(low).bits) | uint32_t(from_float<T>(high).bits) << 16;
}

// Tells where the rows of a warp lie in D, and how many rows and columns of the tile D has.
struct RowsOfWarp {
    int64_t d_row;         // of the first
    int32_t rows, columns;  // of the tile, that D has
    int32_t column, group;
    bool copied;  // elements go to D as they are, whole rows of 16 bits or fp32 from registers
};

// Returns whether all that is more than the sums is an F32 D, to which they are added.
__device__ __forceinline__ bool adds_to_floats(const GemmProblem& p) {
    return p.d.format == MXQ_FORMAT_F32 && p.alpha == 1 && p.beta == 1 && p.bias.format == 0;
}

__device__ __forceinline__ RowsOfWarp rows_of_warp(const ProductArguments& args, const ProductTile& tile, int first_row) {
    return {tile.d_row + first_row, min(tile.rows - first_row, kWarpRows), tile.columns, tile.column, tile.group,
            args.wide && (args.problem.is_sum_alone() || adds_to_floats(args.problem))};
}

// Stores the turn's columns, from the tile's column `first` on, from shared memory to D.
template <class T>
__device__ __forceinline__ void store_turn(const ProductArguments& args, const RowsOfWarp& of, int first, const uint8_t* from) {
    const PlainMatrix& d = args.problem.d;
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
                store_element(d.data, d.format, to,
                              add_more(args.problem, of.group, of.d_row + row, of.column + first + i, value));
            else
                static_cast<T*>(d.data)[to] = value;
        }
}

// Starts copies of whole rows of 16-bit elements to D, by way of shared memory.
template <class T>
__device__ __forceinline__ void copy_rows(const ProductArguments& args, const RowsOfWarp& of, const float (&sums)[2][kSums],
                                          uint8_t* rows) {
    const uint32_t lane = read_thread() % 32;
    T* const place = reinterpret_cast<T*>(rows + lane / 4 * kRowPitch) + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < 2 * kSums; i += 4) {
        const float* const four = &sums[i / kSums][i % kSums];
        put_pair(place + 2 * i, four[0], four[1]);
        put_pair(place + 2 * i + 8 * kRowPitch / sizeof(T), four[2], four[3]);
    }
    publish_shared_writes();
    __syncwarp();
    if (int(lane) >= of.rows || of.columns == 0) return;
    const PlainMatrix& d = args.problem.d;
    store_bytes(static_cast<T*>(d.data) + (of.d_row + lane) * d.row_stride + of.column, rows + lane * kRowPitch,
                uint32_t(of.columns) * uint32_t(sizeof(T)));
    commit_stores();
}

// Writes sums by way of shared memory, as elements of this type, 96 bytes of each row in a turn.
template <class T>
__device__ __forceinline__ void write_turns(const ProductArguments& args, const RowsOfWarp& of, const float (&sums)[2][kSums],
                                            uint8_t* rows) {
    constexpr int columns = kTurnBytes / int(sizeof(T));
    const uint32_t lane = read_thread() % 32;
    T* const place = reinterpret_cast<T*>(rows + lane / 4 * kTurnPitch) + 2 * (lane % 4);
#pragma unroll
    for (int first = 0; first < kTileColumns; first += columns) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < columns / 2; i += 4) {
            const int at = first / 2 + i;
            const float* const four = &sums[at / kSums][at % kSums];
            put_pair(place + 2 * i, four[0], four[1]);
            put_pair(place + 2 * i + 8 * kTurnPitch / sizeof(T), four[2], four[3]);
        }
        __syncwarp();
        store_turn<T>(args, of, first, rows);
    }
}

// Adds an F32 D to sums, a quarter of it loaded before the first of it is added, so that loads do not wait for each other.
__device__ __forceinline__ void add_floats(const ProductArguments& args, const RowsOfWarp& of, float (&sums)[2][kSums]) {
    constexpr int pairs = kSums / 4;
    const int lane = int(read_thread() % 32), row = lane / 4, column = 2 * (lane % 4), columns = of.columns - column;
    const int64_t stride = args.problem.d.row_stride;
    const float* const from = static_cast<const float*>(args.problem.d.data) + (of.d_row + row) * stride + of.column + column;
#pragma unroll
    for (int quarter = 0; quarter < 4; quarter++) {
        const int half = quarter / 2, h = quarter % 2, left = row + 8 * h < of.rows ? columns - half * kHalfColumns : 0;
        const float* const first = from + 8 * h * stride + half * kHalfColumns;
        float2 d[pairs];
#pragma unroll
        for (int i = 0; i < pairs; i++) d[i] = {8 * i < left ? first[8 * i] : 0, 8 * i + 1 < left ? first[8 * i + 1] : 0};
#pragma unroll
        for (int i = 0; i < pairs; i++) {
            float* const two = &sums[half][4 * i + 2 * h];
            two[0] = add_rn(two[0], d[i].x), two[1] = add_rn(two[1], d[i].y);
        }
    }
}

// Writes sums as they are to an F32 D: eight columns of a row are 32 bytes of four lanes.
__device__ __forceinline__ void write_floats(const ProductArguments& args, const RowsOfWarp& of,
                                             const float (&sums)[2][kSums]) {
    const int lane = int(read_thread() % 32), row = lane / 4, column = 2 * (lane % 4), columns = of.columns - column;
    const int64_t stride = args.problem.d.row_stride;
    float* const to = static_cast<float*>(args.problem.d.data) + (of.d_row + row) * stride + of.column + column;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (row + 8 * h >= of.rows) continue;
#pragma unroll
        for (int i = 0; i < 2 * kSums; i += 4) {
            const float* const two = &sums[i / kSums][i % kSums + 2 * h];
            float* const at = to + 8 * h * stride + 2 * i;
            if (2 * i + 1 < columns)
                *reinterpret_cast<float2*>(at) = {two[0], two[1]};
            else if (2 * i < columns)
                *at = two[0];
        }
    }
}

// Writes sums as elements of 16 bits, the faster way where D takes it.
template <class T>
__device__ __forceinline__ void write_rows(const ProductArguments& args, const RowsOfWarp& of, const float (&sums)[2][kSums],
                                           uint8_t* rows) {
    if (of.copied && of.columns * int(sizeof(T)) % 16 == 0)
        copy_rows<T>(args, of, sums, rows);
    else
        write_turns<T>(args, of, sums, rows);
}

// Makes the rows of D that pad the tile's group +0.
__device__ __forceinline__ void clear_padding(const ProductArguments& args, const ProductTile& tile, int first_row) {
    const PlainMatrix& d = args.problem.d;
    if (args.problem.beta != 0) return;
    const int begin = max(tile.rows, first_row), end = min(tile.padded_rows, first_row + kWarpRows);
#pragma unroll 1
    for (int row = begin; row < end; row++)
#pragma unroll 1
        for (int i = int(read_thread() % 32); i < tile.columns; i += 32)
            store_element(d.data, d.format, (tile.d_row + row) * d.row_stride + tile.column + i, 0.0f);
}

// Writes a warp's rows of a tile.
__device__ __forceinline__ void write_sums(const ProductArguments& args, const TileSlot& slot, float (&sums)[2][kSums],
                                           ProductShared& shared) {
    const uint32_t thread = read_thread(), warp = thread / 32 - 4, lane = thread % 32;
    const int first_row = int(warp) * kWarpRows;
    const float* const of_rows = slot.row_factors + first_row + lane / 4;
    const float* const of_columns = slot.column_factors + 2 * (lane % 4);
    if (slot.multiplied)
        scale_sums<true>(sums, {of_rows[0], of_rows[8]}, of_columns);
    else
        scale_sums<false>(sums, {of_rows[0], of_rows[8]}, of_columns);
    const RowsOfWarp of = rows_of_warp(args, slot.tile, first_row);
    uint8_t* const rows = shared.out[warp];
    const int32_t format = args.problem.is_sum_alone() ? args.problem.d.format : MXQ_FORMAT_F32;
    wait_stores_read<0>();  // of the tile before
    __syncwarp();
    if (of.copied && adds_to_floats(args.problem)) add_floats(args, of, sums);
    if (format == MXQ_FORMAT_F32 && of.copied)
        write_floats(args, of, sums);
    else if (format == MXQ_FORMAT_BF16)
        write_rows<Bf16>(args, of, sums, rows);
    else if (format == MXQ_FORMAT_F16)
        write_rows<F16>(args, of, sums, rows);
    else
        write_turns<float>(args, of, sums, rows);
    clear_padding(args, slot.tile, first_row);
}

}  // namespace mxq::cuda::sm90
