// quantize_columns: aligned BF16 to the columnwise part of 8 bits, or to both parts, without groups, of matrices with more
// than one tile of rows.
//
// A thread block takes two 128 x 128 tiles, one below the other (two_tiles.cuh): 256 bytes of a K-major row leave at once.
// Each tile is quantized as in quantize_tile.cuh. The lower tile may lie below the last row: it then stores nothing, but
// takes part in barriers.
//
// Bytes an element: 2 read, 1.03 written for each part. Bound by memory: docs/performance.md has the rates of segments of
// 128 and 256 bytes.
#include "cuda/implementations.h"
#include "cuda/quantize/two_tiles.cuh"

namespace mxq::cuda {
namespace {

// Finds the tile of the threads of this threadIdx.y, which may lie below the last row; false: the thread block has no tiles.
__device__ __forceinline__ bool find_tile_of_two(const Tiles& tiles, TileCoord& coord) {
    const uint32_t line = row_of_blocks(), down = uint32_t(tiles.down + kTwoTiles - 1) / kTwoTiles;
    const uint32_t matrix = tiles.matrices == 1 ? 0 : line / down;
    if (matrix >= tiles.matrices || line >= uint32_t(tiles.matrices) * down) return false;
    const int64_t upper = int64_t(line - matrix * down) * kTwoTilesRows;
    coord = {matrix, matrix, upper + int(threadIdx.y) * kTile, int64_t(blockIdx.x) * kTile, tiles.rows};
    return true;
}

// Returns the codes of both tiles, from those of the tile of this threadIdx.y.
__device__ __forceinline__ CodeTile lines_of_two(const TileCoord& coord, CodeTile to) {
    const int above = int(threadIdx.y) * kTile;
    to.codes -= above;
    to.length = int(min(coord.rows - (coord.row - above), int64_t(kTwoTilesRows)));
    return to;
}

template <class E>
__global__ void __launch_bounds__(kTwoTilesThreads, kTwoTilesBlocks)
    quantize_columns_kernel(const __grid_constant__ TileArguments a) {
    if (!kTwoTilesFit) return;
    __shared__ TileShared<E> shared[kTwoTiles];
    TileCoord coord;
    const bool exists = find_tile_of_two(a.tiles, coord);
    TileShared<E>& mine = shared[threadIdx.y];
    PatchVectors<Bf16> vectors;
    if (exists) load_patch(Bf16Source{}, a.problem, coord, mine.group, true, mine.source_scales, vectors);
    wait_for_previous_kernel();  // the maxima
    store_whole_scales<E>(a.problem, a.rule);
    if (!exists) return;
    quantize_patch<E, Bf16>(a, coord, Patch<Bf16>(kTile, kTile), vectors, mine,
                            [&](const CodeTile& to) { store_two_tiles(shared, lines_of_two(coord, to)); });
}

constexpr auto kernels =
    kernels_of([]<class E>(E) { return kernel(quantize_columns_kernel<E>, kTwoTilesBlock); }, ElementsOf8Bits{});

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.grouped.set()) return "needs no groups, found some";
    if (Reason reason = declines_two_tiles(context, problem); !reason.empty()) return reason;
    if (problem.source.rows <= kTile)
        return [rows = problem.source.rows] {
            return format_text("needs more rows than a tile has, found %lld", (long long)rows);
        };
    return "";
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const AmaxBuffers amax(problem, call.workspace);
    const TileArguments a = tile_arguments(problem, amax);
    const Start start = prepare_amax(context, problem, a.rule, amax, call);
    const dim3 grid = grid_of_rows(a.tiles.across, a.tiles.matrices * ceil_div(a.tiles.down, int64_t(kTwoTiles)));
    launch(context, kernels, problem.format->element, "quantize_columns", grid, call.stream, a, start);
}

}  // namespace

const QuantizeImplementation quantize_columns = {"quantize_columns", declines, tile_workspace_bytes, run, load_all<kernels>};

}  // namespace mxq::cuda
