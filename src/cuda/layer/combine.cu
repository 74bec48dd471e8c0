// combine: the weighted sum of the rows of each token's choices, in fp32, each product rounded before it is added.
//
// A thread sums eight columns of one token, which are one or two adjacent 16-byte vectors; a thread block sums 1024 columns.
// It loads the vectors of four choices before it adds the first:
//
//     thread (aligned)      0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 2 ...     adjacent vectors
//     thread (unaligned)    0 1 2 ... 127 0 1 2 ... 127 0 ...         one number at a time, neighbouring threads adjacent
//
// Bytes an element of the output: its own, those of k rows, and of the residual. Each row is read once. Bound by memory.
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/layer/choices.cuh"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/grid.cuh"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kColumns = kThreads * kNumbers;
constexpr int kBatch = 4;  // choices whose loads are in flight

struct Arguments {
    CombineProblem problem;
    bool wide;  // all rows are read and written in whole vectors
};

template <class T>
__device__ __forceinline__ void load_sums(const Arguments& a, int64_t token, int64_t col, int64_t left,
                                          float (&sums)[kNumbers]) {
    const Numbers<T> numbers = load_numbers<T, kThreads>(row_of<T>(a.problem.residual, token, col), true, a.wide, left);
#pragma unroll
    for (int i = 0; i < kNumbers; i++) sums[i] = numbers[i];
}

// Starts the sums at the residual, or at 0.
__device__ __forceinline__ void start_sums(const Arguments& a, int64_t token, int64_t col, int64_t left,
                                           float (&sums)[kNumbers]) {
#pragma unroll
    for (int i = 0; i < kNumbers; i++) sums[i] = 0;
    if (!a.problem.has_residual) return;
    if (a.problem.residual.format == MXQ_FORMAT_F32)
        load_sums<float>(a, token, col, left, sums);
    else if (a.problem.residual.format == MXQ_FORMAT_F16)
        load_sums<F16>(a, token, col, left, sums);
    else
        load_sums<Bf16>(a, token, col, left, sums);
}

// Adds the next choices of a token, of which `count` exist.
template <class T>
__device__ __forceinline__ void add_choices(const Arguments& a, int64_t first, int count, int64_t col, int64_t left,
                                            float (&sums)[kNumbers]) {
    const CombineProblem& p = a.problem;
    int rows[kBatch];
    float weights[kBatch];
    Numbers<T> numbers[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; b++) {
        rows[b] = b < count ? __ldg(p.choice_rows + first + b) : -1;
        if (rows[b] >= p.in.rows) rows[b] = -1;
        weights[b] = b < count ? load_weight(p.weights, first + b) : 0.0f;
    }
#pragma unroll
    for (int b = 0; b < kBatch; b++)
        numbers[b] = load_numbers<T, kThreads>(row_of<T>(p.in, max(rows[b], 0), col), rows[b] >= 0, a.wide, left);
#pragma unroll
    for (int b = 0; b < kBatch; b++) {
        if (rows[b] < 0) continue;
#pragma unroll
        for (int i = 0; i < kNumbers; i++) sums[i] = add_rn(sums[i], multiply_rn(weights[b], numbers[b][i]));
    }
}

template <class In, class Out>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ Arguments a) {
    const CombineProblem& p = a.problem;
    const int64_t token = row_of_blocks();
    wait_for_previous_kernel();
    if (token >= p.tokens) return;
    const int64_t col = int64_t(blockIdx.x) * kColumns + threadIdx.x * (a.wide ? kNumbers : 1), left = p.out.cols - col;
    float sums[kNumbers];
    start_sums(a, token, col, left, sums);
    for (int j = 0; j < p.choices; j += kBatch) add_choices<In>(a, token * p.choices + j, p.choices - j, col, left, sums);
    store_numbers<Out, kThreads>(sums, static_cast<Out*>(p.out.data) + token * p.out.row_stride + col, a.wide, left);
}

// Names what a kernel is compiled for.
struct Key {
    int32_t in, out;  // MXQ_FORMAT_*
    bool operator==(const Key&) const = default;
};

template <class In, class Out>
constexpr KernelEntry<Key, Arguments> entry(int32_t in, int32_t out) {
    return {{in, out}, combine_kernel<In, Out>, kThreads, 0};
}

constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<float, float>(MXQ_FORMAT_F32, MXQ_FORMAT_F32), entry<float, F16>(MXQ_FORMAT_F32, MXQ_FORMAT_F16),
    entry<float, Bf16>(MXQ_FORMAT_F32, MXQ_FORMAT_BF16), entry<F16, float>(MXQ_FORMAT_F16, MXQ_FORMAT_F32),
    entry<F16, F16>(MXQ_FORMAT_F16, MXQ_FORMAT_F16),     entry<F16, Bf16>(MXQ_FORMAT_F16, MXQ_FORMAT_BF16),
    entry<Bf16, float>(MXQ_FORMAT_BF16, MXQ_FORMAT_F32), entry<Bf16, F16>(MXQ_FORMAT_BF16, MXQ_FORMAT_F16),
    entry<Bf16, Bf16>(MXQ_FORMAT_BF16, MXQ_FORMAT_BF16),
};

Reason declines(const Context& context, const CombineProblem&) { return needs_cuda(context); }

void run(const Context& context, const CombineProblem& problem, const Launch& call) {
    const bool wide = has_whole_numbers(problem.in) && has_whole_numbers(problem.out) &&
                      (!problem.has_residual || has_whole_numbers(problem.residual));
    const dim3 grid = grid_of_rows(ceil_div(problem.out.cols, int64_t(kColumns)), problem.tokens);
    launch(context, kernels, {problem.in.format, problem.out.format}, "combine", grid, call.stream,
           Arguments{problem, wide}, first_start(context, call));
}

void load(const Context&) { load_kernels(kernels); }

}  // namespace

const CombineImplementation combine = {"combine", declines, nullptr, run, load};

}  // namespace mxq::cuda
