// rebase: MX codes under scales of 32 to FP8 codes under fp32 scales of 1x128 or 128x128, for products on FP8 tensor cores.
//
// A thread block takes half of two neighbouring tiles of 128 x 128 (see block_halves), so that a warp reads and writes 256
// codes of two K-major rows in one access. Wider accesses come nearer to the rate of a copy (movement alone, 32768 x 7168,
// H200, 2026-11-22):
//
//     codes of a row in an access     128            512
//     of the rate of a copy           77 to 88%      91 to 92%
//
// The kernel as a whole is faster with 256 than with 512.
//
// With groups, one warp finds the block's tile; without, all threads compute it, which is faster than waiting. Then each
// warp processes its eight rows alone, from global memory to registers and back:
//
//     codes    lane 0, 1, ...: 16 of a row each, half a block of 32; four accesses in flight before the first use
//     scales   a lane has two of a tile's four, of one row: it computes the tile's fp32 scale, and what moves the codes of both
//              blocks -> shared memory -> the lanes that have those codes
//
// For scales of 128x128 a block reads the scales of both halves of its tiles, a thread one row of one tile, and the warps
// reduce their maxima through shared memory.
//
// Bytes an element: 0.53 to 1.03 read, 1.03 written (for 128x128, scales are read twice and 1.00 is written).
#include "cuda/memory/codes.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/magnitudes.cuh"
#include "cuda/kernel_lists.h"
#include "cuda/rebase/chunks.cuh"
#include "cuda/rebase/rebase.h"
#include "cuda/tile/location.cuh"
#include "cuda/types.cuh"
#include "numerics/packing.h"

