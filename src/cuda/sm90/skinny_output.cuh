// Makes D from the sums of skinny_sm90. Where a tile is shared, each block but the last leaves its sums in the workspace,
// and the last adds up those of the blocks before it, one after the other, so that the order is always the same; then come
// the fp32 factors of lines, alpha, beta D and bias. Each warp does so for its lines, without a look at the others.
#pragma once
#include "cuda/sm90/output.cuh"
#include "cuda/sm90/skinny_tiles.cuh"
#include "cuda/sm90/skinny_weights.cuh"

namespace mxq::cuda::sm90::skinny {

// Returns where a lane's sums of a part lie, 32 numbers apart.
__device__ __forceinline__ float* part_of_lane(const Arguments& args, uint32_t block) {
    const uint32_t warp = threadIdx.x / 32;
    return args.parts + (uint64_t(block) * kWarps + warp) * (args.tile_tokens * kWarpLines) + threadIdx.x % 32;
}

// Leaves the sums of a beginning for the block that has the end.
template <int count>
__device__ __forceinline__ void leave_part(const Arguments& args, const float (&sums)[count], Barrier& left) {
    float* const to = part_of_lane(args, blockIdx.x);
#pragma unroll
    for (int i = 0; i < count; i++) __stcg(to + 32 * i, sums[i]);
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(left);
}

// Tells the other blocks that this one's part is there, once all of its warps have left theirs. A warp of its own does,
// since it takes as long as memory takes to have the sums.
__device__ __forceinline__ void announce_part(const Arguments& args, Barrier& left) {
    wait(left, 0);
    const uint32_t lane = threadIdx.x % 32;
    if (lane >= kWarps) return;
    asm volatile("fence.acq_rel.gpu;\nst.release.gpu.global.u64 [%0], %1;" ::"l"(args.flags + blockIdx.x * kWarps + lane),
                 "l"(args.mark)
                 : "memory");
}

// Waits for a warp's part of another block, for all lanes of the warp.
__device__ __forceinline__ void wait_for_part(const uint64_t* flag, uint64_t mark) {
    uint64_t found = ~mark;
    while (threadIdx.x % 32 == 0 && found != mark)
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(flag) : "memory");
    __syncwarp();
}

// Adds this part to those of the blocks before.
template <int count>
__device__ __forceinline__ void add_parts(const Arguments& args, uint32_t first_block, float (&sums)[count]) {
    float before[count];
#pragma unroll
    for (float& sum : before) sum = 0;
#pragma unroll 1
    for (uint32_t block = first_block; block < blockIdx.x; block++) {
        uint64_t* const flag = args.flags + block * kWarps + threadIdx.x / 32;
        wait_for_part(flag, args.mark);
        const float* const from = part_of_lane(args, block);
#pragma unroll
        for (int i = 0; i < count; i++) before[i] = add_rn(before[i], __ldcg(from + 32 * i));
        __syncwarp();
        if (threadIdx.x % 32 == 0) *flag = ~args.mark;  // a graph launches with the same mark again
    }
#pragma unroll
    for (int i = 0; i < count; i++) sums[i] = add_rn(before[i], sums[i]);
}

// Makes the sum of plain numbers and codes again, in double: without their fp32 factors sums may leave fp32's range where D
// does not.
__device__ __noinline__ float sum_again(const Arguments& args, const Tile& tile, uint32_t token, uint32_t line) {
    const GemmProblem& p = args.problem;
    double sum = 0;
#pragma unroll 1
    for (uint32_t k = 0; k < uint32_t(p.k) && sum == sum; k++)
        sum += double(operand_value(p.a, tile.a, token, k)) * double(operand_value(p.b, tile.b, line, k));
    return __double2float_rn(sum);
}

// Returns the element of D that a sum becomes.
template <Weights kind>
__device__ __forceinline__ float finish_sum(const Arguments& args, const Tile& tile, uint32_t token, uint32_t line,
                                            float sum) {
    const GemmProblem& p = args.problem;
    const bool to_nearest = !p.is_sum_alone() || p.d.format == MXQ_FORMAT_F32;
    const bool factored = p.b.scale_type == ScaleType::F32 || p.b.scale_type == ScaleType::E4M3 ||
                          p.a.scale_type == ScaleType::F32 || p.a.scale_type == ScaleType::E4M3;
    float value = multiply_rn(sum, unit_of_sums<kind>);
    if (factored && !(fabsf(value) < bits_float(kInfinityBits)))
        value = sum_again(args, tile, tile.row + token, line);
    else if (factored)
        value = scale_sum(value, line_factor(p.a, tile.a, tile.row + token), line_factor(p.b, tile.b, line), to_nearest);
    return add_more(p, int32_t(tile.group), tile.d_row + token, int32_t(line), value);
}

// Writes a warp's lines of D from its sums in shared memory, and what pads the group.
template <Weights kind>
__device__ __forceinline__ void write_lines(const Arguments& args, const Tile& tile, const float* sums) {
    const GemmProblem& p = args.problem;
    const uint32_t line = tile.line + threadIdx.x / 32 * kWarpLines + threadIdx.x % kWarpLines;
    if (line >= uint32_t(p.n)) return;
    const uint32_t tokens = p.beta != 0 ? tile.rows : tile.padded;
#pragma unroll 1
    for (uint32_t token = threadIdx.x % 32 / kWarpLines; token < tokens; token += 32 / kWarpLines) {
        const float value = token < tile.rows ? finish_sum<kind>(args, tile, token, line,
                                                                 sums[token * kWarpLines + threadIdx.x % kWarpLines])
                                              : 0.0f;
        store_element(p.d.data, p.d.format, (tile.d_row + token) * p.d.row_stride + line, value);
    }
}

__device__ __forceinline__ bool is_beginning(const Arguments& args, const Tile& tile) {
    return tile.first_step + tile.steps < args.steps;
}

// Takes a warp's sums of a part to where they belong; `own` is the warp's place in shared memory.
template <Weights kind, int count>
__device__ __forceinline__ void finish_part(const Arguments& args, const Tile& tile, float (&sums)[count], float* own,
                                            Barrier& left) {
    if (is_beginning(args, tile)) return leave_part(args, sums, left);
    if (tile.first_step > 0) add_parts(args, tile.first_block, sums);
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < count; i++)
        own[(8 * (i / 4) + lane % 4 * 2 + i % 2) * kWarpLines + lane / 4 + i % 4 / 2 * 8] = sums[i];
    __syncwarp();
    write_lines<kind>(args, tile, own);
    __syncwarp();  // all have read the sums before the next part's
}

}  // namespace mxq::cuda::sm90::skinny
