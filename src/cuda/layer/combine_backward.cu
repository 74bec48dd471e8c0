// combine_backward: from the gradient of the sums to those of the rows and of the weights, in one pass.
//
// A warp takes one choice. It reads the gradient of its token and, for the gradient of the weight, the row of the choice,
// and writes the gradient of that row. Lane l has the columns 8 l .. 8 l + 7 of every 256:
//
//     columns   0 .. 7   8 .. 15   ...   248 .. 255 | 256 .. 263   ...
//     lane      0        1         ...   31         | 0            ...
//
// The 256 sums of products of a warp, a column of each 256, become one as a tree: 128 apart, then 64, ..., 1.
//
// Bytes an element of a row: its gradient and its own, and that of the token, which k warps read. Bound by memory.
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/layer/choices.cuh"
#include "cuda/memory/grid.cuh"

namespace mxq::cuda {
namespace {

constexpr int kRows = 8;  // choices of a thread block
constexpr int kColumns = 32 * kNumbers;

struct Arguments {
    CombineBackwardProblem problem;
    bool wide;  // all rows are read and written in whole vectors
};

// Loads eight columns of any type as fp32; 0 past the last.
__device__ __forceinline__ void load_any(const PlainMatrix& matrix, int64_t row, int64_t col, bool wide, int64_t left,
                                         float (&values)[kNumbers]) {
    with_plain(matrix.format, [&]<class T>(T) {
        const Numbers<T> numbers = load_numbers<T, 1>(row_of<T>(matrix, row, col), true, wide, left);
#pragma unroll
        for (int i = 0; i < kNumbers; i++) values[i] = numbers[i];
    });
}

__device__ __forceinline__ void store_any(const float (&values)[kNumbers], const PlainMatrix& matrix, int64_t row,
                                          int64_t col, bool wide, int64_t left) {
    with_plain(matrix.format, [&]<class T>(T) {
        store_numbers<T, 1>(values, const_cast<T*>(row_of<T>(matrix, row, col)), wide, left);
    });
}

__global__ void __launch_bounds__(32 * kRows) combine_backward_kernel(const __grid_constant__ Arguments a) {
    const CombineBackwardProblem& p = a.problem;
    const int64_t choice = block_index() * kRows + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (choice >= p.tokens * p.choices) return;
    const int64_t token = choice / p.choices;
    int64_t row = __ldg(p.choice_rows + choice);
    if (row >= p.rows) row = -1;
    const float weight = load_weight(p.weights, choice);
    float sums[kNumbers] = {};
    for (int64_t col = lane * kNumbers; row >= 0 && col - lane * kNumbers < p.d_out.cols; col += kColumns) {
        float gradient[kNumbers], values[kNumbers];
        const int64_t left = p.d_out.cols - col;
        load_any(p.d_out, token, col, a.wide, left, gradient);
        if (p.has_d_weights) {
            load_any(p.in, row, col, a.wide, left, values);
#pragma unroll
            for (int i = 0; i < kNumbers; i++)
                if (i < left) sums[i] = add_rn(sums[i], multiply_rn(gradient[i], values[i]));
        }
        if (!p.has_d_in) continue;
#pragma unroll
        for (int i = 0; i < kNumbers; i++) gradient[i] = multiply_rn(weight, gradient[i]);
        store_any(gradient, p.d_in, row, col, a.wide, left);
    }
    if (!p.has_d_weights) return;
    const float sum = sum_tree(sums);
    const int64_t at = token * p.d_weights.row_stride + (choice - token * p.choices);
    if (lane == 0) static_cast<float*>(p.d_weights.data)[at] = from_float<float>(sum);
}

void run(const Context& context, const CombineBackwardProblem& problem, const Launch& call) {
    const bool wide = has_whole_numbers(problem.d_out) && (!problem.has_d_weights || has_whole_numbers(problem.in)) &&
                      (!problem.has_d_in || has_whole_numbers(problem.d_in));
    launch(context, combine_backward_kernel, "combine_backward",
           grid_of(ceil_div(problem.tokens * problem.choices, int64_t(kRows))), dim3(32 * kRows), 0, call.stream,
           Arguments{problem, wide});
}

void load(const Context&) { load_kernel(combine_backward_kernel); }

}  // namespace

const CombineBackwardImplementation combine_backward = {"combine_backward", needs_cuda_alone, nullptr, run, load};

}  // namespace mxq::cuda
