// quantize_rowwise: the rowwise part alone, of aligned rows. It takes F32, F16 or BF16 to MXFP8 1x32 (BF16 with groups,
// too). It takes BF16 to 8 bits 1x128 (with groups that have no padding, too), and to MXFP4 and NVFP4 (rowwise_fp4.cuh).
// BF16 to 8 bits is also read by index.
//
// It streams: no tile, and without groups no barrier. memory/segments.cuh divides the matrix among warps. With groups, rows
// are taken as if there were none, and their destinations are found while loads are in flight (memory/row_offsets.cuh). A
// lane holds four 16-byte vectors, all loaded before the first use:
//
//     vector i of lanes 4b .. 4b+3 (F32: 8b .. 8b+7) = block b of request i; 1x128: of 16 lanes
//
// The lanes of a block exchange maxima so that lane k gets that of request k: three shuffles (F32: four) instead of eight.
// Each lane makes one scale and fetches the four that it needs. Two more shuffles combine the bytes of neighbouring blocks
// to words, which are adjacent in memory.
//
// Bytes an element: 2 or 4 read, 1.03 written. Bound by memory: of contiguous tensors a warp reads 2 KB, a thread block 16
// KB. Codes leave as 128 contiguous bytes, and swizzled scales as whole sectors, padding included.
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/row_indices.cuh"
#include "cuda/quantize/amax.h"
#include "cuda/quantize/rowwise_codes.cuh"
#include "cuda/quantize/rowwise_fp4.cuh"

