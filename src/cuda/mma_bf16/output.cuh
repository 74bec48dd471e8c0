// From the sums of mma_bf16 to D: fp32 factors of rows, sums that left fp32's range, and the stores.
//
//     registers of a warp    its part of the tile, in the fragment layout of mma
//     shared                 32 rows of it at a time, in a buffer of each warp
//     8 neighbours of a row  computed again where they must be, times their factors; alpha, beta D, bias; rounded, stored
//
// A sum is computed again, in double from the values of the operands, where it may have lost more than the bound allows:
//
//     products below fp32's normal range are cut at 2^-149 whenever they are added: tiny sums, where a thread found operands
//     with such products (an F16 D without factors needs no care: its smallest number is 2^-24)
//     sums of plain numbers or MX values times codes, whose fp32 factors come later, may leave fp32's range where D does not
//
// Both are rare and slow. Rows of zeros give tiny sums too, and are found first.
#pragma once
#include "cuda/memory/plain_elements.cuh"
#include "cuda/mma_bf16/tile.cuh"

namespace mxq::cuda::mma {

// Which sums are computed again: magnitudes below `tiny`, Inf and NaN.
struct Repair {
    float tiny;
    bool infinite;
};

__device__ __forceinline__ bool needs_repair(const Repair& repair, float sum) {
    return fabsf(sum) < repair.tiny || (repair.infinite && !(fabsf(sum) < bits_float(kInfinityBits)));
}

// Finds the K-major rows of the tile, A's before B's, whose codes are all zero.
__device__ __noinline__ void find_zero_lines(const Arguments& args, const Tile& tile, int lines, uint8_t* zero) {
    const GemmProblem& p = args.problem;
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int l = threadIdx.x / 32; l < lines; l += kThreads / 32) {
        const bool is_a = l < kTileRows;
        const GemmOperand& operand = is_a ? p.a : p.b;
        const int64_t line = is_a ? tile.row + l : tile.column + l - kTileRows;
        const uint8_t* const codes = is_a ? tile.a.codes : tile.b.codes;
        const int64_t count = line < (is_a ? tile.m : p.n) ? tile.k : 0;
        bool any = false;
        for (int64_t first = lane; !any && first - lane < count; first += 8 * 32) {
            uint32_t found = 0;
#pragma unroll 8
            for (int64_t k = first; k < first + 8 * 32; k += 32)
                if (k < count) {
                    const auto [stored, code] = stored_at(operand.across, uint32_t(line), uint32_t(k));
                    found |= without_sign(operand.bits, code_at(operand.bits, codes + stored * operand.line_bytes, code));
                }
            any = __any_sync(~0u, found != 0);
        }
        if (lane == 0) zero[l] = !any;
    }
}

__device__ __forceinline__ double sum_again(const GemmProblem& p, const Tile& tile, int64_t row, int64_t column) {
    double sum = 0;
#pragma unroll 1
    for (int64_t k = 0; k < tile.k && sum == sum; k++)
        sum += double(operand_value(p.a, tile.a, row, k)) * double(operand_value(p.b, tile.b, column, k));
    return sum;
}

// Computes those of eight neighbouring sums again that need it; returns which.
__device__ __noinline__ uint32_t repair_row(const Arguments& args, const Tile& tile, int64_t row, int64_t column,
                                            Repair repair, const uint8_t* zero, float* sums) {
    const GemmProblem& p = args.problem;
    uint32_t repaired = 0;
    for (int i = 0; i < 8 && column + i < p.n; i++) {
        const bool zeros = repair.tiny > 0 && (zero[row - tile.row] || zero[kTileRows + column - tile.column + i]);
        if (zeros || !needs_repair(repair, sums[i])) continue;
        sums[i] = round_sum(sum_again(p, tile, row, column + i), args.to_nearest);
        repaired |= 1u << i;
    }
    return repaired;
}

// ---- More than sums ------------------------------------------------------------------------------------------------------

// Loads up to eight neighbouring elements of a plain matrix, from number `at` on.
__device__ __forceinline__ void load_row(const void* data, int32_t format, int64_t at, float (&values)[8], int64_t count) {
    with_plain(format, [&]<class T>(T) {
        const T* const from = static_cast<const T*>(data) + at;
#pragma unroll
        for (int i = 0; i < 8; i++) values[i] = i < count ? to_float(from[i]) : 0.0f;
    });
}

// alpha values + beta D + bias, rounded after each step.
__device__ __forceinline__ void add_to_row(const GemmProblem& p, int64_t group, int64_t row, int64_t column,
                                           float (&values)[8]) {
    const int64_t count = p.n - column;
    float more[8];
#pragma unroll
    for (int i = 0; i < 8; i++) values[i] = multiply_rn(p.alpha, values[i]);
    if (p.beta != 0) {
        load_row(p.d.data, p.d.format, row * p.d.row_stride + column, more, count);
#pragma unroll
        for (int i = 0; i < 8; i++) values[i] = add_rn(values[i], multiply_rn(p.beta, more[i]));
    }
    if (p.bias.format != 0) {
        load_row(p.bias.values, p.bias.format, group * p.n + column, more, count);
#pragma unroll
        for (int i = 0; i < 8; i++) values[i] = add_rn(values[i], more[i]);
    }
}

