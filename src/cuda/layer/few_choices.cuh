// Few choices sorted by expert: each thread block finds the tile that it multiplies from the ids alone, so that no launch
// before it need do so, and its weights are loaded while kernels before it still run.
//
//     1  thread i loads the id of choice i, and counts its expert
//     2  warp 0 scans the counts, 32 experts at a time: which expert has the wanted tile of rows, and which rows
//     3  warp 0 numbers the choices of this expert by ballots: the members of the tile
//
// One thread block also writes what mxq_route leaves (write_routing).
#pragma once
#include "core/layer_problem.h"
#include "cuda/layer/choices.cuh"
#include "cuda/memory/groups.cuh"

namespace mxq::cuda {

constexpr int kMostFewChoices = 32;  // a lane each
constexpr int kMostFewExperts = 1024;
constexpr int kMostMembers = 8;  // rows of a tile

// A tile of rows of one expert. An expert of -1: there is no such tile.
struct RoutedRows {
    int32_t expert;
    uint32_t first_row;             // of the expert, among all rows
    uint32_t row, rows;             // of the tile: the first, counted from the expert's first, and how many
    int32_t members[kMostMembers];  // the choices of its rows
};

// Shared memory of a thread block.
struct FewChoices {
    uint32_t counts[kMostFewExperts];  // choices of each expert
    int32_t experts[kMostFewChoices];  // of each choice; -1: it is dropped
    RoutedRows found;

    // Finds tile `wanted`. All threads of the block call it.
    __device__ __forceinline__ void find(const RouteProblem& p, uint32_t wanted) {
        const uint32_t choices = uint32_t(p.rows()), thread = threadIdx.x;
        const int64_t id = thread < choices ? load_id(p.ids, p.id_type, thread) : -1;
        for (uint32_t e = thread; e < uint32_t(p.count); e += blockDim.x) counts[e] = 0;
        __syncthreads();
        const int32_t expert = thread < choices ? expert_of_id(id, p.first, p.count) : -1;
        if (thread < uint32_t(kMostFewChoices)) experts[thread] = expert;
        if (expert >= 0) atomicAdd(counts + expert, 1u);
        __syncthreads();
        if (thread < 32) {
            find_by_warp(uint32_t(p.count), wanted);
            if (found.expert >= 0) number_members();
        }
        __syncthreads();
    }

private:
    __device__ __forceinline__ void find_by_warp(uint32_t count, uint32_t wanted) {
        const uint32_t lane = threadIdx.x;
        uint32_t rows_before = 0, tiles_before = 0;
        RoutedRows tile{-1, 0, 0, 0, {}};
#pragma unroll 1
        for (uint32_t base = 0; base < count; base += 32) {
            const uint32_t rows = base + lane < count ? counts[base + lane] : 0;
            const uint32_t tiles = (rows + kMostMembers - 1) / kMostMembers, all = __reduce_add_sync(kAllLanes, tiles);
            if (tiles_before + all <= wanted) {
                tiles_before += all, rows_before += __reduce_add_sync(kAllLanes, rows);
                continue;
            }
            const uint32_t passed = tiles_before + scan_lanes<Scan::Sum>(tiles);
            const int owner = __popc(__ballot_sync(kAllLanes, passed <= wanted));  // ones from lane 0 on
            tile.expert = int32_t(base) + owner;
            tile.first_row = rows_before + __reduce_add_sync(kAllLanes, int(lane) < owner ? rows : 0);
            tile.row = (wanted - __shfl_sync(kAllLanes, passed - tiles, owner)) * kMostMembers;
            tile.rows = min(__shfl_sync(kAllLanes, rows, owner) - tile.row, uint32_t(kMostMembers));
            break;
        }
        if (lane == 0)
            found.expert = tile.expert, found.first_row = tile.first_row, found.row = tile.row, found.rows = tile.rows;
        __syncwarp();
    }
    __device__ __forceinline__ void number_members() {
        static_assert(kMostFewChoices == 32);
        const uint32_t lane = threadIdx.x;
        const bool is_member = experts[lane] == found.expert;  // behind the last choice they are -1
        const uint32_t lanes = __ballot_sync(kAllLanes, is_member);
        const uint32_t member = __popc(lanes & ((1u << lane) - 1)) - found.row;
        if (is_member && member < uint32_t(kMostMembers)) found.members[member] = int32_t(lane);
    }
};

// Writes the row of a choice, whose experts' first rows are in the counts.
__device__ __forceinline__ void write_choice(const RouteProblem& p, const FewChoices& shared, uint32_t choice) {
    const int32_t expert = shared.experts[choice];
    if (expert < 0) {
        p.choice_rows[choice] = -1;
        return;
    }
    uint32_t row = shared.counts[expert];
    for (uint32_t i = 0; i < choice; i++) row += shared.experts[i] == expert;
    p.choice_rows[choice] = int32_t(row);
    p.row_tokens[row] = int32_t(choice / uint32_t(p.choices));
    if (p.row_weights) p.row_weights[row] = load_weight(p.weights, choice);
}

// Writes what mxq_route leaves, from the experts and counts that were found. All threads of the block call it; afterwards
// the counts are first rows.
__device__ __forceinline__ void write_routing(const RouteProblem& p, FewChoices& shared) {
    const uint32_t choices = uint32_t(p.rows());
    __shared__ uint32_t all_rows, invalid;
    __syncthreads();
    if (threadIdx.x < 32) {
        uint32_t before = 0;
#pragma unroll 1
        for (uint32_t base = 0; base < uint32_t(p.count); base += 32) {
            const uint32_t e = base + threadIdx.x, rows = e < uint32_t(p.count) ? shared.counts[e] : 0;
            const uint32_t end = before + scan_lanes<Scan::Sum>(rows);
            if (e < uint32_t(p.count)) p.ends[e] = int32_t(end), shared.counts[e] = end - rows;
            before = __shfl_sync(kAllLanes, end, 31);
        }
        if (threadIdx.x == 0) all_rows = before, invalid = 0;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < choices; i += blockDim.x) {
        const int64_t id = load_id(p.ids, p.id_type, i);
        if (id < -1 || id >= p.experts) atomicAdd(&invalid, 1u);
        if (i >= all_rows) {
            p.row_tokens[i] = -1;
            if (p.row_weights) p.row_weights[i] = 0;
        }
        write_choice(p, shared, i);
    }
    __syncthreads();
    if (p.dropped && threadIdx.x == 0) *p.dropped = int32_t(invalid);
}

}  // namespace mxq::cuda
