// The kernel of quantize_tile for BF16 to columns of 8 bits, and to both parts, without groups, from aligned rows to aligned
// lines: a block of threads takes two tiles, one below the other, a row of threads each. It stores their columnwise codes
// together, 256 bytes of a line at once.
//
//     threadIdx.y 0   rows 0..127     shared[0]: half of every column }   pieces of 16 bytes, 16 lanes a line
//     threadIdx.y 1   rows 128..255   shared[1]: the other half       }
//
// All else is a tile's alone (quantize_tile.cuh). The lower tile may lie below the last row: then it holds and stores
// nothing, but meets the barriers.
//
// Bound by memory in this pattern: what lines of 128 and of 256 bytes reach is in docs/performance.md.
#pragma once
#include "cuda/quantize/quantize_tile.cuh"
#include "cuda/tile/patch_source.cuh"

namespace mxq::cuda {

constexpr int kTallTiles = 2, kTallRows = kTallTiles * kTile;

// Finds the tile of the thread's row of threads, which may lie below the last row, of two tiles in such a line and column of
// them; false: there are none.
__device__ __forceinline__ bool find_tall_tile(const Tiles& tiles, uint32_t line, uint32_t across, TilePlace& place) {
    const uint32_t down = uint32_t(tiles.down + kTallTiles - 1) / kTallTiles;
    const uint32_t matrix = tiles.matrices == 1 ? 0 : line / down;
    if (matrix >= tiles.matrices || line >= uint32_t(tiles.matrices) * down) return false;
    const int64_t upper = int64_t(line - matrix * down) * kTallRows;
    place = {matrix, matrix, upper + int(threadIdx.y) * kTile, int64_t(across) * kTile, tiles.rows};
    return true;
}

// Returns the lines of both tiles' codes, from what the tile of the thread's row of threads has.
__device__ __forceinline__ CodeTile tall_lines(const TilePlace& place, CodeTile to) {
    const int above = int(threadIdx.y) * kTile;
    to.codes -= above;
    to.length = int(min(place.rows - (place.row - above), int64_t(kTallRows)));
    return to;
}

__device__ __forceinline__ int tall_thread() { return int(threadIdx.y) * Patch<Bf16>::threads + int(threadIdx.x); }

// Stores lines of both tiles by all threads, 16 bytes at a time.
template <class E>
__device__ __forceinline__ void store_tall_lines(const TileShared<E> (&shared)[kTallTiles], const CodeTile& to) {
    constexpr int threads = kTallTiles * Patch<Bf16>::threads, units = kTallRows / sizeof(uint4),
                  in_tile = units / kTallTiles;
    const int thread = tall_thread(), unit = thread % units;
#pragma unroll
    for (int i = 0; i < kTile * units / threads; i++) {
        const int line = i * (threads / units) + thread / units;
        const auto* from = &shared[unit / in_tile].codes.words[TileCodes<E>::template line<Patch<Bf16>::columns>(line)];
        if (line < to.lines && unit * int(sizeof(uint4)) < to.length)
            *reinterpret_cast<uint4*>(to.codes + line * to.line_bytes + unit * sizeof(uint4)) =
                reinterpret_cast<const uint4*>(from)[unit % in_tile];
    }
}

template <class E>
__global__ void __launch_bounds__(kTallTiles* Patch<Bf16>::threads, kSmBlocks<Bf16> / kTallTiles)
    quantize_tall_kernel(const __grid_constant__ TileArguments a) {
    __shared__ TileShared<E> shared[kTallTiles];
    TilePlace place;
    const bool exists = find_tall_tile(a.tiles, row_of_blocks(), blockIdx.x, place);
    TileShared<E>& mine = shared[threadIdx.y];
    PatchVectors<Bf16> vectors;
    if (exists) load_patch(Bf16Source{}, a.problem, place, mine.group, true, mine.source_scales, vectors);
    wait_for_previous_kernel();  // which makes the maxima
    store_whole_scales<E>(a.problem, a.rule);
    if (!exists) return;
    quantize_patch<E, Bf16>(a, place, Patch<Bf16>(kTile, kTile), vectors, mine, [&](const CodeTile& to) {
        store_tall_lines(shared, tall_lines(place, to));
    });
}

}  // namespace mxq::cuda
