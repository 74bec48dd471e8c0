// The 128 x 128 tile of a thread block, in a matrix or a group, and its offsets in the source and the parts.
//
//     without groups   tile (expert, row of tiles, column of tiles)
//     with groups      tile (group tile, column of tiles): one warp searches the group of the group tile (memory/groups.cuh)
//
// A PartTile has all offsets of a tile in one part of the output, or in a quantized source. The last tile of a group includes
// the rows that pad the outputs. Elements that are not loaded are +0.
#pragma once
#include "cuda/memory/grid.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/tile/patch.cuh"

#include <algorithm>

namespace mxq::cuda {

// The tiles of a problem: `down` x `across` in each matrix. With groups, `down` is an upper bound of the group tiles.
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

// The expert or group of a tile, and the tile's first row and column there.
struct TileCoord {
    int64_t matrix, scope;  // the expert, 0 with groups; what has scales of its own: the expert or the group
    int64_t row, col;
    int64_t rows;           // of the expert or group

    // Returns the rows in a part of these units, padding included.
    __device__ __forceinline__ int64_t padded_rows(const GroupUnits& units) const {
        return (rows + units.codes - 1) & ~int64_t(units.codes - 1);
    }
};

// Finds the tile of a thread block of Tiles::grid(); false: there is none. All threads of the block call it.
__device__ __forceinline__ bool find_tile(const Tiles& tiles, const GroupedRows& grouped, Group& group, TileCoord& coord) {
    const uint32_t line = row_of_blocks(), matrices = uint32_t(tiles.matrices), down = uint32_t(tiles.down);
    if (line >= matrices * down || tiles.across == 0) return false;
    const uint32_t matrix = matrices == 1 ? 0 : line / down;
    coord.col = int64_t(blockIdx.x) * kTile;
    coord.matrix = coord.scope = matrix;
    coord.row = int64_t(line - matrix * down) * kTile;
    coord.rows = tiles.rows;
    if (!grouped.groups.set) return true;
    find_group_tile(grouped, tiles.units, line, group);
    coord.scope = group.index;
    coord.row = int64_t(line - group.first_group_tile) * kTile;
    coord.rows = group.rows;
    return group.exists();
}

// Returns the start of a tile's group in the source or in a part; zeros without groups.
__device__ __forceinline__ GroupStart group_start(const GroupedRows& grouped, const Group& group, int part) {
    if (!grouped.groups.set) return {};
    return group.start(part);
}

// The elements of a tile in its source. Every thread computes it alone.
struct SourceTile {
    int64_t first_row, col;  // among all rows of the source
    int rows, cols;          // of the tile, as far as they exist

    SourceTile() = default;
    __device__ __forceinline__ SourceTile(const QuantizeProblem& p, const TileCoord& coord, const Group& group)
        : first_row((p.grouped.groups.set ? group.starts[kSourceCodes] : coord.matrix * p.source.rows) + coord.row),
          col(coord.col),
          rows(int(min(coord.rows - coord.row, int64_t(kTile)))),
          cols(int(min(p.source.cols - coord.col, int64_t(kTile)))) {}
};

// The parts of the output by number: 0 rowwise, 1 columnwise.
__device__ __forceinline__ bool has_part(const QuantizeProblem& problem, int columnwise) {
    return columnwise ? problem.has_columnwise : problem.has_rowwise;
}

__device__ __forceinline__ const QuantizedPart& part_of(const QuantizeProblem& problem, int columnwise) {
    return columnwise ? problem.columnwise : problem.rowwise;
}

// The codes of a tile in a part: the first one, and how many K-major rows and codes of each row exist.
struct CodeTile {
    uint8_t* codes;
    int64_t line_bytes;
    int lines, length;

