// requantize_chunks: MXFP8, FP8 and NVFP4, in lines of whole aligned pieces of 16 bytes, to MXFP8 and MXFP4 in blocks of 32,
// along the lines of MXFP8 to ROW and 128x128 of MXFP8 and FP8, too; experts, and groups of rows (not along NVFP4's lines).
//
// A block of threads takes the codes of a tile of 128 x 128 through shared memory, as they are stored. What lies along the
// source's lines stays in lines; across them, 16 lines are a chunk of each of their positions:
//
//     tile       each 16 lines change pieces of 16 bytes about in a way of their own, so that eight lanes that read the
//                same positions of eight chunks meet eight bank groups (codes_tile.cuh)
//     across     words of 16 lines -> values -> maxima -> scales -> codes (chunks_across.cuh)
//     along      16 or 32 codes of a line under one power of two, in F16 (chunks_along.cuh)
//     scales     as bytes through shared memory, then as words in the layout's order
//
// 128x128 takes a tile in registers: squares_along.cuh. Along the source's lines alone, without groups, MXFP8 to MXFP4 needs
// no tile, blocks_along.cuh, nor does MXFP8 to MXFP8, mxfp8_along.cuh, or to one scale for a line, row_along.cuh, or NVFP4,
// nvfp4_along.cuh.
//
// The source's scales come from a table. The loops are short on purpose, and addresses are found by a few threads: a tile is
// but 128 elements a thread. Bytes an element: 0.56 to 1.03 read once, as much written for each part. Bound by instructions,
// an element: 8 across (of NVFP4 9), 7 along to E2M1, and 3 for all that comes once.
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/quantize/quantize_tile.h"
#include "cuda/requantize/blocks_along.cuh"
#include "cuda/requantize/chunks_across.cuh"
#include "cuda/requantize/chunks_along.cuh"
#include "cuda/requantize/mxfp8_along.cuh"
#include "cuda/requantize/nvfp4_along.cuh"
#include "cuda/requantize/row_along.cuh"
#include "cuda/requantize/source_lines.cuh"
#include "cuda/requantize/squares_along.cuh"
#include "cuda/tile/store_scale_words.cuh"

