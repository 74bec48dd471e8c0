// Finds groups on the device. A group tile is 128 rows of one group, fewer at the group's end. A grid has thread blocks for
// each group tile, and swizzled scales have rows for it. A kernel may choose another height: GroupSumUnits.
//
//     find_group_tile, find_group   one warp searches 32 groups at a time, one a lane
//     TileSearch                    the same in two steps, so that loads start sooner among hundreds of groups
//     for_each_group                all threads of a block divide all groups: thread t takes `share` groups from t * share on
//
// The sums of a Group stay below 2^32: 2^31 rows and 4096 paddings. Ends out of order are clamped, so that no access leaves
// the buffers.
#pragma once
#include "core/layout.h"
#include "core/problem.h"
#include "cuda/memory/grid.cuh"

namespace mxq::cuda {

// Returns an upper bound of the group tiles that any ends need, which a grid must cover.
inline int64_t group_tiles_bound(const GroupedRows& grouped, int64_t group_tile = kSwizzleRows) {
    return padded_rows_bound(grouped.rows, grouped.groups.count, group_tile) / group_tile;
}

// Numbers what a kernel reads and writes. Kernels with one output, or with two operands, use 0 and 1.
enum PartIndex { kSourcePart, kRowwisePart, kColumnwisePart };

// Names the sums over the earlier groups: rows, rounded up to the units of codes and scales of each part.
enum GroupSum { kSourceCodes, kSourceScales, kRowwiseCodes, kRowwiseScales, kColumnwiseCodes, kColumnwiseScales, kGroupSums };

struct GroupSumUnits {
    uint32_t at[kGroupSums] = {1, 1, 1, 1, 1, 1};  // each group is rounded up to these: powers of two
    uint32_t tile_rows_log2 = 7;                   // of the rows of a group tile

    __device__ __forceinline__ uint32_t round_up(int sum, uint32_t rows) const { return (rows + at[sum] - 1) & ~(at[sum] - 1); }
    __device__ __forceinline__ uint32_t group_tiles(uint32_t rows) const {
        return (rows + (1u << tile_rows_log2) - 1) >> tile_rows_log2;
    }
};

// Returns the units of the parts 0 and 1.
MXQ_HD GroupSumUnits group_sum_units(const GroupUnits& first, const GroupUnits& second) {
    return {{uint32_t(first.codes), uint32_t(first.scales), uint32_t(second.codes), uint32_t(second.scales), 1, 1}};
}

// A group, and the sums over all groups before it. An index of -1 means no group.
struct Group {
    int32_t index;
    uint32_t rows, first_group_tile;
    uint32_t starts[kGroupSums];

    __device__ __forceinline__ bool exists() const { return index >= 0; }
    __device__ __forceinline__ GroupStart start(int part) const {
        return {index, 0, starts[2 * part], starts[2 * part + 1]};
    }
    __device__ __forceinline__ GroupStart first() const { return start(0); }
    __device__ __forceinline__ GroupStart second() const { return start(1); }
};

enum class Scan { Sum, Max };

__device__ __forceinline__ int64_t clamped_end(const GroupedRows& grouped, int64_t group) {
    const Groups& groups = grouped.groups;
    const int64_t end = groups.type == MXQ_TYPE_INT32 ? static_cast<const int32_t*>(groups.ends)[group]
                                                      : static_cast<const int64_t*>(groups.ends)[group];
    return end < 0 ? 0 : end < grouped.rows ? end : grouped.rows;
}

__device__ __forceinline__ uint32_t shift_up(uint32_t value, uint32_t into_lane_0) {
    const uint32_t before = __shfl_up_sync(kAllLanes, value, 1);
    return threadIdx.x % 32 == 0 ? into_lane_0 : before;
}

template <Scan scan>
__device__ __forceinline__ uint32_t merge(uint32_t a, uint32_t b) {
    return scan == Scan::Sum ? a + b : max(a, b);
}

// Returns the inclusive scan over the lanes.
template <Scan scan>
__device__ __forceinline__ uint32_t scan_lanes(uint32_t value) {
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_up_sync(kAllLanes, value, distance);
        if (threadIdx.x % 32 >= distance) value = merge<scan>(value, other);
    }
    return value;
}

// ---- All groups ------------------------------------------------------------------------------------------------------------

constexpr int kMaxWarps = 32;

// Returns the exclusive scan over the threads of the block, a multiple of 32, which all call it. Out of line: for_each_group
// calls it six times.
template <Scan scan>
__device__ __noinline__ uint32_t exclusive_scan(uint32_t value) {
    __shared__ uint32_t totals[kMaxWarps];
    value = scan_lanes<scan>(value);
    if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = value;
    uint32_t before = shift_up(value, 0);
    __syncthreads();
#pragma unroll 1
    for (uint32_t w = 0; w < threadIdx.x / 32; w++) before = merge<scan>(before, totals[w]);
    __syncthreads();
    return before;
}

