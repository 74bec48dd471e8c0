// quantize_rowwise: F32, F16 or BF16 to the rowwise part of MXFP8 alone, in 1x32 blocks, and aligned BF16 to that of MXFP4,
// NVFP4 and MXFP6, whose kernels are in rowwise_small.cuh.
//
// Streams: no shared memory and no barrier, every warp for itself. Which segments a warp takes: memory/segments.cuh. A lane
// holds four vectors of 16 bytes, all loaded before the first use:
//
//     vector i of lanes 4b .. 4b+3 (F32: 8b .. 8b+7) = block b of request i
//
// The lanes of a block exchange maxima so that lane k gets that of request k: three shuffles (F32: four) instead of eight,
// and one scale computed per lane. Each lane fetches the four scales it needs back. Two more shuffles put the bytes of
// neighbouring blocks together to words, which neighbour each other in memory.
//
// Bytes an element: 2 or 4 read, 1.03 written; bound by memory. Contiguous tensors are read 2 KB a warp and 16 KB a block
// without a gap, their codes written as whole 128-byte lines. Swizzled scales leave as whole sectors, padding included,
// since padding is what zeros quantize to.
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
    const int64_t stored = stored_scales(layout, a.segments.rows, row, column);
    store_scale_word(a.scales + layout.offset(requests.matrix, row, column), word, stored);
}

template <class T, class E>
__global__ void __launch_bounds__(kSegmentThreads, 5) quantize_rowwise_kernel(const __grid_constant__ Arguments a) {
    const int64_t task = block_index() * (kSegmentThreads / 32) + threadIdx.x / 32;
    if (task >= a.segments.tasks) return;
    const Requests<Vector<T>::count> requests(a.segments, task);
    Vector<T> vectors[kRequests];
    load_vectors(vectors, a.wide, static_cast<const T*>(a.in), a.row_stride, requests);

    uint32_t maxima[kRequests];
    if (a.nonfinite == Nonfinite::Saturate) vector_maxima<T, Nonfinite::Saturate>(vectors, maxima);
    else vector_maxima<T, Nonfinite::Propagate>(vectors, maxima);
    reduce_lanes<requests.block_lanes>(maxima);
    uint32_t scale[1] = {maxima[0]};
    scales_of<E>(scale, a.scale_rounding, a.nonfinite);
    store_scales(a, requests, scale[0]);

    const float reciprocal = scale_reciprocal(scale[0]);
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float of_request = __shfl_sync(kAllLanes, reciprocal, threadIdx.x % 32 / kRequests * kRequests + i);
        store_codes(quantize_vector<E>(vectors[i], of_request), a.wide, a.codes, a.segments.cols, requests, i);
    }
}

// ---- Four and six bits -----------------------------------------------------------------------------------------------

