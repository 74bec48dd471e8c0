// dequantize_columnwise: a columnwise part of any format to F32, F16 or BF16; compact or swizzled scales, experts, groups.
//
// A thread block takes a tile of 128 columns and 256 rows; 512 rows in large matrices, from 6-bit or 4-bit codes to 16-bit
// outputs. A K-major row then has at least 256 bytes in a tile; 128 bytes are 5% slower. Each element is read and written
// once.
//
//     codes in memory     K-major rows, copied asynchronously, all of a tile in flight; by aligned words if unaligned
//     shared memory       swizzled chunks of 16 codes; the scale words of 128 K-major rows (columnwise_tile.cuh)
//     registers           a patch of the output: 8 rows of 8 columns (F32: 4) (columnwise_rows.cuh)
//
//                     lane 0    lane 1        lane 15     columns 16 * 8; F32: a row has 32 lanes
//        rows 0..7    [vector]  [vector] ...  [vector] }
//        rows 8..15   lane 16   lane 17  ...  lane 31  }  warp 0; warps 1, 2 .. 15 the rows after, then warp 0 again
//
// A thread picks the codes of a row out of two columns at a time. It decodes 4-bit codes where they are
// (numerics/packed_pairs.h), under E4M3 scales by products of F16 pairs. With groups a tile has rows of one group. Rows that
// pad the output are +0.
//
// Bytes an element: 0.5 to 1.06 read, 2 or 4 written. Bound by memory in this pattern (docs/performance.md).
#include "cuda/dequantize/columnwise_rows.cuh"
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/memory/groups.cuh"

