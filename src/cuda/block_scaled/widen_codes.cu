// widen_codes: MX codes of four and six bits to E4M3 codes of the same values, which the same scales then multiply, and
// codes of eight bits to rows of whole blocks. Nothing is rounded: E4M3 has every value of E2M1, E2M3 and E3M2.
//
// A thread block takes 128 K-major rows of 256 codes, a thread 16 codes of a row in one access:
//
//     lanes 0..15      256 codes of a row      8, 12 or 16 bytes read by each, 16 written
//     lanes 16..31     of the next row         a warp's next access is 16 rows further down
//
// With groups one warp finds the group that the block is part of. Bound by memory: 0.5 to 1 byte read for each code, 1
// written. Not measured: the product that follows reads the same codes again, of every column of D or row of it.
#include "cuda/block_scaled/widen_codes.h"
#include "cuda/kernel_lists.h"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/rebase/chunks.cuh"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256, kCodes = 16;
constexpr int kLineThreads = kWidenLength / kCodes, kStepLines = kThreads / kLineThreads;

struct Arguments {
    BlockScaledOperand operand;
    uint32_t down;  // blocks of a matrix
    GroupSumUnits units;
    bool wide;  // sixteen codes are one aligned access everywhere
};

template <class E>
__device__ __forceinline__ uint4 widen(const Chunk<E::bits>& chunk) {
    if constexpr (E::bits == 8) {
        return {chunk.words[0], chunk.words[1], chunk.words[2], chunk.words[3]};
    } else {
        constexpr uint32_t same = 127;  // any scale: a tile that has the scale of its block keeps all values
        return rebase_chunk<E>(chunk, rebase_block<E>(same, same));
    }
}

// Finds what the block moves, for all its threads, which all call it; false: nothing.
__device__ __forceinline__ bool find_tile(const Arguments& args, WidenTile& tile) {
    const uint32_t row = row_of_blocks();
    if (args.operand.grouping == Grouping::None) {
        const uint32_t matrix = row / args.down;
        tile = widen_tile(args.operand, matrix, {}, 0, row - matrix * args.down, blockIdx.x);
        return matrix < args.operand.from.matrices;
    }
    __shared__ Group group;
    const bool along = args.operand.grouping == Grouping::Contraction;
    const uint32_t group_tile = along ? blockIdx.x : row;
    find_group_tile(args.operand.grouped, args.units, group_tile, group);
    if (!group.exists()) return false;
    const uint32_t in_group = group_tile - group.first_group_tile;
    tile = widen_tile(args.operand, 0, group.first(), group.rows, along ? row : in_group, along ? in_group : blockIdx.x);
    return true;
}

template <class E>
__global__ void __launch_bounds__(kThreads) widen_codes_kernel(const __grid_constant__ Arguments args) {
    WidenTile tile;
    if (!find_tile(args, tile)) return;
    const GemmOperand &from = args.operand.from, &to = args.operand.to;
    const int64_t code = int64_t(threadIdx.x % kLineThreads) * kCodes, left = tile.codes - code;
    if (code >= round_up_to_power(tile.codes, kMxBlock)) return;
    const int64_t first = tile.matrix * from.lines + tile.line, first_code = tile.code + code;  // of both
#pragma unroll 2
    for (int line = threadIdx.x / kLineThreads; line < min(tile.lines, int64_t(kWidenLines)); line += kStepLines) {
        const uint8_t* const source = from.codes + (first + line) * from.line_bytes + first_code / 8 * E::bits;
        Chunk<E::bits> chunk{};
        if (args.wide && left >= kCodes)
            chunk = load_whole<E::bits>(source);
        else if (left > 0)
            chunk = load_some<E::bits>(source, int(min(left, int64_t(kCodes))));
        *reinterpret_cast<uint4*>(to.codes + (first + line) * to.line_bytes + first_code) = widen<E>(chunk);
    }
}

bool is_wide_source(const GemmOperand& from) {
    const int64_t chunk_bytes = 2 * from.bits, access = chunk_bytes & -chunk_bytes;
    return is_aligned(from.codes, access) && from.line_bytes % access == 0;
}

constexpr auto kernels =
    kernels_of([]<class E>(E) { return kernel(widen_codes_kernel<E>, kThreads); }, AllElements{});
static_assert(kernels.size() == kElementCount);

}  // namespace

void widen_codes(const Context& context, const BlockScaledOperand& operand, void* stream) {
    const GemmOperand& from = operand.from;
    const bool along = operand.grouping == Grouping::Contraction;
    Arguments args{operand, uint32_t(ceil_div(from.lines, kWidenLines)), group_sum_units(from.units, from.units),
                   is_wide_source(from)};
    int64_t rows = args.down * from.matrices, across = ceil_div(operand.to.length, kWidenLength);
    if (along) {
        args.units.tile_rows_log2 = uint32_t(log2_of(uint32_t(kWidenLength)));
        across = group_tiles_bound(operand.grouped, kWidenLength);
    } else if (operand.grouping == Grouping::Rows) {
        rows = group_tiles_bound(operand.grouped, kWidenLines);
    }
    if (rows * across == 0) return;
    launch(context, kernels, from.element, "widen_codes", grid_of_rows(across, rows), stream, args);
}

void load_widen_codes(const Context&) { load_kernels(kernels); }

}  // namespace mxq::cuda
