// combine: the weighted sum of the rows of each token's choices, in fp32, each product rounded before it is added.
//
// A thread sums eight columns of one token, which are one or two adjacent 16-byte vectors; a thread block sums 1024 columns.
// It loads the vectors of four choices before it adds the first:
//
//     thread (aligned)      0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 2 ...     adjacent vectors
//     thread (unaligned)    0 1 2 ... 127 0 1 2 ... 127 0 ...         one number at a time, neighbouring threads adjacent
//
// Bytes an element of the output: its own, those of k rows, and of the residual. Each row is read once. Bound by memory.
#include "core/routed_problem.h"
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
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
    bool wide;      // all rows are read and written in whole vectors
    ChoiceIds ids;  // where set: rows are in the order of choices
};

// Starts the sums at the residual, or at 0.
__device__ __forceinline__ void start_sums(const Arguments& a, int64_t token, int64_t col, int64_t left,
                                           float (&sums)[kNumbers]) {
#pragma unroll
    for (int i = 0; i < kNumbers; i++) sums[i] = 0;
    if (!a.problem.has_residual) return;
    with_plain(a.problem.residual.format, [&]<class T>(T) {
        const Numbers<T> numbers =
            load_numbers<T, kThreads>(row_of<T>(a.problem.residual, token, col), true, a.wide, left);
#pragma unroll
        for (int i = 0; i < kNumbers; i++) sums[i] = numbers[i];
    });
}

// The next choices of a token, of which `count` exist.
struct Choices {
    int rows[kBatch];  // -1: dropped
    float weights[kBatch];

    __device__ __forceinline__ void load_weights(const CombineProblem& p, int64_t first, int count) {
#pragma unroll
        for (int b = 0; b < kBatch; b++) weights[b] = b < count ? load_weight(p.weights, first + b) : 0.0f;
    }
    __device__ __forceinline__ void load_rows(const CombineProblem& p, int64_t first, int count) {
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
            rows[b] = b < count ? __ldg(p.choice_rows + first + b) : -1;
            if (rows[b] >= p.in.rows) rows[b] = -1;
        }
    }
    // Finds rows in the order of choices.
    __device__ __forceinline__ void find_rows(const ChoiceIds& of, int64_t first, int count) {
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
            const bool kept = b < count && expert_of_id(load_id(of.ids, of.type, first + b), of.first, of.count) >= 0;
            rows[b] = kept ? int(first) + b : -1;
        }
    }
    template <class T>
    __device__ __forceinline__ void add(const Arguments& a, int64_t col, int64_t left, float (&sums)[kNumbers]) const {
        Numbers<T> numbers[kBatch];
#pragma unroll
        for (int b = 0; b < kBatch; b++)
            numbers[b] =
                load_numbers<T, kThreads>(row_of<T>(a.problem.in, max(rows[b], 0), col), rows[b] >= 0, a.wide, left);
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
            if (rows[b] < 0) continue;
#pragma unroll
            for (int i = 0; i < kNumbers; i++) sums[i] = add_rn(sums[i], multiply_rn(weights[b], numbers[b][i]));
        }
    }
};

template <class In, class Out>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ Arguments a) {
    const CombineProblem& p = a.problem;
    const int64_t token = row_of_blocks(), first = token * p.choices;
    const bool exists = token < p.tokens;
    const int64_t col = int64_t(blockIdx.x) * kColumns + threadIdx.x * (a.wide ? kNumbers : 1), left = p.out.cols - col;
    float sums[kNumbers];
    Choices choices;
    // No kernel of the same call writes residuals, weights or ids.
    if (exists) start_sums(a, token, col, left, sums), choices.load_weights(p, first, p.choices);
    if (exists && a.ids.ids) choices.find_rows(a.ids, first, p.choices);
    wait_for_previous_kernel();
    if (!exists) return;
    for (int j = 0; j < p.choices; j += kBatch) {
        if (j > 0) choices.load_weights(p, first + j, p.choices - j);
        if (!a.ids.ids)
            choices.load_rows(p, first + j, p.choices - j);
        else if (j > 0)
            choices.find_rows(a.ids, first + j, p.choices - j);
        choices.add<In>(a, col, left, sums);
    }
    store_numbers<Out, kThreads>(sums, static_cast<Out*>(p.out.data) + token * p.out.row_stride + col, a.wide, left);
}

constexpr auto kernels = kernels_of(
    []<class In, class Out>(In, Out) { return kernel(combine_kernel<In, Out>, kThreads); }, PlainTypes{}, PlainTypes{});

void launch_combine(const Context& context, const CombineProblem& problem, const ChoiceIds& ids, const Launch& call) {
    const bool wide = has_whole_numbers(problem.in) && has_whole_numbers(problem.out) &&
                      (!problem.has_residual || has_whole_numbers(problem.residual));
    const dim3 grid = grid_of_rows(ceil_div(problem.out.cols, int64_t(kColumns)), problem.tokens);
    launch(context, kernels, {problem.in.format, problem.out.format}, "combine", grid, call.stream,
           Arguments{problem, wide, ids}, first_start(context, call));
}

void run(const Context& context, const CombineProblem& problem, const Launch& call) {
    launch_combine(context, problem, {}, call);
}

void run_choices(const Context& context, const RoutedCombineProblem& problem, const Launch& call) {
    launch_combine(context, problem.combine, problem.ids, call);
}

}  // namespace

const CombineImplementation combine = {"combine", needs_cuda_alone, nullptr, run, load_all<kernels>};
const RoutedCombineImplementation combine_choices = {"combine_choices", needs_cuda_alone, nullptr, run_choices};

}  // namespace mxq::cuda
