// A warp takes 256 numbers of a row, a lane eight of them: 16 bytes, whose four pairs of numbers it writes to four places.
// Lanes of a group of four have the same eight of four quarters, which become neighbours in memory.
#include "cuda/sm90/weights_tokens.h"

#include "cuda/launch.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/weights.cuh"
#include "cuda/widen/split_f16.h"
#include "dispatch/prepared.h"
#include "numerics/split_f16.h"

namespace mxq::cuda::sm90::weights {
namespace {

constexpr int kBlockNumbers = 128, kWarpNumbers = 256, kLines = 8;  // rows of a thread block

struct Arguments {
    const uint8_t* numbers;
    uint8_t* tokens;
    int64_t lines, length, line_bytes;
    int64_t token_bytes, part_bytes;  // of a row, and of a part of all rows
    bool f16, wide;                   // numbers are in two parts; are read by eights
    bool fp4;                         // weights are
};

// Returns eight numbers of a row; those past its end are zero.
__device__ __forceinline__ uint4 load_eight(const Arguments& args, const uint8_t* row, int64_t first) {
    if (args.wide) return first < args.length ? *reinterpret_cast<const uint4*>(row + 2 * first) : uint4{};
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (first + i < args.length)
            words[i / 2] |= uint32_t(reinterpret_cast<const uint16_t*>(row)[first + i]) << i % 2 * 16;
    return {words[0], words[1], words[2], words[3]};
}

// Writes the pairs of eight numbers, number w of quarter q of the 128 that `to` holds.
__device__ __forceinline__ void store_eight(const Arguments& args, uint8_t* to, uint32_t q, uint32_t w, const uint4& of) {
    uint32_t* const at = reinterpret_cast<uint32_t*>(to + 64 * w) + q;
    const uint4 pairs = args.fp4 ? pair_eight<Weights::Bits4>(of) : pair_eight<Weights::Bits8>(of);
    at[0] = pairs.x, at[4] = pairs.y, at[8] = pairs.z, at[12] = pairs.w;
}

__global__ void __launch_bounds__(32 * kLines) arrange_tokens_kernel(const __grid_constant__ Arguments args) {
    start_next_kernel();
    const uint32_t lane = threadIdx.x % 32, q = lane % 4, w = lane / 4 % 4;
    const int64_t line = int64_t(row_of_blocks()) * kLines + threadIdx.x / 32;
    const int64_t block = int64_t(blockIdx.x) * kWarpNumbers + lane / 16 * kBlockNumbers;
    if (line >= args.lines || block >= args.length) return;
    const uint4 eight = load_eight(args, args.numbers + line * args.line_bytes, block + 32 * q + 8 * w);
    uint8_t* const to = args.tokens + line * args.token_bytes + 2 * block;
    if (!args.f16) return store_eight(args, to, q, w, eight);
#pragma unroll
    for (int part = 0; part < 2; part++)
        store_eight(args, to + part * args.part_bytes, q, w,
                    {parts_of_pair(eight.x, part == 0), parts_of_pair(eight.y, part == 0), parts_of_pair(eight.z, part == 0),
                     parts_of_pair(eight.w, part == 0)});
}

}  // namespace

GemmOperand arranged_tokens(const GemmOperand& from, void* to) {
    GemmOperand tokens = from;
    tokens.codes = static_cast<uint8_t*>(to);
    tokens.length = round_up(from.length, int64_t(kBlockNumbers));
    tokens.line_bytes = 2 * tokens.length;
    tokens.matrix_bytes = tokens.lines * tokens.line_bytes;
    tokens.matrices = can_split(from) ? 2 : 1;
    tokens.element = Element::Bf16, tokens.format = MXQ_FORMAT_BF16;
    return tokens;
}

uint64_t arranged_token_bytes(const GemmOperand& from) {
    const GemmOperand tokens = arranged_tokens(from, nullptr);
    return uint64_t(round_up(tokens.matrices * tokens.matrix_bytes, int64_t(kWorkspaceAlignment)));
}

void arrange_tokens(const Context& context, const GemmOperand& from, const GemmOperand& to, int32_t bits, void* stream) {
    const bool wide = from.length % 8 == 0 && from.line_bytes % 16 == 0 && is_aligned(from.codes, 16);
    const Arguments args{from.codes,    to.codes,        from.lines,      from.length, from.line_bytes,
                         to.line_bytes, to.matrix_bytes, can_split(from), wide,        bits == 4};
    const dim3 grid = grid_of_rows(ceil_div(args.length, int64_t(kWarpNumbers)), ceil_div(args.lines, int64_t(kLines)));
    launch(context, arrange_tokens_kernel, "weights_sm90's pass", grid, dim3(32 * kLines), 0, stream, args);
}

void load_arrange_tokens() { load_kernel(arrange_tokens_kernel); }

}  // namespace mxq::cuda::sm90::weights
