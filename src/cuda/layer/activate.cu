// activate: gates and ups of any plain type to plain numbers of any type, for every activation; experts and groups.
//
// A warp takes rows of the result, a thread block eight at a time:
//
//     lane (aligned)     512 columns a warp: eight elements, and eight that are 256 columns on
//     lane (unaligned)   256 columns a warp: eight elements that are 32 apart
//
// A lane loads four 16-byte vectors of an aligned row, eight with F32. The thread blocks are persistent and prefetch: they load
// the next row while they activate this one. With a bias, a warp searches the group of its row, since each group has its own.
//
// Bytes an element of BF16: 4 read, 2 written. Bound by instructions: about 30 an element of SwiGLU, twice as many of GELU
// with erf. H200, 32768 x 2880, SwiGLU: 175 us, 0.76 of the rate of a device copy.
#include <algorithm>

#include "core/context.h"
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/layer/activate.h"
#include "cuda/layer/activate_elements.cuh"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/grid.cuh"

namespace mxq::cuda {
namespace {

constexpr int kLaneNumbers = 8, kWarpNumbers = 32 * kLaneNumbers;
constexpr int kVectors = 2;  // of eight numbers, of a lane of aligned rows
constexpr int kRows = 8;     // of a thread block

struct Arguments {
    ActivatedMatrix from;
    PlainMatrix out;
    GroupedRows grouped;
};

// Stores eight neighbours in whole vectors, which the next kernel reads.
template <class T>
__device__ __forceinline__ void store_kept(const float (&values)[kLaneNumbers], T* to) {
    constexpr int count = Vector<T>::count;
#pragma unroll
    for (int first = 0; first < kLaneNumbers; first += count) {
        float of_vector[count];
#pragma unroll
        for (int i = 0; i < count; i++) of_vector[i] = values[first + i];
        store_vector_plain(round_vector<T>(of_vector), to + first, true);
    }
}

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

// Returns one past the last row that is in a group, or in any expert, for all lanes of a warp.
__device__ __forceinline__ int64_t end_of_rows(const Arguments& a) {
    const int32_t count = a.grouped.groups.count;
    if (!a.grouped.groups.set) return a.out.matrices * a.out.rows;
    if (!a.from.bias.set()) return count > 0 ? clamped_end(a.grouped, count - 1) : 0;
    uint32_t end = 0;
    for (int32_t group = int32_t(threadIdx.x % 32); group < count; group += 32)
        end = max(end, uint32_t(clamped_end(a.grouped, group)));
    return __reduce_max_sync(kAllLanes, end);
}

__device__ __forceinline__ void multiply_by_weight(const ActivatedMatrix& from, int64_t row, float (&values)[kLaneNumbers]) {
    if (!from.row_weights.set()) return;
    const float weight = number_at(from.row_weights, row);
#pragma unroll
    for (float& value : values) value = multiply_rn(value, weight);
}

// The gates and ups of a lane in a row of aligned rows.
template <class In>
struct LaneVectors {
    GateVectors<In, kLaneNumbers> vectors[kVectors];

