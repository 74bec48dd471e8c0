// Programmatic dependent launch (cuda/launch.h): a kernel starts while the last thread blocks of the kernel before it in the
// stream still run. Its thread blocks take SMs as these become free. Before compute capability 9.0 a kernel starts after all
// earlier work, and both functions do nothing.
#pragma once

namespace mxq::cuda {

// Lets the next kernel start once every thread block has called this or has exited.
__device__ __forceinline__ void start_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel before this one has ended and its writes are visible. Every thread block calls it, even one without
// work: otherwise this kernel might end before the other.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace mxq::cuda
