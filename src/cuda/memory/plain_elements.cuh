// Elements of D in any type, and what a product adds to its sums.
#pragma once
#include "core/problem.h"
#include "cuda/types.cuh"

namespace mxq::cuda {

// Calls body(T{}) on the device, with the type T of a plain format that all threads of a warp have.
template <class Body>
__device__ __forceinline__ void with_plain(int32_t format, const Body& body) {
    if (format == MXQ_FORMAT_F32) body(float{});
    else if (format == MXQ_FORMAT_F16) body(F16{});
    else body(Bf16{});
}

__device__ __forceinline__ float element_at(const void* data, int32_t format, int64_t at) {
    if (format == MXQ_FORMAT_F32) return static_cast<const float*>(data)[at];
    if (format == MXQ_FORMAT_F16) return to_float(static_cast<const F16*>(data)[at]);
    return to_float(static_cast<const Bf16*>(data)[at]);
}

__device__ __forceinline__ void store_element(void* data, int32_t format, int64_t at, float value) {
    if (format == MXQ_FORMAT_F32)
        static_cast<float*>(data)[at] = value;
    else if (format == MXQ_FORMAT_F16)
        static_cast<F16*>(data)[at] = from_float<F16>(value);
    else
        static_cast<Bf16*>(data)[at] = from_float<Bf16>(value);
}

// Loads pairs of neighbouring elements, one pair every 8 elements. Elements `left` or more after the first are -0, which
// adds nothing.
template <class T, int pairs>
__device__ __forceinline__ void load_pairs(const T* from, int left, float2 (&to)[pairs]) {
    const auto load = [&](int i) { return i < left ? to_float(from[i]) : -0.0f; };
#pragma unroll
    for (int i = 0; i < pairs; i++) to[i] = {load(8 * i), load(8 * i + 1)};
}

// Does the same for elements of any type, from element `at` on.
template <int pairs>
__device__ __forceinline__ void load_pairs(const void* data, int32_t format, int64_t at, int left, float2 (&to)[pairs]) {
    if (format == MXQ_FORMAT_F32)
        load_pairs(static_cast<const float*>(data) + at, left, to);
    else if (format == MXQ_FORMAT_F16)
        load_pairs(static_cast<const F16*>(data) + at, left, to);
    else
        load_pairs(static_cast<const Bf16*>(data) + at, left, to);
}

// Returns alpha value + beta D + bias, rounded after each step, for an element of D.
__device__ __forceinline__ float add_more(const GemmProblem& p, int32_t group, int64_t row, int32_t column, float value) {
    if (p.is_sum_alone()) return value;
    value = multiply_rn(p.alpha, value);
    if (p.beta != 0)
        value = add_rn(value, multiply_rn(p.beta, element_at(p.d.data, p.d.format, row * p.d.row_stride + column)));
    if (p.bias.format != 0) value = add_rn(value, element_at(p.bias.values, p.bias.format, group * p.n + column));
    return value;
}

}  // namespace mxq::cuda
