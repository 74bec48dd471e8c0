// Makes D from the sums of skinny_sm90. Where a tile is shared, each block but the last leaves its sums in the workspace,
// and the last adds up those of the blocks before it, one after the other, so that the order is always the same; then come
// the fp32 factors of lines, alpha, beta D and bias. Each warp does so for its lines, without a look at the others.
#pragma once
#include "cuda/memory/plain_elements.cuh"
#include "cuda/sm90/skinny_tiles.cuh"
#include "cuda/sm90/skinny_weights.cuh"

namespace mxq::cuda::sm90::skinny {

__device__ __forceinline__ uint64_t* flag_of_warp(const Arguments& args, uint32_t block, uint32_t warp) {
    return args.flags + block * (args.tile_lines / kWarpLines) + warp;
}

// Returns where a lane's sums of a part lie: by fours, each 32 fours behind the one before.
__device__ __forceinline__ float4* part_of_lane(const Arguments& args, uint32_t block) {
    const uint32_t line = read_thread() / 32 * kWarpLines;
    float* const part = args.parts + (uint64_t(block) * args.tile_lines + line) * args.tile_tokens;
    return reinterpret_cast<float4*>(part) + read_thread() % 32;
}

// Leaves the sums of a beginning for the block that has the end.
template <int count>
__device__ __forceinline__ void leave_part(const Arguments& args, const float (&sums)[count], Barrier& left) {
    float4* const to = part_of_lane(args, blockIdx.x);
#pragma unroll
    for (int i = 0; i < count; i += 4) __stcg(to + 8 * i, float4{sums[i], sums[i + 1], sums[i + 2], sums[i + 3]});
    __syncwarp();
    if (read_thread() % 32 == 0) arrive(left);
}

// Tells the other blocks that this one's part is there, once all of its warps have left theirs. A warp of its own does,
// since it takes as long as memory takes to have the sums.
__device__ __forceinline__ void announce_part(const Arguments& args, Barrier& left) {
    wait(left, 0);
    const uint32_t lane = read_thread() % 32;
    if (lane >= args.tile_lines / kWarpLines) return;
    asm volatile("fence.acq_rel.gpu;\nst.release.gpu.global.u64 [%0], %1;" ::"l"(flag_of_warp(args, blockIdx.x, lane)),
                 "l"(args.mark)
                 : "memory");
}

// Waits for a warp's parts of the blocks from `first_block` to this one, a lane for each, so that it takes as long as for one.
// Flags become what they were, since a graph launches with the same mark again.
__device__ __forceinline__ void wait_for_parts(const Arguments& args, uint32_t first_block) {
#pragma unroll 1
    for (uint32_t block = first_block + read_thread() % 32; block < blockIdx.x; block += 32) {
        uint64_t* const flag = flag_of_warp(args, block, read_thread() / 32);
        uint64_t found = ~args.mark;
        while (found != args.mark) asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(flag) : "memory");
        *flag = ~args.mark;
    }
    __syncwarp();
}

