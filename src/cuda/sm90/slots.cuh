// Slots for tiles: one warp finds tiles and fills them, all others take their part of the tile of a slot and give it back.
#pragma once
#include "cuda/sm90/barrier.cuh"
#include "cuda/sm90/ring.cuh"

namespace mxq::cuda::sm90 {

// Calls `take` with the tile of each slot, in turn, as `ready` says that it is, and gives the slot back. One thread calls
// it, or a warp.
template <bool warp, int slots, class Shared, class Take>
__device__ __forceinline__ void each_tile(Shared& shared, Barrier (&ready)[slots], const Take& take) {
    Ring<slots> ring;
#pragma unroll 1
    for (;; ring.next()) {
        wait(ready[ring.at()], ring.parity());
        auto& tile = shared.tiles[ring.at()];
        if (!tile.exists) return;
        take(tile);
        if (warp) __syncwarp();
        if (!warp || threadIdx.x % 32 == 0) arrive(shared.tile_free[ring.at()]);
    }
}

}  // namespace mxq::cuda::sm90
