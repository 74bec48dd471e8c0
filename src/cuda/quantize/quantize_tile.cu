// quantize_tile: F32, F16 or BF16 to any format, scaling and layout (BF16 to 8 and 6 bits, and to 4 with ROW scales), the
// rowwise part, the columnwise one or both from one read; experts and groups. Its kernels take the values of a quantized
// part too: requantize_values.
//
// A block of threads takes a tile of 128 x 128; who holds what: tile/patch.cuh; which tile: tile/location.cuh. A patch stays
// in registers from its one read to its last use:
//
//     maxima   of columns: 16 rows in the thread, then one exchange with lane ^ 16. Of rows: a vector in the thread, then
//              over the lanes of a block, each lane keeping a share of the rows. Of square tiles: both, to one maximum
//     scales   maxima meet in a table in shared memory and come back as factors: tile/scales.cuh
//     codes    rows from registers, columns as pieces through shared memory: tile/codes.cuh
//     scales   as words through shared memory, then 512 contiguous bytes (swizzled, padding included) or 4 a line
//
// BF16 to columns of 8 bits without groups goes two tiles at a time: quantize_tall.cuh; with groups, aligned, in bands of 32 rows:
// quantize_bands.cuh. Rows that are not aligned are loaded element by element, unaligned lines of codes stored byte by byte.
//
// ROW and TENSOR scales made from this call's maxima take a pass before (amax.cu). TENSOR scales are written by the grid as
// a whole, since experts and groups without rows have some too.
//
// Bytes an element: 2 or 4 read once, 0.53 to 1.03 written for each part. Bound by memory: 16 loads of 16 bytes in flight a
// thread need no copy engine and no second stage, since four blocks share an SM and are at different steps.
#include <algorithm>

#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/quantize/quantize_bands.cuh"
#include "cuda/quantize/quantize_tall.cuh"
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
    TilePlace place;
    const bool exists = find_tile(a.tiles, a.problem.grouped, shared.group, place);
    PatchVectors<T> vectors;
    if (exists) load_patch(Source{}, a.problem, place, shared.group, a.wide_in, shared.source_scales, vectors);
    wait_for_previous_kernel();  // which makes the maxima
    store_whole_scales<E>(a.problem, a.rule);
    if (!exists) return;
    quantize_patch<E, T>(a, place, Patch<T>(kTile, kTile), vectors, shared,
                         [&](const CodeTile& to) { store_lines<E, T>(shared.codes, to, a.access[1]); });
}

// Names what a kernel is compiled for. BF16 to four bits is quantize_fp4_pairs'; with ROW scales it is read as fp32.
struct Key {
    bool bf16;
    Element element;
    bool operator==(const Key&) const = default;
};

template <class Source, class E>
constexpr KernelEntry<Key, TileArguments> entry(Element element) {
    using T = typename Source::Element;
    return {{std::is_same_v<T, Bf16>, element}, quantize_tile_kernel<Source, E>, Patch<T>::threads, 0};
}

constexpr KernelEntry<Key, TileArguments> kernels[] = {
    entry<Bf16Source, E4M3>(Element::E4M3),  entry<Bf16Source, E5M2>(Element::E5M2),
    entry<Bf16Source, E2M3>(Element::E2M3),  entry<Bf16Source, E3M2>(Element::E3M2),
    entry<FloatSource, E4M3>(Element::E4M3), entry<FloatSource, E5M2>(Element::E5M2),
    entry<FloatSource, E2M3>(Element::E2M3), entry<FloatSource, E3M2>(Element::E3M2),
    entry<FloatSource, E2M1>(Element::E2M1),
};

using BandKernel = void (*)(BandArguments);

template <class E, bool several>
BandKernel band_kernel_of(BandScales scales) {
    if (scales == BandScales::Whole) return quantize_bands_kernel<E, BandScales::Whole, several>;
    if (scales == BandScales::Squares) return quantize_bands_kernel<E, BandScales::Squares, several>;
    return quantize_bands_kernel<E, BandScales::Blocks, several>;
}

BandKernel band_kernel(Element element, BandScales scales, bool several) {
    if (element == Element::E4M3) return several ? band_kernel_of<E4M3, true>(scales) : band_kernel_of<E4M3, false>(scales);
    return several ? band_kernel_of<E5M2, true>(scales) : band_kernel_of<E5M2, false>(scales);
}

using TileKernel = void (*)(TileArguments);

TileKernel tall_kernel(Element element) {
    return element == Element::E4M3 ? quantize_tall_kernel<E4M3> : quantize_tall_kernel<E5M2>;
}

bool is_bf16(const QuantizeProblem& p) { return !p.source.is_quantized() && p.source.plain.format == MXQ_FORMAT_BF16; }

