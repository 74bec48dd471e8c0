// Which tile of 128 x 128 a block of threads takes, of a matrix or of a group, and where it lies in the source and the parts.
//
//     without groups   tile = (expert, row of tiles, column of tiles)
//     with groups      tile = (group tile, column of tiles): a group tile is 128 rows of one group, and one warp finds which
//                      (other group tiles where GroupSumUnits says so)
//
// All rows of a group's last group tile that the outputs have are the tile's, padding included: what is not loaded is +0.
#pragma once
#include "cuda/memory/grid.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/tile/patch.cuh"

#include <algorithm>

namespace mxq::cuda {

// The tiles of a problem: `down` x `across` of each matrix; with groups, as many group tiles down as any ends need.
struct Tiles {
    int64_t matrices, rows, down, across;
    GroupSumUnits units;

    explicit Tiles(const QuantizeProblem& p)
        : matrices(p.source.matrices),
          rows(p.source.rows),
          down(ceil_div(rows, kTile)),
          across(ceil_div(p.source.cols, kTile)) {
        if (!p.grouped.set()) return;
        down = group_tiles_bound(p.grouped);
        const GroupUnits all[] = {p.source.group_units(), p.rowwise.units, p.columnwise.units};
        for (int i = 0; i < kGroupSums; i++)
            units.at[i] = uint32_t(std::max(i % 2 == 0 ? all[i / 2].codes : all[i / 2].scales, 1));
    }
    int64_t count() const { return matrices * down * across; }
    dim3 grid() const { return grid_of_rows(across, matrices * down); }
};

// A tile: the expert or group that it is part of, and its first row and column there.
struct TilePlace {
    int64_t matrix, scope;  // expert (0 with groups); expert or group
    int64_t row, col;
    int64_t rows;           // of the expert or group

    // Returns the rows that a part of this unit has, the padding of the group included.
    __device__ __forceinline__ int64_t padded_rows(const GroupUnits& units) const {
        return (rows + units.codes - 1) & ~int64_t(units.codes - 1);
    }
};

// Finds the tile of a block of Tiles::grid(); false: there is none. All threads of the block call it.
__device__ __forceinline__ bool find_tile(const Tiles& tiles, const GroupedRows& grouped, Group& group, TilePlace& place) {
    const uint32_t line = row_of_blocks(), matrices = uint32_t(tiles.matrices), down = uint32_t(tiles.down);
    if (line >= matrices * down || tiles.across == 0) return false;
    const uint32_t matrix = matrices == 1 ? 0 : line / down;
    place.col = int64_t(blockIdx.x) * kTile;
    place.matrix = place.scope = matrix;
    place.row = int64_t(line - matrix * down) * kTile;
    place.rows = tiles.rows;
    if (!grouped.groups.set) return true;
    find_group_tile(grouped, tiles.units, line, group);
    place.scope = group.index;
    place.row = int64_t(line - group.first_group_tile) * kTile;
    place.rows = group.rows;
    return group.exists();
}

// Returns where a tile's group starts in the source or in a part; zeros without groups.
__device__ __forceinline__ GroupStart group_start(const GroupedRows& grouped, const Group& group, int part) {
    if (!grouped.groups.set) return {};
    return group.start(part);
}

// Where the elements of a tile are in its source, as every thread can tell by itself.
struct SourcePlace {
    int64_t first_row, col;  // among all rows of the source
    int rows, cols;          // of the tile that exist

    SourcePlace() = default;
    __device__ __forceinline__ SourcePlace(const QuantizeProblem& p, const TilePlace& place, const Group& group)
        : first_row((p.grouped.groups.set ? group.starts[kSourceCodes] : place.matrix * p.source.rows) + place.row),
          col(place.col), rows(int(min(place.rows - place.row, int64_t(kTile)))),
          cols(int(min(p.source.cols - place.col, int64_t(kTile)))) {}
};

// The parts of the output by number: 0 rowwise, 1 columnwise.
__device__ __forceinline__ bool has_part(const QuantizeProblem& problem, int columnwise) {
    return columnwise ? problem.has_columnwise : problem.has_rowwise;
}

__device__ __forceinline__ const QuantizedPart& part_of(const QuantizeProblem& problem, int columnwise) {
    return columnwise ? problem.columnwise : problem.rowwise;
}

// A tile's codes in a part: where the first is, and how many lines and codes of each line exist.
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
        column = block == uint32_t(MXQ_MAX_DIM) ? 0 : position >> log2_of(block);
        lines = int(min(part.columnwise ? cols - place.col : rows - place.row, int64_t(kTile)));
        if (grouped && part.columnwise) layout.columns = (uint32_t(rows) + block - 1) / block;
    }
    __device__ __forceinline__ int64_t offset(int in_tile, uint32_t at_column) const {
        return base + layout.offset(matrix, line + in_tile, at_column);
    }
    // Returns whether the line's scale is stored: of square tiles, that of their first line alone is.
    __device__ __forceinline__ bool stores(int in_tile) const {
        return in_tile < lines && ((line + in_tile) & (layout.tile_rows - 1)) == 0;
    }
};

// A tile in a part: its codes and scales, and line 0 and position 0 of it among all that the part stores.
struct PartPlace {
    CodeTile codes;
    ScaleTile scales;
    int64_t line, position;
    // The scale of line 0, and what leads to that of the next in compact layouts; whether lines have whole aligned words, and
    // whether 128 lines do.
    uint8_t* scale_bytes;
    int64_t scale_step;
    bool line_words, whole_words;

    __device__ __forceinline__ PartPlace(const QuantizedPart& part, const TilePlace& place, const GroupStart& start,
                                         int64_t cols, bool grouped)
        : codes(part, place, start, cols), scales(part, place, start, cols, grouped) {
        const int64_t row = start.codes + place.row;
        line = place.matrix * part.lines + (part.columnwise ? place.col : row);
        position = part.columnwise ? row : place.col;
        scale_bytes = part.scales + scales.offset(0, scales.column);
        scale_step = part.layout.line_stride;
        const uint32_t columns = kTile / uint32_t(part.layout.block);
        const bool aligned = (reinterpret_cast<uintptr_t>(scale_bytes) | (part.layout.swizzled ? 0 : scale_step)) % 4 == 0;
        line_words = part.layout.tile_rows == 1 && columns >= 4 && aligned &&
                     scales.column + columns <= uint32_t(scales.layout.columns);
        whole_words = line_words && scales.lines >= kTile;
    }
};

// Describes the tile in its source or in a part, where the problem has that, for all threads. A barrier must follow.
__device__ __forceinline__ void describe_part(const QuantizeProblem& p, const TilePlace& place, const Group& group,
                                              int part, PartPlace (&parts)[3]) {
    const bool from_source = part == kSourcePart, columnwise = part == kColumnwisePart;
    if (from_source ? p.source.is_quantized() : has_part(p, columnwise))
        parts[part] = PartPlace(from_source ? p.source.quantized : part_of(p, columnwise), place,
                                group_start(p.grouped, group, part), p.source.cols, p.grouped.groups.set);
}

}  // namespace mxq::cuda
