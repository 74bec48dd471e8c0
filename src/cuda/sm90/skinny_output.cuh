// Makes D from the sums of skinny_sm90: adds up the shares of a cluster, block after block, so that the order is always the
// same; then come the fp32 factors of lines, alpha, beta D and bias.
//
//     block r of a cluster of c    tokens r, r + c, r + 2 c, ... of the tile, from the shared memory of all c blocks
#pragma once
#include "cuda/sm90/output.cuh"
#include "cuda/sm90/skinny_tiles.cuh"
#include "cuda/sm90/skinny_weights.cuh"

namespace mxq::cuda::sm90::skinny {

// Returns a number of the same place in another block of the cluster.
__device__ __forceinline__ float load_of_block(const float* at, uint32_t block) {
    float value;
    asm volatile(
        "{\n"
        ".reg .b32 other;\n"
        "mapa.shared::cluster.u32 other, %1, %2;\n"
        "ld.shared::cluster.f32 %0, [other];\n"
        "}"
        : "=f"(value)
        : "r"(uint32_t(__cvta_generic_to_shared(at))), "r"(block)
        : "memory");
    return value;
}

// Makes the sum of plain numbers or MX values and codes again, in double: without their fp32 factors sums may leave fp32's
// range where D does not.
__device__ __noinline__ float sum_again(const Arguments& args, const Tile& tile, uint32_t token, uint32_t line) {
    const GemmProblem& p = args.problem;
    double sum = 0;
#pragma unroll 1
    for (uint32_t k = 0; k < uint32_t(p.k) && sum == sum; k++)
        sum += double(operand_value(p.a, tile.a, token, k)) * double(operand_value(p.b, tile.b, line, k));
    return __double2float_rn(sum);
}

// Writes D for some of the tokens, a warp for each, and the rows that pad the group.
template <Weights kind>
__device__ __forceinline__ void write_tokens(const Arguments& args, const Tile& tile, Shared& shared) {
    const GemmProblem& p = args.problem;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % args.cluster;
    const bool to_nearest = !p.is_sum_alone() || p.d.format == MXQ_FORMAT_F32;
    const bool factored = p.b.scale_type == ScaleType::F32 || p.b.scale_type == ScaleType::E4M3 ||
                          p.a.scale_type == ScaleType::F32 || p.a.scale_type == ScaleType::E4M3;
#pragma unroll 1
    for (uint32_t token = rank + warp * args.cluster; token < tile.padded; token += kWarps * args.cluster) {
        const int64_t row = tile.d_row + token;
        const bool exists = token < tile.rows;
        if (!exists && p.beta != 0) break;
#pragma unroll 1
        for (uint32_t i = lane; i < kLines && tile.line + i < uint32_t(p.n); i += 32) {
            const uint32_t line = tile.line + i;
            float value = 0;
            if (exists) {
                for (uint32_t block = 0; block < args.cluster; block++)
                    value = add_rn(value,
                                   args.cluster == 1 ? shared.sums[token][i] : load_of_block(&shared.sums[token][i], block));
                value = multiply_rn(value, unit_of_sums<kind>);
                if (factored && !(fabsf(value) < bits_float(kInfinityBits)))
                    value = sum_again(args, tile, tile.row + token, line);
                else if (factored)
                    value = scale_sum(value, line_factor(p.a, tile.a, tile.row + token), line_factor(p.b, tile.b, line),
                                      to_nearest);
                value = add_more(p, int32_t(tile.group), row, int32_t(line), value);
            }
            store_element(p.d.data, p.d.format, row * p.d.row_stride + line, value);
        }
    }
}

}  // namespace mxq::cuda::sm90::skinny
