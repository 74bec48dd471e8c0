// How a call is divided among threads.
#pragma once
#include <algorithm>

#include "cpu/kernels.h"
#include "cpu/thread_pool.h"

namespace mxq::cpu {

// Rectangles of height x width that cover `matrices` of rows x cols, row by row.
struct Grid {
    int64_t matrices, rows, cols;
    int64_t height, width;  // multiples of 128

    int64_t across() const { return ceil_div(cols, width); }
    int64_t down() const { return ceil_div(rows, height); }
    int64_t count() const { return matrices * down() * across(); }
    Rectangle at(int64_t index) const {
        const int64_t col = index % across() * width;
        const int64_t row = index / across() % down() * height;
        return {index / across() / down(), row, col, std::min(height, rows - row), std::min(width, cols - col)};
    }
};

// Rectangles for work along rows, and for work that transposes: taller, so that what it moves of a column is longer.
constexpr int64_t kRectangleRows = 128, kRectangleCols = 2048;
constexpr int64_t kTallRectangleRows = 256, kTallRectangleCols = 1024;

inline Grid grid_of(int64_t matrices, int64_t rows, int64_t cols, bool transposes) {
    return {matrices, rows, cols, transposes ? kTallRectangleRows : kRectangleRows,
            transposes ? kTallRectangleCols : kRectangleCols};
}
inline Grid grid_of(const PlainMatrix& matrix, bool transposes) {
    return grid_of(matrix.matrices, matrix.rows, matrix.cols, transposes);
}

// Outputs from this size on are written past the caches.
constexpr int64_t kStreamBytes = 16 << 20;

// Calls body(index) for each of `count` pieces of work of together so many elements. No thread is woken for less than this.
constexpr int64_t kElementsPerChunk = 64 * 1024;

template <class Body>
void for_each_index(ThreadPool& pool, int64_t count, int64_t elements, const Body& body) {
    if (count == 0) return;
    const int64_t wanted = std::clamp(elements / kElementsPerChunk, int64_t(1), count);
    const int64_t each = ceil_div(count, wanted);
    pool.run(ceil_div(count, each), [&](int64_t chunk, int) {
        const int64_t last = std::min(count, (chunk + 1) * each);
        for (int64_t index = chunk * each; index < last; index++) body(index);
    });
}

template <class Body>
void for_each_rectangle(ThreadPool& pool, const Grid& grid, const Body& body) {
    for_each_index(pool, grid.count(), grid.matrices * grid.rows * grid.cols, [&](int64_t index) { body(grid.at(index)); });
}

}  // namespace mxq::cpu
