// route: the choices of all tokens sorted by expert, in one launch. Choices of one expert keep their order.
//
// Each cluster counts all choices and places a share of them, so that no cluster waits for another. It is one thread block,
// or eight where there are more choices than one has threads. A thread block counts a contiguous range of the choices, and
// places a part of that range, a thread a choice:
//
//     choices            | range of thread block 0   | range of thread block 1   | ...
//     placed by cluster  | 0   | 1   | 2   | ..      | 0   | 1   | 2   | ..      | ...
//
//     1  threads count the range by expert, and apart what lies before the share
//     2  ballots over the bits of experts find the lanes of one expert, which a warp counts in its row of a table
//     3  thread blocks exchange their counts; meanwhile the columns of the table become prefix sums
//     4  a scan over the experts gives the first row of each, and of each in this share
//     5  a thread writes its choice's row: that first row + the prefix sum of its warp + the lanes before it
//
// Shares of more choices than threads repeat 2, 3 and 5. Bytes a choice: 4 or 8 read by each cluster, 12 written once. Bound
// by latency, by the counters and by stores of rows, which are scattered: many clusters divide them.
#include <cooperative_groups.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/layer/choices.cuh"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/groups.cuh"
#include "numerics/convert.h"

namespace mxq::cuda {
namespace {

constexpr int kLeastWarps = 4, kUsualWarps = 16, kMostWarps = 32;
constexpr int64_t kUsualThreads = 32 * kUsualWarps;  // larger thread blocks start a microsecond later
constexpr uint32_t kCluster = 8;                     // thread blocks
constexpr int64_t kMostShares = 8;                   // clusters
constexpr int kVectors = 4;                          // of a thread's ids, whose loads are in flight
constexpr int kTableRows = 8;                        // of a column of the table, whose loads are in flight
constexpr int64_t kSharedBytes = 98304;

struct Arguments {
    RouteProblem problem;
    uint32_t rows;   // choices of all tokens
    uint32_t range;  // choices of a thread block, which the shares divide
    uint32_t share;  // choices of it that a cluster places: a multiple of 32
    int table_rows;  // a warp each
    int expert_bits;
    bool wide;  // ids are read in whole vectors
};

// ---- Shared memory -----------------------------------------------------------------------------------------------------

// Returns the columns of the table: whole 16 bytes of every array.
MXQ_HD constexpr int columns_of(int experts) { return (experts + 7) / 8 * 8; }

constexpr int64_t shared_bytes(int table_rows, int experts) {
    return int64_t(columns_of(experts)) * (2 * (table_rows + 1) + 3 * 4) + 16;
}

// Counts of the choices of a thread block by expert.
struct Counters {
    uint16_t* table;   // a row of counts for each warp that places; they become prefix sums over the rows
    uint16_t* sums;    // of the rows
    uint32_t* before;  // of the choices of the range before the share
    uint32_t* counts;  // of the others; then of the whole range
    uint32_t* invalid;
    uint32_t* base;  // the first row of each expert in this share
    int columns, rows;

    __device__ __forceinline__ Counters(uint4* memory, int experts, int table_rows)
        : table(reinterpret_cast<uint16_t*>(memory)), columns(columns_of(experts)), rows(table_rows) {
        sums = table + rows * columns;
        before = reinterpret_cast<uint32_t*>(sums + columns);
        counts = before + columns, invalid = counts + columns, base = invalid + 4;
    }
    // Zeroes all that is counted in, or the table alone.
    __device__ __forceinline__ void clear(bool table_alone) const {
        auto* const vectors = reinterpret_cast<uint4*>(table);
        const void* const end = table_alone ? static_cast<void*>(sums) : base;
        for (int i = threadIdx.x; vectors + i < end; i += int(blockDim.x)) vectors[i] = uint4{};
    }
};

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

// Returns the expert of this rank that an id names, or -1 where the choice is dropped.
template <class Id>
__device__ __forceinline__ int expert_of(const RouteProblem& p, Id id) {
    const auto local = std::make_unsigned_t<Id>(id) - std::make_unsigned_t<Id>(p.first);
    return local < uint32_t(p.count) ? int(local) : -1;
}

template <class Id>
__device__ __forceinline__ bool is_invalid(const RouteProblem& p, Id id) {
    return id != -1 && (id < 0 || id >= p.experts);
}

// Some neighbouring ids, which are one access where ids are aligned.
template <class Id>
struct Ids {
    static constexpr int count = 16 / sizeof(Id);
    Id ids[count];

