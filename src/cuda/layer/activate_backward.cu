// activate_backward: the gradients of gates and ups as plain numbers, those of biases and of the weights of rows.
//
//     gradients            a warp takes 256 elements of a row, a lane eight: their gates, ups and gradients of the result
//     weights of rows      a warp takes a row: lane l has the elements 8 l .. 8 l + 7 of every 256, so 256 sums, then a tree
//     biases               a thread takes a gate and its `up` of 128 rows of one expert or group; a second kernel adds the sums
//
// Each reads gates, ups and gradients of the result. Bytes an element of BF16: 6 read, 4 written for the gradients; 6 read for
// either sum. Bound by memory and instructions alike. None has been measured.
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/layer/activate.h"
#include "cuda/layer/activate_elements.cuh"
#include "cuda/layer/choices.cuh"
#include "cuda/tile/location.cuh"

namespace mxq::cuda {
namespace {

constexpr int kLaneNumbers = 8;
constexpr int kColumns = 32 * kLaneNumbers, kRows = 8;  // of a thread block

struct Arguments {
    ActivationGradient gradient;
    PlainMatrix out;
    GroupedRows grouped;
    bool wide;  // rows are read and written in whole vectors
    float* weights;
};

// The gates, ups and gradients of the result of a lane's elements, which are `apart` columns apart.
struct LaneElements {
    float gate[kLaneNumbers], up[kLaneNumbers], result[kLaneNumbers];
    int64_t col, left;  // left: how many columns exist from the first on
    int apart;

    template <class T>
    __device__ __forceinline__ void load_apart(const ActivationGradient& from, const T* in, int64_t row) {
        const ActivatedMatrix& gates = from.from;
        const PlainMatrix& of_result = from.result;
#pragma unroll
        for (int i = 0; i < kLaneNumbers; i++) {
            gate[i] = up[i] = result[i] = 0;
            if (i * apart >= left) continue;
            const int64_t at = col + i * apart;
            gate[i] = to_float(in[gates.gate + at * gates.step]);
            up[i] = to_float(in[gates.up + at * gates.step]);
            result[i] = element_at(of_result.data, of_result.format, row * of_result.row_stride + at);
        }
    }

