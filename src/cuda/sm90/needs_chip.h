// Says why kernels for Hopper decline a context that has another chip, or an operand that the copy engine cannot read.
#pragma once
#include "cuda/device.h"
#include "cuda/sm90/tensor_map.h"
#include "dispatch/implementation.h"

namespace mxq::cuda::sm90 {

// Returns why kernels for Hopper decline this context; empty where it has such a GPU.
inline Reason needs_chip(const Context& context) {
    const int32_t capability = context.cuda->compute_capability;
    if (capability == 90) return {};
    return
        [capability] { return format_text("needs compute capability 9.0, found %d.%d", capability / 10, capability % 10); };
}

// Returns why a kernel declines an operand that the copy engine is to read by this map.
inline Reason needs_mappable(const TileMap& map) {
    if (unmappable(map).empty()) return {};
    return [data = map.data, lines = map.strides[0], matrices = map.strides[1]] {
        return format_text("needs a and b at multiples of 16 bytes, their lines and matrices as far apart, found one at %p with "
                           "lines of %lld and matrices of %lld bytes",
                           data, (long long)lines, (long long)matrices);
    };
}

}  // namespace mxq::cuda::sm90
