// quantize_tile: F32, F16 or BF16 to any format, scaling and layout (BF16 to 8 and 6 bits), the rowwise part, the columnwise one
// or both from one read; experts and groups.
//
// A block of threads takes a tile of 128 x 128; who holds what: tile/patch.cuh; which tile: tile/location.cuh. A patch stays in
// registers from its one read to its last use:
//
//     maxima   of columns: 16 rows in the thread, then one exchange with lane ^ 16. Of rows: a chunk in the thread, then
//              over the lanes of a block, each lane keeping a share of the rows. Of square tiles: both, to one maximum
//     scales   maxima meet in a table in shared memory and come back as factors: tile/scales.cuh
//     codes    rows from registers, columns as pieces through shared memory: tile/codes.cuh
//     scales   as words through shared memory, then 512 contiguous bytes (swizzled, padding included) or 4 a line
//
// ROW and TENSOR scales made from this call's maxima take a pass before (amax.cu). TENSOR scales are written by the grid as
// a whole, since experts and groups without rows have some too.
//
// Bytes an element: 2 or 4 read once, 0.53 to 1.03 written for each part. Bound by memory: 16 loads of 16 bytes in flight a
// thread need no copy engine and no second stage, since four blocks share an SM and are at different steps.
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/quantize/quantize_tile.cuh"
#include "cuda/types.cuh"

namespace mxq::cuda {
namespace {

// Four halves as a chunk of floats: F16 shares the kernels of F32.
template <class Place>
__device__ __forceinline__ Chunk<float> load_halves(bool wide, const F16* from, int64_t stride, const Place& place, int i) {
    const auto* bits = reinterpret_cast<const uint16_t*>(from + place.offset(i, stride));
    uint16_t halves[4] = {};
    if (wide) {
        const uint2 v = place.exists(i) ? __ldcs(reinterpret_cast<const uint2*>(bits)) : uint2{};
        halves[0] = uint16_t(v.x), halves[1] = uint16_t(v.x >> 16), halves[2] = uint16_t(v.y), halves[3] = uint16_t(v.y >> 16);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < place.valid(i)) halves[j] = bits[j];
    }
    Chunk<float> chunk;
#pragma unroll
    for (int j = 0; j < 4; j++) chunk.words[j] = float_bits(to_float(F16{halves[j]}));
    return chunk;
}

template <class T>
__device__ __forceinline__ void load_patch(const TileArguments& a, const TilePlace& place, const TileGroup& group,
                                           PatchChunks<T>& chunks) {
    const PlainMatrix& in = a.problem.in;
    const int64_t before = a.problem.grouped.groups.set ? group.starts[kSourceCodes] : place.matrix * a.tiles.rows;
    const int64_t first = (before + place.row) * in.row_stride + place.col;
    const Patch<T> patch(int(min(place.rows - place.row, int64_t(kTile))), int(min(in.cols - place.col, int64_t(kTile))));
    if (std::is_same_v<T, float> && in.format == MXQ_FORMAT_F16) {
        if constexpr (std::is_same_v<T, float>)
#pragma unroll
            for (int i = 0; i < Patch<T>::rows; i++)
                chunks[i] = load_halves(a.wide_in, static_cast<const F16*>(in.data) + first, in.row_stride, patch, i);
    } else {
        load_chunks(chunks, a.wide_in, static_cast<const T*>(in.data) + first, in.row_stride, patch);
    }
}

template <class T, class E>
__global__ void __launch_bounds__(Patch<T>::threads, kSmBlocks<T>)
    quantize_tile_kernel(const __grid_constant__ TileArguments a) {
    __shared__ TileShared<E> shared;
    store_whole_scales<E>(a.problem, a.rule);
    TilePlace place;
    if (!find_tile(a.tiles, a.problem.grouped, a.units, shared.group, place)) return;
    PatchChunks<T> chunks;
    load_patch<T>(a, place, shared.group, chunks);
    quantize_patch<E, T>(a, place, Patch<T>(kTile, kTile), chunks, shared);
}

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.hadamard.rowwise || problem.hadamard.columnwise) return "needs no transform, found a Hadamard transform";
    if (problem.seed_offset) return "needs rounding to nearest, found stochastic rounding";
    if (problem.four_over_six != FourOverSix::None) return "needs one scale for a block, found four-over-six";
    if (problem.in.format == MXQ_FORMAT_BF16 && problem.format->element == Element::E2M1)
        return [format = problem.format] {
            return std::string("needs codes of 6 or 8 bits, or f32 or f16, found bf16 to ") + format->name;
        };
    return needs_cuda(context);
}

template <class T, class E>
void run_types(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const AmaxPlaces amax(problem, call.workspace);
    TileArguments a = tile_arguments(problem, amax);
    a.wide_in = problem.in.format == MXQ_FORMAT_F16 ? is_wide<F16>(problem.in) : is_wide<T>(problem.in);
    a.direct_rows = problem.has_rowwise && stores_rows_directly<E, T>(a.access[0]);
    prepare_amax(context, problem, a.rule, amax, call);
    if (has_tile_work(a))
        launch(context, quantize_tile_kernel<T, E>, "quantize_tile", tile_grid(a), dim3(Patch<T>::threads), 0, call.stream, a);
}

// The kernels that there are: for BF16, and for all else as floats. BF16 to four bits is quantize_fp4_pairs'.
template <class Body>
void with_tile_types(int32_t plain_format, Element element, const Body& body) {
    with_element(element, [&](auto code) {
        constexpr bool four_bits = decltype(code)::bits == 4;
        if (plain_format != MXQ_FORMAT_BF16) body(float{}, code);
        else if constexpr (!four_bits) body(Bf16{}, code);
    });
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    with_tile_types(problem.in.format, problem.format->element,
                    [&]<class T, class E>(T, E) { run_types<T, E>(context, problem, call); });
}

void load(const Context&) {
    for (int32_t plain : {MXQ_FORMAT_F32, MXQ_FORMAT_BF16})
        for (Element element : kElements)
            with_tile_types(plain, element, []<class T, class E>(T, E) {
                load_kernel(reinterpret_cast<const void*>(quantize_tile_kernel<T, E>), 0);
            });
}

}  // namespace

const QuantizeImplementation quantize_tile = {"quantize_tile", declines, tile_workspace_bytes, run, load};

}  // namespace mxq::cuda
