// amax of E4M3 and E2M1 codes, a first pass of requantize: maxima of rows, of columns, or of an expert, a group or all.
//
// A thread block takes a tile of 128 x 128 as codes in registers, as requantize_codes does (tile/code_patch.cuh). Maxima meet
// in shared memory, then one atomic a row, a column or a tile.
//
// Bytes an element: 0.53 to 1.03 read. Bound by memory for the source's part, by instructions for the other.
#include "cuda/kernel_lists.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/quantize/amax.h"
#include "cuda/tile/code_patch.cuh"

namespace mxq::cuda {
namespace {

struct Arguments {
    QuantizeProblem problem;
    Tiles tiles;
    float* out[2];  // rowwise, columnwise; NULL: not wanted
    int scope_stride;
    bool lines;       // one a row and column
    bool propagates;  // a NaN is a maximum
};

struct Shared {
    TileScales<E4M3> maxima;
    SourceScales source;
    Group group;
};

// Raises the maxima of the tile's rows and columns.
template <class S, Nonfinite policy>
__device__ __forceinline__ void raise_lines(const Arguments& a, const TileCoord& coord, const PatchValues<S>& values,
                                            const CodePatch& patch, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    const int same = p.source.quantized.columnwise ? 1 : 0;
    if (a.out[same]) put_line_maxima<E4M3, S, policy>(values, patch, 5, shared.maxima.parts[same]);
    if (a.out[1 - same]) put_position_maxima<E4M3, S, policy>(values, patch, 5, shared.maxima.parts[1 - same]);
    __syncthreads();
    for (int columnwise = 0; columnwise < 2; columnwise++) {
        const QuantizedPart& part = part_of(p, columnwise);
        const GroupStart start = group_start(p.grouped, shared.group, kRowwisePart);
        const int64_t line = (columnwise ? coord.col : coord.row) + threadIdx.x;
        if (!a.out[columnwise] || line >= (columnwise ? part.lines : coord.rows)) continue;
        const auto& table = shared.maxima.parts[columnwise].table;
        const int i = threadIdx.x;
        const int64_t first = (columnwise ? coord.scope : coord.matrix) * part.lines + (columnwise ? 0 : start.codes);
        take_larger(a.out[columnwise] + first + line, max(max(table[0][i], table[1][i]), max(table[2][i], table[3][i])));
    }
}

// Raises the maximum of the tile's expert or group.
template <class S>
__device__ __forceinline__ void raise_scope(const Arguments& a, const TileCoord& coord, const PatchValues<S>& values,
                                            const CodePatch& patch, Shared& shared) {
    put_patch_maximum<E4M3>(largest_of_patch<S, Nonfinite::Saturate>(values), patch, 7, shared.maxima,
                            &shared.maxima.parts[0], &shared.maxima.parts[1]);
    __syncthreads();
    if (threadIdx.x != 0) return;
    const uint32_t bits = tile_maximum<E4M3, Bf16>(shared.maxima);
    for (float* out : a.out)
        if (out) take_larger(out + coord.scope * a.scope_stride, bits);
}

template <class S>
__global__ void __launch_bounds__(CodePatch::threads, 5) amax_codes_kernel(const __grid_constant__ Arguments a) {
    __shared__ Shared shared;
    start_next_kernel();
    TileCoord coord;
    const bool exists = find_tile(a.tiles, a.problem.grouped, shared.group, coord);
    PatchCodes codes{};
    const CodePatch patch = load_code_patch<S>(a.problem, coord, shared.group, exists, shared.source, codes);
    wait_for_previous_kernel();  // which zeroes
    if (!exists) return;
    const PatchValues<S> values(codes, patch, source_shift(a.problem.source.quantized.layout), shared.source);
    if (!a.lines) raise_scope<S>(a, coord, values, patch, shared);
    else if (a.propagates) raise_lines<S, Nonfinite::Propagate>(a, coord, values, patch, shared);
    else raise_lines<S, Nonfinite::Saturate>(a, coord, values, patch, shared);
}

// The kernels by the element of the source.
constexpr auto kernels = kernels_of(
    []<class E>(E) { return kernel(amax_codes_kernel<SourceCodes<E>>, CodePatch::threads); }, Types<E4M3, E2M1>{});

}  // namespace

void load_amax_codes() { load_kernels(kernels); }

bool takes_amax_codes(const QuantizeProblem& p) { return p.source.is_quantized() && declines_code_source(p).empty(); }

bool run_amax_codes(const Context& context, const QuantizeProblem& p, float* rowwise, float* columnwise, int scope_stride,
                    bool propagates, const Launch& call, Start start) {
    const Arguments a{p, Tiles(p), {rowwise, columnwise == rowwise ? nullptr : columnwise}, scope_stride,
                      p.tile.is_row(), propagates};
    if (a.tiles.count() == 0) return false;
    launch(context, kernels, p.source.quantized.element, "amax", a.tiles.grid(), call.stream, a, start);
    return true;
}

}  // namespace mxq::cuda
