// Divides a matrix, or the rows of groups, among the warps of a rowwise kernel. Rows of groups are taken 128 (by_tile) or 8
// at a time (row_offsets.cuh).
//
// A segment is 128 columns of a row: four blocks of 32, whose scales are one scale word. A warp makes four requests of 16
// bytes a lane on the plain side: 4 segments of F32, or 8 of 16-bit elements.
//
//     by row    requests are adjacent: 2 KB of one row, 32 neighbouring scales
//     by tile   requests are 32 rows apart in a tile of 128 x 128: the scale words of a warp are adjacent in the
//               swizzled tile, and 128 rows of them are the whole tile
//
//     lane (16 bits)   0  1  2  3 | 4  5  6  7 | 8 .. 11 | 12 .. 15 | 16 ...
//                      block 0    | block 1    | block 2 | block 3  | next segment
#pragma once
#include "core/layout.h"
#include "core/problem.h"
#include "cuda/memory/row_offsets.cuh"
#include "cuda/memory/scale_words.cuh"

namespace mxq::cuda {

constexpr int kSegment = 128;
constexpr int kRequests = 4;
constexpr int kSegmentThreads = 256, kSegmentWarps = kSegmentThreads / 32;

struct Segments {
    int64_t matrices, rows, cols;
    int64_t in_row;     // segments: ceil(cols / 128)
    int64_t row_tasks;  // by row: warps of a row
    int64_t task_rows;  // by row: rows of a matrix, rounded up to its tiles of scales
    bool by_tile;
    int64_t tasks;  // warps

    dim3 grid() const { return grid_of(ceil_div(tasks, kSegmentWarps)); }
    MXQ_HD int32_t tile_rows() const { return by_tile ? int32_t(kSwizzleRows) : kSegmentWarps; }  // of groups
    int64_t across() const { return by_tile ? tasks / kSegmentWarps : row_tasks; }  // thread blocks of such a tile
};

// Divides the plain matrix and its rowwise part into segments, `parallel` of them in one request. Contiguous rows become one
// long row, and experts without padding between them one matrix; `layout` becomes theirs. Otherwise warps go by tile where
// scales lie in tiles, or where short rows would take more than twice the warps. By row a warp shares fewer sectors with
// others.
inline Segments divide(const PlainMatrix& plain, ScaleLayout& layout, int parallel) {
    Segments s{plain.matrices, plain.rows, plain.cols};
    const bool in_rows = !layout.swizzled && layout.tile_rows == 1 && layout.column_stride == 1 && layout.line_stride == layout.columns;
    if (in_rows) {
        s.rows *= s.matrices;
        s.matrices = 1;
        if (plain.cols % layout.block == 0 && plain.row_stride == plain.cols) {
            s.cols *= s.rows;
            s.rows = 1;
            layout.columns = s.cols / layout.block;
        }
    }
    s.in_row = ceil_div(s.cols, kSegment);
    s.row_tasks = ceil_div(s.in_row, kRequests * parallel);
    s.task_rows = layout.swizzled ? round_up(s.rows, kSwizzleRows) : s.rows;
    const int64_t tasks_by_row = s.matrices * s.task_rows * s.row_tasks;
    const int64_t tasks_by_tile = s.matrices * ceil_div(s.rows, kSwizzleRows) * s.in_row * (32 / parallel);
    s.by_tile = !in_rows || 2 * tasks_by_tile < tasks_by_row;
    s.tasks = s.by_tile ? tasks_by_tile : tasks_by_row;
    return s;
}

// Divides each group by itself. `tasks` counts the warps of 128 rows.
inline Segments divide_groups(const PlainMatrix& plain, const ScaleLayout& layout, int parallel) {
    Segments s{1, plain.rows, plain.cols};
    s.in_row = ceil_div(s.cols, kSegment);
    s.row_tasks = ceil_div(s.in_row, kRequests * parallel);
    const int64_t tasks_by_row = kSwizzleRows * s.row_tasks, tasks_by_tile = s.in_row * (32 / parallel);
    s.by_tile = layout.swizzled || 2 * tasks_by_tile < tasks_by_row;
    s.tasks = s.by_tile ? tasks_by_tile : tasks_by_row;
    return s;
}

// Returns how many of `most` steps from `first` on start before `end`.
__device__ __forceinline__ int steps_before(int64_t first, int64_t end, int step, int most) {
    const int64_t room = end - first;
    return room <= 0 ? 0 : room >= int64_t(step) * most ? most : (int(room) + step - 1) / step;
}

// The four vectors of a lane, `count` elements each, as Accesses (memory/elements.cuh). `block` elements, 32 or 128, share a
// scale.
template <int count, int block = int(kMxBlock)>
struct Requests {
    static constexpr int block_lanes = block / count;            // lanes that share a block
    static constexpr int segment_lanes = kSegment / count;
    static constexpr int parallel = 32 / segment_lanes;          // segments in a request
    static constexpr int tile_tasks = 32 / parallel;             // by tile: warps of a tile

