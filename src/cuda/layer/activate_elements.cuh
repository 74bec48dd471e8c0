// Gates and ups of some neighbours in a row, with their bias, and what an activation makes of them.
#pragma once
#include "core/problem.h"
#include "cuda/kernel_lists.h"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/memory/plain_elements.cuh"
#include "numerics/activation.h"

namespace mxq::cuda {

using GatedActivations =
    Values<Activation::Swiglu, Activation::GegluErf, Activation::GegluTanh, Activation::SwigluClamped>;

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

// Widens four neighbours.
__device__ __forceinline__ void widen_four(const uint2& from, float (&to)[4]) {
    to[0] = to_float(Bf16{uint16_t(from.x)}), to[1] = to_float(Bf16{uint16_t(from.x >> 16)});
    to[2] = to_float(Bf16{uint16_t(from.y)}), to[3] = to_float(Bf16{uint16_t(from.y >> 16)});
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
    with_plain(from.bias.format, [&]<class T>(T) {
        const T* const values = static_cast<const T*>(from.bias.values) + first;
        add(values + from.gate, values + from.up);
    });
}

// Replaces gates by what the activation makes of them and the ups.
template <Activation kind, int n>
__device__ __forceinline__ void activate_elements(const ActivationNumbers& numbers, float (&gate)[n], const float (&up)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) gate[i] = activated<kind>(numbers, gate[i], up[i]);
}

// Replaces gates by what any activation makes of them and the ups.
template <int n>
__device__ __forceinline__ void activate_any(const ActivatedMatrix& from, float (&gate)[n], const float (&up)[n]) {
    with_activation(from.kind, [&](auto kind) { activate_elements<decltype(kind)::value>(from.numbers, gate, up); });
}

// Returns, on the host, whether gates and ups can be loaded `count` at a time in whole vectors.
inline bool has_whole_gates(const ActivatedMatrix& from, int64_t cols, int64_t count) {
    return is_wide(from.in) && cols % count == 0 &&
           (from.in.matrices * from.in.rows == 1 || from.in.row_stride % count == 0);
}

// Returns, on the host, why kernels over tiles do not make the output; empty where they do.
inline Reason needs_blocks_of_8_bits(const ActivateProblem& problem) {
    const QuantizeProblem& p = problem.quantize;
    if (!problem.quantizes) return "needs a quantized out, found a plain one";
    if (p.format->bits == 8 && p.tile.length != 0) return {};
    return [&format = *p.format, &tile = p.tile] {
        return format_text("needs codes of 8 bits with scales of blocks, found %s with %s scales", format.name, tile.name);
    };
}

}  // namespace mxq::cuda
