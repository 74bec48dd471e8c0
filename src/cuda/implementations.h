// The CUDA backend as the dispatch lists see it. In a build that leaves out a chip's folder, or CUDA altogether,
// unavailable.cpp stands in for what is missing.
#pragma once
#include "dispatch/implementation.h"

namespace mxq::cuda {

#define MXQ_IMPLEMENTATION(chip, Problem, name) extern const Implementation<Problem> name;
#include "cuda/implementations.def"
#undef MXQ_IMPLEMENTATION

}  // namespace mxq::cuda
