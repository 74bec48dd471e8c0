// Computes block scales and codes of the values that a lane holds in registers, for kernels that quantize rows. A lane has four
// vectors, in the order of memory/segments.cuh.
#pragma once
#include "cuda/memory/codes.cuh"
#include "cuda/memory/magnitudes.cuh"
#include "cuda/memory/segments.cuh"
#include "cuda/types.cuh"
#include "numerics/fp8_scale.h"

namespace mxq::cuda {

// Where codes and scales go, and how scales are made.
struct RowwiseCodes {
    Segments segments;
    uint8_t* codes;
    uint8_t* scales;
    ScaleLayout layout;
    ScaleRounding scale_rounding;
    Nonfinite nonfinite;
    bool is_float;  // 1x128: scales are fp32
    bool power_of_two;
    float epsilon;
    float* amax;
};

inline RowwiseCodes rowwise_codes(const QuantizeProblem& problem, const Segments& segments, const ScaleLayout& layout) {
    const QuantizedPart& out = problem.rowwise;
    const bool is_float = problem.format->is_fp8();
    return {segments,
            out.codes,
            out.scales,
            layout,
            problem.scale_rounding,
            is_float ? Nonfinite::Saturate : problem.nonfinite,
            is_float,
            problem.power_of_two,
            problem.epsilon,
            is_float ? out.amax : nullptr};
}

// Stores scale words. `scale` is that of the lane's block in request lane % 4.
template <class R>
__device__ __forceinline__ void store_scales(const RowwiseCodes& a, const R& requests, uint32_t scale) {
    constexpr int block_lanes = R::block_lanes;
    const int lane = threadIdx.x % 32, block = lane / block_lanes % 4, request = lane % kRequests;
    uint32_t word = scale << (block * 8);
    word |= __shfl_xor_sync(kAllLanes, word, block_lanes);
    word |= __shfl_xor_sync(kAllLanes, word, 2 * block_lanes);
    if (lane % R::segment_lanes >= kRequests) return;
    const int64_t column = requests.first_scale(request);
    ScaleLayout layout = a.layout;
    layout.tile_rows = 1, layout.column_stride = 1;  // known here
    const int64_t stored = requests.scales_from(layout, request, column);
    if (stored <= 0) return;
    uint8_t* const to = a.scales + layout.offset(requests.matrix, requests.scale_row(request), column);
    if (requests.shares_sectors(layout))
        store_shared_scale_word(to, word, stored);
    else
        store_scale_word(to, word, stored);
}

// Stores the scale of a block of 128 of request lane % 4, by the first lanes of the block.
template <class R>
__device__ __forceinline__ void store_scale_of_128(const RowwiseCodes& a, const R& requests, uint32_t scale,
                                                   uint32_t maximum) {
    const int lane = threadIdx.x % 32, request = lane % kRequests;
    if (lane % R::segment_lanes >= kRequests) return;
    ScaleLayout layout = a.layout;
    layout.tile_rows = 1;
    const int64_t column = layout.swizzled ? requests.first_scale(request) : requests.segment(request);
    const int64_t stored = requests.scales_from(layout, request, column);
    if (stored <= 0) return;
    const int64_t at = layout.offset(requests.matrix, requests.scale_row(request), column);
    if (layout.swizzled) {
        const int left = int(min(layout.columns - column, kSwizzleColumns));
        const uint32_t word = scale * 0x01010101u & (~0u >> (32 - 8 * left));
        if (requests.shares_sectors(layout))
            store_shared_scale_word(a.scales + at, word, kSwizzleColumns);
        else
            store_scale_word(a.scales + at, word, kSwizzleColumns);
    } else if (a.is_float) {
        reinterpret_cast<float*>(a.scales)[at] = fp8_stored_scale(bits_float(scale));
        if (a.amax) a.amax[at] = bits_float(maximum);
    } else {
        a.scales[at] = uint8_t(scale);
    }
}

// Makes and stores the scale of the lane's block in request lane % 4 from its maximum. Returns the factor of elements.
template <class E, class R>
__device__ __forceinline__ float put_scale(const RowwiseCodes& a, const R& requests, uint32_t maximum) {
    constexpr bool of_128 = R::block_lanes == R::segment_lanes;
    if (of_128 && a.is_float) {
        const float factor = fp8_quantization_scale(bits_float(maximum), {E::max, a.epsilon, a.power_of_two});
        store_scale_of_128(a, requests, float_bits(factor), maximum);
        return factor;
    }
    uint32_t scale[1] = {maximum};
    scales_of<E>(scale, a.scale_rounding, a.nonfinite);
    if constexpr (of_128)
        store_scale_of_128(a, requests, scale[0], maximum);
    else
        store_scales(a, requests, scale[0]);
    return scale_reciprocal(scale[0]);
}

// Returns the largest magnitude of a vector as bits of an fp32 value.
template <Nonfinite policy, class T>
__device__ __forceinline__ uint32_t largest_magnitude(const Vector<T>& vector) {
    return largest_bits<T>(vector_magnitudes<T, policy>(vector));
}

// Stores the codes and scales of what a lane holds for its requests: a Vector, or a type with its functions.
template <class E, class V, class R>
__device__ __forceinline__ void quantize_requests(const RowwiseCodes& a, const V (&vectors)[kRequests], const R& requests) {
    uint32_t maxima[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++)
        maxima[i] = a.nonfinite == Nonfinite::Saturate ? largest_magnitude<Nonfinite::Saturate>(vectors[i])
                                                       : largest_magnitude<Nonfinite::Propagate>(vectors[i]);
    reduce_lanes<R::block_lanes>(maxima);
    const float factor = put_scale<E>(a, requests, maxima[0]);
    Codes<V::count> codes[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const float of_request = __shfl_sync(kAllLanes, factor, threadIdx.x % 32 / kRequests * kRequests + i);
        codes[i] = quantize_vector<E>(vectors[i], of_request);
    }
#pragma unroll
    for (int i = 0; i < kRequests; i++) store_wide_codes(codes[i], a.codes, a.segments.cols, requests, i);
}

}  // namespace mxq::cuda