namespace mxq::cuda {
namespace {

using namespace columnwise;

constexpr int64_t kSmallTiles = 132;
constexpr int kMostTiles = 4;         // of a group tile that a thread block takes

// ---- Tiles -----------------------------------------------------------------------------------------------------------

// Dequantizes a tile of a group or of a matrix. All threads of the block call it.
template <class T, class E, Variant variant>
__device__ __forceinline__ void dequantize_tile(const Arguments& a, const DequantizeScope& scope, const ScaleLayout& layout,
                                                int first_row, int64_t col, Tile<T, E, variant>& tile) {
    using Tile = Tile<T, E, variant>;
    const QuantizedPart& in = a.problem.in;
    const uint8_t* from = scope.codes + col * in.line_bytes + int64_t(first_row) * E::bits / 8;
    const int lines = int(min(in.lines - col, int64_t(kTile))), filled = min(scope.rows - first_row, Tile::rows);
    if constexpr (variant == Variant::Any)
        load_unaligned(from, in.line_bytes, lines, filled, tile);
    else
        start_codes(a, from, lines, filled, tile);
    if (filled > 0 && !start_scales(in, layout, scope.scales, col, first_row, filled, tile))
        load_scales(in, layout, scope.scales, col, first_row, filled, tile);
    wait_for_copies();
    __syncthreads();
    const int warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32), column = lane % Tile::row_lanes * Tile::columns;
    const int64_t row_stride = a.problem.out.row_stride;
    T* const out = reinterpret_cast<T*>(scope.out) + first_row * row_stride + col + column;
#pragma unroll 1
    for (int row = warp * Tile::warp_rows; row < Tile::rows; row += Tile::warps * Tile::warp_rows) {
        const int mine = row + lane / Tile::row_lanes * kHalfChunk;
        const PatchRows<T, variant != Variant::Any> to(out + mine * row_stride, row_stride, scope.rows - first_row - mine,
                                                       scope.out_rows - first_row - mine, lines - column);
        const HalfRows<T, E> rows(tile, column, mine / kChunk, mine / kHalfChunk % 2);
        const ScaleWords<Tile::columns> words(&tile.scales[mine >> word_rows_log2(layout)][column]);
        store_patch(to, in.scale_type, scope.global, words, mine, rows);
    }
}

// The work of a thread block: adjacent tiles of one scope, from `row` on; one tile of a matrix.
struct TileRow {
    DequantizeScope scope;
    ScaleLayout layout;
    int32_t row;
    int64_t col, end;  // columns; none without a group
};

template <int rows_log2>
__device__ __forceinline__ TileRow tile_of_matrix(const Arguments& a, uint32_t line, int64_t across, int64_t element_bytes) {
    const DequantizeProblem& p = a.problem;
    const uint32_t expert = p.out.matrices == 1 ? 0 : line / a.down;
    return {p.out.matrices == 1 ? scope_of_expert(p, 0, element_bytes) : scope_of_expert(p, expert, element_bytes),
            p.in.layout, int32_t((line - expert * a.down) << rows_log2), across * kTile, (across + 1) * kTile};
}

// Finds the tiles of a group tile, by one warp.
template <int rows_log2>
__device__ __forceinline__ void find_tiles_of_group(const Arguments& a, uint32_t group_tile, int64_t across,
                                                    int64_t element_bytes, TileRow& tiles) {
    const DequantizeProblem& p = a.problem;
    GroupSumUnits units = group_sum_units(p.in.units, {p.out.group_unit, 1});
    units.tile_rows_log2 = rows_log2;
    const Group group = find_group_tile(p.grouped, units, group_tile);
    if (threadIdx.x != 0) return;
    tiles.col = across * a.block_tiles * kTile;
    tiles.end = group.exists() ? min(tiles.col + a.block_tiles * kTile, p.out.cols) : 0;
    if (!group.exists()) return;
    tiles.scope = scope_of_group(p, group.first(), group.second().codes, group.rows, element_bytes);
    tiles.layout = group_layout(p.in, group.rows);
    tiles.row = int32_t((group_tile - group.first_group_tile) << rows_log2);
}

// Dequantizes the tiles of a thread block, of a group or of a matrix of any alignment.
template <class T, class E, Variant variant>
__device__ __forceinline__ void dequantize_tiles(const Arguments& a, uint32_t line, Tile<T, E, variant>& tile) {
    __shared__ TileRow tiles;  // patches need the registers
    if (threadIdx.x < 32) {
        if (a.problem.grouped.groups.set)
            find_tiles_of_group<tile.rows_log2>(a, line, blockIdx.x, sizeof(T), tiles);
        else if (threadIdx.x == 0)
            tiles = tile_of_matrix<tile.rows_log2>(a, line, blockIdx.x, sizeof(T));
    }
    __syncthreads();
#pragma unroll 1
    for (int64_t col = tiles.col; col < tiles.end; col += kTile) {
        dequantize_tile<T, E, variant>(a, tiles.scope, tiles.layout, tiles.row, col, tile);
        __syncthreads();
    }
}

template <class T, class E, Variant variant>
__global__ void __launch_bounds__((Tile<T, E, variant>::threads), (Tile<T, E, variant>::sm_blocks))
    dequantize_columnwise_kernel(const __grid_constant__ Arguments a) {
    using Tile = Tile<T, E, variant>;
    extern __shared__ __align__(16) uint8_t shared[];
    Tile& tile = *reinterpret_cast<Tile*>(shared);
    const uint32_t line = row_of_blocks();
    if (line >= a.lines || blockIdx.x >= a.across) return;
    if constexpr (variant == Variant::Matrices) {
        const TileRow row = tile_of_matrix<Tile::rows_log2>(a, line, blockIdx.x, sizeof(T));
        dequantize_tile<T, E, variant>(a, row.scope, a.problem.in.layout, row.row, row.col, tile);
    } else {
        dequantize_tiles<T, E, variant>(a, line, tile);
    }
}

constexpr auto kernels = kernels_of(
    []<class T, class E>(T, E, auto variant) {
        using Tile = Tile<T, E, variant.value>;
        return kernel(dequantize_columnwise_kernel<T, E, variant.value>, Tile::threads, sizeof(Tile));
    },
    PlainTypes{}, AllElements{}, Values<Variant::Matrices, Variant::Tiles, Variant::Any>{});

// Returns whether every K-major row is read in whole words, from the start of each group on.
bool reads_whole_words(const DequantizeProblem& p) {
    return is_word_wise(p.in) && (!p.grouped.set() || p.in.units.codes % kChunk == 0);
}

// Returns whether there are so few tiles that smaller thread blocks, or smaller tiles, are faster.
bool is_small(const DequantizeProblem& p) {
    const int64_t tiles = p.out.matrices * ceil_div(p.out.rows, 512) * ceil_div(p.out.cols, kTile);
    return tiles < (p.in.bits == 8 ? 2 : 1) * kSmallTiles;
}

Variant variant_of(const DequantizeProblem& p) {
    if (!is_wide(p.out) || !reads_whole_words(p)) return Variant::Any;
    return p.grouped.set() || is_small(p) ? Variant::Tiles : Variant::Matrices;
}

// Returns whether codes of six bits can be read 64 at a time, three words of 16 bytes.
bool has_wide_words(const DequantizeProblem& p) {
    const QuantizedPart& in = p.in;
    return in.bits == 6 && is_aligned(in.codes, 16) && in.line_bytes % 16 == 0 && in.length % 64 == 0 && !p.grouped.set();
}

// Returns how many tiles of a group tile a thread block takes: several where groups are so short that finding one takes as
// long as its tile.
int32_t tiles_of_block(const DequantizeProblem& p, int32_t rows) {
    return int64_t(p.grouped.groups.count) * rows > p.grouped.rows ? kMostTiles : 1;
}

// Returns an upper bound of the tiles in a column of tiles.
int64_t tiles_down(const DequantizeProblem& p, int64_t tile_rows) {
    return p.grouped.set() ? group_tiles_bound(p.grouped, tile_rows) : ceil_div(p.out.rows, tile_rows);
}

Reason declines(const Context& context, const DequantizeProblem& problem) {
    if (!problem.columnwise) return "needs a columnwise part, found a rowwise one";
    if (problem.in.transformed) return "needs no transform, found a Hadamard transform";
    return needs_cuda(context);
}

void run(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    const Variant variant = variant_of(problem);
    const PlainMatrix& out = problem.out;
    const int32_t rows = 1 << tile_rows_log2(variant, problem.in.bits, out.element_bytes());
    Arguments a{};
    a.problem = problem;
    a.block_tiles = problem.grouped.set() ? tiles_of_block(problem, rows) : 1;
    a.down = uint32_t(tiles_down(problem, rows));
    a.wide_words_in = has_wide_words(problem);
    a.across = uint32_t(ceil_div(out.cols, kTile * a.block_tiles));
    a.lines = uint32_t(out.matrices) * a.down;
    launch(context, kernels, {out.format, problem.in.element, variant}, "dequantize_columnwise", grid_of_rows(a.across, a.lines),
           call.stream, a);
}

}  // namespace

const DequantizeImplementation dequantize_columnwise = {"dequantize_columnwise", declines, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