// ---- Stores --------------------------------------------------------------------------------------------------------------

// Stores up to eight neighbouring elements of a row.
template <class T>
__device__ __forceinline__ void store_row(T* to, const float (&values)[8], int64_t count, bool wide) {
    if (wide && count >= 8) {
        alignas(16) T out[8];
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = from_float<T>(values[i]);
#pragma unroll
        for (int i = 0; i < int(sizeof out / 16); i++)
            reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(out)[i];
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < count) to[i] = from_float<T>(values[i]);
    }
}

__device__ __forceinline__ void write_row(const Arguments& args, int64_t row, int64_t column, const float (&values)[8]) {
    const PlainMatrix& d = args.problem.d;
    const int64_t at = row * d.row_stride + column, count = args.problem.n - column;
    with_plain(d.format, [&]<class T>(T) { store_row(static_cast<T*>(d.data) + at, values, count, args.wide); });
}

// Writes +0 into a group's padding in D. What adds to D leaves it as it is.
__device__ __forceinline__ void write_padding(const Arguments& args, const Tile& tile, int64_t line, int64_t column) {
    const float zeros[8] = {};
    if (line < tile.padded_m && args.problem.beta == 0) write_row(args, tile.first_row + line, column, zeros);
}

// Returns the fp32 factor of a K-major row; scales of 128 have multiplied its sums before.
__device__ __forceinline__ float factor_after_sums(const GemmOperand& operand, const TileOperand& at, int64_t line) {
    return has_scales_of_128(operand) ? 1.0f : line_factor(operand, at, line);
}

// Finishes eight neighbours of row `line` of the tile's product, whose sums are in shared memory.
__device__ __forceinline__ void finish_row(const Arguments& args, const Tile& tile, int64_t line, int64_t column,
                                           const Repair& repair, const uint8_t* zero, bool factored,
                                           float* sums) {
    const uint32_t repaired = repair.tiny > 0 || repair.infinite
                                  ? repair_row(args, tile, line, column, repair, zero, sums) : 0;
    const float4 low = reinterpret_cast<const float4*>(sums)[0], high = reinterpret_cast<const float4*>(sums)[1];
    float values[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (factored) {
        const float row_factor = factor_after_sums(args.problem.a, tile.a, line);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (column + i < args.problem.n && !(repaired >> i & 1))
                values[i] = scale_sum(values[i], row_factor, factor_after_sums(args.problem.b, tile.b, column + i),
                                      args.to_nearest);
    }
    if (args.more) add_to_row(args.problem, tile.group, tile.first_row + line, column, values);
    write_row(args, tile.first_row + line, column, values);
}

// Writes a warp's 64 rows of kColumns sums to D, 32 rows at a time through its own buffer in shared memory.
template <int kColumns>
__device__ __forceinline__ void write_sums(const Arguments& args, const Tile& tile, const float (&sums)[4][kColumns / 8][4],
                                           const Repair& repair, const uint8_t* zero, uint8_t* shared) {
    constexpr int kPitch = kColumns + 8;  // floats from row to row: no bank conflicts in stores or loads of a warp
    constexpr int kLanes = kColumns / 8;  // that share a row
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* const staged = reinterpret_cast<float*>(shared) + warp * 32 * kPitch;
    const int64_t row = tile.row + warp % 2 * 64, column = tile.column + warp / 2 * kColumns + lane % kLanes * 8;
    const bool factored = args.factored && tile.k > 0;
#pragma unroll
    for (int part = 0; part < 2; part++) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2 * kLanes; i++) {
            const float(&s)[4] = sums[2 * part + i / kLanes][i % kLanes];
            float* const to = staged + (i / kLanes * 16 + lane / 4) * kPitch + i % kLanes * 8 + lane % 4 * 2;
            *reinterpret_cast<float2*>(to) = {s[0], s[1]};
            *reinterpret_cast<float2*>(to + 8 * kPitch) = {s[2], s[3]};
        }
        __syncwarp();
#pragma unroll 1
        for (int r = lane / kLanes; r < 32; r += 32 / kLanes) {
            const int64_t line = row + part * 32 + r;
            if (column >= args.problem.n) continue;
            if (line >= tile.m) write_padding(args, tile, line, column);
            else finish_row(args, tile, line, column, repair, zero, factored, staged + r * kPitch + lane % kLanes * 8);
        }
    }
}

}  // namespace mxq::cuda::mma
