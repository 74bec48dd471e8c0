// The kernels of quantize_tile for BF16 to columns of 8 bits, and to both parts, without groups: a block of threads takes
// two tiles, one below the other, a row of threads each, and stores their columnwise codes together, 256 bytes of a line
// at once.
//
//     threadIdx.y 0   rows 0..127     shared[0]: half of every column }   pieces of 16 bytes, 16 lanes a line; where
//     threadIdx.y 1   rows 128..255   shared[1]: the other half       }   lines begin anywhere, eight of them a warp
//
// All else is a tile's alone (quantize_tile.cuh). The lower tile may lie below the last row: then it holds and stores
// nothing, but meets the barriers.
//
// quantize_tall_kernel takes two tiles a block. quantize_shifted_tall_kernel makes the columnwise part alone of rows that
// are not aligned: its blocks stay, and go from two tiles to the next two.
//
// Bound by memory in this pattern: what lines of 128 and of 256 bytes reach is in docs/performance.md. Where rows and lines
// are aligned, a kernel has nothing for those that are not: with it, it takes longer.
#pragma once
#include "cuda/memory/read_thread.cuh"
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

__device__ __forceinline__ int tall_thread(uint32_t x) { return int(threadIdx.y) * Patch<Bf16>::threads + int(x); }
__device__ __forceinline__ int tall_thread() { return tall_thread(threadIdx.x); }

// Stores lines of both tiles by all threads, 16 bytes at a time.
template <class E>
__device__ __forceinline__ void store_tall_lines(const TileShared<E> (&shared)[kTallTiles], const CodeTile& to,
                                                 int thread = tall_thread()) {
    constexpr int threads = kTallTiles * Patch<Bf16>::threads, units = kTallRows / sizeof(uint4),
                  in_tile = units / kTallTiles;
    const int unit = thread % units;
#pragma unroll
    for (int i = 0; i < kTile * units / threads; i++) {
        const int line = i * (threads / units) + thread / units;
        const auto* from = &shared[unit / in_tile].codes.words[TileCodes<E>::template line<Patch<Bf16>::columns>(line)];
        if (line < to.lines && unit * int(sizeof(uint4)) < to.length)
            *reinterpret_cast<uint4*>(to.codes + line * to.line_bytes + unit * sizeof(uint4)) =
                reinterpret_cast<const uint4*>(from)[unit % in_tile];
    }
}

// Stores lines of both tiles that begin anywhere.
template <class E>
__device__ __forceinline__ void store_shifted_tall_lines(const TileShared<E> (&shared)[kTallTiles], const CodeTile& to,
                                                         int thread = tall_thread()) {
    constexpr int tile_words = sizeof(TileShared<E>) / sizeof(uint32_t);
    copy_shifted_lines<E, Bf16, kTallTiles>(shared[0].codes, tile_words, thread, to);
}

template <class E, bool wide_rows, bool aligned_lines>
__global__ void __launch_bounds__(kTallTiles* Patch<Bf16>::threads, kSmBlocks<Bf16> / kTallTiles)
    quantize_tall_kernel(const __grid_constant__ TileArguments a) {
    __shared__ TileShared<E> shared[kTallTiles];
    TilePlace place;
    const bool exists = find_tall_tile(a.tiles, row_of_blocks(), blockIdx.x, place);
    TileShared<E>& mine = shared[threadIdx.y];
    PatchVectors<Bf16> vectors;
    if (exists) load_patch(Bf16Source{}, a.problem, place, mine.group, wide_rows, mine.scratch, vectors);
    wait_for_previous_kernel();  // which makes the maxima
    store_whole_scales<E>(a.problem, a.rule);
    if (!exists) return;
    quantize_patch<E, Bf16>(a, place, Patch<Bf16>(kTile, kTile), vectors, mine, [&](const CodeTile& to) {
        const CodeTile lines = tall_lines(place, to);
        if (aligned_lines || (!wide_rows && a.access[1].bytes == 16))
            store_tall_lines(shared, lines);
        else
            store_shifted_tall_lines(shared, lines);
    });
}

