// How a context is opened on a CUDA device; unavailable.cpp answers in a build without CUDA.
#pragma once
#include "core/context.h"

namespace mxq::cuda {

// Fills what a CUDA context has of its own, or throws NO_DEVICE with what is missing. The path of cuBLASLt may be empty.
void open(Context& context, int ordinal, const std::string& cublaslt_path);

}  // namespace mxq::cuda
