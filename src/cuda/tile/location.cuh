// Which tile of 128 x 128 a block of threads takes, of a matrix or of a group, and where it lies in input and outputs.
//
//     without groups   tile = (expert, row of tiles, column of tiles)
//     with groups      tile = (slab, column of tiles): a slab is 128 rows of one group, and one warp finds which
//                      (other slabs where GroupSumUnits says so)
//
// All rows of a group's last slab that the outputs have are the tile's, padding included: what is not loaded is +0.
#pragma once
#include "cuda/memory/grid.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/tile/patch.cuh"

namespace mxq::cuda {

// A tile: the expert or group that it is part of, and its first row and column there.
struct TilePlace {
    int64_t matrix, scope;  // expert (0 with groups); expert or group
    int64_t row, col;
    int64_t rows;           // of the expert or group

    // Rows of the tile that a part of this unit has, the padding of the group included.
    __device__ __forceinline__ int64_t padded_rows(const GroupUnits& units) const {
        return (rows + units.codes - 1) & ~int64_t(units.codes - 1);
    }
};

// All threads of the block call it; false: there is no tile for them.
__device__ __forceinline__ bool find_tile(const Tiles& tiles, const GroupedRows& grouped, const GroupSumUnits& units,
                                          TileGroup& group, TilePlace& place) {
    const int64_t index = block_index();
    if (index >= tiles.count()) return false;
    const int64_t line = index / tiles.across;
    place.col = (index - line * tiles.across) * kTile;
    place.matrix = tiles.matrices == 1 ? 0 : line / tiles.down;
    if (!grouped.groups.set) {
        place.scope = place.matrix;
        place.row = (line - place.matrix * tiles.down) * kTile;
        place.rows = tiles.rows;
        return true;
    }
    find_slab(grouped, units, uint32_t(line), group);
    place.scope = group.index;
    place.row = (line - group.first_slab) * kTile;
    place.rows = group.rows;
    return group.index >= 0;
}

__device__ __forceinline__ GroupStart part_start(const GroupedRows& grouped, const TileGroup& group, bool columnwise) {
    if (!grouped.groups.set) return {};
    const int codes = columnwise ? kColumnwiseCodes : kRowwiseCodes;
    return {group.index, 0, group.starts[codes], group.starts[codes + 1]};
}

// A tile's codes in a part: where the first is, and how many lines and codes of each line are written.
struct CodeTile {
    uint8_t* codes;
    int64_t line_bytes;
    int lines, length;

    __device__ __forceinline__ CodeTile(const QuantizedPart& part, const TilePlace& place, const GroupStart& start,
                                        int64_t cols)
        : line_bytes(part.line_bytes) {
        const int rows_left = int(min(place.padded_rows(part.units) - place.row, int64_t(kTile)));
        const int cols_left = int(min(cols - place.col, int64_t(kTile)));
        const int64_t row = start.codes + place.row;
        lines = part.columnwise ? cols_left : rows_left;
        length = part.columnwise ? rows_left : cols_left;
        codes = part.line(place.matrix, part.columnwise ? place.col : row) +
                (part.columnwise ? row : place.col) / 8 * part.bits;
    }
};

// A tile's scales in a part: their layout from the group's first on, the first line and column, and how many lines have some.
struct ScaleTile {
    ScaleLayout layout;  // `columns` are the expert's or group's
    int64_t base, matrix, line;
    uint32_t column;
    int lines;

    __device__ __forceinline__ ScaleTile(const QuantizedPart& part, const TilePlace& place, const GroupStart& start,
                                         int64_t cols, bool grouped)
        : layout(part.layout), base(grouped ? group_scale_offset(part.layout, start) : 0), matrix(place.matrix),
          line(part.columnwise ? place.col : place.row) {
        const uint32_t position = uint32_t(part.columnwise ? place.row : place.col), block = uint32_t(layout.block);
        // Square tiles are stored for the rows that the group has, all else for its padding too.
        const int64_t rows = layout.tile_rows == 1 ? place.padded_rows(part.units) : place.rows;
        column = position / block;
        lines = int(min(part.columnwise ? cols - place.col : rows - place.row, int64_t(kTile)));
        if (grouped && part.columnwise) layout.columns = (uint32_t(rows) + block - 1) / block;
    }
    __device__ __forceinline__ int64_t offset(int in_tile, uint32_t at_column) const {
        return base + layout.offset(matrix, line + in_tile, at_column);
    }
    __device__ __forceinline__ bool stores(int in_tile) const {
        return in_tile < lines && (layout.tile_rows == 1 || (line + in_tile) % layout.tile_rows == 0);
    }
};

}  // namespace mxq::cuda
