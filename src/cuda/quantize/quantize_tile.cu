// quantize_tile: F32, F16 or BF16 to any format, scaling and layout, to one part or both from one read; experts and groups.
// It takes BF16 to 8 and 6 bits, and to 4 bits with ROW scales alone.
//
// A thread block takes a tile of 128 x 128 (tile/location.cuh). A thread's patch of 16 rows (tile/patch.cuh) stays in
// registers from its one read to its last use:
//
//     maxima   of the patch, then over the lanes or warps that share a block (tile/maxima.cuh)
//     scales   through a table in shared memory, which returns factors (tile/scales.cuh)
//     codes    rowwise from registers, columnwise as chunks through shared memory (tile/codes.cuh)
//     scales   as words through shared memory: 512 contiguous bytes (swizzled, padding included) or 4 a row
//
// Unaligned rows are loaded element by element, unaligned codes stored byte by byte. quantize_columns and quantize_groups
// take aligned BF16 to columns of 8 bits. ROW and TENSOR scales need a first pass (amax.cu); TENSOR scales are stored by the
// whole grid, since experts and groups without rows have some.
//
// Bytes an element: 2 or 4 read, 0.53 to 1.03 written for each part. Bound by memory: four thread blocks an SM at different
// steps, with 16 loads in flight a thread, need neither TMA nor a second stage.
//
// requantize_values: a part of any format and layout to the parts of any other, by the same kernels; experts and groups.
//
//     codes in memory --words of 4 codes a row--> elements --scales--> values --the steps above--> parts
//
// A thread reads the codes of its 16 rows x 4 columns (tile/patch_source.cuh): four codes of each row (rowwise) or 16 of
// each column (columnwise). The scales of the source come through shared memory, a word for each block and row of the tile.
// Bound by instructions: about 17 an element and part, by ncu's issue slots.
#include "cuda/device.h"
#include "cuda/kernel_lists.h"
#include "cuda/implementations.h"
#include "cuda/quantize/quantize_tile.cuh"
#include "cuda/quantize/quantize_tile.h"
#include "cuda/tile/patch_source.cuh"

namespace mxq::cuda {
namespace {

template <class Source, class E>
__global__ void __launch_bounds__(Patch<typename Source::Element>::threads, kSmBlocks<typename Source::Element>)
    quantize_tile_kernel(const __grid_constant__ TileArguments a) {
    using T = typename Source::Element;
    __shared__ TileShared<E> shared;
    TileCoord coord;
    const bool exists = find_tile(a.tiles, a.problem.grouped, shared.group, coord);
    PatchVectors<T> vectors;
    if (exists) load_patch(Source{}, a.problem, coord, shared.group, a.wide_in, shared.source_scales, vectors);
    wait_for_previous_kernel();  // the maxima
    store_whole_scales<E>(a.problem, a.rule);
    if (!exists) return;
    quantize_patch<E, T>(a, coord, Patch<T>(kTile, kTile), vectors, shared,
                         [&](const CodeTile& to) { store_lines<E, T>(shared.codes, to, a.access[1]); });
}

// The first value: elements are held as BF16. quantize_fp4_pairs takes BF16 to 4 bits; with ROW scales BF16 is read as fp32.
constexpr auto kernel_for = []<class E>(auto bf16, E) {
    using Source = std::conditional_t<bf16.value, Bf16Source, FloatSource>;
    return kernel(quantize_tile_kernel<Source, E>, Patch<typename Source::Element>::threads);
};
constexpr auto kernels = join(kernels_of(kernel_for, Values<true>{}, Types<E4M3, E5M2, E2M3, E3M2>{}),
                              kernels_of(kernel_for, Values<false>{}, AllElements{}));

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (Reason reason = declines_tile_options(problem); !reason.empty()) return reason;
    if (is_bf16(problem) && problem.format->element == Element::E2M1 && !problem.tile.is_row())
        return [format = problem.format] {
            return std::string("needs codes of 6 or 8 bits, or f32 or f16, found bf16 to ") + format->name;
        };
    return needs_cuda(context);
}

Reason declines_values(const Context& context, const QuantizeProblem& problem) {
    if (Reason reason = declines_tile_options(problem); !reason.empty()) return reason;
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const AmaxBuffers amax(problem, call.workspace);
    const TileArguments a = tile_arguments(problem, amax);
    const Start start = prepare_amax(context, problem, a.rule, amax, call);
    const char* const name = problem.source.is_quantized() ? "requantize_values" : "quantize_tile";
    if (has_tile_work(a))
        launch(context, kernels, {holds_bf16(problem), problem.format->element}, name, a.tiles.grid(), call.stream, a,
               start);
}

}  // namespace

Reason declines_tile_options(const QuantizeProblem& problem) {
    if (is_transformed(problem)) return "needs no transform, found a Hadamard transform";
    if (problem.seed_offset) return "needs rounding to nearest, found stochastic rounding";
    if (problem.four_over_six != FourOverSix::None) return "needs one scale for a block, found four-over-six";
    return "";
}

uint64_t tile_workspace_bytes(const Context&, const QuantizeProblem& problem) {
    return AmaxBuffers(problem, nullptr).workspace_bytes;
}

const QuantizeImplementation quantize_tile = {"quantize_tile", declines, tile_workspace_bytes, run, load_all<kernels>};
// Nothing to load: quantize_tile does.
const QuantizeImplementation requantize_values = {"requantize_values", declines_values, tile_workspace_bytes, run};

}  // namespace mxq::cuda
