// From the sums of wgmma_fp8_sm90 to D: factors of lines, alpha, beta D, bias, one rounding, and the stores.
//
//     registers of a warpgroup    64 rows of 192 sums, in the order of the instruction, times the factors of their lines
//     shared                      as many rows, 16 bytes apart from being neighbours: elements of 16 bits that D takes as
//     they
//                                 are, or fp32, 96 columns in each of two turns
//     D                           16 bytes a thread where rows of D are whole pieces of them and the elements are ready;
//     else by
//                                 elements, with alpha, beta and bias
//
// Rows that are not the tile's stay untouched either way.
#pragma once
#include "cuda/sm90/fp8_tiles.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90 {

constexpr int kSums = kWideAccumulators;  // of a half
constexpr int kConsumerRows = kTileRows / kConsumers;
constexpr int kRowPieces = kTileColumns * 2 / 16;  // of 16 bytes, of a row in shared memory

// Waits for the threads of a warpgroup, which has a barrier of its own.
__device__ __forceinline__ void sync_warpgroup(int warpgroup) {
    asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}

// ---- Elements --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ float element_at(const void* data, int32_t format, int64_t at) {
    if (format == MXQ_FORMAT_F32) return static_cast<const float*>(data)[at];
    if (format == MXQ_FORMAT_F16) return to_float(static_cast<const F16*>(data)[at]);
    return to_float(static_cast<const Bf16*>(data)[at]);
}

__device__ __forceinline__ void store_element(void* data, int32_t format, int64_t at, float value) {
    if (format == MXQ_FORMAT_F32)
        static_cast<float*>(data)[at] = value;
    else if (format == MXQ_FORMAT_F16)
        static_cast<F16*>(data)[at] = from_float<F16>(value);
    else
        static_cast<Bf16*>(data)[at] = from_float<Bf16>(value);
}

// Returns alpha value + beta D + bias, rounded after each step, for an element of D.
__device__ __forceinline__ float add_more(const GemmProblem& p, int32_t group, int64_t row, int32_t column, float value) {
    if (p.is_sum_alone()) return value;
    value = multiply_rn(p.alpha, value);
    if (p.beta != 0)
        value = add_rn(value, multiply_rn(p.beta, element_at(p.d.data, p.d.format, row * p.d.row_stride + column)));
    if (p.bias.format != 0) value = add_rn(value, element_at(p.bias.values, p.bias.format, group * p.n + column));
    return value;
}

__device__ __forceinline__ uint32_t join_halves(float low, float high, int32_t format) {
    const auto join = [&]<class T>(T) {
        return uint32_t(from_float<T>(low).bits) | uint32_t(from_float<T>(high).bits) << 16;
    };
    return format == MXQ_FORMAT_F16 ? join(F16{}) : join(Bf16{});
}

// ---- A warpgroup's rows ----------------------------------------------------------------------------------------------

// How a warpgroup writes: elements as they are in D by turns of all columns, or fp32 by turns of half of them.
struct OutFormat {
    bool narrow;  // 16 bits
    bool copied;  // by 16 bytes
    __device__ __forceinline__ int bytes() const { return narrow ? 2 : 4; }
};

__device__ __forceinline__ OutFormat out_format(const ProductArguments& args) {
    const bool alone = args.problem.is_sum_alone(), wide = args.problem.d.format == MXQ_FORMAT_F32;
    return {alone && !wide, alone && args.wide};
}

// Returns the sum times the factors of its row and column, two powers of two. Their product is exact where it is a normal
// number; elsewhere one after the other leave fp32's range only where the result does.
__device__ __forceinline__ float scale_sum(float sum, float of_row, float of_column) {
    const float both = multiply_rn(of_row, of_column);
    const bool normal = float_bits(both) - (1u << 23) < kInfinityBits - (1u << 23);
    return normal ? multiply_rn(sum, both) : multiply_rn(multiply_rn(sum, of_row), of_column);
}

// Puts half of the sums to shared memory, times the factors of their rows and columns.
__device__ __forceinline__ void put_sums(const float (&sums)[kSums], const float2& of_rows, const float* factors,
                                         const OutFormat& out, int32_t format, int first_column, uint8_t* to) {
    const uint32_t thread = read_thread(), lane = thread % 32;
    uint8_t* const place =
        to + (thread / 32 % 4 * 16 + lane / 4) * kOutPitch + (first_column + 2 * (lane % 4)) * out.bytes();
#pragma unroll
    for (int j = 0; j < kHalfColumns / 8; j++) {
        const float2 of_columns = *reinterpret_cast<const float2*>(factors + 8 * j + 2 * (lane % 4));
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float of_row = h ? of_rows.y : of_rows.x;
            const float low = scale_sum(sums[4 * j + 2 * h], of_row, of_columns.x);
            const float high = scale_sum(sums[4 * j + 2 * h + 1], of_row, of_columns.y);
            uint8_t* const at = place + h * 8 * kOutPitch;
            if (out.narrow)
                *reinterpret_cast<uint32_t*>(at + 8 * j * 2) = join_halves(low, high, format);
            else
                *reinterpret_cast<float2*>(at + 8 * j * 4) = {low, high};
        }
    }
}