// Calls `look(group)` for every group, spread over the threads of the block, which all call it. The sums are those of two
// parts. A group whose end is out of order has 0 rows.
template <class Look>
__device__ void for_each_group(const GroupedRows& grouped, const GroupUnits& first_units, const GroupUnits& second_units,
                            const Look& look) {
    const GroupSumUnits units = group_sum_units(first_units, second_units);
    const int32_t count = grouped.groups.count, share = int32_t(ceil_div(count, int64_t(blockDim.x)));
    const int32_t begin = min(int32_t(threadIdx.x) * share, count), end = min(begin + share, count);

    uint32_t highest = 0;
#pragma unroll 1
    for (int32_t g = begin; g < end; g++) highest = max(highest, uint32_t(clamped_end(grouped, g)));
    const uint32_t first_row = exclusive_scan<Scan::Max>(highest);

    uint32_t row = first_row;
    Group group{begin, 0, 0, {}};
    const auto step = [&] { group.rows = max(uint32_t(clamped_end(grouped, group.index)), row) - row; };
    const auto skip = [&] {
        group.index++;
        row += group.rows;
        group.first_group_tile += units.group_tiles(group.rows);
#pragma unroll
        for (int i = 0; i < kColumnwiseCodes; i++) group.starts[i] += units.round_up(i, group.rows);
    };
#pragma unroll 1
    while (group.index < end) step(), skip();
    group.index = begin;
    row = first_row;
    group.first_group_tile = exclusive_scan<Scan::Sum>(group.first_group_tile);
#pragma unroll
    for (int i = 0; i < kColumnwiseCodes; i++) group.starts[i] = exclusive_scan<Scan::Sum>(group.starts[i]);
#pragma unroll 1
    while (group.index < end) {
        step();
        look(group);
        skip();
    }
}

// ---- One group -------------------------------------------------------------------------------------------------------------

enum class GroupBy { Tile, Index };

// Returns the group that holds group tile `wanted`, or group `wanted`, for all lanes of a warp. Units is GroupSumUnits, or
// has its functions with tiles of another kind.
template <GroupBy by, class Units>
__device__ __forceinline__ Group find_group_by(const GroupedRows& grouped, const Units& units, uint32_t wanted) {
    const int lane = threadIdx.x % 32, count = grouped.groups.count;
    uint32_t row = 0, group_tile = 0, sums[kGroupSums] = {};  // before the 32 groups; of the sums, the lane's share
    int base = 0, owner = 32;
    Group found{-1, 0, 0, {}};
    const auto end_of = [&](int group) { return group < count ? uint32_t(clamped_end(grouped, group)) : 0; };
    uint32_t next_end = end_of(lane);
#pragma unroll 1
    for (; base < count && owner == 32; base += 32) {
        const bool exists = base + lane < count;
        uint32_t end = next_end, before = shift_up(end, row);
        next_end = end_of(base + 32 + lane);
        if (__any_sync(kAllLanes, exists && end < before)) {
            end = max(scan_lanes<Scan::Max>(end), row);
            before = shift_up(end, row);
        }
        end = max(end, before);
        const uint32_t rows = end - before, group_tiles = units.group_tiles(rows),
                       all = __reduce_add_sync(kAllLanes, group_tiles);
        // Skips 32 groups at once, and scans only those that contain the wanted one.
        if (by == GroupBy::Tile ? group_tile + all > wanted : int(wanted) - base < 32) {
            const uint32_t passed = group_tile + scan_lanes<Scan::Sum>(group_tiles);
            if constexpr (by == GroupBy::Tile)
                owner = __popc(__ballot_sync(kAllLanes, passed <= wanted));  // ones from lane 0 on
            else
                owner = int(wanted) - base;
            found = {
                base + owner, __shfl_sync(kAllLanes, rows, owner), __shfl_sync(kAllLanes, passed - group_tiles, owner), {}};
        }
#pragma unroll
        for (int i = 0; i < kGroupSums; i++)
            if (lane < owner) sums[i] += units.round_up(i, rows);
        row = __shfl_sync(kAllLanes, end, 31);
        group_tile += all;
    }
#pragma unroll
    for (int i = 0; i < kGroupSums; i++) found.starts[i] = __reduce_add_sync(kAllLanes, sums[i]);
    return found;
}

// Returns the group that holds group tile `wanted`, for all lanes of a warp.
template <class Units>
__device__ __forceinline__ Group find_group_tile(const GroupedRows& grouped, const Units& units, uint32_t wanted) {
    return find_group_by<GroupBy::Tile>(grouped, units, wanted);
}

// Finds the group that holds group tile `wanted` by one warp, for all threads of the block, which all call it.
template <class Units>
__device__ __forceinline__ void find_group_tile(const GroupedRows& grouped, const Units& units, uint32_t wanted,
                                                Group& shared) {
    if (threadIdx.x < 32) {
        const Group found = find_group_tile(grouped, units, wanted);
        if (threadIdx.x == 0) shared = found;
    }
    __syncthreads();
}

