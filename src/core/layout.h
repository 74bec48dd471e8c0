// Where codes and scales lie: the only arithmetic of layouts, for host and device.
#pragma once
#include <cstdint>

#include "numerics/bits.h"

namespace mxq {

constexpr int64_t kMxBlock = 32;          // elements that share an E8M0 scale
constexpr int64_t kNvBlock = 16;          // elements that share an E4M3 scale
constexpr int64_t kWideBlock = 128;       // elements of a coarse MX tile, or of an FP8 block
constexpr int64_t kSwizzleRows = 128;     // a swizzled tile is 128 rows x 4 scales, 512 bytes
constexpr int64_t kSwizzleColumns = 4;
constexpr int64_t kSwizzleBytes = kSwizzleRows * kSwizzleColumns;

MXQ_HD int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
MXQ_HD int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
MXQ_HD int64_t round_up_to_power(int64_t a, int64_t power_of_two) { return (a + power_of_two - 1) & -power_of_two; }

// Byte of scale (row, column) inside its 128 x 4 tile:
//
//     row      0..31        the 32 lines of 16 bytes
//     row / 32 0..3         a 4-byte word of the line
//     column   0..3         a byte of the word
MXQ_HD int64_t swizzle_in_tile(int64_t row, int64_t column) {
    return (row % 32) * 16 + (row % kSwizzleRows) / 32 * 4 + column % kSwizzleColumns;
}

// Where the scales of a quantized matrix lie, in scales of `bytes` bytes each. The code at position k of line i has scale
// (i, k / block). Swizzled tiles repeat a coarse tile's scale at every position that it covers; all else stores a scale once.
struct ScaleLayout {
    int64_t columns;         // ceil(codes in a line / block)
    int64_t matrix_scales;   // from one expert's scales to the next's
    int64_t line_stride;     // from a row of scales to the next; not in swizzled tiles
    int64_t column_stride;   // from a column to the next; not in swizzled tiles
    int32_t block;           // codes of a line that share a column; of ROW and TENSOR, more than a line has
    int32_t tile_rows;       // lines that share a row of scales, a power of two; not in swizzled tiles
    int32_t swizzled;        // in 128 x 4 tiles (fp32 scales never are: their "swizzled" is a matter of strides)
    int32_t bytes;           // of a scale: 1 or 4
    int32_t repeat;          // swizzled columns that a coarse tile's scale fills: 1 or 4
    // Groups: group g starts at scale sums / group_rows * group_stride + g * group_index_stride, `sums` being GroupStart's.
    int32_t group_rows;      // a power of two
    int64_t group_stride, group_index_stride;

    MXQ_HD int64_t offset(int64_t matrix, int64_t row, int64_t column) const {
        const int64_t base = matrix * matrix_scales;
        if (!swizzled) return base + (row >> log2_of(uint32_t(tile_rows))) * line_stride + column * column_stride;
        const int64_t tile = row / kSwizzleRows * ceil_div(columns, kSwizzleColumns) + column / kSwizzleColumns;
        return base + tile * kSwizzleBytes + swizzle_in_tile(row, column);
    }
};

MXQ_HD int64_t swizzled_scale_bytes(int64_t rows, int64_t columns) {
    return round_up(rows, kSwizzleRows) * round_up(columns, kSwizzleColumns);
}

// Most rows that `count` groups of together `rows` rows take, each padded to a multiple of `alignment`.
MXQ_HD int64_t padded_rows_bound(int64_t rows, int64_t count, int64_t alignment) {
    const int64_t nonempty = count < rows ? count : rows;
    return (rows + (alignment - 1) * nonempty) / alignment * alignment;
}

// What the rows of each group are rounded up to in a part: among its codes, and among its scales. Powers of two up to 512.
struct GroupUnits {
    int32_t codes = 1, scales = 1;
};

// Where a group starts in a part.
struct GroupStart {
    int64_t index;   // of the group
    int64_t row;     // sum of m_h over the groups h before it: rows as the caller counts them
    int64_t codes;   // sum of m_h rounded up to units.codes: its first row (rowwise) or column (columnwise) of codes
    int64_t scales;  // sum of m_h rounded up to units.scales

    MXQ_HD void skip(const GroupUnits& units, int64_t group_rows) {
        index++;
        row += group_rows;
        codes += round_up_to_power(group_rows, units.codes);
        scales += round_up_to_power(group_rows, units.scales);
    }
};

// First scale of a group. Padded rows are fewer than 2^32.
MXQ_HD int64_t group_scale_offset(const ScaleLayout& layout, const GroupStart& start) {
    const uint32_t rows = uint32_t(start.scales) >> log2_of(uint32_t(layout.group_rows));
    return rows * layout.group_stride + start.index * layout.group_index_stride;
}

}  // namespace mxq