// Stores `columns` columns of shared memory to D, from the tile's column `first` on: rows of the product.
__device__ __forceinline__ void store_rows(const ProductArguments& args, const ProductTile& tile, int first_row, int first,
                                           int columns, const OutFormat& out, const uint8_t* from) {
    const PlainMatrix& d = args.problem.d;
    const int thread = int(read_thread() % kWarpgroup);
    const int rows = min(tile.rows - first_row, kConsumerRows), element = d.format == MXQ_FORMAT_F32 ? 4 : 2;
    const int64_t row_of_d = tile.d_row + first_row;
    const int32_t column = tile.column + first;
    if (out.copied && columns * element % 16 == 0) {
        const int pieces = columns * element / 16, step = kWarpgroup / kRowPieces;
        uint8_t* const to = static_cast<uint8_t*>(d.data) + (row_of_d * d.row_stride + column) * element;
        const int piece = thread % kRowPieces, first_piece_row = thread / kRowPieces;
        if (piece >= pieces || first_piece_row >= step) return;
#pragma unroll 4
        for (int row = first_piece_row; row < rows; row += step)
            *reinterpret_cast<uint4*>(to + row * d.row_stride * element + piece * 16) =
                *reinterpret_cast<const uint4*>(from + row * kOutPitch + piece * 16);
        return;
    }
#pragma unroll 1
    for (int row = thread / 32; row < rows; row += kWarpgroup / 32)
#pragma unroll 1
        for (int i = thread % 32; i < columns; i += 32) {
            const uint8_t* const at = from + row * kOutPitch;
            const int64_t to = (row_of_d + row) * d.row_stride + column + i;
            if (out.narrow) {
                static_cast<uint16_t*>(d.data)[to] = reinterpret_cast<const uint16_t*>(at)[i];
            } else {
                const float value = reinterpret_cast<const float*>(at)[i];
                store_element(d.data, d.format, to, add_more(args.problem, tile.group, row_of_d + row, column + i, value));
            }
        }
}

// Makes the rows of D that pad the tile's group +0.
__device__ __forceinline__ void clear_padding(const ProductArguments& args, const ProductTile& tile, int first_row) {
    const PlainMatrix& d = args.problem.d;
    if (args.problem.beta != 0) return;
    const int begin = max(tile.rows, first_row), end = min(tile.padded_rows, first_row + kConsumerRows);
#pragma unroll 1
    for (int row = begin; row < end; row++)
#pragma unroll 1
        for (int i = int(read_thread() % kWarpgroup); i < tile.columns; i += kWarpgroup)
            store_element(d.data, d.format, (tile.d_row + row) * d.row_stride + tile.column + i, 0.0f);
}

// Returns the factors of a thread's two rows.
__device__ __forceinline__ float2 row_factors(const ProductArguments& args, const ProductTile& tile, int first_row) {
    const uint32_t thread = read_thread();
    const int row = first_row + int(thread / 32 % 4 * 16 + thread % 32 / 4);
    const auto of_row = [&](int at) {
        return __ldg(args.a.factors + tile.a_factor + min(at, tile.rows - 1));
    };
    return {of_row(row), of_row(row + 8)};
}

// Writes a warpgroup's part of a tile. Its threads all call it.
__device__ __forceinline__ void write_sums(const ProductArguments& args, const ProductTile& tile, int warpgroup,
                                           const float (&sums)[2][kSums], ProductShared& shared) {
    const int first_row = warpgroup * kConsumerRows;
    const int32_t format = args.problem.d.format;
    const OutFormat out = out_format(args);
    uint8_t* const rows = shared.out[warpgroup];
    float* const factors = shared.factors[warpgroup];
    const float2 of_rows = row_factors(args, tile, first_row);
    for (int column = int(read_thread() % kWarpgroup); column < kTileColumns; column += kWarpgroup)
        factors[column] =
            column < tile.columns ? __ldg(args.b.factors + tile.b_factor + column) : 1.0f;
    sync_warpgroup(warpgroup);
    put_sums(sums[0], of_rows, factors, out, format, 0, rows);
    if (!out.narrow) {
        sync_warpgroup(warpgroup);
        store_rows(args, tile, first_row, 0, min(tile.columns, kHalfColumns), out, rows);
        sync_warpgroup(warpgroup);
    }
    put_sums(sums[1], of_rows, factors + kHalfColumns, out, format, out.narrow ? kHalfColumns : 0, rows);
    sync_warpgroup(warpgroup);
    const int first = out.narrow ? 0 : kHalfColumns;
    store_rows(args, tile, first_row, first, max(tile.columns - first, 0), out, rows);
    clear_padding(args, tile, first_row);
}

}  // namespace mxq::cuda::sm90