    __device__ __forceinline__ CodeTile(const QuantizedPart& part, const TileCoord& coord, const GroupStart& start,
                                        int64_t cols)
        : line_bytes(part.line_bytes) {
        const int rows_left = int(min(coord.padded_rows(part.units) - coord.row, int64_t(kTile)));
        const int cols_left = int(min(cols - coord.col, int64_t(kTile)));
        const int64_t row = start.codes + coord.row;
        lines = part.columnwise ? cols_left : rows_left;
        length = part.columnwise ? rows_left : cols_left;
        codes =
            part.line(coord.matrix, part.columnwise ? coord.col : row) + (part.columnwise ? row : coord.col) / 8 * part.bits;
    }
};

// The scales of a tile in a part: their layout from the group's first scale on, the first row and column, and how many rows
// have scales.
struct ScaleTile {
    ScaleLayout layout;  // `columns` are the expert's or group's
    int64_t base, matrix, line;
    uint32_t column;
    int lines;

    __device__ __forceinline__ ScaleTile(const QuantizedPart& part, const TileCoord& coord, const GroupStart& start,
                                         int64_t cols, bool grouped)
        : layout(part.layout),
          base(grouped ? group_scale_offset(part.layout, start) : 0),
          matrix(coord.matrix),
          line(part.columnwise ? coord.col : coord.row) {
        const uint32_t position = uint32_t(part.columnwise ? coord.row : coord.col), block = uint32_t(layout.block);
        // Square tiles have scales for the rows of the group alone, all others for its padding too.
        const int64_t rows = layout.tile_rows == 1 ? coord.padded_rows(part.units) : coord.rows;
        column = block == uint32_t(MXQ_MAX_DIM) ? 0 : position >> log2_of(block);
        lines = int(min(part.columnwise ? cols - coord.col : rows - coord.row, int64_t(kTile)));
        if (grouped && part.columnwise) layout.columns = (uint32_t(rows) + block - 1) / block;
    }
    __device__ __forceinline__ int64_t offset(int in_tile, uint32_t at_column) const {
        return base + layout.offset(matrix, line + in_tile, at_column);
    }
    // Returns whether the scale of a row is stored. Square tiles store that of their first row alone.
    __device__ __forceinline__ bool stores(int in_tile) const {
        return in_tile < lines && ((line + in_tile) & (layout.tile_rows - 1)) == 0;
    }
};

// The codes and scales of a tile in a part, and the indices of its first row and first code in the whole part.
struct PartTile {
    CodeTile codes;
    ScaleTile scales;
    int64_t line, position;
    // The scale of row 0, and the step to the next row in compact layouts. Whether rows have whole aligned words, and
    // whether all 128 rows do.
    uint8_t* scale_bytes;
    int64_t scale_step;
    bool line_words, whole_words;

    __device__ __forceinline__ PartTile(const QuantizedPart& part, const TileCoord& coord, const GroupStart& start,
                                        int64_t cols, bool grouped)
        : codes(part, coord, start, cols), scales(part, coord, start, cols, grouped) {
        const int64_t row = start.codes + coord.row;
        line = coord.matrix * part.lines + (part.columnwise ? coord.col : row);
        position = part.columnwise ? row : coord.col;
        scale_bytes = part.scales + scales.offset(0, scales.column);
        scale_step = part.layout.line_stride;
        const uint32_t columns = kTile / uint32_t(part.layout.block);
        const bool aligned = (reinterpret_cast<uintptr_t>(scale_bytes) | (part.layout.swizzled ? 0 : scale_step)) % 4 == 0;
        line_words = part.layout.tile_rows == 1 && columns >= 4 && aligned &&
                     scales.column + columns <= uint32_t(scales.layout.columns);
        whole_words = line_words && scales.lines >= kTile;
    }
};

// Describes the tile in its source or in a part, for all threads, if the problem has it. A barrier must follow.
__device__ __forceinline__ void describe_part(const QuantizeProblem& p, const TileCoord& coord, const Group& group, int part,
                                              PartTile (&parts)[3]) {
    const bool from_source = part == kSourcePart, columnwise = part == kColumnwisePart;
    if (from_source ? p.source.is_quantized() : has_part(p, columnwise))
        parts[part] = PartTile(from_source ? p.source.quantized : part_of(p, columnwise), coord,
                               group_start(p.grouped, group, part), p.source.cols, p.grouped.groups.set);
}

}  // namespace mxq::cuda
