// How a context is opened on a CUDA device; unavailable.cpp answers in a build without CUDA.
#pragma once
#include "core/context.h"

namespace mxq::cuda {

// Fills context.cuda, context.description and context.cublaslt, or throws NO_DEVICE with what is missing. The path of
// cuBLASLt may be empty.
void open(Context& context, int ordinal, const std::string& cublaslt_path);

// Whether what is enqueued becomes part of a graph; also where CUDA does not tell.
bool is_capturing(const Context& context, void* stream);

}  // namespace mxq::cuda
