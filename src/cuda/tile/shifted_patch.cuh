// Patches of 16-bit elements (tile/patch.cuh) from rows that begin anywhere: a warp copies the aligned pieces that its rows
// lie in to shared memory, all of them on their way together, and each lane takes its vectors out of two neighbours.
#pragma once
#include "cuda/memory/shifted_pieces.cuh"
#include "cuda/tile/patch.cuh"

namespace mxq::cuda {

// The pieces of some of a warp's rows: as many of the upper 16 lanes' as of the lower.
struct ShiftedRows {
    static constexpr int rows = 8, pieces = 17;
    uint4 of[2][rows][pieces];
};

// Starts to copy piece `index` of a row to shared memory; zeros where the tile has no such row.
__device__ __forceinline__ void start_piece(uint4* to, const ShiftedRow& row, int index, bool exists) {
    const int piece = index * 16 - bytes_before(row.first);
    if (exists && piece >= row.bytes) return;  // nothing of the row is there
    if (!exists || row.may_read(piece))
        copy_piece(to, row.first + piece, exists);
    else
        *to = load_cut_piece(row.first, row.bytes, piece);
}

// Starts to copy the pieces of a warp's rows in the middle of a matrix, all of whose bytes may be read, rows before and behind
// them too.
__device__ __forceinline__ void start_middle_rows(uint4 (&to)[ShiftedRows::rows][ShiftedRows::pieces], const uint8_t* first,
                                                  int64_t row_bytes, int lane) {
    constexpr int last = ShiftedRows::pieces - 1;
    const auto piece = [&](int row, int index) { return first + row * row_bytes - bytes_before(first + row * row_bytes) + index * 16; };
    if (lane < ShiftedRows::rows) copy_piece(&to[lane][last], piece(lane, last), true);
#pragma unroll
    for (int i = 0; i < ShiftedRows::rows; i++) copy_piece(&to[i][lane], piece(i, lane), true);
}

// Loads a thread's patch of a tile of so many rows and columns. `ends_before`, `ends_behind`: the pieces of the tile's first
// rows, of its last ones, may reach out of the tensor. All lanes of a warp call it, with shared memory of their own.
template <class T>
__device__ __forceinline__ void load_shifted_patch(const T* tile, int64_t stride, int rows, int cols, bool ends_before,
                                                   bool ends_behind, const Patch<T>& patch, ShiftedRows& shared,
                                                   PatchVectors<T>& vectors) {
    constexpr int count = ShiftedRows::rows, last = ShiftedRows::pieces - 1;
    const int lane = threadIdx.x % 16, line_bytes = cols * 2, warp_row = patch.row & ~31, beside = rows_beside_end(stride);
    auto& pieces = shared.of[threadIdx.x / 16 % 2];
    const auto* at = reinterpret_cast<const uint8_t*>(tile + patch.row * stride);
    int before = bytes_before(at);
    const auto start = [&](uint4* to, const uint8_t* first, int row, int index) {
        start_piece(to, {first, line_bytes, ends_before && row < beside, ends_behind && row >= rows - beside}, index, row < rows);
    };
    const bool in_middle = cols == kTile && (!ends_before || warp_row > 0) && warp_row + 32 + ends_behind <= rows;
#pragma unroll
    for (int first = 0; first < Patch<T>::rows; first += count) {
        if (__all_sync(0xFFFFFFFFu, in_middle)) {
            start_middle_rows(pieces, at, stride * 2, lane);
            at += count * stride * 2;
        } else {
            if (lane < count) start(&pieces[lane][last], at + lane * stride * 2, patch.row + first + lane, last);
#pragma unroll 1
            for (int i = 0; i < count; i++, at += stride * 2) start(&pieces[i][lane], at, patch.row + first + i, lane);
        }
        wait_for_pieces();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < count; i++, before = (before + int(stride % 8) * 2) % 16)
            vectors[first + i] = vector_of_pieces<T>(pieces[i][lane], pieces[i][lane + 1], before);
        __syncwarp();
    }
    if (cols < kTile)
#pragma unroll
        for (int i = 0; i < Patch<T>::rows; i++) keep_first(vectors[i], patch.existing_columns);
}

}  // namespace mxq::cuda