    // Loads ids from `first` on. Those from `end` on are -1.
    __device__ __forceinline__ void load(const Arguments& a, uint32_t first, uint32_t end) {
        const Id* const from = static_cast<const Id*>(a.problem.ids) + first;
        if (a.wide && first + count <= end) {
            const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
            memcpy(ids, &words, sizeof(words));
            return;
        }
#pragma unroll
        for (int i = 0; i < count; i++) ids[i] = first + i < end ? __ldg(from + i) : Id(-1);
    }
};

// The choices that a thread block counts, and those of them that it places.
struct Ranges {
    uint32_t first, end, share, share_end;

    __device__ __forceinline__ explicit Ranges(const Arguments& a) {
        first = min(cluster_rank() * a.range, a.rows), end = min(first + a.range, a.rows);
        share = min(first + cluster_index() * a.share, end), share_end = min(share + a.share, end);
    }
};

// Counts the vectors of a thread, which begin `step` ids apart.
template <class Id>
__device__ __forceinline__ void count_vectors(const Arguments& a, const Ids<Id> (&vectors)[kVectors], uint32_t first,
                                              uint32_t step, uint32_t share, const Counters& counters) {
    const bool looks = a.problem.dropped && cluster_index() == 0;
#pragma unroll
    for (int v = 0; v < kVectors; v++) {
        uint32_t* const to = first + v * step < share ? counters.before : counters.counts;
#pragma unroll
        for (const Id& id : vectors[v].ids) {
            const int expert = expert_of(a.problem, id);
            if (expert >= 0) atomicAdd(to + expert, 1u);
            if (looks && is_invalid(a.problem, id)) atomicAdd(counters.invalid, 1u);
        }
    }
}

// Counts the choices of the range by expert. The first vectors of each thread are loaded already.
template <class Id>
__device__ __forceinline__ void count_choices(const Arguments& a, const Ranges& ranges, Ids<Id> (&vectors)[kVectors],
                                              const Counters& counters) {
    const uint32_t step = blockDim.x * Ids<Id>::count;
    for (uint32_t first = ranges.first + threadIdx.x * Ids<Id>::count;;) {
        count_vectors(a, vectors, first, step, ranges.share, counters);
        first += kVectors * step;
        if (first >= ranges.end) return;
#pragma unroll
        for (int v = 0; v < kVectors; v++) vectors[v].load(a, first + v * step, ranges.end);
    }
}

// A choice that a thread places.
struct Choice {
    uint32_t index;
    bool exists;
    int expert = -1;
    float weight = 0;
    uint32_t rank = 0;  // among the lanes of its expert

    template <class Id>
    __device__ __forceinline__ Choice(const Arguments& a, const Id* ids, uint32_t at, uint32_t end)
        : index(at), exists(at < end) {
        if (!exists) return;
        expert = expert_of(a.problem, __ldg(ids + at));
        if (a.problem.row_weights) weight = load_weight(a.problem.weights, at);
    }

    // Finds the lanes that have the same expert, and counts them in the row of the warp. It is faster than match.any, whose
    // time grows with the number of experts.
    __device__ __forceinline__ void count(int expert_bits, const Counters& counters) {
        uint32_t same = __ballot_sync(kAllLanes, expert >= 0);
        for (int b = 0; b < expert_bits; b++) {
            const bool is_set = expert >> b & 1;
            const uint32_t set = __ballot_sync(kAllLanes, is_set);
            same &= is_set ? set : ~set;
        }
        rank = __popc(same & ((1u << threadIdx.x % 32) - 1));
        if (expert >= 0 && rank == 0) counters.table[threadIdx.x / 32 * counters.columns + expert] = uint16_t(__popc(same));
    }

