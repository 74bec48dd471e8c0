// activate_tile: aligned BF16 gates and ups to 8-bit codes with scales of blocks, to one part or both from one read; experts
// and groups. It takes the activations with a gate.
//
// The steps are those of quantize_tile (cuda/quantize/quantize_tile.cuh), from another source: a thread reads four gates and
// four ups of each of 16 rows and holds the 64 results, in fp32, in registers.
//
// Bytes an element: 4 read, 1.03 written for each part. Bound by memory and by instructions alike: the exponential, a
// reciprocal and the rounding of a code are about 40 an element. It has not been measured.
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/layer/activate_elements.cuh"
#include "cuda/quantize/quantize_tile.cuh"
#include "cuda/quantize/quantize_tile.h"

namespace mxq::cuda {
namespace {

constexpr int kPatchWidth = Patch<float>::columns;

// Loads four gates and four ups of a row, all or none.
__device__ __forceinline__ void load_four(const ActivatedMatrix& from, const Bf16* row, int64_t col, bool exists, uint2& gate,
                                          uint2& up) {
    gate = up = {};
    if (!exists) return;
    if (from.step == 1) {
        gate = *reinterpret_cast<const uint2*>(row + from.gate + col);
        up = *reinterpret_cast<const uint2*>(row + from.up + col);
        return;
    }
    const uint4 both = *reinterpret_cast<const uint4*>(row + 2 * col);
    const uint2 low = {__byte_perm(both.x, both.y, 0x5410), __byte_perm(both.z, both.w, 0x5410)};
    const uint2 high = {__byte_perm(both.x, both.y, 0x7632), __byte_perm(both.z, both.w, 0x7632)};
    gate = from.up == 0 ? high : low;
    up = from.up == 0 ? low : high;
}

// Loads the patch of a thread and activates it, four rows at a time. Elements that do not exist are +0.
template <Activation kind>
__device__ __forceinline__ void activate_patch(const QuantizeProblem& p, const TileCoord& coord, const Group& group,
                                               PatchVectors<float>& values) {
    constexpr int at_once = 4;
    const ActivatedMatrix& from = p.source.activated;
    const SourceTile at(p, coord, group);
    const Patch<float> patch(at.rows, at.cols);
    const int64_t col = at.col + patch.column, stride = from.in.row_stride;
    const Bf16* row = static_cast<const Bf16*>(from.in.data) + (at.first_row + patch.row) * stride;
#pragma unroll
    for (int first = 0; first < Patch<float>::rows; first += at_once) {
        uint2 gates[at_once], ups[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++, row += stride) load_four(from, row, col, patch.exists(first + i), gates[i], ups[i]);
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            Vector<float>& vector = values[first + i];
            vector = {};
            if (!patch.exists(first + i)) continue;
            float gate[kPatchWidth], up[kPatchWidth];
            widen_four(gates[i], gate);
            widen_four(ups[i], up);
            add_bias(from, int32_t(coord.scope), col, 1, kPatchWidth, gate, up);
            activate_elements<kind>(from.numbers, gate, up);
            const float weight = from.row_weights.set() ? number_at(from.row_weights, at.first_row + patch.row + first + i) : 1.0f;
#pragma unroll
            for (int v = 0; v < kPatchWidth; v++) vector.words[v] = float_bits(multiply_rn(gate[v], weight));
        }
    }
}

template <Activation kind, class E>
__global__ void __launch_bounds__(Patch<float>::threads, kSmBlocks<float>)
    activate_tile_kernel(const __grid_constant__ TileArguments a) {
    __shared__ TileShared<E> shared;
    TileCoord coord;
    if (!find_tile(a.tiles, a.problem.grouped, shared.group, coord)) return;
    PatchVectors<float> vectors;
    activate_patch<kind>(a.problem, coord, shared.group, vectors);
    quantize_patch<E, float>(a, coord, Patch<float>(kTile, kTile), vectors, shared,
                             [&](const CodeTile& to) { store_lines<E, float>(shared.codes, to, a.access[1]); });
}

constexpr auto kernels = kernels_of(
    []<class E>(auto kind, E) { return kernel(activate_tile_kernel<kind.value, E>, Patch<float>::threads); },
    GatedActivations{}, ElementsOf8Bits{});

Reason declines(const Context& context, const ActivateProblem& problem) {
    const QuantizeProblem& p = problem.quantize;
    const ActivatedMatrix& from = p.source.activated;
    if (Reason reason = needs_blocks_of_8_bits(problem); !reason.empty()) return reason;
    if (!is_gated(from.kind)) return "needs an activation with a gate, found one without";
    if (from.in.format != MXQ_FORMAT_BF16) return needs_bf16(from.in);
    if (!has_whole_gates(from, p.source.cols, Vector<Bf16>::count)) return "needs rows of whole aligned vectors, found others";
    return needs_cuda(context);
}

void run(const Context& context, const ActivateProblem& problem, const Launch& call) {
    const QuantizeProblem& p = problem.quantize;
    const AmaxBuffers amax(p, call.workspace);
    const TileArguments a = tile_arguments(p, amax);
    if (has_tile_work(a))
        launch(context, kernels, {p.source.activated.kind, p.format->element}, "activate_tile", a.tiles.grid(), call.stream, a);
}

}  // namespace

const ActivateImplementation activate_tile = {"activate_tile", declines, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
