// Patches of 16-bit elements (tile/patch.cuh) from rows that begin anywhere: a warp copies the aligned pieces that its rows
// lie in to shared memory, all of them on their way together, and each lane takes its vectors out of two neighbours.
#pragma once
#include "cuda/memory/shifted_pieces.cuh"
#include "cuda/tile/patch.cuh"

namespace mxq::cuda {

// The pieces of some of a warp's rows: as many of the upper 16 lanes' as of the lower. Of each lane's 16 rows there are half
// as many of the first eight on, and those eight rows further: rows eight apart begin at the same byte of a piece, whatever
// the stride.
template <int count>
struct ShiftedRows {
    static constexpr int rows = count, alike = rows / 2, pieces = 17, apart = 8;
    uint4 of[2][rows][pieces];

    // Returns which row of a lane's the row `index` of some is, from the first of these on.
    static __device__ __forceinline__ constexpr int row(int index) { return index < alike ? index : index - alike + apart; }
};

// Starts to copy the pieces of a warp's rows in the middle of a matrix, all of whose bytes may be read, rows before and behind
// them too.
template <class Rows>
__device__ __forceinline__ void start_middle_rows(uint4 (&to)[Rows::rows][Rows::pieces], const uint8_t* first,
                                                  int64_t row_bytes, int lane) {
    constexpr int last = Rows::pieces - 1;
    const auto piece = [&](int row, int index) { return first + row * row_bytes - bytes_before(first + row * row_bytes) + index * 16; };
    if (lane < Rows::rows) copy_piece(&to[lane][last], piece(Rows::row(lane), last), true);
#pragma unroll
    for (int i = 0; i < Rows::alike; i++) {
        const uint8_t* const from = piece(i, lane);
        copy_piece(&to[i][lane], from, true);
        copy_piece(&to[i + Rows::alike][lane], from + Rows::apart * row_bytes, true);
    }
}

// The rows of a thread's patch, in a tile of so many rows and columns. `ends_before`, `ends_behind`: the pieces of the
// tile's first rows, of its last ones, may reach out of the tensor.
struct ShiftedPatch {
    const uint8_t* first;
    int64_t stride;  // elements
    int row, rows, cols;
    bool ends_before, ends_behind;

    template <class T>
    __device__ __forceinline__ ShiftedPatch(const T* tile, int64_t row_stride, const Patch<T>& patch, int tile_rows,
                                            int tile_cols, bool before, bool behind)
        : first(reinterpret_cast<const uint8_t*>(tile + patch.row * row_stride)),
          stride(row_stride),
          row(patch.row),
          rows(tile_rows),
          cols(tile_cols),
          ends_before(before),
          ends_behind(behind) {}

    // Starts to copy the pieces of some rows from row `from` of the patch on. All lanes of a warp call it, with shared
    // memory of their own.
    template <class Rows>
    __device__ __forceinline__ void start(int from, Rows& shared) const {
        constexpr int last = Rows::pieces - 1;
        const int lane = threadIdx.x % 16, warp_row = row & ~31, beside = rows_beside_end(stride);
        auto& pieces = shared.of[threadIdx.x / 16 % 2];
        const auto start_one = [&](int index, int piece) {
            const int own = from + Rows::row(index), of_tile = row + own;
            const ShiftedRow of{first + own * stride * 2, cols * 2, ends_before && of_tile < beside,
                                ends_behind && of_tile >= rows - beside};
            start_piece(&pieces[index][piece], of, piece, of_tile < rows);
        };
        const bool in_middle = cols == kTile && (!ends_before || warp_row > 0) && warp_row + 32 + ends_behind <= rows;
        if (__all_sync(0xFFFFFFFFu, in_middle))
            return start_middle_rows<Rows>(pieces, first + from * stride * 2, stride * 2, lane);
        if (lane < Rows::rows) start_one(lane, last);
#pragma unroll 1
        for (int i = 0; i < Rows::rows; i++) start_one(i, lane);
    }
    // Waits for the pieces of some rows and takes their vectors out of them.
    template <int from, class Rows, class T>
    __device__ __forceinline__ void take(const Rows& shared, PatchVectors<T>& vectors) const {
        const int lane = threadIdx.x % 16;
        const auto& pieces = shared.of[threadIdx.x / 16 % 2];
        wait_for_pieces();
        __syncwarp();
        int before = bytes_before(first + from * stride * 2);
#pragma unroll
        for (int i = 0; i < Rows::alike; i++, before = (before + int(stride % 8) * 2) % 16) {
            const int other = i + Rows::alike;
            const uint4 both[2][2] = {{pieces[i][lane], pieces[i][lane + 1]},
                                      {pieces[other][lane], pieces[other][lane + 1]}};
            Vector<T> taken[2];
            vectors_of_pieces(both, before, taken);
            vectors[from + i] = taken[0], vectors[from + i + Rows::apart] = taken[1];
        }
        __syncwarp();
    }
    // Zeroes what is behind the tile's last column.
    template <class T>
    __device__ __forceinline__ void keep_columns(const Patch<T>& patch, PatchVectors<T>& vectors) const {
        if (cols < kTile)
#pragma unroll
            for (int i = 0; i < Patch<T>::rows; i++) keep_first(vectors[i], patch.existing_columns);
    }
};

// Loads a thread's patch, half of its rows at a time. All lanes of a warp call it.
template <class T>
__device__ __forceinline__ void load_shifted_patch(const ShiftedPatch& rows, const Patch<T>& patch, ShiftedRows<8>& shared,
                                                   PatchVectors<T>& vectors) {
    constexpr int half = ShiftedRows<8>::alike;
    rows.start(0, shared);
    rows.template take<0>(shared, vectors);
    rows.start(half, shared);
    rows.template take<half>(shared, vectors);
    rows.keep_columns(patch, vectors);
}

}  // namespace mxq::cuda