namespace mxq::cuda {
namespace {

struct Arguments {
    RebaseCall call;
    uint32_t down, across;  // thread blocks for the rows and the codes of a matrix; of groups, an upper bound
    GroupSumUnits units;
    RebaseGrid grid;
    bool words;  // scales are read by fours
};

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Loads a thread's codes, from its first row on; out-of-range codes are zero. `lines` and `count`: how many rows there are
// from there on, and how many of the thread's codes.
template <class E, bool wide>
__device__ __forceinline__ void load_codes(const uint8_t* from, int64_t line_bytes, int lines, int count,
                                           Chunk<E::bits> (&chunks)[kRebaseAccesses]) {
#pragma unroll
    for (int i = 0; i < kRebaseAccesses; i++, from += kAccessLines * line_bytes) {
        chunks[i] = {};
        if (i * kAccessLines >= lines || count <= 0) continue;
        if constexpr (wide) chunks[i] = load_whole<E::bits>(from);
        else chunks[i] = load_some<E::bits>(from, min(count, kRebaseCodes));
    }
}

// The factors of a warp's rows, one for each block of 32 codes.
template <class E>
using WarpBlocks = RebaseBlock<E>[kWarpLines][kRebaseLength / kMxBlock];

template <class E>
__device__ __forceinline__ void store_codes(uint8_t* to, int64_t line_bytes, int lines, bool exists,
                                            const Chunk<E::bits> (&chunks)[kRebaseAccesses], const WarpBlocks<E>& blocks) {
#pragma unroll
    for (int i = 0; i < kRebaseAccesses; i++, to += kAccessLines * line_bytes) {
        const uint4 codes = rebase_chunk<E>(chunks[i], blocks[rebase_line(threadIdx.x % 32, i)][threadIdx.x % kLineLanes / 2]);
        if (exists && i * kAccessLines < lines) *reinterpret_cast<uint4*>(to) = codes;
    }
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// A row of one of the block's tiles. `column`: 0 for the first tile, 1 for the next along the row.
struct ScalePosition {
    int column, line;
};

__device__ __forceinline__ int scaled_codes(const RebaseTile& tile, const ScalePosition& position) {
    return position.line < tile.lines ? tile.scaled - position.column * kRebaseTile : 0;
}
__device__ __forceinline__ LoadedScales load_line(const Arguments& args, const RebaseTile& tile, const ScalePosition& position,
                                                  int half) {
    const ScaleLayout& layout = args.call.from.layout;
    const int64_t from = tile.scales + position.column * tile.next_scales + scales_of_line(layout, uint32_t(position.line));
    return load_scales(layout, args.words, args.call.from.scales + from, scaled_codes(tile, position), half);
}

// The four scales of a thread's row, and the scale that replaces them.
struct LineScales {
    uint32_t word, largest;
};

// Returns the scales of a thread's row, with a scale for each row. Two threads share a row, and load half of its scales
// each where these are no aligned words. All threads of a warp call it.
template <class E>
__device__ __forceinline__ LineScales scales_by_line(const Arguments& args, const RebaseTile& tile, const ScalePosition& position) {
    const int half = threadIdx.x % 2;
    uint32_t word = scale_word(load_line(args, tile, position, half), args.words, scaled_codes(tile, position), half);
    if (!args.words) word |= __shfl_xor_sync(kAllLanes, word, 1);
    return {word, rebase_line_scale<E>(args.call, word)};
}

// Returns the scales of a thread's row, with one scale for a whole tile: thread t reads row t / 2 of both halves. All
// threads of the block call it.
template <class E>
__device__ __forceinline__ LineScales scales_by_tile(const Arguments& args, const RebaseTile& tile, const ScalePosition& position) {
    __shared__ uint32_t words[kRebaseTile][kRebaseTiles], maxima[kRebaseThreads / 32][kRebaseTiles];
    const ScalePosition other{int(threadIdx.x % kRebaseTiles), int(threadIdx.x / kRebaseTiles)};
    uint32_t loaded = 0;
    for (int half = 0; half < (args.words ? 1 : 2); half++)
        loaded |= scale_word(load_line(args, tile, other, half), args.words, scaled_codes(tile, other), half);
    words[other.line][other.column] = loaded;
    uint32_t largest = rebase_line_scale<E>(args.call, loaded);
#pragma unroll
    for (int lanes = kRebaseTiles; lanes < 32; lanes *= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
    if (threadIdx.x % 32 < kRebaseTiles) maxima[threadIdx.x / 32][threadIdx.x % 32] = largest;
    __syncthreads();
    largest = 0;
#pragma unroll
    for (int w = 0; w < kRebaseThreads / 32; w++) largest = max(largest, maxima[w][position.column]);
    return {words[position.line][position.column], largest};
}

// Stores the fp32 scale of a tile or of a row of it, by the first of two threads.
__device__ __forceinline__ void store_scale(const RebaseCall& call, const RebaseTile& tile, const ScalePosition& position,
                                            uint32_t largest) {
    const bool share = call.to.layout.tile_rows > 1, exists = tile.length > position.column * kRebaseTile;
    const bool stores = share ? position.line == 0 : exists && position.line < tile.to_lines;
    if (!stores || threadIdx.x % 2 != 0) return;
    float* const to = reinterpret_cast<float*>(call.to.scales) + tile.to_scales + position.column * tile.next_to_scales;
    to[share ? 0 : position.line] = exists && position.line < tile.lines ? scale_value(largest) : 0.0f;
}

// Shares half of a row's four blocks with the other lanes. All threads of a warp call it.
template <class E>
__device__ __forceinline__ void share_blocks(uint32_t word, uint32_t largest, WarpBlocks<E>& blocks) {
    RebaseBlock<E>* const mine = &blocks[rebase_scale_line(threadIdx.x % 32)][threadIdx.x % (2 * kRebaseTiles) * 2];
    const uint32_t half = word >> (threadIdx.x % 2 * 16);
    mine[0] = rebase_block<E>(half & 0xFF, largest);
    mine[1] = rebase_block<E>(half >> 8 & 0xFF, largest);
    __syncwarp();
}

// ---- Tiles -----------------------------------------------------------------------------------------------------------

// Returns how many halves of its tiles a block takes, one after the other. Groups along the contraction take longest to
// find, and six bits have the most work afterwards. One search for both halves brings them 3% of the rate of a copy; MXFP8
// and MXFP4 lose 2 to 3%.
MXQ_HD constexpr int block_halves(int bits, Grouping grouping) {
    return bits == 6 && grouping == Grouping::Contraction ? kRebaseHalves : 1;
}

// The first tile of a thread block and its first row there. `lines` counts the halves of tiles in an expert or group.
struct BlockPosition {
    RebaseTile tile;
    int line;
};
template <Grouping grouping>
__device__ __forceinline__ BlockPosition position_of_block(const Arguments& args, const RebaseScope& scope, uint32_t lines,
                                                     uint32_t across) {
    return {rebase_tile<grouping>(args.call, args.grid, scope, lines / kRebaseHalves, across * kRebaseTiles),
            int(lines % kRebaseHalves * kRebaseLines)};
}

// Return false where there is nothing for the block. All its threads call them.
__device__ __forceinline__ bool find_in_matrix(const Arguments& args, BlockPosition& position) {
    const uint32_t row = row_of_blocks(), matrix = args.call.from.matrices == 1 ? 0 : row / args.down, lines = row - matrix * args.down;
    if (matrix >= args.call.from.matrices || lines >= args.down) return false;
    position = position_of_block<Grouping::None>(args, {matrix, 0, {}, {}}, lines, blockIdx.x);
    return true;
}
template <Grouping grouping>
__device__ __forceinline__ bool find_in_groups(const Arguments& args, int halves, BlockPosition& position) {
    __shared__ BlockPosition found;
    __shared__ bool exists;
    constexpr bool along = grouping == Grouping::Contraction;
    const uint32_t group_tile = along ? blockIdx.x : row_of_blocks(), other = along ? row_of_blocks() : blockIdx.x;
    if (group_tile >= args.down || other >= args.across) return false;  // of a grid that is larger than the work
    if (threadIdx.x < 32) {
        const Group group = find_group_tile(args.call.grouped, args.units, group_tile);
        const RebaseScope scope{0, group.rows, group.first(), group.second()};
        const uint32_t in_group = group_tile - group.first_group_tile;
        const uint32_t lines = (along ? other : in_group) * uint32_t(halves);
        const BlockPosition of_block = position_of_block<grouping>(args, scope, lines, along ? in_group : other);
        if (threadIdx.x == 0) found = of_block, exists = group.exists();
    }
    __syncthreads();
    position = found;
    return exists;
}

// Blocks that share an SM. Codes of four bits leave registers for one more.
template <int bits>
constexpr int kSmBlocks = kConvertsInSoftware ? 4 : bits == 4 ? 6 : 5;

// Rebases half of the tiles, from row `first` on. All threads of the block call it.
template <class E, bool wide, Grouping grouping>
__device__ __forceinline__ void rebase_half(const Arguments& args, const RebaseTile& tile, int first, WarpBlocks<E>& blocks) {
    const RebaseCall& call = args.call;
    const int line = first + rebase_line(threadIdx.x, 0), code = rebase_code(threadIdx.x);
    const ScalePosition position{rebase_scale_tile(threadIdx.x), first + rebase_scale_line(threadIdx.x)};
    Chunk<E::bits> chunks[kRebaseAccesses];
    if (!call.keeps_codes)
        load_codes<E, wide>(call.from.codes + tile.codes + line * call.from.line_bytes + code / 8 * E::bits, call.from.line_bytes,
                            tile.lines - line, tile.length - code, chunks);
    const bool by_tile = grouping == Grouping::None && call.to.layout.tile_rows > 1;
    const auto [word, largest] = by_tile ? scales_by_tile<E>(args, tile, position) : scales_by_line<E>(args, tile, position);
    store_scale(call, tile, position, largest);
    if (call.keeps_codes) return;
    share_blocks<E>(word, largest, blocks);
    store_codes<E>(call.to.codes + tile.to_codes + line * call.to.line_bytes + code, call.to.line_bytes, tile.to_lines - line,
                   tile.length > code / kRebaseTile * kRebaseTile, chunks, blocks);
}

// A kernel for each grouping: matrices would pay for the search that groups need.
template <class E, bool wide, Grouping grouping>
__global__ void __launch_bounds__(kRebaseThreads, kSmBlocks<E::bits>) rebase_kernel(const __grid_constant__ Arguments args) {
    __shared__ WarpBlocks<E> blocks[kRebaseThreads / 32];
    constexpr int halves = block_halves(E::bits, grouping);
    BlockPosition position;
    if constexpr (grouping == Grouping::None) {
        if (!find_in_matrix(args, position)) return;
    } else {
        if (!find_in_groups<grouping>(args, halves, position)) return;
    }
#pragma unroll 1
    for (int half = 0; half < halves; half++) {
        if (half > 0) __syncwarp();  // the lanes have read the first half's blocks
        rebase_half<E, wide, grouping>(args, position.tile, position.line + half * kRebaseLines, blocks[threadIdx.x / 32]);
    }
}

// Returns whether rows are aligned vectors of 16 codes, which one access reads.
bool is_wide_source(const GemmOperand& from) {
    const int64_t chunk_bytes = 2 * from.bits;
    return is_aligned(from.codes, chunk_bytes & -chunk_bytes) && from.line_bytes % chunk_bytes == 0;
}

Arguments arguments_of(const RebaseCall& call) {
    const int64_t lines = ceil_div(call.to.lines, block_halves(call.from.bits, call.grouping) * kRebaseLines);
    const bool by_codes = call.grouping == Grouping::Contraction;
    const uint32_t group_tile = by_codes ? kRebaseLength : kRebaseLines;
    const int64_t down = call.grouping == Grouping::None ? lines : group_tiles_bound(call.grouped, group_tile);
    Arguments args{call, uint32_t(down), uint32_t(by_codes ? lines : blocks_across(call)), {}, rebase_grid(call),
                   has_scale_words(call)};
    args.units = group_sum_units(call.from.units, call.to.units);
    args.units.tile_rows_log2 = uint32_t(log2_of(group_tile));
    return args;
}

// The last value: rows are read by 16 codes.
constexpr auto kernels = kernels_of(
    []<class E>(E, auto grouping, auto wide) { return kernel(rebase_kernel<E, wide.value, grouping.value>, kRebaseThreads); },
    AllElements{}, Values<Grouping::None, Grouping::Rows, Grouping::Contraction>{}, Values<true, false>{});
static_assert(kernels.size() == 6 * kElementCount);

}  // namespace

void rebase(const Context& context, const RebaseCall& call, void* stream) {
    const Arguments args = arguments_of(call);
    const int64_t rows = int64_t(args.down) * call.from.matrices;
    if (args.across * rows == 0) return;
    const bool by_codes = call.grouping == Grouping::Contraction;  // consecutive blocks advance along the codes
    const dim3 grid = by_codes ? grid_of_rows(rows, args.across) : grid_of_rows(args.across, rows);
    launch(context, kernels, {call.from.element, call.grouping, is_wide_source(call.from)}, "rebase", grid, stream, args);
}

void load_rebase(const Context&) { load_kernels(kernels); }

}  // namespace mxq::cuda
