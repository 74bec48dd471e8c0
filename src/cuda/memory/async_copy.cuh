// Copies of 16 bytes from global to shared memory that take no register.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace mxq::cuda {

// Starts to copy 16 bytes to shared memory; zeros where `exists` is false.
__device__ __forceinline__ void copy_piece(uint4* to, const void* from, bool exists) {
    const uint32_t address = uint32_t(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

// Waits for all that the thread has started to copy; a barrier must follow.
__device__ __forceinline__ void wait_for_pieces() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace mxq::cuda
