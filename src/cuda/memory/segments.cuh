// How the warps of a rowwise kernel divide a matrix, or the groups of one: of groups they take tiles of their rows
// (row_places.cuh), down 128, along 8.
//
// A segment is 128 columns of a row: four blocks of 32, whose scales are one scale word. A warp makes four requests of 16
// bytes a lane on the plain side: 4 or 8 segments (F32; 16 bits). They lie
//
//     along  one row, side by side: 2 KB of a row, 32 neighbouring scales
//     down   one tile of 128 rows x 128 columns, requests 32 rows apart, so that the warp's scale words are neighbours in
//            the swizzled tile and 128 rows of them are the whole tile
//
//     lane (16 bits)   0  1  2  3 | 4  5  6  7 | 8 .. 11 | 12 .. 15 | 16 ...
//                      block 0    | block 1    | block 2 | block 3  | next segment
#pragma once
#include "core/layout.h"
#include "core/problem.h"
#include "cuda/memory/row_places.cuh"
#include "cuda/memory/scale_words.cuh"

namespace mxq::cuda {

constexpr int kSegment = 128;
constexpr int kRequests = 4;
constexpr int kSegmentThreads = 256, kSegmentWarps = kSegmentThreads / 32;

struct Segments {
    int64_t matrices, rows, cols;
    int64_t in_row;     // segments: ceil(cols / 128)
    int64_t row_tasks;  // along: warps in a row
    int64_t task_rows;  // along: rows of a matrix, with those that fill up its tiles of scales
    bool down;
    int64_t tasks;  // warps

    dim3 grid() const { return grid_of(ceil_div(tasks, kSegmentWarps)); }
    int32_t tile_rows() const { return down ? int32_t(kSwizzleRows) : kSegmentWarps; }  // of groups
    int64_t across() const { return down ? tasks / kSegmentWarps : row_tasks; }  // blocks of threads of such a tile
};

// Divides the plain matrix and its rowwise part into segments, `parallel` of them in one request. Rows that are contiguous
// become one long row, and experts that need no padding between them one matrix; `layout` becomes theirs. Elsewhere warps go
// down where scales lie in tiles, and where rows are so short that it takes less than half of the warps: what a warp writes
// along a row begins and ends in fewer sectors that others complete.
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
    const int64_t along_tasks = s.matrices * s.task_rows * s.row_tasks;
    const int64_t down_tasks = s.matrices * ceil_div(s.rows, kSwizzleRows) * s.in_row * (32 / parallel);
    s.down = !in_rows || 2 * down_tasks < along_tasks;
    s.tasks = s.down ? down_tasks : along_tasks;
    return s;
}

// Divides each group by itself: `tasks` are the warps of a tile of 128 rows.
inline Segments divide_groups(const PlainMatrix& plain, const ScaleLayout& layout, int parallel) {
    Segments s{1, plain.rows, plain.cols};
    s.in_row = ceil_div(s.cols, kSegment);
    s.row_tasks = ceil_div(s.in_row, kRequests * parallel);
    const int64_t along_tasks = kSwizzleRows * s.row_tasks, down_tasks = s.in_row * (32 / parallel);
    s.down = layout.swizzled || 2 * down_tasks < along_tasks;
    s.tasks = s.down ? down_tasks : along_tasks;
    return s;
}

// Returns how many of `most` steps from `first` on begin before `end`.
__device__ __forceinline__ int steps_before(int64_t first, int64_t end, int step, int most) {
    const int64_t room = end - first;
    return room <= 0 ? 0 : room >= int64_t(step) * most ? most : (int(room) + step - 1) / step;
}

// The four vectors of a lane, `count` elements each; says which of its accesses exist (memory/elements.cuh). Elements in blocks
// of `block`, 32 or 128, share a scale.
template <int count, int block = int(kMxBlock)>
struct Requests {
    static constexpr int block_lanes = block / count;            // lanes that share a block
    static constexpr int segment_lanes = kSegment / count;
    static constexpr int parallel = 32 / segment_lanes;          // segments in a request
    static constexpr int tile_tasks = 32 / parallel;             // down: warps of a tile

