// Tiles of 128 x 128 elements in registers, one a thread block, each element read and written once.
//
// A thread holds a patch: 16 rows of one 16-byte vector. That is 8 columns (16-bit elements) or 4 (F32), in 64 registers.
// The thread block has 128 or 256 threads.
//
//                  lane 0    lane 1        lane 15     columns 16 * (8 or 4); F32: warps 4..7 take the right half
//     rows 0..15   [vector]  [vector] ...  [vector] }
//     rows 16..31  lane 16   lane 17  ...  lane 31  }  warp 0; warps 1, 2, 3 the 32 rows after
//
// So a warp reads and writes 256 contiguous bytes of two rows, and holds whole blocks in both directions: 32 rows of every
// column, 32 columns of every row. A thread's 16 codes of a column are a chunk: adjacent in the transposed matrix. Threads
// exchange chunks in shared memory, 8 in each row of 128 bytes.
#pragma once
#include "core/layout.h"
#include "core/problem.h"
#include "cuda/memory/elements.cuh"

namespace mxq::cuda {

constexpr int kTile = 128;
constexpr int kTileBlocks = kTile / kMxBlock;
constexpr int kChunk = 16;

// The accesses of a thread to its patch (Accesses of memory/elements.cuh): access i is row i of the patch.
template <class T>
struct Patch {
    static constexpr int columns = Vector<T>::count;
    static constexpr int rows = 16;
    static constexpr int threads = kTile * kTile / (rows * columns);

    int row, column;  // in the tile
    int existing, existing_columns;

    // Describes the thread's patch of a tile that has so many rows and columns.
    __device__ __forceinline__ Patch(int tile_rows, int tile_columns, uint32_t thread = threadIdx.x)
        : row(thread / 32 % kTileBlocks * kMxBlock + thread % 32 / 16 * rows),
          column(thread / kTile * 16 * columns + thread % 16 * columns) {
        existing_columns = min(max(tile_columns - column, 0), columns);
        existing = existing_columns == 0 ? 0 : min(max(tile_rows - row, 0), rows);
    }
    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ int valid(int i) const { return exists(i) ? existing_columns : 0; }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const { return int64_t(row + i) * stride + column; }
};

template <class T>
using PatchVectors = Vector<T>[Patch<T>::rows];

}  // namespace mxq::cuda
