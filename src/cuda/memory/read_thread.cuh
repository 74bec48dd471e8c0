// The number of a thread in its block, for code that must not keep it.
#pragma once
#include <cstdint>

namespace mxq::cuda {

// Returns threadIdx.x, read anew each time: what follows from it is then not kept in registers over a loop that has none left.
__device__ __forceinline__ uint32_t read_thread() {
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

}  // namespace mxq::cuda
