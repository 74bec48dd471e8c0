// Computes where codes and scales lie in memory: the only layout arithmetic of the library, for host and device.
#pragma once
#include <cstdint>

#include "numerics/bits.h"

namespace mxq {

constexpr int64_t kMxBlock = 32;          // elements that share an E8M0 scale
constexpr int64_t kNvBlock = 16;          // elements that share an E4M3 scale
constexpr int64_t kBlock128 = 128;       // elements along the contraction that share a 1x128 or 128x128 scale
constexpr int64_t kSwizzleRows = 128;     // a swizzled tile is 128 rows x 4 scales, 512 bytes
constexpr int64_t kSwizzleColumns = 4;
constexpr int64_t kSwizzleBytes = kSwizzleRows * kSwizzleColumns;
constexpr int32_t kWholeLine = 1 << 26;   // columns of 32 codes: no K-major row of a matrix or group has more

MXQ_HD int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
MXQ_HD int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
MXQ_HD int64_t round_up_to_power(int64_t a, int64_t power_of_two) { return (a + power_of_two - 1) & -power_of_two; }

// Returns the byte of scale (row, column) inside its 128 x 4 tile, which has 32 vectors of 16 bytes:
//
//     row % 32          the vector
//     row % 128 / 32    the 4-byte word of the vector
//     column % 4        the byte of the word
MXQ_HD int64_t swizzle_in_tile(int64_t row, int64_t column) {
    return (row % 32) * 16 + (row % kSwizzleRows) / 32 * 4 + column % kSwizzleColumns;
}

// Describes where the scales of a quantized matrix lie. Distances count scales of `bytes` bytes. Code k of K-major row i
// has scale (i, k / block). In 128 x 4 tiles a scale is repeated at every (i, k / block) that it covers; all other layouts
// store each scale once.
struct ScaleLayout {
    int64_t columns;         // scales of a K-major row: ceil(codes in a row / block)
    int64_t matrix_scales;   // distance from one expert's scales to the next expert's
    int64_t line_stride;     // distance from a row of scales to the next; unused in 128 x 4 tiles
    int64_t column_stride;   // distance from a column of scales to the next; unused in 128 x 4 tiles
    int32_t block;           // codes of a row that share a column; with ROW and TENSOR scalings, more than a row has
    int32_t tile_rows;       // rows of codes that share a row of scales, a power of two; unused in 128 x 4 tiles
    int32_t swizzled;        // 1: in 128 x 4 tiles; fp32 scales never are, their swizzled layout being one of strides
    int32_t bytes;           // size of a scale: 1 or 4
    int32_t repeat;          // columns in 128 x 4 tiles that one scale fills: 4 with 1x128 and 128x128, kWholeLine with ROW,
                             // else 1
    // The scales of group g start at GroupStart::scales / group_rows * group_stride + g * group_index_stride.
    int32_t group_rows;      // a power of two
    int64_t group_stride, group_index_stride;

    // Returns whether a K-major row has one scale, stored once or repeated.
    MXQ_HD bool has_one_of_line() const { return block == MXQ_MAX_DIM || repeat == kWholeLine; }

    // Returns whether at least 128 neighbouring codes of a row share a scale.
    MXQ_HD bool has_one_of_128() const { return block >= kBlock128 || repeat >= kBlock128 / kMxBlock; }

    // Returns whether scales 4 i to 4 i + 3 of a row are contiguous and serve at most 128 codes.
    MXQ_HD bool has_adjacent_fours() const {
        return bytes == 1 && (swizzled || (block <= kMxBlock && column_stride == 1));
    }

    // Returns the distance from the scales of 128 rows in 128 x 4 tiles to those of the next.
    MXQ_HD int64_t tile_row_scales() const { return ceil_div(columns, kSwizzleColumns) * kSwizzleBytes; }

    // Returns the index of the scale of block `column` of K-major row `row`, in expert `matrix`.
    MXQ_HD int64_t offset(int64_t matrix, int64_t row, int64_t column) const {
        const int64_t base = matrix * matrix_scales;
        if (!swizzled) return base + (row >> log2_of(uint32_t(tile_rows))) * line_stride + column * column_stride;
        const int64_t of_rows = row / kSwizzleRows * tile_row_scales();
        return base + of_rows + column / kSwizzleColumns * kSwizzleBytes + swizzle_in_tile(row, column);
    }
};

// Returns the bytes of rows x columns one-byte scales in whole 128 x 4 tiles.
MXQ_HD int64_t swizzled_scale_bytes(int64_t rows, int64_t columns) {
    return round_up(rows, kSwizzleRows) * round_up(columns, kSwizzleColumns);
}

// Returns how many codes of each K-major row of a columnwise group are copied to another alignment. They are those of the
// group's rows, rounded up to 16, since a Hadamard transform spreads values there.
MXQ_HD int64_t codes_of_columns(int64_t rows) { return round_up_to_power(rows, kNvBlock); }

// Returns the columns of scales of a columnwise group that have rows. A coarse scale fills `repeat` of them, which may be more
// than the group has.
MXQ_HD int64_t columns_of_rows(const ScaleLayout& layout, int64_t rows) {
    if (layout.block == MXQ_MAX_DIM) return 1;
    return ceil_div(rows, int64_t(layout.block) * layout.repeat) * layout.repeat;
}

// Returns the most rows that `count` groups can take once each is padded to a multiple of `alignment`, if they have at most
// `rows` rows in all.
MXQ_HD int64_t padded_rows_bound(int64_t rows, int64_t count, int64_t alignment) {
    const int64_t nonempty = count < rows ? count : rows;
    return (rows + (alignment - 1) * nonempty) / alignment * alignment;
}

// The multiples that the rows of each group are rounded up to in a part: one for its codes and one for its scales. Both are
// powers of two up to 512.
struct GroupUnits {
    int32_t codes = 1, scales = 1;
};

// The start of a group in a part. m_h is the number of rows of group h; the sums run over the groups before this one.
struct GroupStart {
    int64_t index;   // number of the group
    int64_t row;     // sum of m_h: the first row as the caller counts rows, without padding
    int64_t codes;   // sum of m_h rounded up to units.codes: its first row (rowwise) or column (columnwise) of codes
    int64_t scales;  // sum of m_h rounded up to units.scales

    // Moves on to the next group; `group_rows` is the number of rows of this one.
    MXQ_HD void skip(const GroupUnits& units, int64_t group_rows) {
        index++;
        row += group_rows;
        codes += round_up_to_power(group_rows, units.codes);
        scales += round_up_to_power(group_rows, units.scales);
    }
};

// Returns the index of a group's first scale. 32 bits hold the padded rows, which are fewer than 2^32.
MXQ_HD int64_t group_scale_offset(const ScaleLayout& layout, const GroupStart& start) {
    const uint32_t rows = uint32_t(start.scales) >> log2_of(uint32_t(layout.group_rows));
    return rows * layout.group_stride + start.index * layout.group_index_stride;
}

}  // namespace mxq
