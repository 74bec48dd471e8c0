// Places in rings of stages and slots, and numbers that a warp has in common.
#pragma once
#include <cstdint>

#include "cuda/memory/grid.cuh"

namespace mxq::cuda::sm90 {

// A place in a ring of `count`, at most 8, and the parity of the round above it. One number, since registers are short.
template <int count>
struct Ring {
    uint32_t bits = 0;
    __device__ __forceinline__ uint32_t at() const { return bits % 8; }
    __device__ __forceinline__ uint32_t parity() const { return bits / 8; }
    __device__ __forceinline__ void next() { bits = bits % 8 == count - 1 ? 8 - bits / 8 * 8 : bits + 1; }
    // Forgets what the compiler computed from it, so that it need not be kept over a loop.
    __device__ __forceinline__ void recompute() { asm volatile("" : "+r"(bits)); }
};

// Returns a number that all lanes of a warp have, as one that the compiler knows to be the same in all of them: addresses and
// loops that depend on it are then computed once a warp.
__device__ __forceinline__ int32_t uniform(int32_t value) { return __reduce_max_sync(kAllLanes, value); }

}  // namespace mxq::cuda::sm90
