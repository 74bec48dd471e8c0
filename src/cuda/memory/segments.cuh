// How the warps of a rowwise kernel divide a matrix.
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
#include "cuda/memory/grid.cuh"

namespace mxq::cuda {

constexpr int kSegment = 128;
constexpr int kRequests = 4;
constexpr int kSegmentThreads = 256;

struct Segments {
    int64_t matrices, rows, cols;
    int64_t in_row;     // segments: ceil(cols / 128)
    int64_t row_tasks;  // along: warps in a row
    bool down;
    int64_t tasks;  // warps

    dim3 grid() const { return grid_of(ceil_div(tasks, kSegmentThreads / 32)); }
};

// Divides the plain matrix and its rowwise part into segments, `parallel` of them in one request. Rows that are contiguous
// become one long row, and experts that need no padding between them one matrix; `layout` becomes theirs. Elsewhere warps go
// down where scales lie in tiles, and where rows are so short that it takes less than half of the warps: what a warp writes
// along a row begins and ends in fewer sectors that others complete.
inline Segments divide(const PlainMatrix& plain, ScaleLayout& layout, int parallel) {
    Segments s{plain.matrices, plain.rows, plain.cols};
    if (!layout.swizzled && layout.tile_rows == 1) {
        s.rows *= s.matrices;
        s.matrices = 1;
        if (plain.cols % kMxBlock == 0 && plain.row_stride == plain.cols) {
            s.cols *= s.rows;
            s.rows = 1;
            layout.columns = s.cols / kMxBlock;
        }
    }
    s.in_row = ceil_div(s.cols, kSegment);
    s.row_tasks = ceil_div(s.in_row, kRequests * parallel);
    const int64_t along_tasks = s.matrices * s.rows * s.row_tasks;
    const int64_t down_tasks = s.matrices * ceil_div(s.rows, kSwizzleRows) * s.in_row * (32 / parallel);
    s.down = layout.swizzled || 2 * down_tasks < along_tasks;
    s.tasks = s.down ? down_tasks : along_tasks;
    return s;
}

// Returns how many of `most` steps from `first` on begin before `end`.
__device__ __forceinline__ int steps_before(int64_t first, int64_t end, int step, int most) {
    const int64_t room = end - first;
    return room <= 0 ? 0 : room >= int64_t(step) * most ? most : (int(room) + step - 1) / step;
}

// The four vectors of a lane, `count` elements each; says which of its accesses exist (memory/elements.cuh).
template <int count>
struct Requests {
    static constexpr int block_lanes = kMxBlock / count;         // lanes that share a block
    static constexpr int segment_lanes = kSegment / count;
    static constexpr int parallel = 32 / segment_lanes;          // segments in a request

    int64_t matrix, row, line, column;  // of request 0; line: the row among those of all matrices
    int row_step, column_step;          // to the next request
    int existing;
    int64_t cols;

    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ int valid(int i) const {
        const int64_t left = cols - column - i * column_step;
        return !exists(i) ? 0 : left < count ? int(left) : count;
    }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const {
        return line * stride + column + i * (row_step * stride + column_step);
    }
    __device__ __forceinline__ int64_t first_scale(int i) const {
        return (column + i * column_step) / kSegment * kSwizzleColumns;
    }

    __device__ __forceinline__ Requests(const Segments& s, int64_t task) {
        const int lane = threadIdx.x % 32, segment = lane / segment_lanes;
        cols = s.cols;
        if (s.down) {
            constexpr int tile_tasks = 32 / parallel;
            const int64_t tile = task / tile_tasks, tile_row = tile / s.in_row, tile_rows = ceil_div(s.rows, kSwizzleRows);
            matrix = s.matrices == 1 ? 0 : tile_row / tile_rows;
            row = (tile_row - matrix * tile_rows) * kSwizzleRows + task % tile_tasks * parallel + segment;
            column = (tile - tile_row * s.in_row) * kSegment;
            row_step = 32;
            column_step = 0;
        } else {
            const int64_t in_all = s.matrices * s.rows == 1 ? 0 : task / s.row_tasks;
            matrix = s.matrices == 1 ? 0 : in_all / s.rows;
            row = in_all - matrix * s.rows;
            column = ((task - in_all * s.row_tasks) * kRequests * parallel + segment) * kSegment;
            row_step = 0;
            column_step = parallel * kSegment;
        }
        line = matrix * s.rows + row;
        column += lane % segment_lanes * count;
        existing = !s.down         ? steps_before(column, cols, parallel * kSegment, kRequests)
                   : column < cols ? steps_before(row, s.rows, 32, kRequests)
                                   : 0;
    }
};

}  // namespace mxq::cuda
