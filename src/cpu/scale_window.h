// Stores the scales that quantize makes, a row at a time, in either layout. Part of kernels.cpp.
#pragma once
#include <cstring>

#include "core/layout.h"

namespace mxq::cpu {

// A part of a matrix of scale bytes. It starts where a swizzled tile starts: at a row that is a multiple of 128 and a column
// that is a multiple of 4.
//
//     swizzled    line l of the window is a 4-byte word in each of its tiles, 512 bytes apart
//     compact     line l is contiguous; with square tiles, the lines of a tile share one line of scales
struct ScaleWindow {
    uint8_t* first;
    int64_t columns;  // how many the whole matrix has
    int64_t line_stride;
    int32_t tile_rows;
    bool swizzled;

    MXQ_HD ScaleWindow(uint8_t* scales, const ScaleLayout& layout, int64_t matrix, int64_t line, int64_t column)
        : first(scales + layout.offset(matrix, line, column)),
          columns(layout.columns),
          line_stride(layout.line_stride),
          tile_rows(layout.tile_rows),
          swizzled(layout.swizzled) {}

    // Returns where a row starts in the compact layout.
    MXQ_HD uint8_t* compact(int64_t line) const { return first + (tile_rows == 1 ? line : line / tile_rows) * line_stride; }
    // Returns the word of a row in the swizzled tile of `column`.
    MXQ_HD uint8_t* word(int64_t line, int64_t column) const {
        return first + column / kSwizzleColumns * kSwizzleBytes + line / kSwizzleRows * slab_bytes() +
               swizzle_in_tile(line, 0);
    }
    MXQ_HD int64_t slab_bytes() const { return kSwizzleRows * round_up(columns, kSwizzleColumns); }

    // Stores `count` scales of a row. A swizzled row is stored in whole words, with zeros where the last one has no scales.
    MXQ_HD void store(int64_t line, int64_t count, const uint8_t* from) const {
        if (!swizzled) {
            if (tile_rows == 1 || line % tile_rows == 0) memcpy(compact(line), from, size_t(count));
            return;
        }
        int64_t column = 0;
        for (; column + kSwizzleColumns <= count; column += kSwizzleColumns)
            memcpy(word(line, column), from + column, kSwizzleColumns);
        if (column == count) return;
        uint8_t last[kSwizzleColumns] = {};
        for (int64_t i = 0; column + i < count; i++) last[i] = from[column + i];
        memcpy(word(line, column), last, kSwizzleColumns);
    }

    // Clears `count` columns of rows [first_line, last_line) of a swizzled matrix: the padding below its last row.
    MXQ_HD void clear(int64_t first_line, int64_t last_line, int64_t count) const {
        if (!swizzled) return;
        for (int64_t line = first_line; line < last_line; line++)
            for (int64_t column = 0; column < count; column += kSwizzleColumns)
                memset(word(line, column), 0, kSwizzleColumns);
    }
};

// Stores `count` fp32 block scales of a row, or their maxima, from `column` on. With `has_padding` the end of a row, from
// its last column up to its stride, is set to zero.
MXQ_HD void store_floats(float* to, const ScaleLayout& layout, bool has_padding, int64_t matrix, int64_t line, int64_t column,
                         int64_t count, const void* from) {
    if (layout.tile_rows != 1 && line % layout.tile_rows != 0) return;
    float* const first = to + layout.offset(matrix, line, column);
    for (int64_t i = 0; i < count; i++)
        memcpy(first + i * layout.column_stride, static_cast<const char*>(from) + i * int64_t(sizeof(float)), sizeof(float));
    if (has_padding && column + count == layout.columns)
        for (int64_t i = layout.columns; i < layout.line_stride; i++) first[i - column] = 0;
}

}  // namespace mxq::cpu
