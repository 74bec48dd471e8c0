// Stores of words whose 32-byte sector other thread blocks complete, such as compact scales: four bytes a row and tile. If
// the L2 writes such a sector back before it is whole, DRAM must read it first. So the store asks the L2 to evict it last.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace mxq::cuda {

// Returns the L2 policy evict_last.
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
