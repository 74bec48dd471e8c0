// Asynchronous copies (cp.async) from global to shared memory. They occupy no registers.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace mxq::cuda {

// Starts to copy 16 bytes to shared memory; zeros where `exists` is false.
__device__ __forceinline__ void copy_vector(uint4* to, const void* from, bool exists) {
    const uint32_t address = uint32_t(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

// Starts to copy a word of 4, 8 or 16 bytes.
template <class Word>
__device__ __forceinline__ void copy_word(Word* to, const void* from) {
    const uint32_t address = uint32_t(__cvta_generic_to_shared(to));
    if constexpr (sizeof(Word) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(Word)) : "memory");
}

// Waits for all copies of the thread. A barrier must follow.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace mxq::cuda
