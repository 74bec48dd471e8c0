// The group of a group tile by one warp, as in groups.cuh, for kernels whose blocks wait for it among hundreds of groups.
// Where ends are in order, which is asked once at the end, a group's rows are told by two ends and not by the groups before
// it. So while 32 groups are passed the next 32 are already counted, and the ends behind those are on their way.
#pragma once
#include "cuda/memory/groups.cuh"

namespace mxq::cuda {

// The lane's group among the 32 from `base` on; behind the last group it has no rows.
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

// A warp's walk to the 32 groups among which the one that holds group tile `wanted` is, if one does. Units say how many group
// tiles the groups of all lanes have (tiles_of_lanes).
template <class Units>
struct OrderedGroups {
    const Units& units;
    int base = 0, count;
    LaneGroup here;
    uint32_t passed_tiles = 0, sums[kGroupSums] = {};  // before the 32 groups; of a sum, what the lane's groups give
    bool ordered;

    __device__ __forceinline__ OrderedGroups(const GroupedRows& grouped, const Units& counted, uint32_t wanted)
        : units(counted), count(grouped.groups.count), here(grouped, 0), ordered(here.is_ordered()) {
        LaneGroup next(grouped, 32);
        uint32_t all = units.tiles_of_lanes(here.rows());
#pragma unroll 1
        while (base < count && passed_tiles + all <= wanted) {
            const LaneGroup behind(grouped, base + 64);
            const uint32_t all_next = units.tiles_of_lanes(next.rows());
#pragma unroll
            for (int i = 0; i < kGroupSums; i++) sums[i] += units.round_up(i, here.rows());
            passed_tiles += all;
            base += 32;
            here = next, next = behind, all = all_next;
            ordered = ordered && here.is_ordered();
        }
    }
    // Returns the group that holds a group tile, and its lane, as far as loads of its rows need: of what begins there, only
    // where it does in the source. Ends must be in order up to there.
    __device__ __forceinline__ Group find_tile(uint32_t wanted, int& owner) const {
        const uint32_t tiles = units.group_tiles(here.rows()), passed = passed_tiles + scan_lanes<Scan::Sum>(tiles);
        owner = __popc(__ballot_sync(kAllLanes, passed <= wanted));  // ones from lane 0 on
        return group(owner, __shfl_sync(kAllLanes, passed - tiles, owner));
    }
    // Returns as much of the group of a lane, whose first group tile is `first`; 32: what is behind the lanes' groups.
    __device__ __forceinline__ Group group(int owner, uint32_t first) const {
        Group found{base < count ? base + owner : -1, __shfl_sync(kAllLanes, here.rows(), owner), first, {}};
        found.starts[kSourceCodes] = start(kSourceCodes, owner, first_row(owner));
        return found;
    }
    // Adds where the group begins elsewhere.
    __device__ __forceinline__ void add_starts(int owner, Group& found) const {
        const uint32_t row = first_row(owner);
#pragma unroll
        for (int i = 0; i < kGroupSums; i++)
            if (i != kSourceCodes) found.starts[i] = start(i, owner, row);
    }

private:
    __device__ __forceinline__ uint32_t first_row(int owner) const { return __shfl_sync(kAllLanes, here.start, owner); }
    // Rows that are not rounded up begin where ends say.
    __device__ __forceinline__ uint32_t start(int sum, int owner, uint32_t row) const {
        const bool before = int(threadIdx.x % 32) < owner;
        const uint32_t mine = sums[sum] + (before ? units.round_up(sum, here.rows()) : 0);
        return units.at[sum] == 1 ? row : __reduce_add_sync(kAllLanes, mine);
    }
};

// Returns the groups of `count` group tiles from `first` on, a lane each, by one warp: lane i has that of tile
// first + i % count. Of each that does not exist the index is -1.
template <uint32_t count, class Units>
__device__ __forceinline__ Group find_ordered_group_tiles(const GroupedRows& grouped, const Units& units, uint32_t first) {
    const uint32_t wanted = first + threadIdx.x % count;
    const int groups = grouped.groups.count;
    uint32_t before = 0, sums[kGroupSums] = {};  // tiles before the 32 groups; of a sum, what the lane's groups give
    LaneGroup here(grouped, 0), next(grouped, 32);
    bool ordered = true;
    Group found{-1, 0, 0, {}};
#pragma unroll 1
    for (int base = 0; base < groups && before < first + count; base += 32) {
        const LaneGroup behind(grouped, base + 64);
        const uint32_t tiles = units.group_tiles(here.rows()), all = __reduce_add_sync(kAllLanes, tiles);
        ordered = ordered && here.is_ordered();
        if (before + all > first) {  // some are here
            const uint32_t passed = before + scan_lanes<Scan::Sum>(tiles);
            int owner = 0;  // the lane's: so many groups are passed
#pragma unroll
            for (uint32_t i = 0; i < count; i++) {
                const int of_tile = __popc(__ballot_sync(kAllLanes, passed <= first + i));
                if (threadIdx.x % count == i) owner = of_tile;
            }
            const bool is_here = owner < 32 && before <= wanted;
            const auto take = [&](uint32_t& to, uint32_t value) {
                const uint32_t of_owner = __shfl_sync(kAllLanes, value, owner);
                if (is_here) to = of_owner;
            };
            if (is_here) found.index = base + owner;
            take(found.rows, here.rows());
            take(found.first_group_tile, passed - tiles);
#pragma unroll
            for (int i = 0; i < kGroupSums; i++) {  // rows that are not rounded up begin where ends say
                if (units.at[i] == 1) {
                    take(found.starts[i], here.start);
                } else {
                    const uint32_t own = units.round_up(i, here.rows());
                    take(found.starts[i], __reduce_add_sync(kAllLanes, sums[i]) + scan_lanes<Scan::Sum>(own) - own);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < kGroupSums; i++) sums[i] += units.round_up(i, here.rows());
        before += all;
        here = next, next = behind;
    }
    if (__all_sync(kAllLanes, ordered)) return found;
#pragma unroll 1
    for (uint32_t i = 0; i < count; i++) {
        const Group of_tile = find_group_by<GroupBy::Tile>(grouped, units, first + i);
        if (threadIdx.x % count == i) found = of_tile;
    }
    return found;
}

}  // namespace mxq::cuda
