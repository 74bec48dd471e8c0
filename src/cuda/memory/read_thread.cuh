// The thread index, read again at each use.
#pragma once
#include <cstdint>

namespace mxq::cuda {

// Returns threadIdx.x, read again at each call. Values derived from it then occupy no registers across a loop that has none
// left.
__device__ __forceinline__ uint32_t read_thread() {
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

}  // namespace mxq::cuda
