// A kernel that starts beside the one before it in the stream ("programmatic dependent launch", cuda/launch.h): its blocks take
// multiprocessors as soon as they are free, and get ready while the last blocks of the other still work.
#pragma once

namespace mxq::cuda::sm90 {

// Lets the kernel behind this one start, once every block of this one has called it.
__device__ __forceinline__ void start_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Waits until the kernel before this one has ended and shows what it wrote, where this one was started beside it.
__device__ __forceinline__ void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace mxq::cuda::sm90