namespace mxq::cuda {
namespace {

struct Arguments : RowwiseCodes {
    const void* in;
    int64_t row_stride;
    RowIndices by_index;
};

struct GroupArguments : Arguments {
    GroupedRowMap rows;
    QuantizedPart part;
};

constexpr int kBlocks = 5;  // thread blocks of an SM

// Loads vectors of rows as they are stored, or by index.
template <bool by_index, class T, class R>
__device__ __forceinline__ void load_rows(const Arguments& a, const R& requests, Vector<T> (&vectors)[kRequests]) {
    const T* const in = static_cast<const T*>(a.in);
    if constexpr (by_index)
        load_wide_vectors(vectors, in, a.row_stride, IndexedRequests<R, kRequests>(requests, a.by_index));
    else
        load_wide_vectors(vectors, in, a.row_stride, requests);
}

template <class T, class E, int block, bool by_index>
__global__ void __launch_bounds__(kSegmentThreads, kBlocks) quantize_rowwise_kernel(const __grid_constant__ Arguments a) {
    const int64_t task = block_index() * kSegmentWarps + threadIdx.x / 32;
    start_next_kernel();
    wait_for_previous_kernel();
    if (task >= a.segments.tasks) return;
    const Requests<Vector<T>::count, block> requests(a.segments, task);
    Vector<T> vectors[kRequests];
    load_rows<by_index>(a, requests, vectors);
    quantize_requests<E>(a, vectors, requests);
}

template <class E, int block, bool by_index>
__global__ void __launch_bounds__(kSegmentThreads, kBlocks)
    quantize_rowwise_groups_kernel(const __grid_constant__ GroupArguments a) {
    using R = Requests<Vector<Bf16>::count, block>;
    const uint32_t line = row_of_blocks(), first = (line - a.rows.padding) << a.rows.tile_rows_log2;
    start_next_kernel();
    wait_for_previous_kernel();
    if (line < a.rows.padding) return store_row_padding(a.rows, a.part, line);
    if (line - a.rows.padding >= a.rows.tiles) return;
    const GroupEnds ends(a.rows, 0);
    const int rows = ends.rows_from(first);
    if (rows <= 0) return;
    GroupedRequests<Vector<Bf16>::count, block> requests{R(a.segments, first, rows), kSourceRow};
    const bool waits = a.rows.units[kSourceRow] != 1;  // loads need the source rows
    Vector<Bf16> vectors[kRequests];
    if (!waits) load_rows<by_index>(a, static_cast<const R&>(requests), vectors);
    if (!a.rows.moves()) return quantize_requests<E>(a, vectors, static_cast<const R&>(requests).in_all(first));
    find_row_offsets(a.rows, ends, first);
    if (waits) load_rows<false>(a, requests, vectors);  // rows by index have no padding
    requests.accessed = kCodeRow;
    quantize_requests<E>(a, vectors, requests);
}

// ---- Four bits ---------------------------------------------------------------------------------------------------------

// Returns why the kernel of 4-bit codes declines.
Reason declines_fp4(const QuantizeProblem& problem) {
    if (problem.format->bits != 4) return needs("codes of 8 or 4 bits", problem.format->name);
    if (problem.source.plain.format != MXQ_FORMAT_BF16) return needs_bf16(problem.source.plain);
    if (problem.seed_offset) return "needs rounding to nearest, found stochastic rounding";
    if (is_transformed(problem)) return "needs no transform, found a Hadamard transform";
    if (problem.four_over_six != FourOverSix::None) return "needs one scale for a block, found four-over-six";
    return "";
}

// By the block, and by whether is_flat.
constexpr auto fp4_kernels = kernels_of(
    [](auto block, auto flat) {
        return kernel(rowwise_fp4::quantize_rowwise_fp4_kernel<block.value, flat.value>, rowwise_fp4::kThreads);
    },
    Values<int32_t(kMxBlock), int32_t(kNvBlock)>{}, Values<true, false>{});

// Returns whether the tensor and its compact scales are one contiguous row under one amax.
bool is_flat(const QuantizeProblem& problem) {
    const PlainMatrix& in = problem.source.plain;
    const QuantizedPart& out = problem.rowwise;
    if (problem.grouped.set() || out.layout.swizzled || in.cols % out.layout.block != 0) return false;
    return (in.row_stride == in.cols || in.matrices * in.rows == 1) && (out.scope_stride == 0 || in.matrices == 1);
}

void run_fp4(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    using namespace rowwise_fp4;
    const PlainMatrix& in = problem.source.plain;
    const QuantizedPart& out = problem.rowwise;
    const Start start = problem.compute_amax ? launch_amax(context, problem, out.amax, nullptr, call) : Start::AfterAll;
    const rowwise_fp4::Arguments a{static_cast<const Bf16*>(in.data),
                                   out.codes,
                                   out.scales,
                                   in.matrices * in.rows * in.cols,
                                   in.row_stride,
                                   out.line_bytes,
                                   out.layout.line_stride,
                                   uint32_t(in.cols),
                                   uint32_t(ceil_div(out.layout.columns, 4)),
                                   out.layout.swizzled != 0,
                                   problem.nonfinite == Nonfinite::Saturate,
                                   fp4_pairs::is_plain_mxfp4(problem),
                                   out.scale_max,
                                   scale_steps_of(problem),
                                   out.amax,
                                   out.scope_stride,
                                   RowTiles(problem.grouped, in, out, int32_t(kSwizzleRows))};
    if (a.elements == 0) return;
    const bool flat = is_flat(problem);
    const dim3 grid = flat ? grid_of(ceil_div(a.elements, int64_t(kWarps) * kWarpElements))
                           : grid_of_rows(ceil_div(in.cols, int64_t(kRequest)) * kTileShares, a.tiles.all);
    launch(context, fp4_kernels, {out.layout.block, flat}, "quantize_rowwise", grid, call.stream, a, start);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns whether elements and codes are whole aligned vectors. One row by index is any row of the source.
bool is_all_wide(const QuantizeProblem& problem) {
    const PlainMatrix& in = problem.source.plain;
    const QuantizedPart& out = problem.rowwise;
    const int count = in.format == MXQ_FORMAT_F32 ? Vector<float>::count : Vector<Bf16>::count;
    if (!is_wide(in) || (problem.by_index.set && in.row_stride % count != 0)) return false;
    if (problem.format->bits == 8) return is_wide(out, count);
    return is_aligned(out.codes, 4) && out.line_bytes % 4 == 0;
}

// Returns whether groups leave so much of their tiles of 128 rows empty that kernels of tiles are faster.
//
//     H100, 2026-11-25, us, x 7168, swizzled    this kernel    the next implementation
//     MXFP4   256 groups of  16384 rows         213            200
//     MXFP4   256 groups of 131072 rows         869            897
//     MXFP4    64 groups of 131072 rows         773            805
//     NVFP4   256 groups of  16384 rows         240            231
//     NVFP4   256 groups of 131072 rows         959            953
//     NVFP4    64 groups of 131072 rows         799            817
bool leaves_tiles_empty(const QuantizeProblem& problem) {
    const int64_t rows = problem.source.rows;
    constexpr int64_t filled = 128, few_elements = 1 << 18;  // rows of a group; of all
    return problem.grouped.set() && problem.format->bits < 8 && rows < filled * problem.grouped.groups.count &&
           rows * problem.source.cols >= few_elements;
}

// Returns whether the kernel of groups takes 8-bit codes. It pads blocks of 32 alone.
bool takes_groups(const QuantizeProblem& problem) {
    const QuantizedPart& out = problem.rowwise;
    const bool is_padded = problem.source.plain.group_unit != 1 || out.units.codes != 1 || out.layout.swizzled;
    return problem.source.plain.format == MXQ_FORMAT_BF16 && (problem.tile.id == MXQ_SCALING_1X32 || !is_padded);
}

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.has_columnwise) return "needs the rowwise part alone, found a columnwise one";
    const bool streams_128 =
        problem.tile.id == MXQ_SCALING_1X128 && problem.format->bits == 8 && problem.source.plain.format == MXQ_FORMAT_BF16;
    if (problem.tile.id != MXQ_SCALING_1X32 && problem.tile.id != MXQ_SCALING_1X16 && !streams_128)
        return needs("1x16, 1x32 or, from bf16 to 8 bits, 1x128 blocks", problem.tile.name);
    if (problem.grouped.set() && problem.format->bits == 8 && !takes_groups(problem))
        return "needs bf16 in blocks of 1x32 with groups, or of 1x128 without padding and with compact scales, found others";
    if (leaves_tiles_empty(problem))
        return [count = problem.grouped.groups.count] {
            return format_text("needs groups that fill tiles of scales, found %d of few rows", count);
        };
    if (problem.format->bits < 8)
        if (Reason reason = declines_fp4(problem); !reason.empty()) return reason;
    if (!is_all_wide(problem)) return "needs aligned rows and aligned codes, found others";
    return needs_cuda(context);
}

// Returns whether the rows by index of a problem are read where they are stored.
bool reads_by_index(const QuantizeProblem& problem) {
    return problem.format->bits == 8 && problem.source.plain.format == MXQ_FORMAT_BF16 && is_all_wide(problem);
}

// The last two values: the block, and whether rows are read by index.
constexpr auto kernel_for = []<class T, class E>(T, E, auto block, auto by_index) {
    return kernel(quantize_rowwise_kernel<T, E, block.value, by_index.value>, kSegmentThreads);
};
constexpr auto kernels =
    join(kernels_of(kernel_for, Types<float, F16>{}, ElementsOf8Bits{}, Values<32>{}, Values<false>{}),
         kernels_of(kernel_for, Types<Bf16>{}, ElementsOf8Bits{}, Values<32, 128>{}, Values<false, true>{}));
constexpr auto group_kernels = kernels_of(
    []<class E>(E, auto block, auto by_index) {
        return kernel(quantize_rowwise_groups_kernel<E, block.value, by_index.value>, kSegmentThreads);
    },
    ElementsOf8Bits{}, Values<32, 128>{}, Values<false, true>{});

// Returns how the matrix is divided among warps. Rows by index are not contiguous.
Segments divide_rows(const QuantizeProblem& problem, ScaleLayout& layout, int parallel) {
    PlainMatrix in = problem.source.plain;
    if (problem.grouped.set()) return divide_groups(in, layout, parallel);
    if (problem.by_index.set) in.row_stride = in.cols + 1;
    return divide(in, layout, parallel);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    if (problem.format->bits < 8) return run_fp4(context, problem, call);
    const PlainMatrix& in = problem.source.plain;
    const QuantizedPart& out = problem.rowwise;
    const int count = in.format == MXQ_FORMAT_F32 ? Vector<float>::count : Vector<Bf16>::count;
    ScaleLayout layout = out.layout;
    const Segments segments = divide_rows(problem, layout, count / 4);
    const Arguments a{rowwise_codes(problem, segments, layout), in.data, in.row_stride, problem.by_index};
    const Element element = problem.format->element;
    const int32_t block = problem.tile.length;
    const bool by_index = problem.by_index.set;
    const Start start = first_start(context, call);
    if (!problem.grouped.set())
        return launch(context, kernels, {in.format, element, block, by_index}, "quantize_rowwise", segments.grid(), call.stream,
                      a, start);
    const int64_t across = segments.across();
    if (across == 0 || problem.grouped.groups.count == 0) return;
    const GroupedRowMap rows(problem.grouped, in, out, segments.tile_rows(), across);
    launch(context, group_kernels, {element, block, by_index}, "quantize_rowwise",
           grid_of_rows(across, rows.down()), call.stream, GroupArguments{a, rows, out}, start);
}

}  // namespace

const QuantizeImplementation quantize_rowwise = {.name = "quantize_rowwise",
                                                 .declines = declines,
                                                 .run = run,
                                                 .load = load_all<kernels, group_kernels, fp4_kernels>,
                                                 .reads_by_index = reads_by_index};

}  // namespace mxq::cuda
