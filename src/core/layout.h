// Where scales lie: the only arithmetic of layouts, for host and device.
#pragma once
#include <cstdint>

#include "numerics/bits.h"

namespace mxq {

constexpr int64_t kMxBlock = 32;          // elements that share an E8M0 scale
constexpr int64_t kSwizzleRows = 128;     // a swizzled tile is 128 rows x 4 scales, 512 bytes
constexpr int64_t kSwizzleColumns = 4;
constexpr int64_t kSwizzleBytes = kSwizzleRows * kSwizzleColumns;

MXQ_HD int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
MXQ_HD int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Byte of scale (row, column) inside its 128 x 4 tile:
//
//     row      0..31        the 32 lines of 16 bytes
//     row / 32 0..3         a 4-byte word of the line
//     column   0..3         a byte of the word
MXQ_HD int64_t swizzle_in_tile(int64_t row, int64_t column) {
    return (row % 32) * 16 + (row % kSwizzleRows) / 32 * 4 + column % kSwizzleColumns;
}

// Where the scales of a quantized matrix lie. Rows are lines of codes, `columns` the blocks along one line.
struct ScaleLayout {
    int64_t columns;       // ceil(codes in a line / 32)
    int64_t matrix_bytes;  // from one expert's scales to the next's
    int32_t tile_rows;     // lines that share a compact scale: 1, or 32 for 32x32 tiles
    int32_t swizzled;

    MXQ_HD int64_t offset(int64_t matrix, int64_t row, int64_t column) const {
        const int64_t base = matrix * matrix_bytes;
        if (!swizzled) return base + (tile_rows == 1 ? row : row / tile_rows) * columns + column;
        const int64_t tile = row / kSwizzleRows * ceil_div(columns, kSwizzleColumns) + column / kSwizzleColumns;
        return base + tile * kSwizzleBytes + swizzle_in_tile(row, column);
    }
};

MXQ_HD int64_t compact_scale_bytes(int64_t rows, int64_t columns, int64_t tile_rows) {
    return ceil_div(rows, tile_rows) * columns;
}

MXQ_HD int64_t swizzled_scale_bytes(int64_t rows, int64_t columns) {
    return round_up(rows, kSwizzleRows) * round_up(columns, kSwizzleColumns);
}

// Most rows that `count` groups of together `rows` rows take, each padded to a multiple of `alignment`.
MXQ_HD int64_t padded_rows_bound(int64_t rows, int64_t count, int64_t alignment) {
    const int64_t nonempty = count < rows ? count : rows;
    return (rows + (alignment - 1) * nonempty) / alignment * alignment;
}

// What comes before a group: the three sums over the groups h < g that every grouped layout is made of.
struct GroupStart {
    int64_t row;    // m_h:             rowwise codes and 1x32 scales
    int64_t tiles;  // ceil(m_h / 32):  32x32 tile rows; columnwise blocks
    int64_t slabs;  // ceil(m_h / 128): swizzled tiles

    MXQ_HD void skip(int64_t group_rows) {
        row += group_rows;
        tiles += ceil_div(group_rows, kMxBlock);
        slabs += ceil_div(group_rows, kSwizzleRows);
    }
};

// First scale byte of a group of rows.
MXQ_HD int64_t group_of_rows_offset(const ScaleLayout& layout, const GroupStart& start) {
    if (layout.swizzled) return start.slabs * kSwizzleRows * round_up(layout.columns, kSwizzleColumns);
    return (layout.tile_rows == 1 ? start.row : start.tiles) * layout.columns;
}

// First scale byte of a group along the contraction of `lines` lines. A compact group keeps the whole matrix's line
// stride; a swizzled one is a matrix of its own, as wide as the group.
MXQ_HD int64_t group_of_contraction_offset(const ScaleLayout& layout, int64_t lines, const GroupStart& start) {
    if (layout.swizzled) return start.slabs * kSwizzleColumns * round_up(lines, kSwizzleRows);
    return start.tiles;
}

}  // namespace mxq
