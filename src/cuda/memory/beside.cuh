// A kernel that starts beside the one before it in the stream ("programmatic dependent launch", cuda/launch.h): its blocks take
// multiprocessors as soon as they are free, and get ready while the last blocks of the other still work. Code for chips before
// compute capability 9.0 starts every kernel after all work before it (start_beside), and both functions do nothing there.
#pragma once

namespace mxq::cuda {

// Lets the kernel behind this one start, once every block of this one has called it or left.
__device__ __forceinline__ void start_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel before this one has ended and shows what it wrote, where this one was started beside it. All blocks call
// it, also those that have nothing to do: else this kernel might end before the other.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace mxq::cuda