// Returns why codes of four or six bits are left to others.
Reason declines_small(const QuantizeProblem& problem) {
    if (problem.source.plain.format != MXQ_FORMAT_BF16)
        return [format = problem.source.plain.format] { return std::string("needs bf16, found ") + find_format(format)->name; };
    if (is_transformed(problem)) return "needs no transform, found a Hadamard transform";
    if (problem.four_over_six != FourOverSix::None) return "needs one scale for a block, found four-over-six";
    if (problem.rowwise.scope_stride != 0 && problem.rowwise.matrices > 1) return "needs one amax, found one for each expert";
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

template <class E, int block, bool down>
constexpr KernelEntry<SmallKey, rowwise_small::Arguments> small_entry(Element element) {
    return {{element, block, down, false},
            rowwise_small::quantize_rowwise_small_kernel<E, block, down>,
            rowwise_small::kThreads,
            0};
}

template <int block>
constexpr KernelEntry<SmallKey, rowwise_small::Arguments> stochastic_entry() {
    return {{Element::E2M1, block, true, true},
            rowwise_small::quantize_rowwise_stochastic_kernel<block>,
            rowwise_small::kThreads,
            0};
}

constexpr KernelEntry<SmallKey, rowwise_small::Arguments> small_kernels[] = {
    small_entry<E2M1, kMxBlock, false>(Element::E2M1), small_entry<E2M1, kMxBlock, true>(Element::E2M1),
    small_entry<E2M1, kNvBlock, false>(Element::E2M1), small_entry<E2M1, kNvBlock, true>(Element::E2M1),
    small_entry<E2M3, kMxBlock, false>(Element::E2M3), small_entry<E2M3, kMxBlock, true>(Element::E2M3),
    small_entry<E3M2, kMxBlock, false>(Element::E3M2), small_entry<E3M2, kMxBlock, true>(Element::E3M2),
    stochastic_entry<kMxBlock>(),                      stochastic_entry<kNvBlock>(),
};

rowwise_small::Arguments small_arguments(const QuantizeProblem& problem) {
    const PlainMatrix& in = problem.source.plain;
    const QuantizedPart& out = problem.rowwise;
    const int64_t tile_rows = ceil_div(in.rows, kSwizzleRows);
    return {static_cast<const Bf16*>(in.data), out.codes, out.scales, in.matrices * in.rows * in.cols, in.row_stride,
            out.line_bytes, out.layout.line_stride, out.layout.matrix_scales, uint32_t(in.rows), uint32_t(in.cols),
            uint32_t(tile_rows), uint32_t(in.matrices * tile_rows), uint32_t(ceil_div(out.layout.columns, 4)),
            out.layout.swizzled != 0, problem.nonfinite == Nonfinite::Saturate, fp4_pairs::is_plain_mxfp4(problem),
            out.scale_max, scale_steps_of(problem), out.amax, problem.seed_offset};
}

void run_small(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    using namespace rowwise_small;
    const PlainMatrix& in = problem.source.plain;
    const QuantizedPart& out = problem.rowwise;
    const Start start = problem.compute_amax ? launch_amax(context, problem, out.amax, nullptr, call) : Start::AfterAll;
    const rowwise_small::Arguments a = small_arguments(problem);
    if (a.elements == 0) return;
    const bool one_line = in.row_stride == in.cols || in.matrices * in.rows == 1;
    const bool stochastic = problem.seed_offset != nullptr;  // needs rows for its counters
    const bool down = stochastic || out.layout.swizzled || !one_line || in.cols % out.layout.block != 0;
    const dim3 grid = down ? grid_of_rows(ceil_div(in.cols, kRequest) * kTileShares, a.all_tile_rows)
                           : grid_of(ceil_div(a.elements, kWarps * rowwise_small::kRequests * kRequest));
    const SmallKey key{problem.format->element, out.layout.block, down, stochastic};
    launch(context, small_kernels, key, "quantize_rowwise", grid, call.stream, a, start);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (problem.has_columnwise) return "needs the rowwise part alone, found a columnwise one";
    if (problem.format->is_fp8())
        return [format = problem.format] { return std::string("needs blocks of 16 or 32, found ") + format->name; };
    if (problem.tile.id != MXQ_SCALING_1X32 && problem.tile.id != MXQ_SCALING_1X16)
        return [name = problem.tile.name] { return std::string("needs 1x32 or 1x16 blocks, found ") + name; };
    if (problem.grouped.set()) return "needs rows without groups, found groups";
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
    Arguments a{{}, in.data, in.row_stride, out.codes, out.scales, out.layout, problem.scale_rounding, problem.nonfinite,
                wide && is_wide(out, count)};
    a.segments = divide(in, a.layout, count / 4);
    launch(context, kernels, {in.format, problem.format->element}, "quantize_rowwise", a.segments.grid(), call.stream, a);
}

void load(const Context&) {
    load_kernels(kernels);
    load_kernels(small_kernels);
}

}  // namespace

const QuantizeImplementation quantize_rowwise = {"quantize_rowwise", declines, nullptr, run, load};

}  // namespace mxq::cuda