// Finds a group by one warp, for all threads of the block, which all call it, and only once: a second call would overwrite a
// result that others still read.
template <GroupBy by>
__device__ inline Group find_group(const GroupedRows& grouped, const GroupUnits& first_units, const GroupUnits& second_units,
                                   int64_t wanted) {
    __shared__ Group shared;
    if (threadIdx.x < 32) {
        const Group found = find_group_by<by>(grouped, group_sum_units(first_units, second_units), uint32_t(wanted));
        if (threadIdx.x == 0) shared = found;
    }
    __syncthreads();
    return shared;
}

// ---- One group, sooner ---------------------------------------------------------------------------------------------------

// The lane's group among the 32 from `base` on. Past the last group it has no rows.
struct LaneGroup {
    uint32_t start, end;  // its first row, and that of the next

    __device__ __forceinline__ LaneGroup(const GroupedRows& grouped, int base) : start(0), end(0) {
        const int group = base + int(threadIdx.x % 32);
        if (group >= grouped.groups.count) return;
        end = uint32_t(clamped_end(grouped, group));
        if (group > 0) start = uint32_t(clamped_end(grouped, group - 1));
    }
    __device__ __forceinline__ uint32_t rows() const { return end - start; }
    __device__ __forceinline__ bool is_ordered() const { return start <= end; }
};

// Finds the group that holds group tile `wanted` by one warp, in two steps. Where ends are in order, two of them give the
// rows of a group without the groups before it. So while 32 groups are skipped, the next 32 are counted and the ends after
// those are in flight. Ends out of order are detected at the end, and take find_group_tile.
template <class Units>
class TileSearch {
    const Units& units;
    LaneGroup here;
    uint32_t sums[kGroupSums] = {};  // of the groups before `here`: the lane's share
    int owner = 0;                   // the lane of the group
    bool ordered;

public:
    // Holds all that loads of the group's rows need; of `starts` only kSourceCodes. Without a group, first_group_tile counts
    // all group tiles.
    Group group;

    __device__ __forceinline__ TileSearch(const GroupedRows& grouped, const Units& counted, uint32_t wanted)
        : units(counted), here(grouped, 0), ordered(here.is_ordered()) {
        const int count = grouped.groups.count;
        int base = 0;
        uint32_t before = 0;  // group tiles
        LaneGroup next(grouped, 32);
        uint32_t all = tiles_of_lanes(here);
#pragma unroll 1
        while (base < count && before + all <= wanted) {
            const LaneGroup behind(grouped, base + 64);
            const uint32_t all_next = tiles_of_lanes(next);
#pragma unroll
            for (int i = 0; i < kGroupSums; i++) sums[i] += units.round_up(i, here.rows());
            before += all;
            base += 32;
            here = next, next = behind, all = all_next;
            ordered = ordered && here.is_ordered();
        }
        ordered = __all_sync(kAllLanes, ordered);
        if (!ordered) {
            group = find_group_tile(grouped, units, wanted);
            if (!group.exists()) group.first_group_tile = units.tiles_of_all(group);
            return;
        }
        const uint32_t tiles = units.group_tiles(here.rows()), passed = before + scan_lanes<Scan::Sum>(tiles);
        owner = __popc(__ballot_sync(kAllLanes, passed <= wanted));  // ones from lane 0 on
        group = {base < count ? base + owner : -1, __shfl_sync(kAllLanes, here.rows(), owner),
                 __shfl_sync(kAllLanes, passed - tiles, owner), {}};
        group.starts[kSourceCodes] = start(kSourceCodes, first_row());
    }
    // Adds the other starts. Without a group, only starts that are rounded up are defined.
    __device__ __forceinline__ void add_starts() {
        if (!ordered) return;
        const uint32_t row = first_row();
#pragma unroll
        for (int i = 0; i < kGroupSums; i++)
            if (i != kSourceCodes) group.starts[i] = start(i, row);
    }

private:
    __device__ __forceinline__ uint32_t tiles_of_lanes(const LaneGroup& lane) const {
        return __reduce_add_sync(kAllLanes, units.group_tiles(lane.rows()));
    }
    __device__ __forceinline__ uint32_t first_row() const { return __shfl_sync(kAllLanes, here.start, owner); }
    // Without rounding, a group starts at its first row.
    __device__ __forceinline__ uint32_t start(int sum, uint32_t row) const {
        const bool before = int(threadIdx.x % 32) < owner;
        const uint32_t mine = sums[sum] + (before ? units.round_up(sum, here.rows()) : 0);
        return units.at[sum] == 1 ? row : __reduce_add_sync(kAllLanes, mine);
    }
};

}  // namespace mxq::cuda
