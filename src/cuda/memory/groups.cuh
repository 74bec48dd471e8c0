// Groups on the device. A group takes ceil(rows / 128) group tiles: 128 rows of one group each, the last one fewer. Tiles of
// rows, swizzled scales and grids count them; a kernel may have group tiles of another height.
//
//     find_group_tile, find_group   one warp looks for one group: 32 groups at a time, a lane each, until the group is passed
//     walk_groups                   all threads of a block look at all groups, thread t at t * share .. t * share + share - 1:
//                                   three short walks and two scans over the threads
//
// Values out of order are clamped, so that nothing outside of the buffers is touched.
#pragma once
#include "core/layout.h"
#include "core/problem.h"
#include "cuda/memory/grid.cuh"

namespace mxq::cuda {

// Returns the most group tiles, of 128 rows or another power of two, that any ends need: what a grid must cover.
inline int64_t group_tiles_bound(const GroupedRows& grouped, int64_t group_tile = kSwizzleRows) {
    return padded_rows_bound(grouped.rows, grouped.groups.count, group_tile) / group_tile;
}

// Where a group starts in two parts of different units, such as a rowwise and a columnwise one; index -1: there is none.
struct Group {
    GroupStart first, second;
    int64_t first_group_tile;  // how many group tiles come before the group
    int64_t rows;
    __device__ __forceinline__ bool exists() const { return first.index >= 0; }
};

__device__ __forceinline__ int64_t clamped_end(const GroupedRows& grouped, int64_t group) {
    const Groups& groups = grouped.groups;
    const int64_t end = groups.type == MXQ_TYPE_INT32 ? static_cast<const int32_t*>(groups.ends)[group]
                                                      : static_cast<const int64_t*>(groups.ends)[group];
    return end < 0 ? 0 : end < grouped.rows ? end : grouped.rows;
}

// ---- All groups ------------------------------------------------------------------------------------------------------------

constexpr int kMaxWarps = 32;

enum class Scan { Sum, Max };

// Returns what the block's threads before this one have, combined. All threads of the block call it, a multiple of 32. It is
// out of line, since a walk calls it six times.
template <Scan scan>
__device__ __noinline__ int64_t exclusive_scan(int64_t value) {
    __shared__ int64_t totals[kMaxWarps];
    const auto combine = [](int64_t a, int64_t b) { return scan == Scan::Sum ? a + b : max(a, b); };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
    for (int distance = 1; distance < 32; distance *= 2) {
        const int64_t other = __shfl_up_sync(~0u, value, distance);
        if (lane >= distance) value = combine(value, other);
    }
    if (lane == 31) totals[warp] = value;
    int64_t before = __shfl_up_sync(~0u, value, 1);
    if (lane == 0) before = 0;
    __syncthreads();
#pragma unroll 1
    for (int w = 0; w < warp; w++) before = combine(before, totals[w]);
    __syncthreads();
    return before;
}

// Calls `look(group)` for every group, spread over the block's threads, each with all that came before it. `rows` of a group
// out of order is 0. All threads of the block call it.
template <class Look>
__device__ void walk_groups(const GroupedRows& grouped, const GroupUnits& first_units, const GroupUnits& second_units,
                            const Look& look) {
    const int32_t count = grouped.groups.count, share = int32_t(ceil_div(count, int64_t(blockDim.x)));
    const int32_t begin = min(int32_t(threadIdx.x) * share, count), end = min(begin + share, count);

    int64_t highest = 0;
#pragma unroll 1
    for (int32_t g = begin; g < end; g++) highest = max(highest, clamped_end(grouped, g));
    const int64_t row = exclusive_scan<Scan::Max>(highest);

    Group group{{begin, row, 0, 0}, {begin, row, 0, 0}, 0, 0};
    const auto step = [&](int32_t g) {
        group.rows = max(clamped_end(grouped, g) - group.first.row, int64_t(0));
    };
    const auto skip = [&] {
        group.first.skip(first_units, group.rows);
        group.second.skip(second_units, group.rows);
        group.first_group_tile += ceil_div(group.rows, kSwizzleRows);
    };
#pragma unroll 1
    for (int32_t g = begin; g < end; g++) step(g), skip();
    Group before{{begin, row, 0, 0}, {begin, row, 0, 0}, 0, 0};
    before.first.codes = exclusive_scan<Scan::Sum>(group.first.codes);
    before.first.scales = exclusive_scan<Scan::Sum>(group.first.scales);
    before.second.codes = exclusive_scan<Scan::Sum>(group.second.codes);
    before.second.scales = exclusive_scan<Scan::Sum>(group.second.scales);
    before.first_group_tile = exclusive_scan<Scan::Sum>(group.first_group_tile);
    group = before;
#pragma unroll 1
    for (int32_t g = begin; g < end; g++) {
        step(g);
        look(group);
        skip();
    }
}

// ---- One group -------------------------------------------------------------------------------------------------------------

// What is summed over the groups before: rows rounded up to the units of whatever a kernel reads and writes.
enum GroupSum { kSourceCodes, kSourceScales, kRowwiseCodes, kRowwiseScales, kColumnwiseCodes, kColumnwiseScales, kGroupSums };

struct GroupSumUnits {
    uint32_t at[kGroupSums] = {1, 1, 1, 1, 1, 1};  // powers of two
    uint32_t tile_rows_log2 = 7;  // rows of a group tile, where they are not 128
};

// A group; index -1: the group tile is none of any group.
struct TileGroup {
    int32_t index;
    uint32_t rows, first_group_tile;
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

enum class GroupBy { Tile, Index };

// Returns the group that holds group tile `wanted`, or group `wanted`, for all lanes of a warp. Sums stay below 2^32: 2^31 rows
// and 4096 paddings.
template <GroupBy by>
__device__ __forceinline__ TileGroup find_group_by(const GroupedRows& grouped, const GroupSumUnits& units, uint32_t wanted) {
    const int lane = threadIdx.x % 32, count = grouped.groups.count;
    uint32_t row = 0, group_tile = 0, sums[kGroupSums] = {};  // before the 32 groups; of a sum, what the lane's groups give
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
        const uint32_t group_tiles = (rows + (1u << units.tile_rows_log2) - 1) >> units.tile_rows_log2;
        const uint32_t passed = group_tile + scan_lanes<Scan::Sum>(group_tiles);
        if constexpr (by == GroupBy::Tile) owner = __popc(__ballot_sync(kAllLanes, passed <= wanted));  // ones from lane 0 on
        else owner = min(int(wanted) - base, 32);
        if (owner < 32)
            found = {base + owner, __shfl_sync(kAllLanes, rows, owner),
                     __shfl_sync(kAllLanes, passed - group_tiles, owner), {}};
#pragma unroll
        for (int i = 0; i < kGroupSums; i++)
            if (lane < owner) sums[i] += (rows + units.at[i] - 1) & ~(units.at[i] - 1);
        row = __shfl_sync(kAllLanes, end, 31);
        group_tile = __shfl_sync(kAllLanes, passed, 31);
    }
#pragma unroll
    for (int i = 0; i < kGroupSums; i++) found.starts[i] = __reduce_add_sync(kAllLanes, sums[i]);
    return found;
}

// Returns the group that holds group tile `wanted`, for all lanes of a warp.
__device__ __forceinline__ TileGroup find_group_tile(const GroupedRows& grouped, const GroupSumUnits& units, uint32_t wanted) {
    return find_group_by<GroupBy::Tile>(grouped, units, wanted);
}

// Finds the group that holds group tile `wanted` by one warp, for all threads of the block, which all call it.
__device__ __forceinline__ void find_group_tile(const GroupedRows& grouped, const GroupSumUnits& units, uint32_t wanted,
                                          TileGroup& shared) {
    if (threadIdx.x < 32) {
        const TileGroup found = find_group_tile(grouped, units, wanted);
        if (threadIdx.x == 0) shared = found;
    }
    __syncthreads();
}

// Finds a group in two parts of different units by one warp, for all threads of the block, which all call it, once: a second
// call would overwrite what others still read.
template <GroupBy by>
__device__ inline Group find_group(const GroupedRows& grouped, const GroupUnits& first_units, const GroupUnits& second_units,
                                   int64_t wanted) {
    __shared__ Group shared;
    if (threadIdx.x < 32) {
        GroupSumUnits units;
        units.at[kSourceCodes] = uint32_t(first_units.codes);
        units.at[kSourceScales] = uint32_t(first_units.scales);
        units.at[kRowwiseCodes] = uint32_t(second_units.codes);
        units.at[kRowwiseScales] = uint32_t(second_units.scales);
        const TileGroup found = find_group_by<by>(grouped, units, uint32_t(wanted));
        const uint32_t(&starts)[kGroupSums] = found.starts;
        const int64_t row = starts[kColumnwiseCodes];
        if (threadIdx.x == 0)
            shared = {{found.index, row, starts[kSourceCodes], starts[kSourceScales]},
                      {found.index, row, starts[kRowwiseCodes], starts[kRowwiseScales]}, found.first_group_tile, found.rows};
    }
    __syncthreads();
    return shared;
}

// Returns the group that holds group tile `wanted`, for all threads of the block.
__device__ inline Group group_of_tile(const GroupedRows& grouped, const GroupUnits& first_units,
                                      const GroupUnits& second_units, int64_t wanted) {
    return find_group<GroupBy::Tile>(grouped, first_units, second_units, wanted);
}

// Returns group `wanted`, for all threads of the block.
__device__ inline Group group_of_index(const GroupedRows& grouped, const GroupUnits& first_units,
                                       const GroupUnits& second_units, int64_t wanted) {
    return find_group<GroupBy::Index>(grouped, first_units, second_units, wanted);
}

}  // namespace mxq::cuda