namespace mxq::cuda {
namespace {

template <class S, class E>
__global__ void __launch_bounds__(kRequantizeThreads, kRequantizeBlocks)
    requantize_chunks_kernel(const __grid_constant__ ChunkArguments a) {
    alignas(128) __shared__ uint4 memory[(sizeof(RequantizeShared<S>) + sizeof(uint4) - 1) / sizeof(uint4)];
    auto& shared = *reinterpret_cast<RequantizeShared<S>*>(memory);
    const QuantizeProblem& p = a.problem;
    TilePlace place;
    if (!find_tile(a.tiles, p.grouped, shared.group, place)) return;
    copy_codes(p, place, shared);
    describe_parts(p, place, shared);
    __syncthreads();
    load_scale_table<S>(p.source.quantized, shared);
    wait_for_pieces();
    __syncthreads();
    const int along = p.source.quantized.columnwise ? 1 : 0;
    if constexpr (S::bits == 8) {
        if (has_part(p, along)) emit_along<S, E>(a, along, shared);
    }
    if (has_part(p, 1 - along)) {
        if (p.nonfinite == Nonfinite::Saturate) emit_across<S, E, Nonfinite::Saturate>(a, 1 - along, shared);
        else emit_across<S, E, Nonfinite::Propagate>(a, 1 - along, shared);
    }
    __syncthreads();
    const auto store = [&](const QuantizedPart& part, int index) {
        store_scale_words<kRequantizeThreads, 1>(part, shared.parts[kRowwisePart + index],
                                                 [&](int line, int) { return shared.words[index][line]; });
    };
    if (p.has_rowwise) store(p.rowwise, 0);
    if (p.has_columnwise) store(p.columnwise, 1);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Names what a kernel is compiled for.
struct Key {
    Element from, to;
    bool operator==(const Key&) const = default;
};

template <class From, class To>
constexpr KernelEntry<Key, ChunkArguments> entry(Element from, Element to) {
    return {{from, to}, requantize_chunks_kernel<SourceCodes<From>, To>, kRequantizeThreads, 0};
}

constexpr KernelEntry<Key, ChunkArguments> kernels[] = {
    entry<E4M3, E4M3>(Element::E4M3, Element::E4M3), entry<E4M3, E5M2>(Element::E4M3, Element::E5M2),
    entry<E4M3, E2M1>(Element::E4M3, Element::E2M1), entry<E5M2, E4M3>(Element::E5M2, Element::E4M3),
    entry<E5M2, E5M2>(Element::E5M2, Element::E5M2), entry<E5M2, E2M1>(Element::E5M2, Element::E2M1),
    entry<E2M1, E4M3>(Element::E2M1, Element::E4M3), entry<E2M1, E5M2>(Element::E2M1, Element::E5M2),
    entry<E2M1, E2M1>(Element::E2M1, Element::E2M1),
};

// Names what a kernel for 128x128, or for one scale a line, is compiled for.
struct CoarseKey {
    Element from, to;
    bool is_mx;
    bool operator==(const CoarseKey&) const = default;
};

template <class From, class To>
constexpr KernelEntry<CoarseKey, ChunkArguments> square_entry(Element from, Element to) {
    return {{from, to, true}, requantize_squares_kernel<SourceCodes<From>, To, MxSquare<To>>, kRequantizeThreads, 0};
}

template <class From, class To>
constexpr KernelEntry<CoarseKey, ChunkArguments> fp8_square_entry(Element from, Element to) {
    return {{from, to, false}, requantize_squares_kernel<SourceCodes<From>, To, Fp8Square<To>>, kRequantizeThreads, 0};
}

constexpr KernelEntry<CoarseKey, ChunkArguments> square_kernels[] = {
    square_entry<E4M3, E4M3>(Element::E4M3, Element::E4M3),     square_entry<E4M3, E5M2>(Element::E4M3, Element::E5M2),
    square_entry<E4M3, E2M1>(Element::E4M3, Element::E2M1),     square_entry<E5M2, E4M3>(Element::E5M2, Element::E4M3),
    square_entry<E5M2, E5M2>(Element::E5M2, Element::E5M2),     square_entry<E5M2, E2M1>(Element::E5M2, Element::E2M1),
    fp8_square_entry<E4M3, E4M3>(Element::E4M3, Element::E4M3), fp8_square_entry<E5M2, E5M2>(Element::E5M2, Element::E5M2),
};

// Names what a kernel for blocks to MXFP4 is compiled for.
struct BlocksKey {
    Element from;
    bool clamps, one_row;  // products may be 7 or more; blocks lie one after the other
    bool operator==(const BlocksKey&) const = default;
};

template <class From, bool clamps>
constexpr KernelEntry<BlocksKey, BlockArguments> tile_of_blocks_entry(Element from) {
    return {{from, clamps, false}, requantize_tile_of_blocks_kernel<SourceCodes<From>, clamps>, kRequantizeThreads, 0};
}

template <class From, bool clamps>
constexpr KernelEntry<BlocksKey, BlockArguments> row_of_blocks_entry(Element from) {
    return {{from, clamps, true}, requantize_row_of_blocks_kernel<SourceCodes<From>, clamps>, kBlockThreads, 0};
}

constexpr KernelEntry<BlocksKey, BlockArguments> blocks_kernels[] = {
    tile_of_blocks_entry<E4M3, false>(Element::E4M3), tile_of_blocks_entry<E4M3, true>(Element::E4M3),
    tile_of_blocks_entry<E5M2, false>(Element::E5M2), tile_of_blocks_entry<E5M2, true>(Element::E5M2),
    row_of_blocks_entry<E4M3, false>(Element::E4M3),  row_of_blocks_entry<E4M3, true>(Element::E4M3),
    row_of_blocks_entry<E5M2, false>(Element::E5M2),  row_of_blocks_entry<E5M2, true>(Element::E5M2),
};

// Names what a kernel for MXFP8 along lines is compiled for.
struct HalvesKey {
    Element from, to;
    bool one_row;  // blocks lie one after the other
    bool operator==(const HalvesKey&) const = default;
};

template <class From, class To>
constexpr KernelEntry<HalvesKey, BlockArguments> row_of_halves_entry(Element from, Element to) {
    return {{from, to, true}, requantize_row_of_halves_kernel<SourceCodes<From>, To>, kBlockThreads, 0};
}

template <class From, class To>
constexpr KernelEntry<HalvesKey, BlockArguments> tile_of_halves_entry(Element from, Element to) {
    return {{from, to, false}, requantize_tile_of_halves_kernel<SourceCodes<From>, To>, kBlockThreads, 0};
}

constexpr KernelEntry<HalvesKey, BlockArguments> halves_kernels[] = {
    row_of_halves_entry<E4M3, E4M3>(Element::E4M3, Element::E4M3),
    row_of_halves_entry<E4M3, E5M2>(Element::E4M3, Element::E5M2),
    row_of_halves_entry<E5M2, E4M3>(Element::E5M2, Element::E4M3),
    row_of_halves_entry<E5M2, E5M2>(Element::E5M2, Element::E5M2),
    tile_of_halves_entry<E4M3, E4M3>(Element::E4M3, Element::E4M3),
    tile_of_halves_entry<E4M3, E5M2>(Element::E4M3, Element::E5M2),
    tile_of_halves_entry<E5M2, E4M3>(Element::E5M2, Element::E4M3),
    tile_of_halves_entry<E5M2, E5M2>(Element::E5M2, Element::E5M2),
};

template <class From, class To>
constexpr KernelEntry<CoarseKey, RowArguments> row_entry(Element from, Element to) {
    using S = SourceCodes<From>;
    return {{from, to, true}, requantize_row_kernel<S, To, MxRowScale<S, To>>, kRowThreads, 0};
}

template <class From, class To>
constexpr KernelEntry<CoarseKey, RowArguments> fp8_row_entry(Element from, Element to) {
    using S = SourceCodes<From>;
    return {{from, to, false}, requantize_row_kernel<S, To, Fp8RowScale<S, To>>, kRowThreads, 0};
}

constexpr KernelEntry<CoarseKey, RowArguments> row_kernels[] = {
    row_entry<E4M3, E4M3>(Element::E4M3, Element::E4M3),     row_entry<E4M3, E5M2>(Element::E4M3, Element::E5M2),
    row_entry<E5M2, E4M3>(Element::E5M2, Element::E4M3),     row_entry<E5M2, E5M2>(Element::E5M2, Element::E5M2),
    fp8_row_entry<E4M3, E4M3>(Element::E4M3, Element::E4M3), fp8_row_entry<E5M2, E5M2>(Element::E5M2, Element::E5M2),
};

// Names what a kernel for NVFP4 along its lines is compiled for.
struct Nvfp4Key {
    Element to;
    bool one_row;  // blocks lie one after the other
    bool operator==(const Nvfp4Key&) const = default;
};

constexpr KernelEntry<Nvfp4Key, Nvfp4Arguments> nvfp4_kernels[] = {
    {{Element::E4M3, true}, requantize_row_of_nvfp4_kernel<E4M3>, kBlockThreads, 0},
    {{Element::E5M2, true}, requantize_row_of_nvfp4_kernel<E5M2>, kBlockThreads, 0},
    {{Element::E2M1, true}, requantize_row_of_nvfp4_kernel<E2M1>, kBlockThreads, 0},
    {{Element::E4M3, false}, requantize_nvfp4_tile_kernel<E4M3>, kBlockThreads, 0},
    {{Element::E5M2, false}, requantize_nvfp4_tile_kernel<E5M2>, kBlockThreads, 0},
    {{Element::E2M1, false}, requantize_nvfp4_tile_kernel<E2M1>, kBlockThreads, 0},
};

void run_nvfp4(const Context& context, const QuantizeProblem& p, const ScaleSteps& steps, const Launch& call) {
    const Nvfp4Arguments a = nvfp4_arguments(p, steps);
    launch(context, nvfp4_kernels, {p.format->element, a.blocks != 0}, "requantize_chunks", nvfp4_grid(a), call.stream, a);
}

void run_row(const Context& context, const QuantizeProblem& p, const ScaleSteps& steps, const Launch& call) {
    const QuantizedPart &from = p.source.quantized, &to = from.columnwise ? p.columnwise : p.rowwise;
    if (row_blocks(to) == 0) return;
    const bool is_mx = p.format->is_mx();
    const float most = p.format->element == Element::E5M2 ? E5M2::max : E4M3::max;
    const RowArguments a{from, to, steps, is_mx ? p.nonfinite : Nonfinite::Saturate, {most, p.epsilon, p.power_of_two}};
    launch(context, row_kernels, {from.element, p.format->element, is_mx}, "requantize_chunks", grid_of(row_blocks(to)),
           call.stream, a);
}

void run_blocks(const Context& context, const QuantizeProblem& p, const ScaleSteps& steps, const Launch& call) {
    const Element from = p.source.quantized.element;
    const BlockArguments a = block_arguments(p, steps, reaches_seven(p));
    if (p.format->bits == 8)
        launch(context, halves_kernels, {from, p.format->element, a.blocks != 0}, "requantize_chunks", half_block_grid(a),
               call.stream, a);
    else
        launch(context, blocks_kernels, {from, a.clamps, a.blocks != 0}, "requantize_chunks", block_grid(a), call.stream, a);
}

// Returns whether the output is FP8 in 128x128, of the element of a source of MX; declines_scaling refuses it across lines.
bool takes_fp8_squares(const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    return from.scale_type == ScaleType::E8M0 && from.bits == 8 && from.element == p.format->element && !p.format->is_mx() &&
           p.tile.length == kBlock128 && p.square_tiles;
}

Reason declines_formats(const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    if (from.bits == 6) return "needs codes of 8 bits or nvfp4 in the source, found six bits";
    if (from.bits == 4 && from.scale_type != ScaleType::E4M3)
        return "needs codes of 8 bits or nvfp4 in the source, found mxfp4";
    if (!takes_fp8_squares(p) && !takes_row(p) && (!p.format->is_mx() || p.format->bits == 6))
        return [format = p.format] {
            return std::string(
                       "needs mxfp8 or mxfp4 out, or fp8 of the source's element in 128x128 or, along the source's lines, "
                       "in ROW, found ") +
                   format->name;
        };
    return "";
}

Reason declines_scaling(const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    const bool has_along = from.columnwise ? p.has_columnwise : p.has_rowwise;
    const bool has_across = from.columnwise ? p.has_rowwise : p.has_columnwise;
    if (takes_nvfp4_along(p)) return "";
    if (has_along && (from.bits != 8 || from.scale_type != ScaleType::E8M0))  // products in F16: under powers of two alone
        return "needs mxfp8 in the source for the part along its lines, or nvfp4 for it alone, found another format";
    if (p.tile.length == kMxBlock && !p.square_tiles) return "";
    if (p.tile.length == kBlock128 && p.square_tiles && !has_across) return "";
    if (takes_row(p)) return "";
    return [name = p.tile.name] {
        return std::string("needs 1x32, or 128x128 or ROW along the source's lines alone, found ") + name;
    };
}

Reason declines(const Context& context, const QuantizeProblem& p) {
    if (Reason reason = declines_tile_options(p); !reason.empty()) return reason;
    if (Reason reason = declines_formats(p); !reason.empty()) return reason;
    if (Reason reason = declines_scaling(p); !reason.empty()) return reason;
    if (Reason reason = declines_source_lines(p); !reason.empty()) return reason;
    const bool grouped = p.grouped.set();
    if (!has_whole_pieces(p.source.quantized, grouped) || (p.has_rowwise && !has_whole_pieces(p.rowwise, grouped)) ||
        (p.has_columnwise && !has_whole_pieces(p.columnwise, grouped)))
        return "needs lines of whole aligned pieces of 16 bytes, found others";
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& p, const Launch& call) {
    const Tiles tiles(p);
    if (tiles.count() == 0) return;
    const ChunkArguments a{tiles, scale_steps_of(p), reaches_seven(p), p};
    if (takes_row(p)) return run_row(context, p, a.steps, call);
    if (takes_nvfp4_along(p)) return run_nvfp4(context, p, a.steps, call);
    if (takes_blocks(p)) return run_blocks(context, p, a.steps, call);
    const Key key{p.source.quantized.element, p.format->element};
    if (p.square_tiles)
        launch(context, square_kernels, {key.from, key.to, p.format->is_mx()}, "requantize_chunks", tiles.grid(),
               call.stream, a);
    else launch(context, kernels, key, "requantize_chunks", tiles.grid(), call.stream, a);
}

void load(const Context&) {
    load_kernels(kernels);
    load_kernels(square_kernels);
    load_kernels(blocks_kernels);
    load_kernels(halves_kernels);
    load_kernels(row_kernels);
    load_kernels(nvfp4_kernels);
}

}  // namespace

const QuantizeImplementation requantize_chunks = {"requantize_chunks", declines, nullptr, run, load};

}  // namespace mxq::cuda
