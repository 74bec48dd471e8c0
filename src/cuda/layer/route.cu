// route: the choices of all tokens sorted by expert, in one launch. Choices of one expert keep their order.
//
// Each cluster counts all choices and places a share of them, so that no cluster waits for another. It is one thread block,
// or eight from kClusterRows choices on, each with a contiguous range of the choices. A warp has a contiguous range of these
// and one counter for each expert, and takes 32 choices at a time, a lane each:
//
//     1  a warp counts its choices by expert
//     2  a thread for each expert turns the counters of the warps into offsets
//     3  thread blocks exchange their counts: the first row of each expert, and of each expert in this thread block
//     4  a warp of the share takes its choices once more and gives each the next row of its expert; ballots over the bits of
//        experts find the lanes of one expert
//
// Bytes a choice: 4 or 8 read by each cluster, 12 written once. Bound by latency, and by the stores of rows, which are
// scattered: many clusters divide them.
#include <cooperative_groups.h>

#include <algorithm>
#include <bit>

#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/memory/grid.cuh"
#include "numerics/convert.h"

namespace mxq::cuda {
namespace {

constexpr int kMostWarps = 32;
constexpr int kBatch = 8;             // choices of a lane whose loads are in flight
constexpr int kCounterWords = 16384;  // of all warps of a thread block, unless four warps need more
constexpr int kLeastWarps = 4;
constexpr uint32_t kCluster = 8;        // thread blocks
constexpr int64_t kClusterRows = 2048;  // fewer choices are one thread block's
constexpr int kMostShares = 16;         // clusters

struct Arguments {
    RouteProblem problem;
    int64_t block_rows, warp_rows;  // choices of a thread block and of a warp
    int shares, expert_bits;
};

constexpr size_t shared_words(int warps, int experts) { return size_t(warps + 2) * size_t(experts) + 1; }

// ---- Thread blocks of a cluster ----------------------------------------------------------------------------------------

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint32_t cluster_rank() { return cooperative_groups::this_cluster().block_rank(); }
__device__ __forceinline__ uint32_t cluster_size() { return cooperative_groups::this_cluster().num_blocks(); }
__device__ __forceinline__ uint32_t cluster_index() { return blockIdx.x / cluster_size(); }
// Shared memory that threads wrote before they arrived is visible to all threads of the cluster that have waited.
__device__ __forceinline__ void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ uint32_t read_of_rank(uint32_t* word, uint32_t rank) {
    return *cooperative_groups::this_cluster().map_shared_rank(word, rank);
}
#else
__device__ __forceinline__ uint32_t cluster_rank() { return 0; }
__device__ __forceinline__ uint32_t cluster_size() { return 1; }
__device__ __forceinline__ uint32_t cluster_index() { return blockIdx.x; }
__device__ __forceinline__ void arrive_at_cluster() {}
__device__ __forceinline__ void wait_for_cluster() { __syncthreads(); }
__device__ __forceinline__ uint32_t read_of_rank(uint32_t* word, uint32_t) { return *word; }
#endif

// ---- Choices -----------------------------------------------------------------------------------------------------------

struct Choice {
    int expert;       // of this rank, or -1: dropped
    bool is_invalid;  // out of range and not -1
};

__device__ __forceinline__ Choice load_choice(const RouteProblem& p, int64_t index) {
    const int64_t id = p.id_type == MXQ_TYPE_INT32 ? __ldg(static_cast<const int32_t*>(p.ids) + index)
                                                   : __ldg(static_cast<const int64_t*>(p.ids) + index);
    const int64_t local = id - p.first;
    const bool is_valid = id >= 0 && id < p.experts;
    return {is_valid && local >= 0 && local < p.count ? int(local) : -1, !is_valid && id != -1};
}

__device__ __forceinline__ float load_weight(const ChoiceWeights& weights, int64_t index) {
    return weights.format == MXQ_FORMAT_F32 ? static_cast<const float*>(weights.values)[index]
                                            : to_float(static_cast<const Bf16*>(weights.values)[index]);
}

// The range of choices of a warp.
struct Range {
    int64_t first, last;
};

__device__ __forceinline__ Range range_of_warp(const Arguments& a) {
    const int64_t of_block = cluster_rank() * a.block_rows, rows = a.problem.rows();
    const int64_t end = min(rows, of_block + a.block_rows), first = of_block + int64_t(threadIdx.x / 32) * a.warp_rows;
    return {min(first, end), min(first + a.warp_rows, end)};
}

// Loads choices from `first` on, 32 apart; what is past the range is dropped.
__device__ __forceinline__ void load_choices(const RouteProblem& p, const Range& range, int64_t first,
                                             Choice (&choices)[kBatch]) {
#pragma unroll
    for (int b = 0; b < kBatch; b++) {
        const int64_t index = first + b * 32 + threadIdx.x % 32;
        choices[b] = index < range.last ? load_choice(p, index) : Choice{-1, false};
    }
}

// Counts the choices of a warp by expert. Returns how many of the lane's ids are invalid.
__device__ __forceinline__ uint32_t count_choices(const RouteProblem& p, const Range& range, uint32_t* counters) {
    uint32_t invalid = 0;
    for (int64_t first = range.first; first < range.last; first += 32 * kBatch) {
        Choice choices[kBatch];
        load_choices(p, range, first, choices);
#pragma unroll
        for (const Choice& choice : choices) {
            if (choice.expert >= 0) atomicAdd(counters + choice.expert, 1u);
            invalid += choice.is_invalid;
        }
    }
    return invalid;
}

// Returns the lanes that have the same expert. It is faster than match.any, whose time grows with the number of experts.
__device__ __forceinline__ uint32_t lanes_of_expert(int expert, int bits) {
    uint32_t same = __ballot_sync(kAllLanes, expert >= 0);
    for (int b = 0; b < bits; b++) {
        const bool is_set = expert >> b & 1;
        const uint32_t set = __ballot_sync(kAllLanes, is_set);
        same &= is_set ? set : ~set;
    }
    return same;
}

// Writes the row of one choice of each lane, and adds these choices to the counters.
__device__ __forceinline__ void place_choice(const Arguments& a, int64_t index, bool exists, int expert, uint32_t* counters,
                                             const uint32_t* base) {
    const RouteProblem& p = a.problem;
    const uint32_t before = (1u << threadIdx.x % 32) - 1, same = lanes_of_expert(expert, a.expert_bits);
    uint32_t row = ~0u;
    if (expert >= 0) row = base[expert] + counters[expert] + __popc(same & before);
    __syncwarp();
    if (expert >= 0 && (same & before) == 0) counters[expert] += __popc(same);
    __syncwarp();
    if (exists) p.choice_rows[index] = int32_t(row);
    if (expert < 0) return;
    p.row_tokens[row] = int32_t(uint32_t(index) / uint32_t(p.choices));
    if (p.row_weights) p.row_weights[row] = load_weight(p.weights, index);
}

// Writes the rows of the warp's choices. `counters` has the next row of each expert in this warp, less `base` of the expert.
__device__ __forceinline__ void place_choices(const Arguments& a, const Range& range, uint32_t* counters,
                                              const uint32_t* base) {
    for (int64_t first = range.first; first < range.last; first += 32 * kBatch) {
        Choice choices[kBatch];
        load_choices(a.problem, range, first, choices);
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
            const int64_t index = first + b * 32 + threadIdx.x % 32;
            if (first + b * 32 >= range.last) break;
            place_choice(a, index, index < range.last, choices[b].expert, counters, base);
        }
    }
}

// ---- Counts of experts -------------------------------------------------------------------------------------------------

// Turns the counters of all warps into offsets, and stores the thread block's count of each expert.
__device__ __forceinline__ void offset_warps(uint32_t* counters, uint32_t* counts, int warps, int experts) {
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        uint32_t sum = 0;
#pragma unroll 8
        for (int w = 0; w < warps; w++) {
            const uint32_t count = counters[w * experts + e];
            counters[w * experts + e] = sum;
            sum += count;
        }
        counts[e] = sum;
    }
}

