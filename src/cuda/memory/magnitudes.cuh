// The largest magnitudes of vectors, packed like their elements, and their maxima over lanes of a warp.
#pragma once
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "numerics/e8m0.h"

namespace mxq::cuda {

// Magnitudes stay packed like the elements, as bits without sign, which are ordered like the values. PROPAGATE passes a NaN
// on, whose bits are above Inf's. SATURATE ignores it.

// Returns the maxima of `largest`, which has no NaN under SATURATE, and of the magnitudes of a word.
template <class T, Nonfinite policy>
__device__ __forceinline__ uint32_t larger_magnitudes(uint32_t largest, uint32_t word) {
    if constexpr (std::is_same_v<T, float>) {
        const float a = bits_float(largest), b = fabsf(bits_float(word));
        if constexpr (policy == Nonfinite::Saturate) return float_bits(fmaxf(a, b));
        float max;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(max) : "f"(a), "f"(b));
        return float_bits(max);
    } else {
        uint32_t magnitude, max;
        if constexpr (std::is_same_v<T, Bf16>) {
            asm("abs.bf16x2 %0, %1;" : "=r"(magnitude) : "r"(word));
            if constexpr (policy == Nonfinite::Saturate)
                asm("max.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(largest), "r"(magnitude));
            else
                asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(largest), "r"(magnitude));
        } else {
            asm("abs.f16x2 %0, %1;" : "=r"(magnitude) : "r"(word));
            if constexpr (policy == Nonfinite::Saturate)
                asm("max.f16x2 %0, %1, %2;" : "=r"(max) : "r"(largest), "r"(magnitude));
            else
                asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(max) : "r"(largest), "r"(magnitude));
        }
        return max;
    }
}

// Returns the larger of two packed magnitudes.
template <class T>
__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    if constexpr (std::is_same_v<T, float>) return a > b ? a : b;
    else return __vmaxu2(a, b);
}

// Returns the i-th magnitude of a word as bits of an fp32 value.
template <class T>
__device__ __forceinline__ uint32_t magnitude_bits(uint32_t word, int i) {
    if constexpr (std::is_same_v<T, float>) return word;
    else return float_bits(to_float(T{uint16_t(word >> (i * 16))}));
}

// Returns the largest magnitude of a word as bits of an fp32 value.
template <class T>
__device__ __forceinline__ uint32_t largest_bits(uint32_t word) {
    if constexpr (std::is_same_v<T, float>) return word;
    else return magnitude_bits<T>((word & 0xFFFF) > word >> 16 ? word : word >> 16, 0);
}

// Returns the largest magnitudes of a vector and of `largest`, still packed.
template <class T, Nonfinite policy>
__device__ __forceinline__ uint32_t vector_magnitudes(const Vector<T>& vector, uint32_t largest = 0) {
#pragma unroll
    for (int i = 0; i < 4; i++) largest = larger_magnitudes<T, policy>(largest, vector.words[i]);
    return largest;
}

// Reduces n values over `lanes` neighbouring lanes to their maxima. Lane q gets those of index q, q + lanes, ... in
// values[0], values[1], ... (if n < lanes, that of index q % n). Each shuffle halves the work that is left, which a
// butterfly would repeat in every lane.
template <int lanes, int n, int distance = 1>
__device__ __forceinline__ void reduce_lanes(uint32_t (&values)[n]) {
    if constexpr (distance < lanes && n == 1) {
        values[0] = max(values[0], __shfl_xor_sync(kAllLanes, values[0], distance));
        reduce_lanes<lanes, n, 2 * distance>(values);
    } else if constexpr (distance < lanes) {
        const bool odd = threadIdx.x & distance;
        uint32_t kept[n / 2];
#pragma unroll
        for (int i = 0; i < n / 2; i++) {
            const uint32_t mine = odd ? values[2 * i + 1] : values[2 * i], other = odd ? values[2 * i] : values[2 * i + 1];
            kept[i] = max(mine, __shfl_xor_sync(kAllLanes, other, distance));
        }
        reduce_lanes<lanes, n / 2, 2 * distance>(kept);
#pragma unroll
        for (int i = 0; i < n / 2; i++) values[i] = kept[i];
    }
}

// Raises a maximum in memory to these bits, if they are larger.
__device__ __forceinline__ void take_larger(float* destination, uint32_t bits) {
    if (bits != 0) atomicMax(reinterpret_cast<uint32_t*>(destination), bits);
}

}  // namespace mxq::cuda
