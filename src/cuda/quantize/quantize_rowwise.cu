// quantize_rowwise: F32, F16 or BF16 to the rowwise part of MXFP8 alone, in 1x32 blocks, and aligned BF16 to that of MXFP4,
// NVFP4 and MXFP6, whose kernels are in rowwise_small.cuh; experts, and groups of rows.
//
// Streams: no tile and no barrier, every warp for itself. Which segments a warp takes: memory/segments.cuh. With groups a
// block of threads takes rows of one, which its first warp finds (memory/row_tiles.cuh): from there on it is the same. A
// lane holds four vectors of 16 bytes, all loaded before the first use:
//
//     vector i of lanes 4b .. 4b+3 (F32: 8b .. 8b+7) = block b of request i
//
// The lanes of a block exchange maxima so that lane k gets that of request k: three shuffles (F32: four) instead of eight,
// and one scale computed per lane. Each lane fetches the four scales it needs back. Two more shuffles put the bytes of
// neighbouring blocks together to words, which neighbour each other in memory.
//
// Bytes an element: 2 or 4 read, 1.03 written; bound by memory. Contiguous tensors are read 2 KB a warp and 16 KB a block
// without a gap, their codes written as whole 128-byte lines. Swizzled scales leave as whole sectors, padding included,
// since padding is what zeros quantize to: that of groups, too.
#include "cuda/memory/codes.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/magnitudes.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/memory/segments.cuh"
#include "cuda/quantize/amax.h"
#include "cuda/quantize/rowwise_small.cuh"
#include "cuda/types.cuh"