// Returns the sum of the values of all threads before this one, and of all threads. All threads of the block call it.
__device__ __forceinline__ uint32_t scan_block(uint32_t value, uint32_t& total) {
    __shared__ uint32_t sums[kMostWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint32_t scanned = value;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_up_sync(kAllLanes, scanned, distance);
        if (lane >= distance) scanned += other;
    }
    if (lane == 31) sums[warp] = scanned;
    __syncthreads();
    uint32_t before = 0;
    total = 0;
    for (int w = 0; w < warps; w++) {
        if (w < warp) before += sums[w];
        total += sums[w];
    }
    __syncthreads();
    return before + scanned - value;
}

// Stores the first row of each expert in this thread block, and writes the ends. Returns the number of all rows.
__device__ __forceinline__ uint32_t find_first_rows(const RouteProblem& p, uint32_t* counts, uint32_t* base) {
    const uint32_t rank = cluster_rank(), size = cluster_size();
    uint32_t first = 0;
    for (int strip = 0; strip < p.count; strip += int(blockDim.x)) {
        const int e = strip + int(threadIdx.x);
        uint32_t of_all = 0, before = 0, of_strip;
#pragma unroll
        for (uint32_t r = 0; r < kCluster; r++) {
            const uint32_t count = r < size && e < p.count ? read_of_rank(counts + e, r) : 0;
            if (r < rank) before += count;
            of_all += count;
        }
        const uint32_t start = first + scan_block(of_all, of_strip);
        if (e < p.count) base[e] = start + before;
        if (e < p.count && blockIdx.x == 0) p.ends[e] = int32_t(start + of_all);
        first += of_strip;
    }
    return first;
}