// Returns whether elements are held as BF16.
bool holds_bf16(const QuantizeProblem& p) { return is_bf16(p) && p.format->element != Element::E2M1; }

// Returns whether a multiprocessor has shared memory for two blocks of two tiles, as on the chips where they were timed.
bool has_room_for_two(const Context& context) {
    const int32_t capability = context.cuda->compute_capability;
    return capability >= 90 && capability < 120;
}

// Returns whether columns are stored two tiles at a time, 16 bytes of every row and line at once.
bool fits_tall(const Context& context, const TileArguments& a) {
    const QuantizeProblem& p = a.problem;
    return has_room_for_two(context) && is_bf16(p) && p.format->bits == 8 && p.has_columnwise && !p.grouped.set() &&
           a.wide_in && a.access[1].bytes == 16 && a.tiles.count() > 0 && a.tiles.down > 1;
}

// Returns whether groups go by bands.
bool goes_by_bands(const Context& context, const TileArguments& a) {
    return has_room_for_two(context) && is_bf16(a.problem) && a.tiles.count() > 0 && fits_bands(a);
}

void launch_bands(const Context& context, const TileArguments& tiles, const Launch& call, const char* name, Start start) {
    const BandArguments a = band_arguments(tiles);
    void* arguments[] = {const_cast<BandArguments*>(&a)};
    const BandKernel kernel = band_kernel(a.problem.format->element, band_scales(a.problem), a.several);
    launch_kernel(context, reinterpret_cast<const void*>(kernel), name, grid_of_rows(a.across, a.down),
                  dim3(Patch<Bf16>::threads, kTallTiles), 0, call.stream, arguments, start);
}

void launch_tall(const Context& context, const TileArguments& a, const Launch& call, const char* name, Start start) {
    void* arguments[] = {const_cast<TileArguments*>(&a)};
    const TileKernel kernel = tall_kernel(a.problem.format->element);
    launch_kernel(context, reinterpret_cast<const void*>(kernel), name,
                  grid_of_rows(a.tiles.across, a.tiles.matrices * ceil_div(a.tiles.down, int64_t(kTallTiles))),
                  dim3(Patch<Bf16>::threads, kTallTiles), 0, call.stream, arguments, start);
}

// Returns whether rows of codes leave from registers.
bool stores_rows_directly(bool bf16, const QuantizeProblem& p, CodeAccess access) {
    const int columns = bf16 ? Patch<Bf16>::columns : Patch<float>::columns;
    return p.has_rowwise && p.format->bits != 6 && access.bytes >= (p.format->bits == 8 ? columns : 8);
}

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (Reason reason = declines_tile_options(problem); !reason.empty()) return reason;
    if (is_bf16(problem) && problem.format->element == Element::E2M1 && !problem.tile.is_row())
        return [format = problem.format] {
            return std::string("needs codes of 6 or 8 bits, or f32 or f16, found bf16 to ") + format->name;
        };
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    launch_quantize_tile(context, problem, call, "quantize_tile");
}

void load(const Context&) {
    load_kernels(kernels);
    for (Element element : {Element::E4M3, Element::E5M2}) {
        load_kernel(tall_kernel(element));
        for (bool several : {false, true})
            for (BandScales scales : {BandScales::Blocks, BandScales::Squares, BandScales::Whole})
                load_kernel(band_kernel(element, scales, several));
    }
}

}  // namespace

Reason declines_tile_options(const QuantizeProblem& problem) {
    if (is_transformed(problem)) return "needs no transform, found a Hadamard transform";
    if (problem.seed_offset) return "needs rounding to nearest, found stochastic rounding";
    if (problem.four_over_six != FourOverSix::None) return "needs one scale for a block, found four-over-six";
    return "";
}

void launch_quantize_tile(const Context& context, const QuantizeProblem& problem, const Launch& call, const char* name) {
    const AmaxBuffers amax(problem, call.workspace);
    TileArguments a = tile_arguments(problem, amax);
    a.wide_in = is_wide_patch_source(problem);
    a.direct_rows = stores_rows_directly(holds_bf16(problem), problem, a.access[0]);
    const Start start = prepare_amax(context, problem, a.rule, amax, call);
    if (goes_by_bands(context, a)) return launch_bands(context, a, call, name, start);
    if (fits_tall(context, a)) return launch_tall(context, a, call, name, start);
    if (has_tile_work(a))
        launch(context, kernels, {holds_bf16(problem), problem.format->element}, name, a.tiles.grid(), call.stream, a,
               start);
}

uint64_t tile_workspace_bytes(const Context&, const QuantizeProblem& problem) {
    return AmaxBuffers(problem, nullptr).workspace_bytes;
}

const QuantizeImplementation quantize_tile = {"quantize_tile", declines, tile_workspace_bytes, run, load};

}  // namespace mxq::cuda