// ---- Rows that begin anywhere ------------------------------------------------------------------------------------------

// A block stays, and while it quantizes two tiles from registers the pieces of the next two come to shared memory, of which
// each warp has its own:
//
//     shared memory   | tiles 0  | tiles 1             | tiles 2             | ..
//     registers                  | tiles 0             | tiles 1             | ..
template <class E>
struct ShiftedTallShared {
    ShiftedRows<16> rows[kTallTiles][Patch<Bf16>::threads / 32];
    TileShared<E> tiles[kTallTiles];
    TilePlace places[2][kTallTiles];  // of this turn's tiles and of the last one's; not in registers, which patches need
};

// Returns how often there are two tiles.
__host__ __device__ inline int64_t tall_count(const Tiles& tiles) {
    return tiles.across * tiles.matrices * ((tiles.down + kTallTiles - 1) / kTallTiles);
}

__device__ __forceinline__ TilePlace tall_place(const Tiles& tiles, uint32_t index) {
    TilePlace place;
    const uint32_t line = index / uint32_t(tiles.across);
    find_tall_tile(tiles, line, index - line * uint32_t(tiles.across), place);
    return place;
}

// Returns the thread's rows of its tile; a tile below the last row has none.
__device__ __forceinline__ ShiftedPatch tall_rows(const QuantizeProblem& p, const TilePlace& place) {
    const SourcePlace at(p, place, {});
    return shifted_patch(p.source.plain, place, at, Patch<Bf16>(kTile, kTile));
}

// Takes the thread's patch out of the pieces of a place, which one thread shows to the others.
__device__ __forceinline__ void take_tall_patch(const QuantizeProblem& p, const TilePlace& place,
                                                const ShiftedRows<16>& pieces, TilePlace& shown,
                                                PatchVectors<Bf16>& vectors) {
    const ShiftedPatch rows = tall_rows(p, place);
    if (threadIdx.x == 0) shown = place;
    rows.take<0>(pieces, vectors);
    rows.keep_columns(Patch<Bf16>(rows.rows, rows.cols), vectors);
}

template <class E>
__global__ void __launch_bounds__(kTallTiles* Patch<Bf16>::threads, kSmBlocks<Bf16> / kTallTiles)
    quantize_shifted_tall_kernel(const __grid_constant__ TileArguments a) {
    extern __shared__ __align__(16) uint8_t shifted_tall_memory[];
    auto& shared = *reinterpret_cast<ShiftedTallShared<E>*>(shifted_tall_memory);
    auto& pieces = shared.rows[threadIdx.y][threadIdx.x / 32];
    const QuantizeProblem& p = a.problem;
    const uint32_t count = uint32_t(tall_count(a.tiles));
    uint32_t index = uint32_t(block_index());
    if (index < count) tall_rows(p, tall_place(a.tiles, index)).start(0, pieces);
    wait_for_previous_kernel();  // which makes the maxima
    store_whole_scales<E>(p, a.rule);
#pragma unroll 1
    for (uint32_t turn = 0; index < count; index += gridDim.x * gridDim.y, turn ^= 1) {
        TilePlace& place = shared.places[turn][threadIdx.y];
        TileShared<E>& mine = shared.tiles[threadIdx.y];
        PatchVectors<Bf16> vectors;
        take_tall_patch(p, tall_place(a.tiles, index), pieces, place, vectors);
        const uint32_t next = index + gridDim.x * gridDim.y;
        if (next < count) tall_rows(p, tall_place(a.tiles, next)).start(0, pieces);
        __syncthreads();  // all know their places, and have stored their last tiles' scales
        const Patch<Bf16> patch(kTile, kTile, read_thread());
        quantize_patch<E, Bf16>(a, place, patch, vectors, mine, [&](const CodeTile& to) {
            const CodeTile lines = tall_lines(place, to);
            if (a.access[1].bytes == 16)
                store_tall_lines(shared.tiles, lines, tall_thread(read_thread()));
            else
                store_shifted_tall_lines(shared.tiles, lines, tall_thread(read_thread()));
        });
    }
}

}  // namespace mxq::cuda