// Writes what rows past the last end have.
__device__ __forceinline__ void clear_rows_from(const RouteProblem& p, uint32_t first) {
    const int64_t step = int64_t(gridDim.x) * blockDim.x, rows = p.rows();
    for (int64_t row = first + int64_t(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += step) {
        p.row_tokens[row] = -1;
        if (p.row_weights) p.row_weights[row] = 0;
    }
}

__global__ void __launch_bounds__(32 * kMostWarps) route_kernel(const __grid_constant__ Arguments a) {
    extern __shared__ uint32_t words[];
    const RouteProblem& p = a.problem;
    const int warps = int(blockDim.x / 32), experts = p.count;
    uint32_t *const counters = words, *const base = counters + warps * experts, *const counts = base + experts;
    uint32_t* const invalid = counts + experts;  // follows the counts of the experts
    for (int i = threadIdx.x; i < warps * experts; i += blockDim.x) counters[i] = 0;
    if (threadIdx.x == 0) *invalid = 0;
    __syncthreads();
    const Range range = range_of_warp(a);
    uint32_t* const of_warp = counters + int(threadIdx.x / 32) * experts;
    if (const uint32_t found = count_choices(p, range, of_warp)) atomicAdd(invalid, found);
    __syncthreads();
    offset_warps(counters, counts, warps, experts);
    arrive_at_cluster();
    wait_for_cluster();
    const uint32_t rows = find_first_rows(p, counts, base);
    if (p.dropped && blockIdx.x == 0 && threadIdx.x == 0) {
        uint32_t sum = 0;
        for (uint32_t r = 0; r < cluster_size(); r++) sum += read_of_rank(invalid, r);
        *p.dropped = int32_t(sum);
    }
    arrive_at_cluster();
    __syncthreads();
    if (threadIdx.x / 32 % uint32_t(a.shares) == cluster_index()) place_choices(a, range, of_warp, base);
    clear_rows_from(p, rows);
    wait_for_cluster();  // no thread block exits before the others have read its counts
}

// ---- On the host -------------------------------------------------------------------------------------------------------

// Returns how many warps of a thread block have counters for all experts, and work.
int warps_of(const RouteProblem& problem, int64_t block_rows) {
    const int64_t most = std::max(kLeastWarps, std::min(kMostWarps, kCounterWords / problem.count));
    return int(std::clamp(ceil_div(block_rows, int64_t(32)), int64_t(kLeastWarps), most));
}

Reason declines(const Context& context, const RouteProblem&) { return needs_cuda(context); }

void run(const Context& context, const RouteProblem& problem, const Launch& call) {
    const uint32_t cluster = has_clusters(context) && problem.rows() >= kClusterRows ? kCluster : 1;
    const int64_t block_rows = ceil_div(problem.rows(), int64_t(cluster));
    const int warps = warps_of(problem, block_rows);
    const int shares = std::clamp(warps / 2, 1, kMostShares);
    const Arguments a{problem, block_rows, round_up(ceil_div(block_rows, int64_t(warps)), 32), shares,
                      int(std::bit_width(uint32_t(problem.count - 1)))};
    void* arguments[] = {const_cast<Arguments*>(&a)};
    launch_kernel(context, reinterpret_cast<const void*>(route_kernel), "route", dim3(cluster * uint32_t(shares)),
                  dim3(32u * uint32_t(warps)), shared_words(warps, problem.count) * sizeof(uint32_t), call.stream, arguments,
                  Start::AfterAll, cluster);
}

void load(const Context&) {
    static_assert(kLeastWarps * MXQ_MAX_GROUPS <= kCounterWords);
    load_kernel(route_kernel, (kCounterWords + 2 * MXQ_MAX_GROUPS + 1) * sizeof(uint32_t));
}

}  // namespace

const RouteImplementation route = {"route", declines, nullptr, run, load};

}  // namespace mxq::cuda
