// activate_rowwise: activations with a gate, of aligned BF16, to rows of 8-bit codes with scales of 32 or 128 elements.
//
// It is quantize_rowwise from another source of values: memory/segments.cuh divides the rows among warps, and a lane makes
// eight elements of each of its four requests from a vector of gates and one of ups. All eight are loaded before the first
// use.
//
//     elements of a request     | block of 32 | block of 32 | ...
//     lanes                     0  1  2  3    | 4  5  6  7  | ...
//
// Bytes an element: 4 read, 1.03 written. Bound by instructions: about 40 an element, most of them the activation's. H200,
// 65536 x 768, SwiGLU to MXFP8: 106 us, 0.56 of the rate of a device copy; by activate_tile 210.
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/layer/activate_elements.cuh"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/quantize/rowwise_codes.cuh"

namespace mxq::cuda {
namespace {

constexpr int kNumbers = Vector<Bf16>::count;  // of a request of a lane

constexpr int kBlocks = 3;  // thread blocks of an SM

struct Arguments : RowwiseCodes {
    ActivatedMatrix from;
    GroupedRows grouped;
};

// Holds eight activated numbers in fp32.
struct Activated {
    static constexpr int count = kNumbers;
    float values[kNumbers];

    __device__ __forceinline__ float operator[](int i) const { return values[i]; }
};

template <Nonfinite policy>
__device__ __forceinline__ uint32_t largest_magnitude(const Activated& of) {
    uint32_t largest = 0;
#pragma unroll
    for (const float value : of.values) largest = larger_magnitudes<float, policy>(largest, float_bits(value));
    return largest;
}

// Loads the gates and ups of the requests of a lane, and activates them. Elements that do not exist are +0. A request that
// no lane has costs nothing.
template <class R>
__device__ __forceinline__ void activate_requests(const Arguments& a, const R& requests, int32_t bias,
                                                  Activated (&made)[kRequests]) {
    const ActivatedMatrix& from = a.from;
    const auto row_of = [&](int i) { return requests.line + i * requests.row_step; };
    const auto col_of = [&](int i) { return requests.column + i * requests.column_step; };
    GateVectors<Bf16, kNumbers> vectors[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        vectors[i] = {}, made[i] = {};
        if (requests.exists(i))
            vectors[i].load(from, static_cast<const Bf16*>(from.in.data) + row_of(i) * from.in.row_stride, col_of(i));
    }
    with_gated_activation(from.kind, [&](auto kind) {
#pragma unroll
        for (int i = 0; i < kRequests; i++) {
            if (!__any_sync(kAllLanes, requests.exists(i))) continue;
            float up[kNumbers];
            vectors[i].unpack(from, made[i].values, up);
            if (requests.exists(i)) add_bias(from, bias, col_of(i), 1, kNumbers, made[i].values, up);
            activate_elements<decltype(kind)::value>(from.numbers, made[i].values, up);
        }
    });
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const bool has_weight = from.row_weights.set() && requests.exists(i);
        const float weight = has_weight ? number_at(from.row_weights, row_of(i)) : 1.0f;
#pragma unroll
        for (float& value : made[i].values) value = requests.exists(i) ? multiply_rn(value, weight) : 0.0f;
    }
}

template <class E, int block>
__global__ void __launch_bounds__(kSegmentThreads, kBlocks) activate_rowwise_kernel(const __grid_constant__ Arguments a) {
    using R = Requests<kNumbers, block>;
    const int64_t first = int64_t(row_of_blocks()) * a.segments.tile_rows();
    start_next_kernel();
    wait_for_previous_kernel();
    const int64_t end = a.grouped.groups.set ? clamped_end(a.grouped, a.grouped.groups.count - 1) : a.segments.rows;
    if (first >= end) return;
    const R requests = R(a.segments, uint32_t(first), int(end - first)).in_all(first);
    int32_t bias = 0;
    if (a.from.bias.set()) bias = bias_of_row(a.from, a.grouped, requests.line);  // a warp has one row
    if (bias < 0) return;
    Activated made[kRequests];
    activate_requests(a, requests, bias, made);
    quantize_requests<E>(a, made, requests);
}

// ---- On the host -------------------------------------------------------------------------------------------------------

constexpr auto kernels = kernels_of(
    []<class E>(E, auto block) { return kernel(activate_rowwise_kernel<E, block.value>, kSegmentThreads); }, ElementsOf8Bits{},
    Values<32, 128>{});

// Returns how the rows of all experts are divided among warps.
Segments divide_result(const QuantizeProblem& p) {
    PlainMatrix result{};
    result.matrices = 1, result.rows = p.source.matrices * p.source.rows, result.cols = p.source.cols;
    return divide_groups(result, p.rowwise.layout, kNumbers / 4);
}

Reason declines(const Context& context, const ActivateProblem& problem) {
    const QuantizeProblem& p = problem.quantize;
    const ActivatedMatrix& from = p.source.activated;
    if (!problem.quantizes) return "needs a quantized out, found a plain one";
    if (p.has_columnwise) return "needs the rowwise part alone, found a columnwise one";
    if (p.format->bits != 8 || (p.tile.id != MXQ_SCALING_1X32 && p.tile.id != MXQ_SCALING_1X128))
        return [&format = *p.format, &tile = p.tile] {
            return format_text("needs codes of 8 bits with scales of 1x32 or 1x128, found %s with %s scales", format.name,
                               tile.name);
        };
    if (p.rowwise.units.codes != 1 || p.rowwise.layout.swizzled)
        return "needs compact scales, and groups without padding, found others";
    if (!is_gated(from.kind)) return "needs an activation with a gate, found one without";
    if (from.in.format != MXQ_FORMAT_BF16) return needs_bf16(from.in);
    if (!has_whole_gates(from, p.source.cols, kNumbers) || !is_wide(p.rowwise, kNumbers))
        return "needs rows of whole aligned vectors, found others";
    if (from.bias.set() && divide_result(p).by_tile) return "needs a row for each warp with a bias, found short ones";
    return needs_cuda(context);
}

void run(const Context& context, const ActivateProblem& problem, const Launch& call) {
    const QuantizeProblem& p = problem.quantize;
    const Segments segments = divide_result(p);
    const int64_t across = segments.across();
    if (across * segments.rows == 0 || (p.grouped.set() && p.grouped.groups.count == 0)) return;
    const Arguments a{rowwise_codes(p, segments, p.rowwise.layout), p.source.activated, p.grouped};
    launch(context, kernels, {p.format->element, p.tile.length}, "activate_rowwise",
           grid_of_rows(across, ceil_div(segments.rows, int64_t(segments.tile_rows()))), call.stream, a,
           first_start(context, call));
}

}  // namespace

const ActivateImplementation activate_rowwise = {"activate_rowwise", declines, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