namespace mxq::cuda {
namespace {

struct Arguments {
    Segments segments;
    const void* in;
    int64_t row_stride;
    uint8_t* codes;
    uint8_t* scales;
    ScaleLayout layout;
    ScaleRounding scale_rounding;
    Nonfinite nonfinite;
    bool wide;
    RowTiles tiles;  // of groups
};

template <class T, Nonfinite policy>
__device__ __forceinline__ void vector_maxima(const Vector<T> (&vectors)[kRequests], uint32_t (&maxima)[kRequests]) {
#pragma unroll
    for (int i = 0; i < kRequests; i++) maxima[i] = largest_bits<T>(vector_magnitudes<T, policy>(vectors[i]));
}

// Stores scale words; `scale` is that of the lane's block in request lane % 4.
template <int count>
__device__ __forceinline__ void store_scales(const Arguments& a, const Requests<count>& requests, uint32_t scale) {
    constexpr int block_lanes = requests.block_lanes;
    const int lane = threadIdx.x % 32, block = lane / block_lanes % 4, request = lane % kRequests;
    uint32_t word = scale << (block * 8);
    word |= __shfl_xor_sync(kAllLanes, word, block_lanes);
    word |= __shfl_xor_sync(kAllLanes, word, 2 * block_lanes);
    if (lane % requests.segment_lanes >= kRequests) return;
    const int64_t row = requests.row + request * requests.row_step, column = requests.first_scale(request);
    ScaleLayout layout = a.layout;
    layout.tile_rows = 1, layout.column_stride = 1;  // known here
    const int64_t stored = stored_scales(layout, requests.rows, row, column);
    store_scale_word(a.scales + requests.group_scale + layout.offset(requests.matrix, row, column), word, stored);
}

template <class T, class E>
__device__ __forceinline__ void quantize_requests(const Arguments& a, const Requests<Vector<T>::count>& requests) {
    Vector<T> vectors[kRequests];
    load_vectors(vectors, a.wide, static_cast<const T*>(a.in), a.row_stride, requests);

    uint32_t maxima[kRequests];
    if (a.nonfinite == Nonfinite::Saturate) vector_maxima<T, Nonfinite::Saturate>(vectors, maxima);
    else vector_maxima<T, Nonfinite::Propagate>(vectors, maxima);
    reduce_lanes<requests.block_lanes>(maxima);
    uint32_t scale[1] = {maxima[0]};
    scales_of<E>(scale, a.scale_rounding, a.nonfinite);
    store_scales(a, requests, scale[0]);

    const auto codes = requests.of_codes();
    const float reciprocal = scale_reciprocal(scale[0]);
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float of_request = __shfl_sync(kAllLanes, reciprocal, threadIdx.x % 32 / kRequests * kRequests + i);
        store_codes(quantize_vector<E>(vectors[i], of_request), a.wide, a.codes, a.segments.cols, codes, i);
    }
}

template <class T, class E>
__global__ void __launch_bounds__(kSegmentThreads, 5) quantize_rowwise_kernel(const __grid_constant__ Arguments a) {
    using R = Requests<Vector<T>::count>;
    const int64_t task = block_index() * kSegmentWarps + threadIdx.x / 32;
    const bool grouped = a.tiles.in_groups;
    GroupTask of_group;
    if (grouped ? !find_group_task<R::parallel>(a.segments, a.tiles, of_group) : task >= a.segments.tasks) return;
    quantize_requests<T, E>(a, grouped ? R(a.segments, of_group) : R(a.segments, task));
}

// ---- Four and six bits -----------------------------------------------------------------------------------------------

// Returns why codes of four or six bits are left to others.
Reason declines_small(const QuantizeProblem& problem) {
    if (problem.source.plain.format != MXQ_FORMAT_BF16)
        return [format = problem.source.plain.format] { return std::string("needs bf16, found ") + find_format(format)->name; };
    if (is_transformed(problem)) return "needs no transform, found a Hadamard transform";
    if (problem.four_over_six != FourOverSix::None) return "needs one scale for a block, found four-over-six";
    const QuantizedPart& out = problem.rowwise;
    const int bytes = problem.format->bits == 6 ? 16 : 4;
    if (!is_wide<Bf16>(problem.source.plain) || !is_aligned(out.codes, bytes) || out.line_bytes % bytes != 0)
        return "needs aligned lines, found others";
    return "";
}

struct SmallKey {
    Element element;
    int32_t block;
    bool down;
    bool stochastic;
    bool operator==(const SmallKey&) const = default;
};

using SmallEntry = KernelEntry<SmallKey, rowwise_small::Arguments>;

template <class E, int block>
constexpr SmallEntry along_entry(Element element) {
    using namespace rowwise_small;
    return {{element, block, false, false}, quantize_rowwise_small_along_kernel<E, block>, kThreads, 0};
}

template <class E, int block>
constexpr SmallEntry down_entry(Element element) {
    using namespace rowwise_small;
    return {{element, block, true, false}, quantize_rowwise_small_down_kernel<E, block>, kThreads, 0};
}

template <int block>
constexpr SmallEntry stochastic_entry() {
    using namespace rowwise_small;
    return {{Element::E2M1, block, true, true}, quantize_rowwise_stochastic_kernel<block>, kThreads, 0};
}

constexpr SmallEntry small_kernels[] = {
    along_entry<E2M1, kMxBlock>(Element::E2M1), down_entry<E2M1, kMxBlock>(Element::E2M1),
    along_entry<E2M1, kNvBlock>(Element::E2M1), down_entry<E2M1, kNvBlock>(Element::E2M1),
    along_entry<E2M3, kMxBlock>(Element::E2M3), down_entry<E2M3, kMxBlock>(Element::E2M3),
    along_entry<E3M2, kMxBlock>(Element::E3M2), down_entry<E3M2, kMxBlock>(Element::E3M2),
    stochastic_entry<kMxBlock>(),               stochastic_entry<kNvBlock>(),
};

rowwise_small::Arguments small_arguments(const QuantizeProblem& problem, bool down) {
    const PlainMatrix& in = problem.source.plain;
    const QuantizedPart& out = problem.rowwise;
    return {static_cast<const Bf16*>(in.data), out.codes, out.scales, in.matrices * in.rows * in.cols, in.row_stride,
            out.line_bytes, out.layout.line_stride, uint32_t(in.cols), uint32_t(ceil_div(out.layout.columns, 4)),
            out.layout.swizzled != 0, problem.nonfinite == Nonfinite::Saturate, fp4_pairs::is_plain_mxfp4(problem),
            out.scale_max, scale_steps_of(problem), out.amax, out.scope_stride, problem.seed_offset,
            RowTiles(problem.grouped, in, out, down ? int32_t(kSwizzleRows) : rowwise_small::kWarps)};
}

// Returns whether warps go down tiles: where scales lie in tiles or random numbers count rows. Without groups along is one
// line without a gap, which has one amax; with groups it is a row, which may be too short for it.
bool goes_down_small(const QuantizeProblem& problem) {
    const PlainMatrix& in = problem.source.plain;
    const QuantizedPart& out = problem.rowwise;
    if (problem.seed_offset != nullptr || out.layout.swizzled) return true;
    if (problem.grouped.set())
        return ceil_div(in.cols, rowwise_small::kRequest) < 2 * ceil_div(in.cols, rowwise_small::kAlong);
    const bool one_line = in.row_stride == in.cols || in.matrices * in.rows == 1;
    return !one_line || in.cols % out.layout.block != 0 || (out.scope_stride != 0 && in.matrices > 1);
}

void run_small(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    using namespace rowwise_small;
    const int64_t cols = problem.source.cols;
    const QuantizedPart& out = problem.rowwise;
    const Start start = problem.compute_amax ? launch_amax(context, problem, out.amax, nullptr, call) : Start::AfterAll;
    const bool down = goes_down_small(problem), stochastic = problem.seed_offset != nullptr;
    const rowwise_small::Arguments a = small_arguments(problem, down);
    if (a.elements == 0) return;
    const dim3 grid = down                    ? grid_of_rows(ceil_div(cols, kRequest) * kTileShares, a.tiles.all)
                      : problem.grouped.set() ? grid_of_rows(ceil_div(cols, kAlong), a.tiles.all)
                                              : grid_of(ceil_div(a.elements, kWarps * kAlong));
    const SmallKey key{problem.format->element, out.layout.block, down, stochastic};
    launch(context, small_kernels, key, "quantize_rowwise", grid, call.stream, a, start);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns whether groups leave so much of their tiles of 128 rows empty that tiles of values are faster. An H100,
// 2026-11-25, us by this implementation and by those behind it, 256 groups to swizzled scales, 16384 and 131072 rows of
// 7168: MXFP8 250, 227 and 1033, 986; MXFP4 213, 200 and 869, 897; NVFP4 240, 231 and 959, 953; MXFP6 with 16384 rows 233,
// 243. In 64 groups 131072 rows take 937, 942; 773, 805 and 799, 817.
bool leaves_tiles_empty(const QuantizeProblem& problem) {
    const bool by_tiles = problem.rowwise.layout.swizzled || problem.seed_offset;
    const int64_t rows = problem.source.rows;
    const int32_t bits = problem.format->bits, filled = bits == 8 ? 1024 : bits == 4 ? 128 : 0;  // rows of a group
    constexpr int64_t few_elements = 1 << 18;
    return problem.grouped.set() && by_tiles && rows < int64_t(filled) * problem.grouped.groups.count &&
           rows * problem.source.cols >= few_elements;
}

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.has_columnwise) return "needs the rowwise part alone, found a columnwise one";
    if (problem.format->is_fp8())
        return [format = problem.format] { return std::string("needs blocks of 16 or 32, found ") + format->name; };
    if (problem.tile.id != MXQ_SCALING_1X32 && problem.tile.id != MXQ_SCALING_1X16)
        return [name = problem.tile.name] { return std::string("needs 1x32 or 1x16 blocks, found ") + name; };
    if (leaves_tiles_empty(problem))
        return [count = problem.grouped.groups.count] {
            return format_text("needs groups that fill tiles of scales, found %d of few rows", count);
        };
    if (problem.format->bits < 8)
        if (Reason reason = declines_small(problem); !reason.empty()) return reason;
    return needs_cuda(context);
}