    // Loads the elements of a row; those that do not exist are 0.
    template <class T>
    __device__ __forceinline__ void load(const ActivationGradient& from, int64_t row, int32_t bias, bool wide) {
        const ActivatedMatrix& gates = from.from;
        const T* const in = static_cast<const T*>(gates.in.data) + row * gates.in.row_stride;
        if (!wide) {
            load_apart(from, in, row);
        } else if (left > 0) {
            GateVectors<T, kLaneNumbers> vectors;
            vectors.load(gates, in, col);
            vectors.unpack(gates, gate, up);
            with_plain(from.result.format, [&]<class D>(D) {
                load_values(static_cast<const D*>(from.result.data) + row * from.result.row_stride + col, result);
            });
        }
        add_bias(gates, bias, col, apart, left, gate, up);
    }
};

// Replaces gates and ups by their gradients.
template <Activation kind>
__device__ __forceinline__ void differentiate(const ActivationNumbers& numbers, LaneElements& at) {
#pragma unroll
    for (int i = 0; i < kLaneNumbers; i++) {
        const GateGradients found = gradients_of<kind>(numbers, at.gate[i], at.up[i], at.result[i]);
        at.gate[i] = found.gate, at.up[i] = found.up;
    }
}

// Stores eight gradients of gates and of ups in whole vectors.
template <class Out>
__device__ __forceinline__ void store_wide(const ActivatedMatrix& from, const LaneElements& at, Out* row) {
    if (from.step == 1) {
        store_values(at.gate, row + from.gate + at.col);
        store_values(at.up, row + from.up + at.col);
        return;
    }
    float both[2 * kLaneNumbers];
    const bool up_first = from.up == 0;
#pragma unroll
    for (int i = 0; i < kLaneNumbers; i++) {
        both[2 * i] = up_first ? at.up[i] : at.gate[i];
        both[2 * i + 1] = up_first ? at.gate[i] : at.up[i];
    }
    store_values(both, row + 2 * at.col);
}

template <class Out>
__device__ __forceinline__ void store_apart(const ActivatedMatrix& from, const LaneElements& at, Out* row) {
#pragma unroll
    for (int i = 0; i < kLaneNumbers; i++) {
        if (i * at.apart >= at.left) continue;
        const int64_t column = (at.col + i * at.apart) * from.step;
        row[column + from.gate] = from_float<Out>(at.gate[i]);
        row[column + from.up] = from_float<Out>(at.up[i]);
    }
}

template <class T, class Out>
__global__ void __launch_bounds__(32 * kRows) gradient_kernel(const __grid_constant__ Arguments a) {
    const ActivatedMatrix& from = a.gradient.from;
    const int64_t row = int64_t(row_of_blocks()) * kRows + threadIdx.x / 32;
    if (row >= from.in.matrices * from.in.rows) return;
    const int32_t bias = bias_of_row(from, a.grouped, row);
    LaneElements at;
    at.col = int64_t(blockIdx.x) * kColumns + threadIdx.x % 32 * (a.wide ? kLaneNumbers : 1);
    at.left = a.gradient.result.cols - at.col, at.apart = a.wide ? 1 : 32;
    if (bias < 0 || at.left <= 0) return;
    at.load<T>(a.gradient, row, bias, a.wide);
    if (from.row_weights.set()) {
        const float weight = number_at(from.row_weights, row);
#pragma unroll
        for (float& value : at.result) value = multiply_rn(value, weight);
    }
    with_gated_activation(from.kind, [&](auto kind) { differentiate<kind.value>(from.numbers, at); });
    Out* const out = static_cast<Out*>(a.out.data) + row * a.out.row_stride;
    if (a.wide) store_wide(from, at, out);
    else store_apart(from, at, out);
}

// Here lanes always have eight neighbours, which are loaded one by one in rows that are not aligned.
template <class T>
__global__ void __launch_bounds__(32 * kRows) weight_kernel(const __grid_constant__ Arguments a) {
    const ActivatedMatrix& from = a.gradient.from;
    const int64_t row = int64_t(row_of_blocks()) * kRows + threadIdx.x / 32;
    if (row >= from.in.matrices * from.in.rows) return;
    const int32_t bias = bias_of_row(from, a.grouped, row);
    if (bias < 0) return;
    float sums[kLaneNumbers] = {};
#pragma unroll 1
    for (int64_t first = 0; first < a.gradient.result.cols; first += kColumns) {
        LaneElements at;
        at.col = first + threadIdx.x % 32 * kLaneNumbers;
        at.left = a.gradient.result.cols - at.col, at.apart = 1;
        if (at.left <= 0) continue;
        at.load<T>(a.gradient, row, bias, a.wide);
        activate_any(from, at.gate, at.up);
#pragma unroll
        for (int i = 0; i < kLaneNumbers; i++)
            if (i < at.left) sums[i] = add_rn(sums[i], multiply_rn(at.result[i], at.gate[i]));
    }
    const float sum = sum_tree(sums);
    if (threadIdx.x % 32 == 0) a.weights[row] = from_float<float>(sum);
}

// ---- Biases ------------------------------------------------------------------------------------------------------------

// `tiles` are of 128 rows and 128 elements of the result.
struct BiasArguments {
    ActivationGradient gradient;
    GroupedRows grouped;
    Tiles tiles;
    float* chunks;  // in.cols sums of every 128 rows
    float* out;
};

// Returns the gradients of the gate and the `up` of one element.
__device__ __forceinline__ GateGradients gradients_at(const ActivationGradient& gradient, int64_t row, int64_t col,
                                                      int32_t bias) {
    const ActivatedMatrix& from = gradient.from;
    const int64_t in = row * from.in.row_stride + col * from.step;
    float gate[1] = {element_at(from.in.data, from.in.format, in + from.gate)};
    float up[1] = {element_at(from.in.data, from.in.format, in + from.up)};
    float result = element_at(gradient.result.data, gradient.result.format, row * gradient.result.row_stride + col);
    add_bias(from, bias, col, 1, 1, gate, up);
    if (from.row_weights.set()) result = multiply_rn(result, number_at(from.row_weights, row));
    return with_gated_activation(
        from.kind, [&](auto kind) { return gradients_of<kind.value>(from.numbers, gate[0], up[0], result); });
}

__global__ void __launch_bounds__(kTile) bias_chunk_kernel(const __grid_constant__ BiasArguments a) {
    __shared__ Group group;
    TileCoord coord;
    if (!find_tile(a.tiles, a.grouped, group, coord)) return;
    const ActivatedMatrix& from = a.gradient.from;
    const int64_t col = coord.col + threadIdx.x;
    if (col >= a.gradient.result.cols) return;
    const int64_t first = (a.grouped.groups.set ? group.starts[kSourceCodes] : coord.matrix * a.tiles.rows) + coord.row;
    const int rows = int(min(coord.rows - coord.row, int64_t(kTile)));
    float of_gate = 0, of_up = 0;
#pragma unroll 4
    for (int row = 0; row < rows; row++) {
        const GateGradients found = gradients_at(a.gradient, first + row, col, int32_t(coord.scope));
        of_gate = add_rn(of_gate, found.gate);
        of_up = add_rn(of_up, found.up);
    }
    float* const to = a.chunks + int64_t(row_of_blocks()) * from.in.cols + col * from.step;
    to[from.gate] = of_gate;
    to[from.up] = of_up;
}

// Adds the sums of the chunks of an expert or group. A thread takes a column.
__global__ void __launch_bounds__(kTile) bias_sum_kernel(const __grid_constant__ BiasArguments a) {
    const int64_t one = row_of_blocks(), col = int64_t(blockIdx.x) * kTile + threadIdx.x, cols = a.gradient.from.in.cols;
    const int64_t count = a.grouped.groups.set ? a.grouped.groups.count : a.tiles.matrices;
    if (one >= count) return;
    int64_t first = one * a.tiles.down, chunks = a.tiles.down;
    if (a.grouped.groups.set) {
        const Group group = find_group<GroupBy::Index>(a.grouped, {1, 1}, {1, 1}, one);
        first = group.first_group_tile, chunks = a.tiles.units.group_tiles(group.rows);
    }
    if (col >= cols) return;
    float sum = 0;
#pragma unroll 1
    for (int64_t chunk = first; chunk < first + chunks; chunk++) sum = add_rn(sum, a.chunks[chunk * cols + col]);
    a.out[one * cols + col] = from_float<float>(sum);
}

// ---- Launches ----------------------------------------------------------------------------------------------------------

// The second name: the format of out, or 0 for the gradients of weights of rows.
constexpr auto kernels = join(
    kernels_of([]<class T, class Out>(T, Out) { return kernel(gradient_kernel<T, Out>, 32 * kRows); }, PlainTypes{},
               PlainTypes{}),
    kernels_of([]<class T>(T, auto) { return kernel(weight_kernel<T>, 32 * kRows); }, PlainTypes{}, Values<int32_t(0)>{}));

bool has_whole_inputs(const ActivationGradient& gradient) {
    return has_whole_gates(gradient.from, gradient.result.cols, kLaneNumbers) && is_wide(gradient.result);
}

// Returns the tiles that chunks of a bias's sums are made of.
Tiles tiles_of(const QuantizeProblem& problem) {
    QuantizeProblem of_result{};
    of_result.grouped = problem.grouped;
    of_result.source = plain_source(problem.source.gradient.result);
    of_result.source.plain.group_unit = 1;
    return Tiles(of_result);
}

Reason declines(const Context& context, const ActivateProblem& problem) {
    if (problem.quantizes) return "needs a plain out, found a quantized one";
    return needs_cuda(context);
}

uint64_t workspace_bytes(const Context&, const ActivateProblem& problem) { return bias_chunk_bytes(problem); }

void run(const Context& context, const ActivateProblem& problem, const Launch& call) {
    launch_gradients(context, problem, problem.out, call.stream);
    launch_gradient_sums(context, problem, call.workspace, call.stream);
}

void load(const Context&) {
    load_kernels(kernels);
    load_kernel(bias_chunk_kernel);
    load_kernel(bias_sum_kernel);
}

}  // namespace

uint64_t bias_chunk_bytes(const ActivateProblem& problem) {
    if (!problem.bias_gradient) return 0;
    const Tiles tiles = tiles_of(problem.quantize);
    return uint64_t(round_up(tiles.matrices * tiles.down * problem.quantize.source.cols * int64_t(sizeof(float)), 256));
}

void launch_gradients(const Context& context, const ActivateProblem& problem, const PlainMatrix& out, void* stream) {
    const ActivationGradient& gradient = problem.quantize.source.gradient;
    const int64_t rows = out.matrices * out.rows, cols = gradient.result.cols;
    if (rows * cols == 0) return;
    const Arguments a{gradient, out, problem.quantize.grouped, has_whole_inputs(gradient) && is_wide(out), nullptr};
    const dim3 grid = grid_of_rows(ceil_div(cols, int64_t(kColumns)), ceil_div(rows, int64_t(kRows)));
    launch(context, kernels, {gradient.from.in.format, out.format}, "activate_backward", grid, stream, a);
}

void launch_gradient_sums(const Context& context, const ActivateProblem& problem, void* chunks, void* stream) {
    const ActivationGradient& gradient = problem.quantize.source.gradient;
    const PlainMatrix& in = gradient.from.in;
    const int64_t rows = in.matrices * in.rows;
    if (problem.weight_gradient && rows > 0) {
        const Arguments a{gradient, {}, problem.quantize.grouped, has_whole_inputs(gradient), problem.weight_gradient};
        launch(context, kernels, {in.format, 0}, "activate_backward", grid_of_rows(1, ceil_div(rows, int64_t(kRows))), stream,
               a);
    }
    if (!problem.bias_gradient) return;
    const BiasArguments a{gradient, problem.quantize.grouped, tiles_of(problem.quantize), static_cast<float*>(chunks),
                          problem.bias_gradient};
    const int64_t count = a.grouped.groups.set ? a.grouped.groups.count : in.matrices;
    if (count * in.cols == 0) return;
    if (a.tiles.count() > 0)
        launch(context, bias_chunk_kernel, "activate_backward", a.tiles.grid(), dim3(kTile), 0, stream, a);
    launch(context, bias_sum_kernel, "activate_backward", grid_of_rows(ceil_div(in.cols, int64_t(kTile)), count), dim3(kTile),
           0, stream, a);
}

const ActivateImplementation activate_backward = {"activate_backward", declines, workspace_bytes, run, load};

}  // namespace mxq::cuda
