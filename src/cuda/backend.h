// How a context is opened on a CUDA device, and what chip that is; unavailable.cpp answers in a build without CUDA.
#pragma once
#include "core/context.h"

namespace mxq::cuda {

// Fills what a CUDA context has of its own, or throws NO_DEVICE with what is missing. The path of cuBLASLt may be empty. Calls
// `load` on the finished context while its device is current.
void open(Context& context, int ordinal, const std::string& cublaslt_path, void (*load)(const Context&));

// Returns the compute capability of a context's device, 90 for 9.0; 0 of a CPU context.
int compute_capability(const Context& context);

// Returns the number of SMs of a context's device; 0 of a CPU context.
int multiprocessors(const Context& context);

}  // namespace mxq::cuda