    int64_t matrix, row, line, column;  // of request 0: the row in its matrix or tile, the line among all
    int64_t rows, cols;                 // that the matrix or tile has
    int row_step, column_step;          // to the next request
    int existing;

    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const {
        return line * stride + column + i * (row_step * stride + column_step);
    }
    __device__ __forceinline__ int64_t segment(int i) const { return (column + i * column_step) / kSegment; }
    __device__ __forceinline__ int64_t first_scale(int i) const { return segment(i) * kSwizzleColumns; }
    __device__ __forceinline__ int64_t scale_row(int i) const { return row + i * row_step; }
    // Returns whether a sector of scales has those of other blocks of threads.
    __device__ __forceinline__ bool shares_sectors(const ScaleLayout& layout) const {
        return layout.swizzled && row_step == 0;
    }
    // Returns how many scales of request i from a column on the layout has.
    __device__ __forceinline__ int64_t scales_from(const ScaleLayout& layout, int i, int64_t first) const {
        return first < layout.columns ? stored_scales(layout, rows, scale_row(i), first) : 0;
    }

    // Makes the requests of warp `task` of all, without groups.
    __device__ __forceinline__ Requests(const Segments& s, int64_t task) {
        const int segment = threadIdx.x % 32 / segment_lanes;
        rows = s.rows;
        if (s.down) {
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
    // Makes the requests of a warp among the rows of groups: of a tile whose first row is `first`, with so many rows.
    __device__ __forceinline__ Requests(const Segments& s, uint32_t first, int tile_rows) {
        constexpr uint32_t shares = 32 / parallel / kSegmentWarps;  // down: blocks of threads of a tile
        const uint32_t warp = threadIdx.x / 32, segment = threadIdx.x % 32 / segment_lanes;
        column = (s.down ? int64_t(blockIdx.x / shares) : int64_t(blockIdx.x) * kRequests * parallel + segment) * kSegment;
        matrix = 0;
        row = s.down ? (blockIdx.x % shares * kSegmentWarps + warp) * parallel + segment : warp;  // in the tile
        rows = tile_rows;
        line = first + row;
        step(s);
        existing = requests_of(s, row, rows);
    }

private:
    __device__ __forceinline__ void step(const Segments& s) {
        cols = s.cols;
        row_step = s.down ? 32 : 0;
        column_step = s.down ? 0 : parallel * kSegment;
        column += threadIdx.x % 32 % segment_lanes * count;
    }
    // Returns how many requests from row `first` on begin inside of `end` rows.
    __device__ __forceinline__ int requests_of(const Segments& s, int64_t first, int64_t end) const {
        if (column >= cols || first >= end) return 0;
        return s.down ? steps_before(first, end, 32, kRequests) : steps_before(column, cols, parallel * kSegment, kRequests);
    }
};

// Holds the requests of a lane in rows of groups, whose lines in the source, among codes and among scales are looked up.
template <int count, int block = int(kMxBlock)>
struct PlacedRequests : Requests<count, block> {
    RowLine accessed;  // by offset()

    __device__ __forceinline__ int64_t place(RowLine of, int i) const {
        return row_places().lines[of][uint32_t(this->row)][this->row_step == 0 ? 0 : i];
    }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const {
        return place(accessed, i) * stride + this->column + i * this->column_step;
    }
    __device__ __forceinline__ int64_t scale_row(int i) const { return place(kScaleLine, i); }
    __device__ __forceinline__ bool shares_sectors(const ScaleLayout&) const { return true; }
    // Scales of rows that pad a group are stored with these.
    __device__ __forceinline__ int64_t scales_from(const ScaleLayout& layout, int i, int64_t first) const {
        if (this->row + i * this->row_step >= this->rows || first >= layout.columns) return 0;
        return layout.swizzled ? kSwizzleColumns : layout.columns - first;
    }
};

}  // namespace mxq::cuda
