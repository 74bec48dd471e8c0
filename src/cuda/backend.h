// How a context is opened on a CUDA device; unavailable.cpp answers in a build without CUDA.
#pragma once
#include "core/context.h"

namespace mxq::cuda {

// Fills context.cuda and context.description, or throws NO_DEVICE with what is missing.
void open(Context& context, int ordinal);

}  // namespace mxq::cuda