// Names what a kernel is compiled for.
struct Key {
    int32_t plain;
    Element element;
    bool operator==(const Key&) const = default;
};

template <class T, class E>
constexpr KernelEntry<Key, Arguments> entry(int32_t plain, Element element) {
    return {{plain, element}, quantize_rowwise_kernel<T, E>, kSegmentThreads, 0};
}

constexpr KernelEntry<Key, Arguments> kernels[] = {
    entry<float, E4M3>(MXQ_FORMAT_F32, Element::E4M3), entry<float, E5M2>(MXQ_FORMAT_F32, Element::E5M2),
    entry<F16, E4M3>(MXQ_FORMAT_F16, Element::E4M3),   entry<F16, E5M2>(MXQ_FORMAT_F16, Element::E5M2),
    entry<Bf16, E4M3>(MXQ_FORMAT_BF16, Element::E4M3), entry<Bf16, E5M2>(MXQ_FORMAT_BF16, Element::E5M2),
};

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    if (problem.format->bits < 8) return run_small(context, problem, call);
    const PlainMatrix& in = problem.source.plain;
    const QuantizedPart& out = problem.rowwise;
    const int count = in.format == MXQ_FORMAT_F32 ? Vector<float>::count : Vector<Bf16>::count;
    const bool wide = in.format == MXQ_FORMAT_F32 ? is_wide<float>(in) : is_wide<Bf16>(in);
    const bool grouped = problem.grouped.set();
    ScaleLayout layout = out.layout;
    const Segments segments = grouped ? divide_groups(in, layout, count / 4) : divide(in, layout, count / 4);
    const Arguments a{segments, in.data, in.row_stride, out.codes, out.scales, layout, problem.scale_rounding,
                      problem.nonfinite, wide && is_wide(out, count), RowTiles(problem.grouped, in, out, segments.tile_rows())};
    const dim3 grid = grouped ? segments.group_grid(a.tiles) : segments.grid();
    launch(context, kernels, {in.format, problem.format->element}, "quantize_rowwise", grid, call.stream, a);
}

void load(const Context&) {
    load_kernels(kernels);
    load_kernels(small_kernels);
}

}  // namespace

const QuantizeImplementation quantize_rowwise = {"quantize_rowwise", declines, nullptr, run, load};

}  // namespace mxq::cuda