// Loads some of a lane's sums of a block's part, from number `first` on. Zeros stand for a part that does not exist.
template <int some>
__device__ __forceinline__ void load_part(const Arguments& args, uint32_t block, int first, float (&to)[some]) {
#pragma unroll
    for (int i = 0; i < some; i += 4) {
        const float4 four = block < blockIdx.x ? __ldcg(part_of_lane(args, block) + 8 * (first + i)) : float4{};
        to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
}

// Adds this part to those of the blocks before, one after the other. Several are loaded at once, and some sums of each, since
// registers are short.
template <int count>
__device__ __forceinline__ void add_parts(const Arguments& args, uint32_t first_block, float (&sums)[count]) {
    constexpr int at_once = count > 8 && count <= 32 ? 8 : 4, some = count == 8 ? 8 : 4;
    wait_for_parts(args, first_block);
#pragma unroll
    for (int first = 0; first < count; first += some) {
        float before[some] = {};
#pragma unroll 1
        for (uint32_t block = first_block; block < blockIdx.x; block += at_once) {
            float parts[at_once][some];
#pragma unroll
            for (int b = 0; b < at_once; b++) load_part(args, block + b, first, parts[b]);
#pragma unroll
            for (int b = 0; b < at_once; b++)
#pragma unroll
                for (int i = 0; i < some; i++) before[i] = add_rn(before[i], parts[b][i]);
        }
#pragma unroll
        for (int i = 0; i < some; i++) sums[first + i] = add_rn(before[i], sums[first + i]);
    }
}

// Adds the sums of eight tokens' low parts to those of their high parts, which are before them.
template <int count>
__device__ __forceinline__ void add_low_parts(float (&sums)[count]) {
#pragma unroll
    for (int i = 0; i < count / 2; i++) sums[i] = add_rn(sums[i / 4 * 8 + i % 4], sums[i / 4 * 8 + 4 + i % 4]);
}

// Makes the sum of plain numbers or MX values and codes again, as the other sum_again does. With its five arguments registers
// would be spilled here.
__device__ __noinline__ float sum_again(const Arguments& args, const Tile& tile, uint32_t token, uint32_t line) {
    const GemmProblem& p = args.problem;
    double sum = 0;
#pragma unroll 1
    for (uint32_t k = 0; k < uint32_t(p.k) && sum == sum; k++)
        sum += double(operand_value(p.a, tile.a, token, k)) * double(operand_value(p.b, tile.b, line, k));
    return __double2float_rn(sum);
}

// Returns the sum under the fp32 factors of its lines.
__device__ __forceinline__ float factor_sum(const Arguments& args, const Tile& tile, uint32_t token, uint32_t line, float sum) {
    const GemmProblem& p = args.problem;
    if (!(fabsf(sum) < bits_float(kInfinityBits))) return sum_again(args, tile, tile.row + token, line);
    const bool to_nearest = !p.is_sum_alone() || p.d.format == MXQ_FORMAT_F32;
    return scale_sum(sum, line_factor(p.a, tile.a, tile.row + token), line_factor(p.b, tile.b, line), to_nearest);
}

// Returns the one factor of all sums of a tile whose D of 16 bits is not added to, or NaN where there is no such.
__device__ __forceinline__ float plain_factor(const GemmProblem& p, const Tile& tile) {
    const bool of_lines = p.a.scale_type == ScaleType::F32 || p.b.scale_type == ScaleType::F32;
    if (of_lines || p.beta != 0 || p.d.format == MXQ_FORMAT_F32) return bits_float(kNanBits);
    const float a = p.a.scale_type == ScaleType::E4M3 ? tile.a.global : 1, b = p.b.scale_type == ScaleType::E4M3 ? tile.b.global : 1;
    return is_usual_factor(a) && is_usual_factor(b) && (a == 1 || b == 1) ? multiply_rn(a, b) : bits_float(kNanBits);
}

// Writes a line's tokens from `token` on in few instructions, every other one, as most products want them. Returns whether all
// sums are finite: false where none was written, too.
template <Weights kind>
__device__ __forceinline__ bool write_plain(const GemmProblem& p, const Tile& tile, float factor, uint32_t line, uint32_t token,
                                            uint32_t end, const float* sums) {
    constexpr int others = 32 / kWarpLines;
    if (factor != factor) return false;
    const bool f16 = p.d.format == MXQ_FORMAT_F16;
    const float bias = p.bias.format == 0 ? -0.0f  // which adds nothing
                                          : element_at(p.bias.values, p.bias.format, tile.group * p.n + line);
    bool finite = true;
    uint16_t* to = static_cast<uint16_t*>(p.d.data) + (tile.d_row + token) * p.d.row_stride + line;
#pragma unroll 2
    for (; token < end; token += others, to += others * p.d.row_stride, sums += others * kWarpLines) {
        const float value = multiply_rn(*sums, unit_of_sums<kind>);
        finite = finite && fabsf(value) < bits_float(kInfinityBits);
        const float more = add_rn(multiply_rn(p.alpha, multiply_rn(value, factor)), bias);
        *to = f16 ? from_float<F16>(more).bits : from_float<Bf16>(more).bits;
    }
    return finite;
}

// Writes a warp's lines of D for some tokens, those from `first` on, from their sums in shared memory.
template <Weights kind>
__device__ __forceinline__ void write_tokens(const Arguments& args, const Tile& tile, uint32_t first, const float* sums) {
    const GemmProblem& p = args.problem;
    const uint32_t lane = read_thread() % 32, end = min(tile.rows, first + kOutTokens);
    const uint32_t line = tile.line + read_thread() / 32 * kWarpLines + lane % kWarpLines;
    uint32_t token = first + lane / kWarpLines;
    sums += lane;
    if (line >= uint32_t(p.n) || write_plain<kind>(p, tile, plain_factor(p, tile), line, token, end, sums)) return;
    const bool factored = has_factor(p.a) || has_factor(p.b);
#pragma unroll 1
    for (; token < end; token += 32 / kWarpLines, sums += 32) {
        float value = multiply_rn(*sums, unit_of_sums<kind>);
        if (factored) value = factor_sum(args, tile, token, line, value);
        value = add_more(p, int32_t(tile.group), tile.d_row + token, int32_t(line), value);
        store_element(p.d.data, p.d.format, (tile.d_row + token) * p.d.row_stride + line, value);
    }
}

// Writes what pads the group.
__device__ __forceinline__ void write_padding(const Arguments& args, const Tile& tile) {
    const GemmProblem& p = args.problem;
    const uint32_t line = tile.line + read_thread() / 32 * kWarpLines + read_thread() % kWarpLines;
    if (line >= uint32_t(p.n) || p.beta != 0) return;
#pragma unroll 1
    for (uint32_t token = tile.rows + read_thread() % 32 / kWarpLines; token < tile.padded; token += 32 / kWarpLines)
        store_element(p.d.data, p.d.format, (tile.d_row + token) * p.d.row_stride + line, 0);
}

__device__ __forceinline__ bool is_beginning(const Arguments& args, const Tile& tile) {
    return tile.first_step + tile.steps < args.steps;
}

// Takes a warp's sums of a part to where they belong; `own` is the warp's place in shared memory.
template <Weights kind, int chunks, int count>
__device__ __forceinline__ void finish_part(const Arguments& args, const Tile& tile, float (&sums)[count], float* own,
                                            Barrier& left) {
    if (is_beginning(args, tile)) return leave_part(args, sums, left);
    if (tile.first_step > 0) add_parts(args, tile.first_block, sums);
    if (args.token_parts == 2) add_low_parts(sums);
    const uint32_t lane = read_thread() % 32;
    constexpr int turn = count < kOutTokens / 2 ? count : kOutTokens / 2;  // sums that a thread has of so many tokens
#pragma unroll
    for (int first = 0; first < count; first += turn) {
        if (uint32_t(2 * first) >= tile.rows) break;
#pragma unroll
        for (int i = 0; i < turn; i++)
            own[(8 * (i / 4) + lane % 4 * 2 + i % 2) * kWarpLines + line_of_lane<chunks>() + i % 4 / 2 * 8] =
                sums[first + i];
        __syncwarp();
        write_tokens<kind>(args, tile, 2 * first, own);
        __syncwarp();  // all have read the sums before the next
    }
    write_padding(args, tile);
}

}  // namespace mxq::cuda::sm90::skinny
