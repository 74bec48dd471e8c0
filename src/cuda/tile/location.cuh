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

// What is summed over the groups before: rows rounded up to the units of whatever a kernel reads and writes.
enum GroupSum { kSourceCodes, kSourceScales, kRowwiseCodes, kRowwiseScales, kColumnwiseCodes, kColumnwiseScales, kGroupSums };

struct GroupSumUnits {
    uint32_t at[kGroupSums] = {1, 1, 1, 1, 1, 1};  // powers of two
    uint32_t slab_log2 = 7;  // rows of a slab, where they are not 128
};

// A group; index -1: the slab is none of any group.
struct TileGroup {
    int32_t index;
    uint32_t rows, first_slab;
    uint32_t starts[kGroupSums];
};

__device__ __forceinline__ uint32_t shift_up(uint32_t value, uint32_t into_lane_0) {
    const uint32_t before = __shfl_up_sync(kAllLanes, value, 1);
    return threadIdx.x % 32 == 0 ? into_lane_0 : before;
}

template <Scan scan>
__device__ __forceinline__ uint32_t scan_lanes(uint32_t value) {
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_up_sync(kAllLanes, value, distance);
        if (threadIdx.x % 32 >= distance) value = scan == Scan::Sum ? value + other : max(value, other);
    }
    return value;
}

// The group of slab `wanted`, for all lanes of a warp: 32 groups at a time, a lane each, until the slab is passed. Ends out of
// order are clamped. All sums stay below 2^32: 2^31 rows and 4096 paddings.
__device__ __forceinline__ TileGroup find_slab(const GroupedRows& grouped, const GroupSumUnits& units, uint32_t wanted) {
    const int lane = threadIdx.x % 32, count = grouped.groups.count;
    uint32_t row = 0, slab = 0, sums[kGroupSums] = {};  // before the 32 groups; of a sum, what the lane's groups give
    int base = 0, owner = 32;
    TileGroup found{-1, 0, 0, {}};
#pragma unroll 1
    for (; base < count && owner == 32; base += 32) {
        const bool exists = base + lane < count;
        uint32_t end = exists ? uint32_t(clamped_end(grouped, base + lane)) : 0, before = shift_up(end, row);
        if (__any_sync(kAllLanes, exists && end < before)) {
            end = max(scan_lanes<Scan::Max>(end), row);
            before = shift_up(end, row);
        }
        end = max(end, before);
        const uint32_t rows = end - before;
        const uint32_t slabs = (rows + (1u << units.slab_log2) - 1) >> units.slab_log2;
        const uint32_t passed = slab + scan_lanes<Scan::Sum>(slabs);
        owner = __popc(__ballot_sync(kAllLanes, passed <= wanted));  // a run of ones from lane 0
        if (owner < 32)
            found = {base + owner, __shfl_sync(kAllLanes, rows, owner), __shfl_sync(kAllLanes, passed - slabs, owner), {}};
#pragma unroll
        for (int i = 0; i < kGroupSums; i++)
            if (lane < owner) sums[i] += (rows + units.at[i] - 1) & ~(units.at[i] - 1);
        row = __shfl_sync(kAllLanes, end, 31);
        slab = __shfl_sync(kAllLanes, passed, 31);
    }
#pragma unroll
    for (int i = 0; i < kGroupSums; i++) found.starts[i] = __reduce_add_sync(kAllLanes, sums[i]);
    return found;
}

// The same for a block of threads: one warp finds it. All threads of the block call it.
__device__ __forceinline__ void find_slab(const GroupedRows& grouped, const GroupSumUnits& units, uint32_t wanted,
                                          TileGroup& shared) {
    if (threadIdx.x < 32) {
        const TileGroup found = find_slab(grouped, units, wanted);
        if (threadIdx.x == 0) shared = found;
    }
    __syncthreads();
}

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
