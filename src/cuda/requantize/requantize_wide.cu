// requantize_wide: MXFP8 E4M3 and NVFP4, in lines of whole aligned pieces of 16 bytes, to MXFP8 E4M3 and MXFP4 across the
// source's lines, MXFP8 to ROW and 128x128 of MXFP8 and FP8, too, E4M3 to E4M3 and E5M2 to both; experts, no groups. Tiles
// of 256 x 256, so that memory reads and writes 256 bytes of a line at once, of four bits 128 (docs/performance.md, the rate
// of memory by pattern). From MXFP8 to MXFP4 low ones of 128 lines x 256 positions, which write 64 bytes of a line. lists.cpp
// says from how many tiles on that is faster than requantize_chunks.
//
//     codes, scales --> shared memory --16 lines of a word a lane--> F16 pairs --> maxima --> scales, codes --> memory
//
//     tile     each 16 lines, a chunk of every position, change pieces of 16 bytes about in a way of their own, so that 8
//              chunks meet 8 bank groups (codes_tile.cuh); a warp reads words of 16, two lanes a bank, and stores 256 or 128
//              bytes of two lines; of a low tile a lane a bank, and 64 bytes of four lines
//
// wide_mxfp8.cuh says what the tiles of MXFP8 are, wide_positions.cuh how values become codes, wide_nvfp4_in_f16.cuh and
// wide_nvfp4.cuh how those of NVFP4 do, wide_columns.cuh and wide_row.cuh how they do under scales of ROW, wide_squares.cuh
// under those of 128x128. Blocks of threads run down strips of four tiles: a line of compact scales of the source is a
// sector of four tiles, one of the output that of four rows of them, of eight low ones, and they so meet in the L2.
//
// Bytes an element: 1.03 or 0.56 read, 1.03 or 0.53 written. To 8 bits bound by memory, scales above all, as a bare kernel
// of the pattern is (docs/performance.md). To 4 bits a grid of few waves is bound by how it starts and ends, too.
#include <algorithm>
#include <type_traits>

#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/launch_together.h"
#include "cuda/quantize/amax.h"
#include "cuda/quantize/quantize_tile.h"
#include "cuda/requantize/source_lines.cuh"
#include "cuda/requantize/wide_columns.cuh"
#include "cuda/requantize/wide_mxfp8.cuh"
#include "cuda/requantize/wide_nvfp4.cuh"
#include "cuda/requantize/wide_nvfp4_in_f16.cuh"
#include "cuda/requantize/wide_positions.cuh"
#include "cuda/requantize/wide_row.cuh"
#include "cuda/requantize/wide_squares.cuh"

