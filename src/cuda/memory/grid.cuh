// Grids of any number of thread blocks, the index of a thread block in them, and the lanes of a warp.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "core/layout.h"

namespace mxq::cuda {

constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

// Returns a grid of at least `blocks` thread blocks. Kernels return at once in those past the end.
inline dim3 grid_of(int64_t blocks) {
    constexpr int64_t longest = 0x7FFFFFFF;
    const int64_t x = blocks < 1 ? 1 : blocks < longest ? blocks : longest;
    return dim3(uint32_t(x), uint32_t(ceil_div(blocks, x) + (blocks < 1)));
}

__device__ __forceinline__ int64_t block_index() { return int64_t(blockIdx.y) * gridDim.x + blockIdx.x; }

// Returns a grid of at least `rows` rows of `across` thread blocks, so that kernels need no division.
inline dim3 grid_of_rows(int64_t across, int64_t rows) {
    constexpr int64_t most = 65535;
    const int64_t y = rows < 1 ? 1 : rows < most ? rows : most;
    return dim3(uint32_t(across < 1 ? 1 : across), uint32_t(y), uint32_t(ceil_div(rows, y) + (rows < 1)));
}

__device__ __forceinline__ uint32_t row_of_blocks() { return blockIdx.z * gridDim.y + blockIdx.y; }

}  // namespace mxq::cuda
