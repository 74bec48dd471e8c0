// Groups on the device. Every group takes ceil(rows / 128) slabs of 128 rows, which is what tiles of rows, swizzled scales and
// grids count (a kernel may have slabs of its own). A block of threads finds the group that its work lies in by all its threads,
// or by one warp (find_slab in tile/location.cuh):
//
//     thread t   ends of the groups t * share .. t * share + share - 1: three short walks and two scans over the threads
//
// Values out of order are clamped, so that nothing outside of the buffers is touched.
#pragma once
#include "core/layout.h"
#include "core/problem.h"

namespace mxq::cuda {

// The most slabs, of 128 rows or another power of two, that any ends need: what a grid must cover.
inline int64_t slabs_bound(const GroupedRows& grouped, int64_t slab = kSwizzleRows) {
    return padded_rows_bound(grouped.rows, grouped.groups.count, slab) / slab;
}

// A group, or where there is none: rows 0 and index -1.
struct Group {
    GroupStart first, second;  // in two parts of different units, such as a rowwise and a columnwise one
    int64_t slab;              // before the group
    int64_t rows;
    __device__ __forceinline__ bool exists() const { return first.index >= 0; }
};

__device__ __forceinline__ int64_t clamped_end(const GroupedRows& grouped, int64_t group) {
    const Groups& groups = grouped.groups;
    const int64_t end = groups.type == MXQ_TYPE_INT32 ? static_cast<const int32_t*>(groups.ends)[group]
                                                      : static_cast<const int64_t*>(groups.ends)[group];
    return end < 0 ? 0 : end < grouped.rows ? end : grouped.rows;
}

constexpr int kMaxWarps = 32;

enum class Scan { Sum, Max };

// What the block's threads before this one have, combined. All threads of the block call it, a multiple of 32. Out of line,
// since a walk calls it six times.
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
        group.slab += ceil_div(group.rows, kSwizzleRows);
    };
#pragma unroll 1
    for (int32_t g = begin; g < end; g++) step(g), skip();
    Group before{{begin, row, 0, 0}, {begin, row, 0, 0}, 0, 0};
    before.first.codes = exclusive_scan<Scan::Sum>(group.first.codes);
    before.first.scales = exclusive_scan<Scan::Sum>(group.first.scales);
    before.second.codes = exclusive_scan<Scan::Sum>(group.second.codes);
    before.second.scales = exclusive_scan<Scan::Sum>(group.second.scales);
    before.slab = exclusive_scan<Scan::Sum>(group.slab);
    group = before;
#pragma unroll 1
    for (int32_t g = begin; g < end; g++) {
        step(g);
        look(group);
        skip();
    }
}

// The group that holds slab `wanted`, for all threads of the block.
__device__ inline Group group_of_slab(const GroupedRows& grouped, const GroupUnits& first_units,
                                      const GroupUnits& second_units, int64_t wanted) {
    __shared__ Group found;
    if (threadIdx.x == 0) found = Group{{-1, 0, 0, 0}, {-1, 0, 0, 0}, 0, 0};
    __syncthreads();
    walk_groups(grouped, first_units, second_units, [&](const Group& group) {
        if (group.slab <= wanted && wanted < group.slab + ceil_div(group.rows, kSwizzleRows)) found = group;
    });
    __syncthreads();
    return found;
}

// Group `wanted`, for all threads of the block.
__device__ inline Group group_of_index(const GroupedRows& grouped, const GroupUnits& first_units,
                                       const GroupUnits& second_units, int64_t wanted) {
    __shared__ Group found;
    walk_groups(grouped, first_units, second_units, [&](const Group& group) {
        if (group.first.index == wanted) found = group;
    });
    __syncthreads();
    return found;
}

}  // namespace mxq::cuda
