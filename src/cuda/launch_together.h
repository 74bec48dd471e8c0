// Kernels whose blocks wait for each other: all of a grid run at once, or the launch is refused ("cooperative launch"). Such
// a kernel begins when all multiprocessors that it takes are free, so a kernel of another stream that holds one, and waits
// for this stream, keeps it from beginning. docs/embedding.md says so to users.
#pragma once
#include "cuda/launch.h"

namespace mxq::cuda {

// Returns how many blocks of a kernel the context's device runs at once.
int64_t blocks_at_once(const Context& context, const void* kernel, int threads, size_t shared_bytes);

// Launches a kernel all of whose blocks run at once; false: they do not, as where a process has few of the multiprocessors,
// or the device has no such launches, and nothing was enqueued; CUDA ends a capture by that. The arguments are those of
// launch_kernel.
bool launch_together(const Context& context, const void* kernel, const char* name, uint32_t blocks, uint32_t threads,
                     size_t shared_bytes, void* stream, void** arguments);

}  // namespace mxq::cuda
