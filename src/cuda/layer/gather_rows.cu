// gather_rows: rows by index, copied for kernels that do not read them where they are stored.
//
// A warp copies 2 KB of one row, a thread block eight rows. A lane has four accesses in flight, which are as wide as
// alignments allow, up to 16 bytes. A row whose index is no row of the source becomes zeros.
//
// Bytes: each is read once and written once. Bound by memory.
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/row_indices.cuh"

namespace mxq::cuda {
namespace {

constexpr int kRows = 8;  // of a thread block
constexpr int kAccesses = 4;
constexpr int kLanes = 32;

template <class Word>
__global__ void __launch_bounds__(kLanes* kRows) gather_rows_kernel(const __grid_constant__ GatherProblem p) {
    const int64_t row = int64_t(row_of_blocks()) * kRows + threadIdx.x / kLanes;
    wait_for_previous_kernel();
    if (row >= p.rows) return;
    const int64_t words = p.row_bytes / int64_t(sizeof(Word)), source = source_row(p.by_index, row);
    const Word* const from = reinterpret_cast<const Word*>(p.from + (source < 0 ? 0 : source) * p.from_stride);
    Word* const to = reinterpret_cast<Word*>(p.to + row * p.to_stride);
    const int64_t first = int64_t(blockIdx.x) * (kLanes * kAccesses) + threadIdx.x % kLanes;
    Word loaded[kAccesses];
#pragma unroll
    for (int i = 0; i < kAccesses; i++) {
        const int64_t at = first + i * kLanes;
        loaded[i] = source >= 0 && at < words ? from[at] : Word{};
    }
#pragma unroll
    for (int i = 0; i < kAccesses; i++) {
        const int64_t at = first + i * kLanes;
        if (at < words) to[at] = loaded[i];
    }
}

constexpr KernelEntry<int32_t, GatherProblem> kernels[] = {
    {16, gather_rows_kernel<uint4>, kLanes* kRows, 0},
    {4, gather_rows_kernel<uint32_t>, kLanes* kRows, 0},
    {2, gather_rows_kernel<uint16_t>, kLanes* kRows, 0},
};

// Returns how many bytes all accesses may have. The memory that is written has whole aligned vectors.
int32_t access_of(const GatherProblem& p) {
    for (const int32_t bytes : {16, 4})
        if (is_aligned(p.from, bytes) && p.from_stride % bytes == 0 && p.row_bytes % bytes == 0) return bytes;
    return 2;
}

void run(const Context& context, const GatherProblem& problem, const Launch& call) {
    if (problem.rows * problem.row_bytes == 0) return;
    const int32_t access = access_of(problem);
    const int64_t across = ceil_div(problem.row_bytes, int64_t(access) * kLanes * kAccesses);
    launch(context, kernels, access, "gather_rows", grid_of_rows(across, ceil_div(problem.rows, int64_t(kRows))),
           call.stream, problem, first_start(context, call));
}

}  // namespace

const GatherImplementation gather_rows = {"gather_rows", needs_cuda_alone, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
