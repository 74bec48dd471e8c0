// Divides the work of a call among threads.
#pragma once
#include <algorithm>
#include <cstring>

#include "core/group_view.h"
#include "cpu/kernels.h"
#include "cpu/thread_pool.h"

namespace mxq::cpu {

// Rectangles of height x width that cover `matrices` matrices of rows x cols, counted row by row.
struct Grid {
    int64_t matrices, rows, cols;
    int64_t height, width;  // multiples of 128

    int64_t across() const { return ceil_div(cols, width); }
    int64_t down() const { return ceil_div(rows, height); }
    int64_t count() const { return matrices * down() * across(); }
    // Returns the rectangle of an index; at the matrix's end it is cut.
    Rectangle at(int64_t index) const {
        const int64_t col = index % across() * width;
        const int64_t row = index / across() % down() * height;
        return {index / across() / down(), row, col, std::min(height, rows - row), std::min(width, cols - col)};
    }
};

// Sizes of rectangles. Those for work that transposes are taller, so that longer chunks of a column are moved.
constexpr int64_t kRectangleRows = 128, kRectangleCols = 2048;
constexpr int64_t kTallRectangleRows = 256, kTallRectangleCols = 1024;

// Returns the grid of work on matrices; `transposes` tells whether it moves columns to K-major rows.
inline Grid grid_of(int64_t matrices, int64_t rows, int64_t cols, bool transposes) {
    return {matrices, rows, cols, transposes ? kTallRectangleRows : kRectangleRows,
            transposes ? kTallRectangleCols : kRectangleCols};
}
inline Grid grid_of(const PlainMatrix& matrix, bool transposes) {
    return grid_of(matrix.matrices, matrix.rows, matrix.cols, transposes);
}

// Outputs of at least so many bytes are written past the caches.
constexpr int64_t kStreamBytes = 16 << 20;
inline bool streams(const PlainMatrix& out) { return out.elements() * out.element_bytes() >= kStreamBytes; }

inline void clear_rows(const PlainMatrix& matrix, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++)
        std::memset(element_address(matrix, 0, row, 0), 0, size_t(matrix.cols * matrix.element_bytes()));
}

// No thread is woken for fewer elements than these.
constexpr int64_t kElementsPerChunk = 64 * 1024;

// Calls body(index, worker) for each of `count` work items, which have `elements` elements together.
template <class Body>
void for_each_index(ThreadPool& pool, int64_t count, int64_t elements, const Body& body) {
    if (count == 0) return;
    const int64_t wanted = std::clamp(elements / kElementsPerChunk, int64_t(1), count);
    const int64_t each = ceil_div(count, wanted);
    pool.run(ceil_div(count, each), [&](int64_t chunk, int worker) {
        const int64_t last = std::min(count, (chunk + 1) * each);
        for (int64_t index = chunk * each; index < last; index++) body(index, worker);
    });
}

// Calls body(rectangle, worker) for every rectangle of a grid.
template <class Body>
void for_each_rectangle(ThreadPool& pool, const Grid& grid, const Body& body) {
    for_each_index(pool, grid.count(), grid.matrices * grid.rows * grid.cols,
                   [&](int64_t index, int worker) { body(grid.at(index), worker); });
}

}  // namespace mxq::cpu
