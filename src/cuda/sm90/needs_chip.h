// The first thing that the implementations of this folder ask.
#pragma once
#include "cuda/device.h"
#include "dispatch/implementation.h"

namespace mxq::cuda::sm90 {

// Returns why kernels for Hopper decline this context; empty where it has such a GPU.
inline Reason needs_chip(const Context& context) {
    const int32_t capability = context.cuda->compute_capability;
    if (capability == 90) return {};
    return
        [capability] { return format_text("needs compute capability 9.0, found %d.%d", capability / 10, capability % 10); };
}

}  // namespace mxq::cuda::sm90
