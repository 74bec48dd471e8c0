// The pass of skinny_sm90: decodes A to BF16 and brings it into the order of skinny_tokens.h, which has the picture. F16 is
// read twice, once for either part.
//
// A block has eight tokens of a group and 512 codes of them: a thread has 16, two pairs from each quarter of 128, which it
// reads by fours and writes as two pieces of 16 bytes. Eight lanes have the eight tokens, whose pieces are a line of 128
// bytes; four of a token read its next 32 bytes.
#include "cuda/launch.h"
#include "cuda/memory/operand.cuh"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/sm90/skinny_tokens.h"
#include "cuda/sm90/weight_kind.h"
#include "numerics/split_f16.h"

namespace mxq::cuda::sm90 {
namespace {

constexpr int kThreads = 32 * kTokenRows, kBlockCodes = 512;

struct Arguments {
    GemmProblem problem;
    GroupSumUnits units;  // of A's codes and scales; of tokens
    uint8_t* tokens;
    uint32_t tile_tokens;
    int64_t chunks;
    bool by_eights;
    bool whole;      // lines of BF16 or F16 are whole aligned pieces of four
    uint32_t parts;  // of a number: 2 of F16
};

// Returns an element as BF16; of F16 the high or the low part.
__device__ __forceinline__ uint32_t load_one(const GemmOperand& a, const TileOperand& at, uint32_t line, uint32_t k,
                                             bool high) {
    if (a.element == Element::F16) return parts_of_pair(code_at(16, at.codes + line * a.line_bytes, k), high) & 0xFFFF;
    return decode_to_bf16_exactly(element_at(a, a.bits, at, line, k), block_scale_at(a, a.bits, at, line, k));
}

// Returns four elements of a line likewise; those past its end are zero.
__device__ __forceinline__ uint2 load_four(const Arguments& args, const TileOperand& at, uint32_t line, uint32_t k,
                                           bool high) {
    const GemmOperand& a = args.problem.a;
    if (args.whole) {
        if (k >= uint32_t(args.problem.k)) return {};
        const uint2 four = *reinterpret_cast<const uint2*>(at.codes + line * a.line_bytes + 2 * k);
        return args.parts == 1 ? four : uint2{parts_of_pair(four.x, high), parts_of_pair(four.y, high)};
    }
    uint64_t four = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < 4 && k + i < uint32_t(args.problem.k); i++)
        four |= uint64_t(load_one(a, at, line, k + i, high)) << 16 * i;
    return {uint32_t(four), uint32_t(four >> 32)};
}

// Returns what a quarter gives to its 16 number `sixteen`; it begins at k.
__device__ __forceinline__ EvenOddBf16 load_pairs(const Arguments& args, const TileOperand& at, uint32_t line, uint32_t k,
                                                  uint32_t sixteen, bool high_parts) {
    if (!args.by_eights) {
        const uint2 four = load_four(args, at, line, k + 4 * sixteen, high_parts);
        return split_even_odd_bf16(four.x, four.y);
    }
    k += sixteen / 2 * 8;
    const uint2 low = load_four(args, at, line, k, high_parts), high = load_four(args, at, line, k + 4, high_parts);
    const uint32_t first = sixteen % 2 ? low.y : low.x, second = sixteen % 2 ? high.y : high.x;
    return {permute_bytes(first, second, 0x5410), permute_bytes(first, second, 0x7632)};
}

__global__ void __launch_bounds__(kThreads) prepare_tokens_kernel(const __grid_constant__ Arguments args) {
    start_next_kernel();
    const GemmProblem& p = args.problem;
    __shared__ Group shared;
    uint32_t row = blockIdx.x * kTokenRows, rows = uint32_t(p.m), first_token = 0;  // of the group
    TileOperand at;
    if (p.grouping == Grouping::Rows) {
        find_group_tile({p.groups, p.group_rows}, args.units, blockIdx.x, shared);
        const Group group = shared;
        if (!group.exists()) return;
        row = (blockIdx.x - group.first_group_tile) * kTokenRows;
        rows = group.rows;
        first_token = group.starts[kRowwiseCodes];
        at = operand_of_group(p.a, group.first(), group.rows);
    } else {
        at = operand_of_matrix(p.a, 0);
    }
    const uint32_t line = row + threadIdx.x % kTokenRows, sixteen = threadIdx.x / kTokenRows % 8;
    const uint32_t chunk = blockIdx.y * (kBlockCodes / kChunkCodes) + threadIdx.x / (8 * kTokenRows);
    if (line >= rows || chunk >= args.chunks) return;
    const uint32_t in_tile = line % args.tile_tokens, tile = line - in_tile;
    const uint32_t tile_rows = min(rows - tile, args.tile_tokens), eights = (tile_rows + kTokenRows - 1) / kTokenRows;
    const uint32_t token = in_tile % kTokenRows;
    uint8_t* core = args.tokens +
                    args.parts * (int64_t(first_token + tile) * args.chunks * (kChunkCodes * 2) +
                                  (int64_t(chunk) * eights + in_tile / kTokenRows) * kTokenRowsBytes) +
                    sixteen * 256 + token * 16;
#pragma unroll 1
    for (uint32_t part = 0; part < args.parts; part++, core += kTokenRowsBytes) {
        EvenOddBf16 pairs[4];
#pragma unroll
        for (uint32_t q = 0; q < 4; q++)
            pairs[q] = load_pairs(args, at, line, chunk * kChunkCodes + 32 * q, sixteen, part == 0);
        *reinterpret_cast<uint4*>(core) = {pairs[0].even, pairs[1].even, pairs[2].even, pairs[3].even};
        *reinterpret_cast<uint4*>(core + 128) = {pairs[0].odd, pairs[1].odd, pairs[2].odd, pairs[3].odd};
    }
}

// Returns the tokens of all groups, each rounded up to eights.
int64_t token_rows(const GemmProblem& p) {
    if (p.grouping == Grouping::Rows) return padded_rows_bound(p.group_rows, p.groups.count, kTokenRows);
    return round_up(p.m, int64_t(kTokenRows));
}

}  // namespace

uint64_t token_bytes(const GemmProblem& p) {
    return uint64_t(token_rows(p) * round_up(p.k, int64_t(kChunkCodes))) * 2 * uint64_t(parts_of_numbers(p.a));
}

void prepare_tokens(const Context& context, const GemmProblem& p, int32_t tile_tokens, bool by_eights, uint8_t* tokens,
                    void* stream) {
    Arguments args{p,
                   {},
                   tokens,
                   uint32_t(tile_tokens),
                   ceil_div(p.k, int64_t(kChunkCodes)),
                   by_eights,
                   false,
                   uint32_t(parts_of_numbers(p.a))};
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = kTokenRows;
    args.units.tile_rows_log2 = uint32_t(log2_of(kTokenRows));
    args.whole = p.a.scale_type == ScaleType::None && p.k % 4 == 0 && p.a.line_bytes % 8 == 0 &&
                 reinterpret_cast<uintptr_t>(p.a.codes) % 8 == 0;
    const dim3 grid(unsigned(token_rows(p) / kTokenRows), unsigned(ceil_div(p.k, int64_t(kBlockCodes))));
    launch(context, prepare_tokens_kernel, "skinny_sm90's pass", grid, dim3(kThreads), 0, stream, args);
}

void load_prepare_tokens() { load_kernel(prepare_tokens_kernel); }

}  // namespace mxq::cuda::sm90