namespace mxq::cuda {
namespace {

// The ways of a tile to elements E: what it has in shared memory, and how it comes there and leaves as codes.
template <class E, bool clamps>
struct FromMxfp8 {
    static constexpr bool low = E::bits == 4;
    using Shared = WideMxfp8Shared<low ? kLowTile : kWide>;
    static __device__ __forceinline__ void requantize(const WideArguments& a, const WidePlace& place, Shared& shared) {
        uint2 scales{};
        if constexpr (low) scales = load_scales_of_line(a, place);
        copy_wide_codes(a, place, shared);
        if constexpr (!low) scales = load_scales_of_line(a, place);  // faster for compact ones (docs/performance.md)
        put_wide_units<E4M3>(place, scales, shared);
        shared.from_scales[threadIdx.x][0] = scales.x, shared.from_scales[threadIdx.x][1] = scales.y;
        wait_for_pieces();
        __syncthreads();
        emit_wide_positions<E, clamps>(a, place, shared);
    }
};

template <class E, bool clamps>
struct FromNvfp4 {
    using Shared = WideNvfp4Shared;
    static __device__ __forceinline__ void requantize(const WideArguments& a, const WidePlace& place, Shared& shared) {
        copy_wide_codes(a, place, shared);
        const bool negative = load_wide_scales(a, place, shared);
        load_wide_global<E>(a, place, shared);
        wait_for_pieces();
        const bool any_negative = __syncthreads_or(negative);
        if (shared.step != kNoF16 && shared.global > 0 && !any_negative)
            emit_nvfp4_in_f16<E, clamps>(a, place, shared);
        else
            emit_wide_nvfp4<E>(a, place, shared);
    }
};

template <class Way>
__global__ void __launch_bounds__(Way::Shared::lines, Way::Shared::blocks_of_registers)
    requantize_wide_kernel(const __grid_constant__ WideArguments a) {
    using Shared = typename Way::Shared;
    alignas(128) extern __shared__ uint4 wide_memory[];
    auto& shared = *reinterpret_cast<Shared*>(wide_memory);
    const WidePlace place(a, WideIndex::in_strips(a, row_of_blocks(), blockIdx.x), Shared::lines);
    if (!place.exists(a)) return;
    start_in_turn<Shared::blocks_at_once>(a);
    Way::requantize(a, place, shared);
    __syncthreads();
    store_wide_scales(a, place, shared);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Names what a kernel is compiled for.
struct Key {
    Element from, to;
    bool clamps;  // to MXFP4: values over their scale may be 7 or more
    bool operator==(const Key&) const = default;
};

template <class Way>
constexpr KernelEntry<Key, WideArguments> entry(Element from, Element to, bool clamps = false) {
    return {{from, to, clamps}, requantize_wide_kernel<Way>, Way::Shared::lines, sizeof(typename Way::Shared)};
}

constexpr KernelEntry<Key, WideArguments> kernels[] = {
    entry<FromMxfp8<E4M3, false>>(Element::E4M3, Element::E4M3),
    entry<FromMxfp8<E2M1, false>>(Element::E4M3, Element::E2M1, false),
    entry<FromMxfp8<E2M1, true>>(Element::E4M3, Element::E2M1, true),
    entry<FromNvfp4<E4M3, false>>(Element::E2M1, Element::E4M3),
    entry<FromNvfp4<E2M1, false>>(Element::E2M1, Element::E2M1, false),
    entry<FromNvfp4<E2M1, true>>(Element::E2M1, Element::E2M1, true),
};

Key key_of(const QuantizeProblem& p) {
    const Element from = p.source.quantized.element, to = p.format->element;
    return {from, to, to == Element::E2M1 && reaches_seven(p)};
}

// How the outputs that the kernels make are scaled.
enum class Scaling { Blocks, Lines, Squares, Fp8Lines, Fp8Squares, Others };

Scaling scaling_of(const QuantizeProblem& p) {
    const bool squares = p.tile.length == kBlock128 && p.square_tiles;
    if (p.format->is_mx() && p.tile.id == MXQ_SCALING_1X32) return Scaling::Blocks;
    if (p.format->bits != 8 || !(squares || p.tile.is_row())) return Scaling::Others;
    if (p.format->is_mx()) return squares ? Scaling::Squares : Scaling::Lines;
    return squares ? Scaling::Fp8Squares : Scaling::Fp8Lines;
}

uint32_t tiles_across(const QuantizedPart& from) { return uint32_t(ceil_div(from.length, kWide)); }
uint32_t tiles_down(const QuantizedPart& from, int lines = kWide) { return uint32_t(ceil_div(from.lines, int64_t(lines))); }

// Returns the lines of a tile.
int lines_of_tile(const QuantizeProblem& p) {
    return p.source.quantized.element == Element::E4M3 && p.format->element == Element::E2M1 ? kLowTile : kWide;
}

// Returns whether there are so few tiles that the way in which the first of them start is felt, and none is missing among
// the blocks of threads that start first, which are counted. An incomplete strip has blocks without tiles.
bool starts_in_turn(const QuantizedPart& from, int lines, uint32_t multiprocessors) {
    const int64_t across = tiles_across(from), down = tiles_down(from, lines), at_once = kWideBlocks * kWideThreads / lines;
    const bool first_exist =
        across % kWideStrip == 0 || (across > kWideStrip && kWideStrip * down >= at_once * multiprocessors);
    return from.matrices * across * down < 8192 * kWide / lines && first_exist;
}

// Names a kernel for scales of more than a block.
struct CoarseKey {
    Scaling scaling;
    Element from, to;
    bool operator==(const CoarseKey&) const = default;
};

// Names an element type of 8 bits.
template <class E>
constexpr Element kElement = std::is_same_v<E, E4M3> ? Element::E4M3 : Element::E5M2;

template <class Scales>
constexpr CoarseKey coarse_key(Scaling scaling) {
    return {scaling, kElement<typename Scales::From>, kElement<typename Scales::To>};
}

template <class Scales>
constexpr KernelEntry<CoarseKey, WideArguments> row_entry(Scaling scaling) {
    return {coarse_key<Scales>(scaling), requantize_wide_row_kernel<Scales>, kWideThreads, sizeof(WideRowShared)};
}

template <class Scales>
constexpr KernelEntry<CoarseKey, WideArguments> square_entry(Scaling scaling) {
    return {coarse_key<Scales>(scaling), requantize_wide_squares_kernel<Scales>, kWideThreads, sizeof(WideSquareShared)};
}

constexpr KernelEntry<CoarseKey, WideArguments> coarse_kernels[] = {
    row_entry<MxScales<E4M3, E4M3>>(Scaling::Lines),
    row_entry<MxScales<E5M2, E4M3>>(Scaling::Lines),
    row_entry<MxScales<E5M2, E5M2>>(Scaling::Lines),
    row_entry<Fp8Scales<E4M3, E4M3>>(Scaling::Fp8Lines),
    row_entry<Fp8Scales<E5M2, E4M3>>(Scaling::Fp8Lines),
    row_entry<Fp8Scales<E5M2, E5M2>>(Scaling::Fp8Lines),
    square_entry<MxScales<E4M3, E4M3>>(Scaling::Squares),
    square_entry<MxScales<E5M2, E4M3>>(Scaling::Squares),
    square_entry<MxScales<E5M2, E5M2>>(Scaling::Squares),
    square_entry<Fp8Scales<E4M3, E4M3>>(Scaling::Fp8Squares),
    square_entry<Fp8Scales<E5M2, E4M3>>(Scaling::Fp8Squares),
    square_entry<Fp8Scales<E5M2, E5M2>>(Scaling::Fp8Squares),
};

// Returns whether a kernel takes codes of these elements, under scales of blocks or of more.
bool takes_elements(Element from, Element to, bool blocks) {
    if (blocks) return from != Element::E5M2 && (to == Element::E4M3 || to == Element::E2M1);
    return from == Element::E5M2 || (from == Element::E4M3 && to == Element::E4M3);  // to 8 bits
}

Reason declines_formats(const QuantizeProblem& p) {
    const QuantizedPart &from = p.source.quantized, &to = from.columnwise ? p.rowwise : p.columnwise;
    const bool of_eight = from.element == Element::E4M3 || from.element == Element::E5M2;
    const bool mxfp8 = of_eight && from.scale_type == ScaleType::E8M0 && from.layout.block == kMxBlock;
    const bool nvfp4 = from.element == Element::E2M1 && from.scale_type == ScaleType::E4M3 && from.layout.block == kNvBlock;
    if (!(mxfp8 || nvfp4) || from.layout.tile_rows != 1 || from.layout.repeat != 1)
        return "needs mxfp8 of 1x32 or nvfp4 of 1x16 in the source, found another format or scaling";
    const Scaling scaling = scaling_of(p);
    if (scaling == Scaling::Others || !takes_elements(from.element, p.format->element, scaling == Scaling::Blocks))
        return "needs mxfp8_e4m3 or mxfp4 of 1x32 out of mxfp8_e4m3 or nvfp4, or mxfp8 or fp8 in ROW or 128x128 out of "
               "mxfp8, of e4m3 to e4m3 alone, found another format or scaling";
    if (scaling == Scaling::Fp8Squares && to.amax) return "needs no place for an amax, found one";
    return "";
}

// The kernel was timed where a multiprocessor has room for its three blocks; with one of them it may well be the slower one.
Reason needs_room(const Context& context) {
    const int32_t capability = context.cuda->compute_capability;
    if (capability >= 90 && capability < 120) return "";
    return [capability] {
        return format_text(
            "needs three blocks of %d KB in a multiprocessor, which compute capability 9.0 to 11.0 has, found %d.%d",
            int(sizeof(WideMxfp8Shared<>) / 1024), capability / 10, capability % 10);
    };
}

Reason declines(const Context& context, const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    if (Reason reason = declines_tile_options(p); !reason.empty()) return reason;
    if (Reason reason = declines_formats(p); !reason.empty()) return reason;
    if (p.grouped.set()) return "needs rows without groups, found groups";
    if (from.columnwise ? p.has_columnwise : p.has_rowwise)
        return "needs the part across the source's lines alone, found the one along them";
    if (Reason reason = declines_source_lines(p); !reason.empty()) return reason;
    if (!has_whole_pieces(from, false) || !has_whole_pieces(from.columnwise ? p.rowwise : p.columnwise, false))
        return "needs lines of whole aligned pieces of 16 bytes, found others";
    if (Reason reason = needs_cuda(context); !reason.empty()) return reason;
    return needs_room(context);
}

// Tiles of a column up to which one kernel is faster than two: 32768 lines. One H200, 2026-11-26.
constexpr uint32_t kMostOfColumn = 128;

// Returns whether lines that have one scale each take one kernel where the device holds a column of tiles at once.
bool takes_columns(const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    const int64_t columns = from.matrices * int64_t(tiles_across(from));
    return from.element == Element::E4M3 && p.tile.is_row() && tiles_down(from) <= kMostOfColumn &&
           columns * tiles_down(from) < int64_t(1) << 31;
}

// Counts arrivals of each column, and tiles that are taken.
uint64_t arrivals_bytes(const QuantizedPart& from) { return (from.matrices * tiles_across(from) + 1) * sizeof(uint32_t); }

uint64_t workspace_bytes(const Context& context, const QuantizeProblem& p) {
    return tile_workspace_bytes(context, p) + (takes_columns(p) ? arrivals_bytes(p.source.quantized) : 0);
}

constexpr auto columns_kernel_mx = requantize_wide_columns_kernel<MxScales<E4M3, E4M3>>;
constexpr auto columns_kernel_fp8 = requantize_wide_columns_kernel<Fp8Scales<E4M3, E4M3>>;

// Launches the one kernel for lines that have one scale each; false: it does not serve, and was not enqueued.
bool launch_columns(const Context& context, Scaling scaling, const QuantizeProblem& p, WideArguments a, const Launch& call) {
    if (!takes_columns(p)) return false;
    const auto kernel = scaling == Scaling::Lines ? columns_kernel_mx : columns_kernel_fp8;
    const void* const function = reinterpret_cast<const void*>(kernel);
    const int64_t at_once = blocks_at_once(context, function, kWideThreads, sizeof(WideColumnShared));
    if (at_once < a.down) return false;
    const uint64_t maxima = tile_workspace_bytes(context, p);
    a.arrivals = reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(call.workspace) + maxima);
    clear(context, call.workspace, maxima + arrivals_bytes(a.from), "zeroing maxima", call.stream);
    if (maxima == 0)
        clear(context, a.maxima, size_t(a.to.matrices * a.to.lines) * sizeof(float), "zeroing maxima", call.stream);
    const int64_t tiles = a.from.matrices * int64_t(a.across) * a.down;
    void* arguments[] = {&a};
    return launch_together(context, function, "requantize_wide", uint32_t(std::min(tiles, at_once)), kWideThreads,
                           sizeof(WideColumnShared), call.stream, arguments);
}

void run(const Context& context, const QuantizeProblem& p, const Launch& call) {
    const QuantizedPart& from = p.source.quantized;
    const int lines = lines_of_tile(p);
    const uint32_t across = tiles_across(from), down = tiles_down(from, lines);
    if (from.matrices * across * down == 0) return;
    const bool rowwise = from.columnwise;
    const QuantizedPart& to = rowwise ? p.rowwise : p.columnwise;
    const Fp8Rule rule{p.format->element == Element::E5M2 ? E5M2::max : E4M3::max, p.epsilon, p.power_of_two};
    float* const maxima = to.amax ? to.amax : static_cast<float*>(call.workspace);
    const uint32_t multiprocessors = uint32_t(context.cuda->multiprocessors);
    const uint32_t strips = uint32_t(ceil_div(int64_t(across), int64_t(kWideStrip))),
                   in_turn = starts_in_turn(from, lines, multiprocessors) ? multiprocessors : 0;
    const WideArguments a{from, to, across, down, strips, in_turn, scale_steps_of(p), p.nonfinite, rule, maxima, nullptr};
    const dim3 grid = grid_of_rows(int64_t(kWideStrip) * down, int64_t(strips) * from.matrices);
    const Scaling scaling = scaling_of(p);
    if (scaling == Scaling::Blocks) return launch(context, kernels, key_of(p), "requantize_wide", grid, call.stream, a);
    Start start = Start::AfterAll;
    if (p.tile.is_row()) {
        if (launch_columns(context, scaling, p, a, call)) return;
        start = launch_amax(context, p, rowwise ? maxima : nullptr, rowwise ? nullptr : maxima, call);
    }
    launch(context, coarse_kernels, {scaling, from.element, p.format->element}, "requantize_wide", grid, call.stream, a,
           start);
}

void load(const Context&) {
    load_kernels(kernels);
    load_kernels(coarse_kernels);
    load_kernel(columns_kernel_mx, sizeof(WideColumnShared));
    load_kernel(columns_kernel_fp8, sizeof(WideColumnShared));
}

}  // namespace

const QuantizeImplementation requantize_wide = {"requantize_wide", declines, workspace_bytes, run, load};

}  // namespace mxq::cuda