    __device__ __forceinline__ void load(const Arguments& a, int64_t row, int64_t col) {
        const In* const in = static_cast<const In*>(a.from.in.data) + row * a.from.in.row_stride;
#pragma unroll
        for (int v = 0; v < kVectors; v++) {
            const int64_t at = col + v * kWarpNumbers;
            if (at < a.out.cols)
                vectors[v].load(a.from, in, at);
            else
                vectors[v] = {};
        }
    }
};

// Activates what was loaded of a row. `bias` is that of the row.
template <class In, class Out>
__device__ __forceinline__ void activate_row(const Arguments& a, const LaneVectors<In>& loaded, int64_t row, int64_t col,
                                             int32_t bias) {
    const ActivatedMatrix& from = a.from;
    Out* const out = static_cast<Out*>(a.out.data) + row * a.out.row_stride;
    float gate[kVectors][kLaneNumbers], up[kVectors][kLaneNumbers];
#pragma unroll
    for (int v = 0; v < kVectors; v++) {
        const int64_t at = col + v * kWarpNumbers;
        loaded.vectors[v].unpack(from, gate[v], up[v]);
        add_bias(from, bias, at, 1, a.out.cols - at, gate[v], up[v]);
    }
    with_activation(from.kind, [&](auto kind) {
#pragma unroll
        for (int v = 0; v < kVectors; v++) activate_elements<decltype(kind)::value>(from.numbers, gate[v], up[v]);
    });
#pragma unroll
    for (int v = 0; v < kVectors; v++) {
        multiply_by_weight(from, row, gate[v]);
        if (const int64_t at = col + v * kWarpNumbers; at < a.out.cols) store_kept(gate[v], out + at);
    }
}

// Activates 512 columns of the warp's rows. The loads of the next row are in flight while one is activated.
template <class In, class Out>
__device__ __forceinline__ void activate_aligned(const Arguments& a, int64_t first, int64_t step) {
    const int64_t col = int64_t(blockIdx.x) * (kVectors * kWarpNumbers) + threadIdx.x % 32 * kLaneNumbers;
    const int64_t rows = end_of_rows(a);
    LaneVectors<In> here, next;
    if (first < rows) here.load(a, first, col);
#pragma unroll 1
    for (int64_t row = first; row < rows; row += step) {
        if (row + step < rows) next.load(a, row + step, col);
        const int32_t bias = a.from.bias.set() ? bias_of_row(a.from, a.grouped, row) : 0;
        if (bias >= 0) activate_row<In, Out>(a, here, row, col, bias);
        here = next;
    }
}

template <class In, class Out>
__device__ __forceinline__ void activate_unaligned(const Arguments& a, int64_t row, int32_t bias) {
    const ActivatedMatrix& from = a.from;
    const int64_t col = int64_t(blockIdx.x) * kWarpNumbers + threadIdx.x % 32;
    const LaneElements at{col, a.out.cols - col, 32};
    float gate[kLaneNumbers] = {}, up[kLaneNumbers] = {};
    load_apart(from, static_cast<const In*>(from.in.data) + row * from.in.row_stride, at, gate, up);
    add_bias(from, bias, col, at.apart, at.left, gate, up);
    activate_any(from, gate, up);
    multiply_by_weight(from, row, gate);
    Out* const out = static_cast<Out*>(a.out.data) + row * a.out.row_stride + col;
#pragma unroll
    for (int i = 0; i < kLaneNumbers; i++)
        if (i * at.apart < at.left) out[i * at.apart] = from_float<Out>(gate[i]);
}

template <class In, class Out, bool wide>
__global__ void __launch_bounds__(32 * kRows) activate_kernel(const __grid_constant__ Arguments a) {
    const int64_t row = int64_t(row_of_blocks()) * kRows + threadIdx.x / 32;
    start_next_kernel();
    wait_for_previous_kernel();
    if constexpr (wide) {
        activate_aligned<In, Out>(a, row, int64_t(gridDim.y) * kRows);
    } else {
        if (row >= a.out.matrices * a.out.rows) return;
        if (const int32_t bias = bias_of_row(a.from, a.grouped, row); bias >= 0) activate_unaligned<In, Out>(a, row, bias);
    }
}

// The last value: rows are read and written in whole vectors.
constexpr auto kernels = kernels_of(
    []<class In, class Out>(In, Out, auto wide) { return kernel(activate_kernel<In, Out, wide.value>, 32 * kRows); },
    PlainTypes{}, PlainTypes{}, Values<false, true>{});

Reason declines(const Context& context, const ActivateProblem& problem) {
    if (problem.quantizes) return "needs a plain out, found a quantized one";
    return needs_cuda(context);
}

void run(const Context& context, const ActivateProblem& problem, const Launch& call) {
    launch_activate(context, problem.quantize.source.activated, problem.quantize.grouped, problem.out, call);
}

}  // namespace

void launch_activate(const Context& context, const ActivatedMatrix& from, const GroupedRows& grouped, const PlainMatrix& out,
                     const Launch& call) {
    const int64_t rows = out.matrices * out.rows;
    if (rows * out.cols == 0) return;
    const bool wide = has_whole_gates(from, out.cols, kLaneNumbers) && is_wide(out);
    const int64_t across = ceil_div(out.cols, int64_t(wide ? kVectors * kWarpNumbers : kWarpNumbers));
    const int64_t blocks = from.in.format == MXQ_FORMAT_F32 ? 2 : 3;  // of an SM
    const int64_t down = ceil_div(rows, int64_t(kRows)), filled = ceil_div(context.cuda->multiprocessors * blocks, across);
    const dim3 grid = grid_of_rows(across, wide ? std::min(down, filled) : down);
    launch(context, kernels, {from.in.format, out.format, wide}, "activate", grid, call.stream,
           Arguments{from, out, grouped}, first_start(context, call));
}

const ActivateImplementation activate = {"activate", declines, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
