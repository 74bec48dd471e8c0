// FP8 with an fp32 scale for every 128 codes of K. The sum of each 128 products, rounded to fp32, is multiplied by the
// scales of its row and its column. These are added up in fp32.
//
//     step 2 b        thread t loads the scale of K-major row t of the tile in block b, and stores it in shared memory
//                     before the barrier; even and odd blocks have a buffer each
//     step 2 b + 1    sums of b done: total += sum * (a * b), the sums restart from zero
#pragma once
#include "cuda/mma_bf16/tile.cuh"

namespace mxq::cuda::mma {

constexpr int kBlockSteps = int(kBlock128) / kStep;

// Scales between them need no care: their products with a sum of codes stay in fp32's normal range.
constexpr uint32_t kLeastUsualScale = (127u - 45) << 23, kMostUsualScale = (127u + 45) << 23;

// Which scales outside of that range a thread found.
constexpr uint32_t kMetSmallScale = 1, kMetLargeScale = 2;

__device__ __forceinline__ uint32_t unusual_scale(float scale) {
    const uint32_t magnitude = float_bits(scale) & kMagnitudeMask;
    return magnitude < kLeastUsualScale ? kMetSmallScale : magnitude > kMostUsualScale ? kMetLargeScale : 0;
}

// Loads the scale of K-major row l of a tile, A's rows before B's; 1 where there is none.
__device__ __forceinline__ float load_block_scale(const GemmProblem& p, const Tile& tile, int l, int64_t block) {
    const bool is_a = l < kTileRows;
    const GemmOperand& operand = is_a ? p.a : p.b;
    const int64_t line = is_a ? tile.row + l : tile.column + l - kTileRows;
    if (operand.scale_type != ScaleType::F32 || line >= (is_a ? tile.m : p.n)) return 1;
    const float* const scales = reinterpret_cast<const float*>(is_a ? tile.a.scales : tile.b.scales);
    if (operand.across)
        return __ldg(scales + scale_line(operand.layout, uint32_t(block * kBlock128)) +
                     scale_in_line(operand.layout, uint32_t(line)));
    return __ldg(scales + scale_line(operand.layout, line) + block * operand.layout.column_stride);
}

// sum * row * column for any scales: small ones meet large ones first, and a sum meets the more usual one first. What is lost
// below fp32's range all the same is made again at the end, since a small scale was met.
__device__ __forceinline__ float scale_any(float sum, float row, float column) {
    const uint32_t kind = unusual_scale(row), other_kind = unusual_scale(column);
    const float first = kind ? column : row, last = kind ? row : column;
    return (kind | other_kind) == (kMetSmallScale | kMetLargeScale) ? multiply_rn(sum, multiply_rn(row, column))
                                                                    : multiply_rn(multiply_rn(sum, first), last);
}

// Adds the sums under their scales to the totals and clears them. The rows and columns of a thread's sums are those of
// multiply_add_bf16. Returns what scales it met.
template <int kColumns>
__device__ __forceinline__ uint32_t promote(const float* scales, float (&sums)[4][kColumns / 8][4],
                                            float (&totals)[4][kColumns / 8][4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const volatile float* const row_scales = scales + warp % 2 * 64 + lane / 4;
    const volatile float* const column_scales = scales + kTileRows + warp / 2 * kColumns + lane % 4 * 2;
    uint32_t met = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) met |= unusual_scale(row_scales[8 * i]);
#pragma unroll
    for (int i = 0; i < kColumns / 4; i++) met |= unusual_scale(column_scales[i / 2 * 8 + i % 2]);
#pragma unroll
    for (int j = 0; j < kColumns / 8; j++) {
        const float columns[2] = {column_scales[8 * j], column_scales[8 * j + 1]};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float rows[2] = {row_scales[16 * i], row_scales[16 * i + 8]};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float row = rows[e / 2], column = columns[e % 2], sum = sums[i][j][e];
                float& total = totals[i][j][e];
                if (met == 0 || (unusual_scale(row) | unusual_scale(column)) == 0)
                    total = __fmaf_rn(sum, multiply_rn(row, column), total);
                else total = add_rn(total, scale_any(sum, row, column));
                sums[i][j][e] = 0;
            }
        }
    }
    return met;
}

}  // namespace mxq::cuda::mma