    int64_t matrix, row, line, column;  // of request 0: the row in its matrix or tile, and among all rows
    int64_t rows, cols;                 // of the matrix or tile
    int row_step, column_step;          // to the next request
    int existing;

    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const {
        return line * stride + column + i * (row_step * stride + column_step);
    }
    __device__ __forceinline__ int64_t segment(int i) const { return (column + i * column_step) / kSegment; }
    __device__ __forceinline__ int64_t first_scale(int i) const { return segment(i) * kSwizzleColumns; }
    __device__ __forceinline__ int64_t scale_row(int i) const { return row + i * row_step; }
    // Returns whether other thread blocks complete the sectors of scales.
    __device__ __forceinline__ bool shares_sectors(const ScaleLayout& layout) const {
        return layout.swizzled && row_step == 0;
    }
    // Returns how many scales the layout has in the row of request i from a column on.
    __device__ __forceinline__ int64_t scales_from(const ScaleLayout& layout, int i, int64_t first) const {
        return first < layout.columns ? stored_scales(layout, rows, scale_row(i), first) : 0;
    }

    // Makes the requests of warp `task` without groups.
    __device__ __forceinline__ Requests(const Segments& s, int64_t task) {
        const int segment = threadIdx.x % 32 / segment_lanes;
        rows = s.rows;
        if (s.by_tile) {
            const int64_t tile = task / tile_tasks, tile_row = tile / s.in_row, tile_rows = ceil_div(s.rows, kSwizzleRows);
            matrix = s.matrices == 1 ? 0 : tile_row / tile_rows;
            row = (tile_row - matrix * tile_rows) * kSwizzleRows + task % tile_tasks * parallel + segment;
            column = (tile - tile_row * s.in_row) * kSegment;
        } else {
            const int64_t in_all = s.matrices * s.task_rows == 1 ? 0 : task / s.row_tasks;
            matrix = s.matrices == 1 ? 0 : in_all / s.task_rows;
            row = in_all - matrix * s.task_rows;
            column = ((task - in_all * s.row_tasks) * kRequests * parallel + segment) * kSegment;
        }
        line = matrix * s.rows + row;
        step(s);
        existing = requests_of(s, row, rows);
    }
    // Returns the requests of a tile, the first row of which is `first`, with rows as the whole matrix counts them.
    __device__ __forceinline__ Requests in_all(int64_t first) const {
        Requests all = *this;
        all.row += first, all.rows += first;
        return all;
    }
    // Makes the requests of a warp in a tile of `tile_rows` rows of groups, the first of which is `first`.
    __device__ __forceinline__ Requests(const Segments& s, uint32_t first, int tile_rows) {
        constexpr uint32_t shares = 32 / parallel / kSegmentWarps;  // by tile: thread blocks of a tile
        const uint32_t warp = threadIdx.x / 32, segment = threadIdx.x % 32 / segment_lanes;
        column =
            (s.by_tile ? int64_t(blockIdx.x / shares) : int64_t(blockIdx.x) * kRequests * parallel + segment) * kSegment;
        matrix = 0;
        row = s.by_tile ? (blockIdx.x % shares * kSegmentWarps + warp) * parallel + segment : warp;  // in the tile
        rows = tile_rows;
        line = first + row;
        step(s);
        existing = requests_of(s, row, rows);
    }

private:
    __device__ __forceinline__ void step(const Segments& s) {
        cols = s.cols;
        row_step = s.by_tile ? 32 : 0;
        column_step = s.by_tile ? 0 : parallel * kSegment;
        column += threadIdx.x % 32 % segment_lanes * count;
    }
    // Returns how many requests from row `first` on start before row `end`.
    __device__ __forceinline__ int requests_of(const Segments& s, int64_t first, int64_t end) const {
        if (column >= cols || first >= end) return 0;
        return s.by_tile ? steps_before(first, end, 32, kRequests)
                         : steps_before(column, cols, parallel * kSegment, kRequests);
    }
};

// The requests of a lane in rows of groups. Rows in the source, codes and scales are looked up (row_offsets.cuh).
template <int count, int block = int(kMxBlock)>
struct GroupedRequests : Requests<count, block> {
    RowSpace accessed;  // what offset() addresses

    __device__ __forceinline__ int64_t row_of(RowSpace of, int i) const {
        return row_offsets().rows[of][uint32_t(this->row)][this->row_step == 0 ? 0 : i];
    }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const {
        return row_of(accessed, i) * stride + this->column + i * this->column_step;
    }
    __device__ __forceinline__ int64_t scale_row(int i) const { return row_of(kScaleRow, i); }
    __device__ __forceinline__ bool shares_sectors(const ScaleLayout&) const { return true; }
    // The scales of rows that pad a group are stored, too.
    __device__ __forceinline__ int64_t scales_from(const ScaleLayout& layout, int i, int64_t first) const {
        if (this->row + i * this->row_step >= this->rows || first >= layout.columns) return 0;
        return layout.swizzled ? kSwizzleColumns : layout.columns - first;
    }
};

}  // namespace mxq::cuda
