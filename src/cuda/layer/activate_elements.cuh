// Gates and ups of some neighbours in a row, with their bias, and what an activation makes of them.
#pragma once
#include "core/problem.h"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/memory/plain_elements.cuh"
#include "numerics/activation.h"

namespace mxq::cuda {

// Returns which bias a row of all experts has: that of its expert or of its group; -1: it is in no group. All lanes of a
// warp call it for the same row.
__device__ __forceinline__ int32_t bias_of_row(const ActivatedMatrix& from, const GroupedRows& grouped, int64_t row) {
    if (!grouped.groups.set) return from.bias.set() && from.in.matrices > 1 ? int32_t(row / from.in.rows) : 0;
    const int32_t count = grouped.groups.count;
    if (!from.bias.set()) return count > 0 && row < clamped_end(grouped, count - 1) ? 0 : -1;
    int32_t ended = 0;
    for (int32_t base = 0; base < count; base += 32) {
        const int32_t group = base + int32_t(threadIdx.x % 32);
        ended += __popc(__ballot_sync(kAllLanes, group < count && clamped_end(grouped, group) <= row));
    }
    return ended < count ? ended : -1;
}

// Returns number `at` of an array.
__device__ __forceinline__ float number_at(const PlainArray& numbers, int64_t at) {
    return element_at(numbers.values, numbers.format, at);
}

// The gates and ups of n neighbours in a row, as they are stored: whole vectors.
template <class T, int n>
struct GateVectors {
    static constexpr int count = n / Vector<T>::count;
    Vector<T> first[count], second[count];  // gates and ups; where they alternate, the two halves

    // Loads those from element `col` of a row on.
    __device__ __forceinline__ void load(const ActivatedMatrix& from, const T* row, int64_t col) {
        const bool alternate = from.step != 1;
        const T* const begin = row + (alternate ? 2 * col : from.gate + col);
        const T* const other = row + (alternate ? 2 * col + n : from.up + col);
#pragma unroll
        for (int i = 0; i < count; i++) first[i] = load_vector_wide(begin + i * Vector<T>::count, true);
#pragma unroll
        for (int i = 0; i < count; i++) second[i] = load_vector_wide(other + i * Vector<T>::count, is_gated(from.kind));
    }

    __device__ __forceinline__ void unpack(const ActivatedMatrix& from, float (&gate)[n], float (&up)[n]) const {
        const auto element = [&](int i) {
            return i < n ? first[i / Vector<T>::count][i % Vector<T>::count]
                         : second[i / Vector<T>::count - count][i % Vector<T>::count];
        };
        if (from.step == 1) {
#pragma unroll
            for (int i = 0; i < n; i++) gate[i] = element(i), up[i] = element(n + i);
            return;
        }
        const bool up_first = from.up == 0;
#pragma unroll
        for (int i = 0; i < n; i++) {
            gate[i] = up_first ? element(2 * i + 1) : element(2 * i);
            up[i] = up_first ? element(2 * i) : element(2 * i + 1);
        }
    }
};

// Loads the gates and ups of n neighbours from element `col` of a row on, in whole vectors.
template <int n, class T>
__device__ __forceinline__ void load_gates(const ActivatedMatrix& from, const T* row, int64_t col, float (&gate)[n],
                                           float (&up)[n]) {
    GateVectors<T, n> vectors;
    vectors.load(from, row, col);
    vectors.unpack(from, gate, up);
}

// Adds the bias to the gates and ups of elements that are `apart` columns apart. Those of `left` or more do not exist.
template <int n>
__device__ __forceinline__ void add_bias(const ActivatedMatrix& from, int32_t bias, int64_t col, int apart, int64_t left,
                                         float (&gate)[n], float (&up)[n]) {
    if (!from.bias.set()) return;
    const int64_t first = bias * from.in.cols + col * from.step;
    const auto add = [&](const auto* of_gates, const auto* of_ups) {
#pragma unroll
        for (int i = 0; i < n; i++) {
            if (i * apart >= left) continue;
            gate[i] = add_rn(gate[i], to_float(of_gates[i * apart * from.step]));
            if (is_gated(from.kind)) up[i] = add_rn(up[i], to_float(of_ups[i * apart * from.step]));
        }
    };
    const auto add_of = [&]<class T>(T) {
        const T* const values = static_cast<const T*>(from.bias.values) + first;
        add(values + from.gate, values + from.up);
    };
    if (from.bias.format == MXQ_FORMAT_F32)
        add_of(float{});
    else if (from.bias.format == MXQ_FORMAT_F16)
        add_of(F16{});
    else
        add_of(Bf16{});
}

// Replaces gates by what the activation makes of them and the ups.
template <Activation kind, int n>
__device__ __forceinline__ void activate_elements(const ActivationNumbers& numbers, float (&gate)[n], const float (&up)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) gate[i] = activated<kind>(numbers, gate[i], up[i]);
}

// Calls body(ActivationConstant<kind>{}) for an activation with a gate, which is the same for all threads.
template <class Body>
__device__ __forceinline__ void with_gated(Activation kind, const Body& body) {
    switch (kind) {
        case Activation::GegluErf: return body(ActivationConstant<Activation::GegluErf>{});
        case Activation::GegluTanh: return body(ActivationConstant<Activation::GegluTanh>{});
        case Activation::SwigluClamped: return body(ActivationConstant<Activation::SwigluClamped>{});
        default: return body(ActivationConstant<Activation::Swiglu>{});
    }
}

// Does it for any activation.
template <class Body>
__device__ __forceinline__ void with_any_activation(Activation kind, const Body& body) {
    switch (kind) {
        case Activation::Swiglu: return body(ActivationConstant<Activation::Swiglu>{});
        case Activation::GegluErf: return body(ActivationConstant<Activation::GegluErf>{});
        case Activation::GegluTanh: return body(ActivationConstant<Activation::GegluTanh>{});
        case Activation::SwigluClamped: return body(ActivationConstant<Activation::SwigluClamped>{});
        case Activation::Silu: return body(ActivationConstant<Activation::Silu>{});
        case Activation::GeluErf: return body(ActivationConstant<Activation::GeluErf>{});
        case Activation::GeluTanh: return body(ActivationConstant<Activation::GeluTanh>{});
        default: return body(ActivationConstant<Activation::SquaredRelu>{});
    }
}

// Replaces gates by what any activation makes of them and the ups.
template <int n>
__device__ __forceinline__ void activate_any(const ActivatedMatrix& from, float (&gate)[n], const float (&up)[n]) {
    with_any_activation(from.kind, [&](auto kind) { activate_elements<decltype(kind)::value>(from.numbers, gate, up); });
}

// Returns, on the host, whether gates and ups can be loaded `count` at a time in whole vectors.
inline bool has_whole_gates(const ActivatedMatrix& from, int64_t cols, int64_t count) {
    return is_wide(from.in) && cols % count == 0 &&
           (from.in.matrices * from.in.rows == 1 || from.in.row_stride % count == 0);
}

}  // namespace mxq::cuda
