// activate_backward_tile: the gradients of gates and ups of aligned BF16, which lie in halves, to 8-bit codes with scales of
// blocks. Gates, ups and gradients of the result are read once, for the codes of both halves and both parts.
//
// A thread block takes 128 rows and 128 columns of the result, so two tiles of the output. The steps of each are those of
// quantize_tile (cuda/quantize/quantize_tile.cuh):
//
//     gates, ups, gradients of the result --> 64 gradients of gates in registers --> tile of the gates
//                                        \--> 64 gradients of ups in shared memory, by the same thread --> tile of the ups
//
// The sums for biases and weights of rows are kernels of activate_backward.
//
// Bytes of an element of the result: 6 read, 2.06 written for each part. Bound by instructions: about 150. H200, 65536 x
// 768, SwiGLU to both parts of MXFP8: 294 us; by activate_backward_quantize 428.
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/layer/activate.h"
#include "cuda/layer/activate_elements.cuh"
#include "cuda/quantize/quantize_tile.cuh"

namespace mxq::cuda {
namespace {

constexpr int kPatchWidth = Patch<float>::columns, kPatchThreads = Patch<float>::threads;
constexpr int kUpBytes = kTile * kTile * int(sizeof(float));

// Loads four neighbours of a row, or zeros.
__device__ __forceinline__ uint2 load_four(const Bf16* row, int64_t col, bool exists) {
    return exists ? *reinterpret_cast<const uint2*>(row + col) : uint2{};
}

// Makes the gradients of the gates and ups of a thread's patch, `coord.col` being a column of the result. `ups` is the
// thread's first place of those of the ups. Gradients of elements that do not exist are +0.
template <Activation kind>
__device__ __forceinline__ void differentiate_patch(const QuantizeProblem& p, const TileCoord& coord, const Group& group,
                                                    PatchVectors<float>& gates, float4* ups) {
    constexpr int at_once = 4;
    const ActivationGradient& gradient = p.source.gradient;
    const ActivatedMatrix& from = gradient.from;
    const SourceTile at(p, coord, group);
    const Patch<float> patch(at.rows, at.cols);
    const int64_t col = coord.col + patch.column, first_row = at.first_row + patch.row;
    const Bf16* in = static_cast<const Bf16*>(from.in.data) + first_row * from.in.row_stride;
    const Bf16* of_result = static_cast<const Bf16*>(gradient.result.data) + first_row * gradient.result.row_stride;
#pragma unroll
    for (int first = 0; first < Patch<float>::rows; first += at_once) {
        uint2 loaded[at_once][3];
#pragma unroll
        for (int i = 0; i < at_once; i++, in += from.in.row_stride, of_result += gradient.result.row_stride) {
            const bool exists = patch.exists(first + i);
            loaded[i][0] = load_four(in, from.gate + col, exists);
            loaded[i][1] = load_four(in, from.up + col, exists);
            loaded[i][2] = load_four(of_result, col, exists);
        }
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const int row = first + i;
            gates[row] = {};
            float gate[kPatchWidth], up[kPatchWidth] = {}, result[kPatchWidth];
            if (patch.exists(row)) {
                widen_four(loaded[i][0], gate);
                widen_four(loaded[i][1], up);
                widen_four(loaded[i][2], result);
                add_bias(from, int32_t(coord.scope), col, 1, kPatchWidth, gate, up);
                const float weight = from.row_weights.set() ? number_at(from.row_weights, first_row + row) : 1.0f;
#pragma unroll
                for (int v = 0; v < kPatchWidth; v++) {
                    const GateGradients found =
                        gradients_of<kind>(from.numbers, gate[v], up[v], multiply_rn(result[v], weight));
                    gates[row].words[v] = float_bits(found.gate), up[v] = found.up;
                }
            }
            ups[row * kPatchThreads] = {up[0], up[1], up[2], up[3]};
        }
    }
}

template <Activation kind, class E>
__global__ void __launch_bounds__(kPatchThreads, kSmBlocks<float>)
    activate_backward_tile_kernel(const __grid_constant__ TileArguments a) {
    extern __shared__ float4 ups_of_tile[];
    __shared__ TileShared<E> shared;
    TileCoord coord;
    if (!find_tile(a.tiles, a.problem.grouped, shared.group, coord)) return;
    const ActivatedMatrix& from = a.problem.source.gradient.from;
    float4* const ups = ups_of_tile + threadIdx.x;
    PatchVectors<float> vectors;
    differentiate_patch<kind>(a.problem, coord, shared.group, vectors, ups);
    const int64_t col = coord.col;
#pragma unroll 1
    for (int half = 0;; half++) {
        coord.col = col + (half == 0 ? from.gate : from.up);
        quantize_patch<E, float>(a, coord, Patch<float>(kTile, kTile), vectors, shared,
                                 [&](const CodeTile& to) { store_lines<E, float>(shared.codes, to, a.access[1]); });
        if (half == 1) return;
        __syncthreads();  // all threads have stored scales
#pragma unroll
        for (int i = 0; i < Patch<float>::rows; i++) {
            const float4 up = ups[i * kPatchThreads];
            vectors[i] = {{float_bits(up.x), float_bits(up.y), float_bits(up.z), float_bits(up.w)}};
        }
    }
}

constexpr auto kernels = kernels_of(
    []<class E>(auto kind, E) { return kernel(activate_backward_tile_kernel<kind.value, E>, kPatchThreads, kUpBytes); },
    GatedActivations{}, ElementsOf8Bits{});

Reason declines(const Context& context, const ActivateProblem& problem) {
    const ActivationGradient& gradient = problem.quantize.source.gradient;
    const ActivatedMatrix& from = gradient.from;
    if (Reason reason = needs_blocks_of_8_bits(problem); !reason.empty()) return reason;
    if (from.step != 1) return "needs gates and ups in halves, found alternating ones";
    if (gradient.result.cols % kTile != 0)
        return [cols = gradient.result.cols] {
            return format_text("needs a multiple of 128 gates, found %lld", static_cast<long long>(cols));
        };
    if (from.in.format != MXQ_FORMAT_BF16 || gradient.result.format != MXQ_FORMAT_BF16)
        return "needs bf16, found another type";
    if (!is_wide(from.in) || !is_wide(gradient.result)) return "needs rows of whole aligned vectors, found others";
    return needs_cuda(context);
}

uint64_t workspace_bytes(const Context&, const ActivateProblem& problem) { return bias_chunk_bytes(problem); }

void run(const Context& context, const ActivateProblem& problem, const Launch& call) {
    const QuantizeProblem& p = problem.quantize;
    TileArguments a = tile_arguments(p, AmaxBuffers(p, nullptr));
    a.tiles.across /= 2;  // of the result
    if (a.tiles.count() > 0)
        launch(context, kernels, {p.source.gradient.from.kind, p.format->element}, "activate_backward_tile", a.tiles.grid(),
               call.stream, a);
    launch_gradient_sums(context, problem, call.workspace, call.stream);
}

}  // namespace

const ActivateImplementation activate_backward_tile = {"activate_backward_tile", declines, workspace_bytes, run, load_all<kernels>};

}  // namespace mxq::cuda