    // Writes the row of the choice.
    __device__ __forceinline__ void place(const RouteProblem& p, const Counters& counters) const {
        if (!exists) return;
        if (expert < 0) {
            p.choice_rows[index] = -1;
            return;
        }
        const uint32_t row = counters.base[expert] + counters.table[threadIdx.x / 32 * counters.columns + expert] + rank;
        p.choice_rows[index] = int32_t(row);
        p.row_tokens[row] = int32_t(index / uint32_t(p.choices));
        if (p.row_weights) p.row_weights[row] = weight;
    }
};

// ---- Counts of experts -------------------------------------------------------------------------------------------------

// Turns the columns of the table into prefix sums over the warps, two columns a thread. No sum exceeds 16 bits.
__device__ __forceinline__ void sum_table(const Counters& counters) {
    static_assert(32 * kMostWarps < 1 << 16);
    const int pairs = counters.columns / 2;
    for (int pair = threadIdx.x; pair < pairs; pair += int(blockDim.x)) {
        uint32_t* const column = reinterpret_cast<uint32_t*>(counters.table) + pair;
        uint32_t sum = 0;
        for (int w = 0; w < counters.rows; w += kTableRows) {
            uint32_t found[kTableRows];
#pragma unroll
            for (int i = 0; i < kTableRows; i++) found[i] = w + i < counters.rows ? column[(w + i) * pairs] : 0;
#pragma unroll
            for (int i = 0; i < kTableRows; i++) {
                if (w + i < counters.rows) column[(w + i) * pairs] = sum;
                sum += found[i];
            }
        }
        column[counters.rows * pairs] = sum;  // counters.sums
    }
}

// Returns the sum of the values of all threads before this one, and of all threads. All threads of the block call it.
__device__ __forceinline__ uint32_t scan_block(uint32_t value, uint32_t& total) {
    __shared__ uint32_t sums[kMostWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const uint32_t scanned = scan_lanes<Scan::Sum>(value);
    if (lane == 31) sums[warp] = scanned;
    __syncthreads();
    const uint32_t of_warps = scan_lanes<Scan::Sum>(lane < warps ? sums[lane] : 0);
    total = __shfl_sync(kAllLanes, of_warps, 31);
    const uint32_t before = __shfl_sync(kAllLanes, of_warps, max(warp - 1, 0));
    return (warp == 0 ? 0 : before) + scanned - value;
}

// Stores the first row of each expert in this share, and writes the ends. Returns the number of all rows.
__device__ __forceinline__ uint32_t find_first_rows(const RouteProblem& p, const Counters& counters) {
    const uint32_t rank = cluster_rank(), size = cluster_size();
    uint32_t first = 0;
    for (int strip = 0; strip < p.count; strip += int(blockDim.x)) {
        if (strip > 0) __syncthreads();  // scan_block has one copy of its sums
        const int e = strip + int(threadIdx.x);
        uint32_t of_all = 0, before = 0, of_strip;
#pragma unroll
        for (uint32_t r = 0; r < kCluster; r++) {
            const uint32_t count = r < size && e < p.count ? read_of_rank(counters.counts + e, r) : 0;
            if (r < rank) before += count;
            of_all += count;
        }
        const uint32_t start = first + scan_block(of_all, of_strip);
        if (e < p.count) counters.base[e] = start + before + counters.before[e];
        if (e < p.count && blockIdx.x == 0) p.ends[e] = int32_t(start + of_all);
        first += of_strip;
    }
    return first;
}

// Writes how many ids are invalid.
__device__ __forceinline__ void write_dropped(const RouteProblem& p, const Counters& counters) {
    if (!p.dropped || blockIdx.x != 0 || threadIdx.x != 0) return;
    uint32_t sum = 0;
    for (uint32_t r = 0; r < cluster_size(); r++) sum += read_of_rank(counters.invalid, r);
    *p.dropped = int32_t(sum);
}

// Writes what rows past the last end have.
__device__ __forceinline__ void clear_rows_from(const RouteProblem& p, uint32_t first, uint32_t rows) {
    for (uint32_t row = first + blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x) {
        p.row_tokens[row] = -1;
        if (p.row_weights) p.row_weights[row] = 0;
    }
}

// Places the choices of the share that follow those that threads placed first.
template <class Id>
__device__ __forceinline__ void place_others(const Arguments& a, const Ranges& ranges, const Counters& counters) {
    const Id* const ids = static_cast<const Id*>(a.problem.ids);
    for (uint32_t first = ranges.share + blockDim.x; first < ranges.share_end; first += blockDim.x) {
        Choice choice(a, ids, first + threadIdx.x, ranges.share_end);
        __syncthreads();  // all threads have read the table
        for (int e = threadIdx.x; e < a.problem.count; e += int(blockDim.x)) counters.base[e] += counters.sums[e];
        counters.clear(true);
        __syncthreads();
        choice.count(a.expert_bits, counters);
        __syncthreads();
        sum_table(counters);
        __syncthreads();
        choice.place(a.problem, counters);
    }
}

template <class Id>
__global__ void __launch_bounds__(32 * kMostWarps) route_kernel(const __grid_constant__ Arguments a) {
    extern __shared__ uint4 memory[];
    const RouteProblem& p = a.problem;
    const Counters counters(memory, p.count, a.table_rows);
    const Ranges ranges(a);
    start_next_kernel();
    Choice choice(a, static_cast<const Id*>(p.ids), ranges.share + threadIdx.x, ranges.share_end);
    Ids<Id> vectors[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; v++)
        vectors[v].load(a, ranges.first + (v * blockDim.x + threadIdx.x) * Ids<Id>::count, ranges.end);
    counters.clear(false);
    __syncthreads();
    count_choices(a, ranges, vectors, counters);
    choice.count(a.expert_bits, counters);
    __syncthreads();
    for (int e = threadIdx.x; e < p.count; e += int(blockDim.x)) counters.counts[e] += counters.before[e];
    arrive_at_cluster();
    sum_table(counters);
    wait_for_cluster();
    const uint32_t rows = find_first_rows(p, counters);
    write_dropped(p, counters);
    arrive_at_cluster();
    __syncthreads();
    choice.place(p, counters);
    place_others<Id>(a, ranges, counters);
    clear_rows_from(p, rows, a.rows);
    wait_for_cluster();  // no thread block exits before the others have read its counts
}

// ---- On the host -------------------------------------------------------------------------------------------------------

// Returns how many warps have a choice for each lane and a thread for each of 512 experts, if shared memory has their
// counters.
int warps_of(const RouteProblem& problem, int64_t share) {
    const int64_t wanted = std::max(ceil_div(share, 32), std::min<int64_t>(ceil_div(problem.count, 32), kUsualWarps));
    int warps = int(std::clamp<int64_t>(wanted, kLeastWarps, kMostWarps));
    const auto table_rows = [&] { return int(std::min<int64_t>(warps, ceil_div(share, 32))); };
    while (warps > kLeastWarps && shared_bytes(table_rows(), problem.count) > kSharedBytes) warps--;
    return warps;
}

void run(const Context& context, const RouteProblem& problem, const Launch& call) {
    const uint32_t cluster = has_clusters(context) && problem.rows() > kUsualThreads ? kCluster : 1;
    const int64_t shares = std::clamp<int64_t>(ceil_div(problem.rows(), cluster * kUsualThreads), 1, kMostShares);
    const int64_t share = round_up(ceil_div(problem.rows(), cluster * shares), 32);
    const int warps = warps_of(problem, share);
    const int table_rows = int(std::clamp<int64_t>(share / 32, 1, warps));
    const Arguments a{problem,
                      uint32_t(problem.rows()),
                      uint32_t(share * shares),
                      uint32_t(share),
                      table_rows,
                      int(std::bit_width(uint32_t(problem.count - 1))),
                      is_aligned(problem.ids, 16)};
    void* arguments[] = {const_cast<Arguments*>(&a)};
    const auto kernel = problem.id_type == MXQ_TYPE_INT32 ? route_kernel<int32_t> : route_kernel<int64_t>;
    launch_kernel(context, reinterpret_cast<const void*>(kernel), "route", dim3(cluster * uint32_t(shares)),
                  dim3(32u * uint32_t(warps)), size_t(shared_bytes(table_rows, problem.count)), call.stream, arguments,
                  Start::AfterAll, cluster);
}

void load(const Context&) {
    static_assert(shared_bytes(kLeastWarps, MXQ_MAX_GROUPS) <= kSharedBytes);
    load_kernel(route_kernel<int32_t>, size_t(kSharedBytes));
    load_kernel(route_kernel<int64_t>, size_t(kSharedBytes));
}

}  // namespace

const RouteImplementation route = {"route", needs_cuda_alone, nullptr, run, load};

}  // namespace mxq::cuda
