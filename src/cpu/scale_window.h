// Scales of a few lines, read or written a line at a time in either layout. Forced inline, like all that kernels.cpp uses.
#pragma once
#include <cstring>

#include "core/layout.h"

namespace mxq::cpu {

// Starts where a swizzled tile starts: at a line that is a multiple of 128 and a column that is one of 4.
//
//     swizzled: line l of the window is a 4-byte word in each of its tiles, 512 bytes apart
//     compact:  line l is contiguous; with 32x32 tiles, lines 32i to 32i + 31 are one
template <class Byte>
struct ScaleWindow {
    Byte* first;
    int64_t columns;  // of the whole matrix
    bool square_tiles, swizzled;

    MXQ_HD ScaleWindow(Byte* scales, const ScaleLayout& layout, int64_t matrix, int64_t line, int64_t column)
        : first(scales + layout.offset(matrix, line, column)),
          columns(layout.columns),
          square_tiles(layout.tile_rows != 1),
          swizzled(layout.swizzled) {}

    MXQ_HD Byte* compact(int64_t line) const { return first + (square_tiles ? line / kMxBlock : line) * columns; }
    MXQ_HD Byte* word(int64_t line, int64_t column) const {
        return first + column / kSwizzleColumns * kSwizzleBytes + line / kSwizzleRows * slab_bytes() +
               swizzle_in_tile(line, 0);
    }
    MXQ_HD int64_t slab_bytes() const { return kSwizzleRows * round_up(columns, kSwizzleColumns); }

    // `count` scales of a line from column `begin` on, a multiple of 4.
    MXQ_HD void load(int64_t line, int64_t begin, int64_t count, uint8_t* to) const {
        if (!swizzled) {
            memcpy(to, compact(line) + begin, size_t(count));
            return;
        }
        int64_t i = 0;
        for (; i + kSwizzleColumns <= count; i += kSwizzleColumns)
            memcpy(to + i, word(line, begin + i), kSwizzleColumns);
        if (i < count) memcpy(to + i, word(line, begin + i), size_t(count - i));
    }

    // Writes whole words: zeros where the last one has no scales.
    MXQ_HD void store(int64_t line, int64_t count, const uint8_t* from) const {
        if (!swizzled) {
            if (!square_tiles || line % kMxBlock == 0) memcpy(compact(line), from, size_t(count));
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

    // The padding of a swizzled matrix below its last line.
    MXQ_HD void clear(int64_t first_line, int64_t last_line, int64_t count) const {
        if (!swizzled) return;
        for (int64_t line = first_line; line < last_line; line++)
            for (int64_t column = 0; column < count; column += kSwizzleColumns)
                memset(word(line, column), 0, kSwizzleColumns);
    }
};

}  // namespace mxq::cpu
