// Row tiles, for kernels from rows to rows: 128 rows where these fill tiles of scales, else 8. Without groups a tile is part
// of a matrix. With groups it has rows of one group, which one warp finds. A tile's offsets in the plain rows and in a
// rowwise part that has a scale for each row:
//
//          source                codes                   scales
//          in_row      [row  ]   code_row      [row  ]   scale_byte: the start of the matrix or group,
//            + rows    [row  ]     + padded    [codes]     in which the tile's first row is `row`
//                                              [ +0  ]
#pragma once
#include "cuda/memory/groups.cuh"

namespace mxq::cuda {

// Counts the tiles of a group, with those that only pad the output, which is part 1.
struct RowUnits : GroupSumUnits {
    __device__ __forceinline__ uint32_t group_tiles(uint32_t rows) const {
        return GroupSumUnits::group_tiles(round_up(kRowwiseCodes, rows));
    }
};

inline RowUnits row_units(const GroupUnits& in, const GroupUnits& out, int64_t tile_rows) {
    RowUnits units{group_sum_units(in, out)};
    units.tile_rows_log2 = uint32_t(log2_of(uint32_t(tile_rows)));
    return units;
}

// Returns an upper bound of the tiles that any ends need. The rows of a group are rounded up to `unit` in the output.
inline uint32_t row_tiles_bound(const GroupedRows& grouped, int64_t unit, int64_t tile_rows) {
    return uint32_t(padded_rows_bound(grouped.rows, grouped.groups.count, unit > tile_rows ? unit : tile_rows) / tile_rows);
}

// The constant cache is cold when a kernel starts: members that only groups need come last.
struct RowTiles {
    bool in_groups;
    uint32_t rows, of_matrix, all;  // rows of a matrix; tiles of a matrix; all tiles, with groups an upper bound
    uint32_t tile_rows_log2;
    int64_t matrix_scales, group_scales;  // bytes from a matrix to the next; bytes for a row of a group
    GroupedRows grouped;
    RowUnits units;

    RowTiles(const GroupedRows& groups, const PlainMatrix& in, const QuantizedPart& out, int32_t tile_rows)
        : in_groups(groups.set()),
          rows(uint32_t(in.rows)),
          of_matrix(uint32_t(ceil_div(in.rows, tile_rows))),
          all(in_groups ? row_tiles_bound(groups, out.units.codes, tile_rows) : uint32_t(in.matrices) * of_matrix),
          tile_rows_log2(uint32_t(log2_of(uint32_t(tile_rows)))),
          matrix_scales(out.layout.matrix_scales),
          group_scales(out.layout.group_stride),
          grouped(groups),
          units(row_units({in.group_unit, 1}, out.units, tile_rows)) {}
};

struct RowTile {
    int64_t in_row, code_row, scale_byte;
    uint32_t row;          // the first, in its matrix or group
    int32_t rows, padded;  // from `row` to the end of the matrix or group: in the source, in the part
    int32_t scope;         // expert or group
};

// Finds a tile; false: there is none. All threads of the block call it, once.
__device__ __forceinline__ bool find_row_tile(const RowTiles& tiles, uint32_t index, RowTile& tile) {
    if (index >= tiles.all) return false;
    const uint32_t tile_log2 = tiles.tile_rows_log2;
    if (!tiles.in_groups) {
        const uint32_t matrix = tiles.of_matrix == tiles.all ? 0 : index / tiles.of_matrix;
        const uint32_t row = (index - matrix * tiles.of_matrix) << tile_log2;
        const int64_t line = int64_t(matrix) * tiles.rows + row;
        const int32_t rows = int32_t(tiles.rows - row);
        tile = {line, line, matrix * tiles.matrix_scales, row, rows, rows, int32_t(matrix)};
        return true;
    }
    __shared__ Group group;
    find_group_tile(tiles.grouped, tiles.units, index, group);
    const uint32_t row = (index - group.first_group_tile) << tile_log2;
    const uint32_t padded = tiles.units.round_up(kRowwiseCodes, group.rows);
    tile = {int64_t(group.starts[kSourceCodes]) + row,
            int64_t(group.starts[kRowwiseCodes]) + row,
            group.starts[kRowwiseScales] * tiles.group_scales,
            row,
            int32_t(group.rows - row),
            int32_t(padded - row),
            group.index};
    return group.exists();
}

}  // namespace mxq::cuda
