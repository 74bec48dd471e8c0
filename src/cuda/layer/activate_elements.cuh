// Gates and ups of some neighbours in a row, with their bias, and what an activation makes of them.
#pragma once
#include "core/problem.h"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/memory/plain_elements.cuh"
#include "numerics/activation.h"

namespace mxq::cuda {

// Returns which bias a row of all experts has: that of its expert or of its group; -1: it is in no group. All lanes of a warp
// call it for the same row.
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

// Loads the gates and ups of n neighbours from element `col` of a row on, in whole vectors.
template <int n, class T>
__device__ __forceinline__ void load_gates(const ActivatedMatrix& from, const T* row, int64_t col, float (&gate)[n],
                                           float (&up)[n]) {
    if (from.step == 1) {
        load_values(row + from.gate + col, gate);
        if (is_gated(from.kind)) load_values(row + from.up + col, up);
        return;
    }
    float both[2 * n];
    load_values(row + 2 * col, both);
    const bool up_first = from.up == 0;
#pragma unroll
    for (int i = 0; i < n; i++) {
        gate[i] = up_first ? both[2 * i + 1] : both[2 * i];
        up[i] = up_first ? both[2 * i] : both[2 * i + 1];
    }
}

// Adds the bias to the gates and ups of elements that are `apart` columns apart. Those of `left` or more do not exist.
template <int n>
__device__ __forceinline__ void add_bias(const ActivatedMatrix& from, int32_t bias, int64_t col, int apart, int64_t left,
                                         float (&gate)[n], float (&up)[n]) {
    if (!from.bias.set()) return;
    const int64_t first = bias * from.in.cols;
#pragma unroll
    for (int i = 0; i < n; i++) {
        if (i * apart >= left) continue;
        const int64_t at = first + (col + i * apart) * from.step;
        gate[i] = add_rn(gate[i], number_at(from.bias, at + from.gate));
        if (is_gated(from.kind)) up[i] = add_rn(up[i], number_at(from.bias, at + from.up));
    }
}

// Replaces gates by what the activation makes of them and the ups.
template <Activation kind, int n>
__device__ __forceinline__ void activate_elements(const ActivationNumbers& numbers, float (&gate)[n], const float (&up)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) gate[i] = activated<kind>(numbers, gate[i], up[i]);
}

// Does it for any activation, which is the same for all threads.
template <int n>
__device__ __forceinline__ void activate_any(const ActivatedMatrix& from, float (&gate)[n], const float (&up)[n]) {
    switch (from.kind) {
        case Activation::Swiglu: return activate_elements<Activation::Swiglu>(from.numbers, gate, up);
        case Activation::GegluErf: return activate_elements<Activation::GegluErf>(from.numbers, gate, up);
        case Activation::GegluTanh: return activate_elements<Activation::GegluTanh>(from.numbers, gate, up);
        case Activation::SwigluClamped: return activate_elements<Activation::SwigluClamped>(from.numbers, gate, up);
        case Activation::Silu: return activate_elements<Activation::Silu>(from.numbers, gate, up);
        case Activation::GeluErf: return activate_elements<Activation::GeluErf>(from.numbers, gate, up);
        case Activation::GeluTanh: return activate_elements<Activation::GeluTanh>(from.numbers, gate, up);
        default: return activate_elements<Activation::SquaredRelu>(from.numbers, gate, up);
    }
}

// Returns, on the host, whether gates and ups can be loaded `count` at a time in whole vectors.
inline bool has_whole_gates(const ActivatedMatrix& from, int64_t cols, int64_t count) {
    return is_wide(from.in) && cols % count == 0 && (from.in.matrices * from.in.rows == 1 || from.in.row_stride % count == 0);
}

}  // namespace mxq::cuda
