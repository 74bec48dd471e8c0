// Kernels of wgmma_fp8_sm90, compiled apart (fp8_squares.cu).
#pragma once
#include "cuda/sm90/fp8_tiles.cuh"

namespace mxq::cuda::sm90::squares {

constexpr int kRows = 256, kHalf = kRows / 2, kColumns = 128;  // of a tile
constexpr int32_t kMostTileSteps = 128;                        // of 128 codes, whose scales it has room for
constexpr int kMostBandPairs = 8;                              // pairs of tiles that a band is wide

struct Kernel {
    const void* entry;  // takes ProductArguments: boxes of kHalf lines of A and kColumns of B, bands and units of pairs of tiles
    uint32_t shared_bytes;
};

// Which products a kernel takes: with one scale of B for 128 lines and whole sets of four steps, the scales of A as boxes and a
// BF16 D; with one scale for 128 lines; with one for each.
enum class Kind { Whole, Any, Each };

Kernel kernel_of(Kind kind);

}  // namespace mxq::cuda::sm90::squares
