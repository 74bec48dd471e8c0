// convert: plain numbers from any type to any of F32, F16 and BF16.
//
// A warp takes 256 columns of a row, a lane eight of them. A thread block takes eight rows:
//
//     lane (16 bits)   0         1         ...  31           one 16-byte vector
//     lane (F32)       0    0    1    1    ...  31   31      two adjacent vectors
//     lane (unaligned) 0 1 2 ... 31 0 1 2 ... 31 0 1 ...     one number at a time, neighbouring lanes adjacent
//
// Bytes an element: 2 or 4 read, 2 or 4 written. Bound by memory. It has not been tuned.
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"

namespace mxq::cuda {
namespace {

constexpr int kLaneNumbers = 8;
constexpr int kColumns = 32 * kLaneNumbers, kRows = 8;  // of a thread block

struct Arguments {
    PlainMatrix in, out;  // one matrix each: experts follow one another
    bool wide;            // rows are read and written in whole vectors
};

// Converts eight numbers of a row one by one, 32 apart. Those before `left` exist.
template <class In, class Out>
__device__ __forceinline__ void convert_apart(const In* from, Out* to, int64_t left) {
    In numbers[kLaneNumbers];
#pragma unroll
    for (int i = 0; i < kLaneNumbers; i++)
        if (i * 32 < left) numbers[i] = from[i * 32];
#pragma unroll
    for (int i = 0; i < kLaneNumbers; i++)
        if (i * 32 < left) to[i * 32] = from_float<Out>(to_float(numbers[i]));
}

template <class In, class Out>
__global__ void __launch_bounds__(32 * kRows) convert_kernel(const __grid_constant__ Arguments a) {
    const int64_t row = int64_t(row_of_blocks()) * kRows + threadIdx.x / 32;
    if (row >= a.in.rows) return;
    const int64_t col = int64_t(blockIdx.x) * kColumns + threadIdx.x % 32 * (a.wide ? kLaneNumbers : 1);
    const In* const from = static_cast<const In*>(a.in.data) + row * a.in.row_stride + col;
    Out* const to = static_cast<Out*>(a.out.data) + row * a.out.row_stride + col;
    if (!a.wide) return convert_apart(from, to, a.in.cols - col);
    if (col >= a.in.cols) return;
    float values[kLaneNumbers];
    load_values(from, values);
    store_values(values, to);
}

constexpr auto kernels = kernels_of(
    []<class In, class Out>(In, Out) { return kernel(convert_kernel<In, Out>, 32 * kRows); }, PlainTypes{}, PlainTypes{});

bool has_whole_vectors(const PlainMatrix& matrix) { return matrix.cols % kLaneNumbers == 0 && is_wide(matrix); }

// Returns the experts of a tensor as one matrix.
PlainMatrix as_one_matrix(PlainMatrix matrix) {
    matrix.rows *= matrix.matrices;
    matrix.matrices = 1;
    return matrix;
}

void run(const Context& context, const ConvertProblem& problem, const Launch& call) {
    const Arguments a{as_one_matrix(problem.in), as_one_matrix(problem.out),
                      has_whole_vectors(problem.in) && has_whole_vectors(problem.out)};
    const dim3 grid = grid_of_rows(ceil_div(a.in.cols, int64_t(kColumns)), ceil_div(a.in.rows, int64_t(kRows)));
    launch(context, kernels, {a.in.format, a.out.format}, "convert", grid, call.stream, a);
}

}  // namespace

const ConvertImplementation convert = {"convert", needs_cuda_alone, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
