// How a tile kernel divides a matrix: 128 x 128 elements a block of threads, each read and written once.
//
// A thread holds a patch: 16 rows of one 16-byte chunk, so 8 columns (16-bit elements) or 4 (F32) and 64 registers. The
// block has 128 or 256 threads.
//
//                 lane 0    lane 1        lane 15     columns 16 * (8 or 4); F32: warps 4..7 take the right half
//     rows 0..15  [chunk]   [chunk]  ...  [chunk]  }
//     rows 16..31  lane 16   lane 17 ...   lane 31 }  warp 0; warps 1, 2, 3 the 32 rows after
//
// So a warp reads and writes 256 contiguous bytes of two rows, holds whole blocks in both directions (32 rows of every
// column, 32 columns of every row), and a thread's 16 codes of a column are 16 adjacent bytes of the transposed matrix: a
// piece. Pieces cross between threads in shared memory, 8 to a line of 128 bytes.
#pragma once
#include "core/layout.h"
#include "core/problem.h"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/scale_words.cuh"

namespace mxq::cuda {

constexpr int kTile = 128;
constexpr int kTileBlocks = kTile / kMxBlock;
constexpr int kPieceCodes = 16;
constexpr int kLinePieces = kTile / kPieceCodes;

struct Tiles {
    int64_t matrices, rows, cols;
    int64_t down, across;

    explicit Tiles(const PlainMatrix& plain)
        : matrices(plain.matrices), rows(plain.rows), cols(plain.cols), down(ceil_div(rows, kTile)),
          across(ceil_div(cols, kTile)) {}
    MXQ_HD int64_t count() const { return matrices * down * across; }
    dim3 grid() const { return grid_of(count()); }
};

// One tile: its matrix, first row and first column.
struct Tile {
    int64_t matrix, row, col;

    __device__ __forceinline__ Tile(const Tiles& tiles, int64_t index) {
        const int64_t line = index / tiles.across;
        matrix = tiles.matrices == 1 ? 0 : line / tiles.down;
        row = (line - matrix * tiles.down) * kTile;
        col = (index - line * tiles.across) * kTile;
    }
};

// What a thread holds; a place in the sense of memory/elements.cuh, access i being row i of the patch.
template <class T>
struct Patch {
    static constexpr int columns = Chunk<T>::count;
    static constexpr int rows = 16;
    static constexpr int threads = kTile * kTile / (rows * columns);
    static constexpr int block_lanes = kMxBlock / columns;  // lanes that share the blocks of a row

    int row, column;  // in the tile
    int64_t first;    // row among those of all matrices
    int64_t first_column;
    int existing, existing_columns;

    __device__ __forceinline__ Patch(const Tiles& tiles, const Tile& tile)
        : row(threadIdx.x / 32 % kTileBlocks * kMxBlock + threadIdx.x % 32 / 16 * rows),
          column(threadIdx.x / kTile * 16 * columns + threadIdx.x % 16 * columns),
          first(tile.matrix * tiles.rows + tile.row + row), first_column(tile.col + column) {
        existing_columns = int(min(max(tiles.cols - first_column, int64_t(0)), int64_t(columns)));
        existing = existing_columns == 0 ? 0 : int(min(max(tiles.rows - tile.row - row, int64_t(0)), int64_t(rows)));
    }
    // Places inside of a tile of so many rows and columns.
    __device__ __forceinline__ Patch(int tile_rows, int tile_columns)
        : row(threadIdx.x / 32 % kTileBlocks * kMxBlock + threadIdx.x % 32 / 16 * rows),
          column(threadIdx.x / kTile * 16 * columns + threadIdx.x % 16 * columns), first(row), first_column(column) {
        existing_columns = min(max(tile_columns - column, 0), columns);
        existing = existing_columns == 0 ? 0 : min(max(tile_rows - row, 0), rows);
    }
    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ int valid(int i) const { return exists(i) ? existing_columns : 0; }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const { return (first + i) * stride + first_column; }
};

template <class T>
using PatchChunks = Chunk<T>[Patch<T>::rows];

// Where a piece lies in shared memory: moved within its line so that eight lanes meet eight different bank groups, both
// when they hold one piece of every `columns`-th line and when they hold the pieces of one line.
template <class T>
__device__ __forceinline__ int piece_slot(int line, int piece) {
    return line * kLinePieces + (piece ^ (line / Patch<T>::columns % kLinePieces));
}

// A tile's scale words of one part, from or to memory: lines first_line ... + 127, columns first_column ... + 3. The loop
// follows the layout's order, so that a swizzled tile is 512 bytes in a row.
__device__ __forceinline__ int line_of_word(const ScaleLayout& layout, int word) {
    return layout.swizzled ? word % 4 * 32 + word / 4 : word;
}

__device__ __forceinline__ void store_tile_scales(const QuantizedPart& part, int64_t matrix, int64_t first_line,
                                                  int64_t first_column, const uint32_t (&words)[kTile]) {
    for (int i = threadIdx.x; i < kTile; i += blockDim.x) {
        const int in_tile = line_of_word(part.layout, i);
        const int64_t line = first_line + in_tile;
        const uint32_t word = line < part.lines ? words[in_tile] : 0;
        store_scale_word(part.scales + part.layout.offset(matrix, line, first_column), word,
                         stored_scales(part.layout, part.lines, line, first_column));
    }
}

__device__ __forceinline__ void load_tile_scales(const QuantizedPart& part, int64_t matrix, int64_t first_line,
                                                 int64_t first_column, uint32_t (&words)[kTile]) {
    for (int i = threadIdx.x; i < kTile; i += blockDim.x) {
        const int in_tile = line_of_word(part.layout, i);
        const int64_t line = first_line + in_tile;
        words[in_tile] = load_scale_word(part.scales + part.layout.offset(matrix, line, first_column),
                                         readable_scales(part.layout, part.lines, line, first_column));
    }
}

}  // namespace mxq::cuda
