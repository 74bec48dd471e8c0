// activate: gates and ups of any plain type to plain numbers of any type, for every activation; experts and groups.
//
// A warp takes 256 elements of a row of the result, a lane eight of them. A thread block takes eight rows:
//
//     lane (aligned)     eight gates and eight ups: one 16-byte vector each (F32: two), or two vectors where they alternate
//     lane (unaligned)   eight elements that are 32 apart
//
// A warp finds the group of its row, which tells the bias and whether the row is in any group.
//
// Bytes an element of BF16: 4 read, 2 written. Bound by memory, GELU with erf by instructions. It has not been measured.
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/layer/activate.h"
#include "cuda/layer/activate_elements.cuh"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/grid.cuh"

namespace mxq::cuda {
namespace {

constexpr int kLaneNumbers = 8;
constexpr int kColumns = 32 * kLaneNumbers, kRows = 8;  // of a thread block

struct Arguments {
    ActivatedMatrix from;
    PlainMatrix out;
    GroupedRows grouped;
    bool wide;  // rows are read and written in whole vectors
};

// The elements of a lane: the first, and how many columns there are between two of them.
struct LaneElements {
    int64_t col, left;  // left: how many columns exist from the first on
    int apart;
};

template <class In>
__device__ __forceinline__ void load_apart(const ActivatedMatrix& from, const In* row, const LaneElements& at,
                                           float (&gate)[kLaneNumbers], float (&up)[kLaneNumbers]) {
#pragma unroll
    for (int i = 0; i < kLaneNumbers; i++) {
        if (i * at.apart >= at.left) continue;
        const In* const element = row + (at.col + i * at.apart) * from.step;
        gate[i] = to_float(element[from.gate]);
        if (is_gated(from.kind)) up[i] = to_float(element[from.up]);
    }
}

template <class In, class Out>
__global__ void __launch_bounds__(32 * kRows) activate_kernel(const __grid_constant__ Arguments a) {
    const ActivatedMatrix& from = a.from;
    const int64_t row = int64_t(row_of_blocks()) * kRows + threadIdx.x / 32;
    wait_for_previous_kernel();
    if (row >= a.out.matrices * a.out.rows) return;
    const int32_t bias = bias_of_row(from, a.grouped, row);
    const int64_t col = int64_t(blockIdx.x) * kColumns + threadIdx.x % 32 * (a.wide ? kLaneNumbers : 1);
    const LaneElements at{col, a.out.cols - col, a.wide ? 1 : 32};
    if (bias < 0 || at.left <= 0) return;
    const In* const in = static_cast<const In*>(from.in.data) + row * from.in.row_stride;
    Out* const out = static_cast<Out*>(a.out.data) + row * a.out.row_stride + col;
    float gate[kLaneNumbers] = {}, up[kLaneNumbers] = {};
    if (a.wide)
        load_gates(from, in, col, gate, up);
    else
        load_apart(from, in, at, gate, up);
    add_bias(from, bias, col, at.apart, at.left, gate, up);
    activate_any(from, gate, up);
    if (from.row_weights.set()) {
        const float weight = number_at(from.row_weights, row);
#pragma unroll
        for (float& value : gate) value = multiply_rn(value, weight);
    }
    if (a.wide) return store_values(gate, out);
#pragma unroll
    for (int i = 0; i < kLaneNumbers; i++)
        if (i * 32 < at.left) out[i * 32] = from_float<Out>(gate[i]);
}

// Names what a kernel is compiled for.
struct Key {
    int32_t in, out;  // MXQ_FORMAT_*
    bool operator==(const Key&) const = default;
};

template <class In, class Out>
constexpr KernelEntry<Key, Arguments> entry(int32_t in, int32_t out) {
    return {{in, out}, activate_kernel<In, Out>, 32 * kRows, 0};
}

constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<float, float>(MXQ_FORMAT_F32, MXQ_FORMAT_F32), entry<float, F16>(MXQ_FORMAT_F32, MXQ_FORMAT_F16),
    entry<float, Bf16>(MXQ_FORMAT_F32, MXQ_FORMAT_BF16), entry<F16, float>(MXQ_FORMAT_F16, MXQ_FORMAT_F32),
    entry<F16, F16>(MXQ_FORMAT_F16, MXQ_FORMAT_F16),     entry<F16, Bf16>(MXQ_FORMAT_F16, MXQ_FORMAT_BF16),
    entry<Bf16, float>(MXQ_FORMAT_BF16, MXQ_FORMAT_F32), entry<Bf16, F16>(MXQ_FORMAT_BF16, MXQ_FORMAT_F16),
    entry<Bf16, Bf16>(MXQ_FORMAT_BF16, MXQ_FORMAT_BF16),
};

Reason declines(const Context& context, const ActivateProblem& problem) {
    if (problem.quantizes) return "needs a plain out, found a quantized one";
    return needs_cuda(context);
}

void run(const Context& context, const ActivateProblem& problem, const Launch& call) {
    launch_activate(context, problem.quantize.source.activated, problem.quantize.grouped, problem.out, call);
}

void load(const Context&) { load_kernels(kernels); }

}  // namespace

void launch_activate(const Context& context, const ActivatedMatrix& from, const GroupedRows& grouped, const PlainMatrix& out,
                     const Launch& call) {
    const int64_t rows = out.matrices * out.rows;
    if (rows * out.cols == 0) return;
    const Arguments a{from, out, grouped, has_whole_gates(from, out.cols, kLaneNumbers) && is_wide(out)};
    const dim3 grid = grid_of_rows(ceil_div(out.cols, int64_t(kColumns)), ceil_div(rows, int64_t(kRows)));
    launch(context, kernels, {from.in.format, out.format}, "activate", grid, call.stream, a, first_start(context, call));
}

const ActivateImplementation activate = {"activate", declines, nullptr, run, load};

}  // namespace mxq::cuda
