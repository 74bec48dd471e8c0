// Stores of words that share a sector of 32 bytes with the words of other blocks of threads, as compact scales do: four bytes a
// line and tile. Where the L2 writes such a sector back before it is whole, memory must read it first. So the L2 is asked to
// keep it longest.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace mxq::cuda {

// Returns the L2's policy for what it shall keep longest.
__device__ __forceinline__ uint64_t keep_longest() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void store_kept(uint32_t* to, uint32_t word) {
    asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(to), "r"(word), "l"(keep_longest()) : "memory");
}

__device__ __forceinline__ void store_kept(uint2* to, uint2 words) {
    asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;" ::"l"(to), "r"(words.x), "r"(words.y), "l"(keep_longest())
                 : "memory");
}

__device__ __forceinline__ void store_kept(uint8_t* to, uint8_t byte) {
    asm volatile("st.global.L2::cache_hint.u8 [%0], %1, %2;" ::"l"(to), "r"(uint32_t(byte)), "l"(keep_longest()) : "memory");
}

}  // namespace mxq::cuda
