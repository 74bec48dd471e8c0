// Tiles in shared memory (tile/shared_tile.cuh) of 16-bit elements from rows that begin anywhere: the aligned pieces that
// the rows lie in are copied, all of the tile's on their way together, and each vector is then taken out of two neighbours
// and put where the first of them was.
//
//     pieces     [ 0       ][ 1       ] ..  [ 15      ][ last ]     of a row; the last ones of all rows lie by themselves
//     vectors       [ 0       ][ 1       ] ..  [ 15      ]
//
// Rows eight apart begin at the same byte of a piece, whatever the stride: a warp has such rows, two of them at a time.
#pragma once
#include "cuda/memory/shifted_pieces.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace mxq::cuda {

// The rows of a tile that a thread has pieces of: eight, 16 apart, of so many in all.
template <class T>
struct ShiftedTile {
    using Tile = ChunkTile<T>;
    static constexpr int apart = 8, step = 2 * apart, steps = kTile / step;  // rows of a thread
    static_assert(kChunkThreads / 32 == apart && step == kChunk && Tile::line_pieces == 16);

    const uint8_t* first;  // the thread's first row
    int64_t row_bytes;
    int line, piece, before, rows, cols;

    __device__ __forceinline__ ShiftedTile(const T* tile, int64_t row_stride, int tile_rows, int tile_cols)
        : row_bytes(row_stride * int64_t(sizeof(T))), rows(tile_rows), cols(tile_cols) {
        line = threadIdx.x / 32 + threadIdx.x % 32 / 16 * apart;
        piece = threadIdx.x % 16;
        first = reinterpret_cast<const uint8_t*>(tile) + line * row_bytes;
        before = bytes_before(first);
    }
    // Starts to copy the pieces of a whole tile, all of which may be read.
    __device__ __forceinline__ void start_middle(Tile& tile, uint4* last) const {
        const int slot = tile.slot(line, piece);
        const uint8_t* at = first - before + piece * 16;
#pragma unroll
        for (int i = 0; i < steps; i++, at += step * row_bytes)
            copy_piece(&tile.pieces[tile.below(slot, i * step)], at, true);
        if (piece < steps)
            copy_piece(&last[line + piece * step], first - before + piece * step * row_bytes + Tile::line_pieces * 16, true);
    }
    // Starts to copy what there is of a tile at the edge of a matrix; zeros where there are no rows.
    __device__ __forceinline__ void start_any(Tile& tile, uint4* last) const {
        const int beside = rows_beside_end(row_bytes / int(sizeof(T)));
#pragma unroll 1
        for (int of_tile = line; of_tile < kTile; of_tile += step) {
            const ShiftedRow row{first + (of_tile - line) * row_bytes, cols * int(sizeof(T)), of_tile < beside,
                                 of_tile >= rows - beside};
            start_piece(&tile.pieces[tile.slot(of_tile, piece)], row, piece, of_tile < rows);
            if (piece == 0) start_piece(&last[of_tile], row, Tile::line_pieces, of_tile < rows);
        }
    }
    // Makes vectors of the pieces, two rows of each lane at a time.
    __device__ __forceinline__ void shift(Tile& tile, const uint4* last) const {
        constexpr int together = 2;
        const int own = tile.slot(line, piece), next = tile.slot(line, min(piece + 1, Tile::line_pieces - 1));
#pragma unroll 1
        for (int i = 0; i < steps; i += together) {
            uint4 pieces[together][2];
            Vector<T> vectors[together];
#pragma unroll
            for (int k = 0; k < together; k++) {
                const int lines = (i + k) * step;
                const uint4* const behind =
                    piece + 1 < Tile::line_pieces ? &tile.pieces[tile.below(next, lines)] : &last[line + lines];
                pieces[k][0] = tile.pieces[tile.below(own, lines)], pieces[k][1] = *behind;
            }
            vectors_of_pieces(pieces, before, vectors);
            __syncwarp();
#pragma unroll
            for (int k = 0; k < together; k++) {
                if (cols < kTile) keep_first(vectors[k], cols - piece * Tile::in_piece);
                tile.pieces[tile.below(own, (i + k) * step)] =
                    make_uint4(vectors[k].words[0], vectors[k].words[1], vectors[k].words[2], vectors[k].words[3]);
            }
        }
    }
};

// Starts to copy a tile's pieces; `in_middle`: it is whole, and all of its pieces may be read. Out of line, as what follows,
// since kernels that take aligned rows, too, would jump over it. All threads of the block call it.
template <class T>
__device__ __noinline__ void start_shifted_tile(ChunkTile<T>& tile, uint4* last, const T* from, int64_t row_stride, int rows,
                                                int cols, bool in_middle) {
    const ShiftedTile<T> of(from, row_stride, rows, cols);
    if (in_middle)
        of.start_middle(tile, last);
    else
        of.start_any(tile, last);
}

template <class T>
__device__ __forceinline__ void start_shifted_tile(ChunkTile<T>& tile, uint4* last, const QuantizeProblem& p,
                                                   const SourcePlace& place) {
    const PlainMatrix& in = p.source.plain;
    const bool is_first = place.first_row == 0 && place.col == 0;
    const bool is_last = place.first_row + kTile >= p.source.matrices * p.source.rows &&
                         place.col + kTile + ChunkTile<T>::in_piece > p.source.cols;
    start_shifted_tile(tile, last, static_cast<const T*>(in.data) + place.first_row * in.row_stride + place.col,
                       in.row_stride, place.rows, place.cols,
                       place.rows == kTile && place.cols == kTile && !is_first && !is_last);
}

// Waits for the pieces and makes vectors of them. A barrier must follow.
template <class T>
__device__ __noinline__ void shift_tile(ChunkTile<T>& tile, const uint4* last, const T* from, int64_t row_stride, int cols) {
    wait_for_pieces();
    __syncwarp();
    ShiftedTile<T>(from, row_stride, kTile, cols).shift(tile, last);
}

template <class T>
__device__ __forceinline__ void shift_tile(ChunkTile<T>& tile, const uint4* last, const QuantizeProblem& p,
                                           const SourcePlace& place) {
    const PlainMatrix& in = p.source.plain;
    shift_tile(tile, last, static_cast<const T*>(in.data) + place.first_row * in.row_stride + place.col, in.row_stride,
               place.cols);
}

}  // namespace mxq::cuda
