// dequantize_rowwise: a rowwise part to F32, F16 or BF16; 1x32 or 32x32, compact or swizzled scales.
//
// The mirror of quantize_rowwise, on the same segments (segments.cuh): a lane holds the codes of four chunks, all loaded
// before the first use, and loads one scale word, that of request lane % 4. It decodes one of its scales, and its
// neighbours fetch it by a shuffle.
//
// Bytes an element: 1.03 read, 2 or 4 written, in 16-byte stores that are contiguous across a segment; bound by memory.
#include "cuda/access.cuh"
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/segments.cuh"
#include "cuda/types.cuh"

namespace mxq::cuda {
namespace {

struct Arguments {
    Segments segments;
    void* out;
    int64_t row_stride;
    const uint8_t* codes;
    const uint8_t* scales;
    ScaleLayout layout;
    bool wide;
};

// The scale of the lane's block in request lane % 4.
template <int count>
__device__ __forceinline__ uint32_t load_scale(const Arguments& a, const Requests<count>& requests) {
    const int lane = threadIdx.x % 32, block = lane / requests.block_lanes % 4, request = lane % kRequests;
    const int64_t row = requests.row + request * requests.row_step, column = requests.first_scale(request);
    const int64_t readable = readable_scales(a.layout, a.segments.rows, row, column);
    const uint32_t word = load_scale_word(a.scales + a.layout.offset(requests.matrix, row, column), readable);
    return word >> (block * 8) & 0xFF;
}

template <class E, class T>
__device__ __forceinline__ Chunk<T> dequantize_chunk(const Codes<Chunk<T>::count>& codes, float scale) {
    float values[Chunk<T>::count];
#pragma unroll
    for (int i = 0; i < Chunk<T>::count; i += 2) {
        const float2 pair = dequantize_pair<E>(codes.words[i / 4] >> (i % 4 * 8) & 0xFFFF, scale, scale);
        values[i] = pair.x;
        values[i + 1] = pair.y;
    }
    return round_chunk<T>(values);
}

template <class T, class E>
__global__ void __launch_bounds__(kSegmentThreads) dequantize_rowwise_kernel(const Arguments a) {
    constexpr int count = Chunk<T>::count;
    const int64_t task = block_index() * (kSegmentThreads / 32) + threadIdx.x / 32;
    if (task >= a.segments.tasks) return;
    const Requests<count> requests(a.segments, task);
    Codes<count> codes[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++) codes[i] = load_codes<count>(a.wide, a.codes, a.segments.cols, requests, i);
    const float scale = scale_value(load_scale(a, requests));

#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float of_request = __shfl_sync(kAllLanes, scale, threadIdx.x % 32 / kRequests * kRequests + i);
        const Chunk<T> values = dequantize_chunk<E, T>(codes[i], of_request);
        store_chunk(values, a.wide, static_cast<T*>(a.out), a.row_stride, requests, i);
    }
}

std::string declines(const Context& context, const DequantizeProblem& problem) {
    if (problem.columnwise) return "needs a rowwise part, found a columnwise one";
    return needs_cuda(context);
}

template <class T, class E>
void run_types(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    const QuantizedPart& in = problem.in;
    Arguments a{{}, problem.out.data, problem.out.row_stride, in.codes, in.scales, in.layout,
                is_wide<T>(problem.out) && is_wide(in, Chunk<T>::count)};
    a.segments = divide(problem.out, a.layout, Chunk<T>::count / 4);
    launch(context, dequantize_rowwise_kernel<T, E>, "dequantize_rowwise", a.segments.grid(), dim3(kSegmentThreads), 0,
           call.stream, a);
}

void run(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    with_types(problem.out.format, problem.format,
               [&]<class T, class E>(T, E) { run_types<T, E>(context, problem, call); });
}

}  // namespace

const DequantizeImplementation dequantize_rowwise = {"dequantize_rowwise", declines, nullptr, run};

void load_dequantize_rowwise() {
    with_all_types([]<class T, class E>(T, E) {
        load_kernel(reinterpret_cast<const void*>(dequantize_rowwise_kernel<T, E>), 0);
    });
}

}  // namespace mxq::cuda
