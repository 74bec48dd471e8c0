// The warps of wgmma_bf16_sm90 that multiply nothing: one thread loads tokens, codes and scales of a step by the copy engine, and a
// warp finds tiles. A stage is full when its bytes are there, and free when all consumers have left it.
#pragma once
#include "cuda/sm90/bf16_tiles.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/ring.cuh"

namespace mxq::cuda::sm90::bf16 {

// Calls `take` with the tile of each slot, in turn, as it is ready, and gives the slot back. One thread calls it, or a warp.
template <bool warp, class Shared, class Take>
__device__ __forceinline__ void each_tile(Shared& shared, const Take& take) {
    Ring<kSlots> slots;
#pragma unroll 1
    for (;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        const Tile& tile = shared.tiles[slots.at()];
        if (tile.steps < 0) return;
        take(tile);
        if (warp) __syncwarp();
        if (!warp || threadIdx.x % 32 == 0) arrive(shared.tile_free[slots.at()]);
    }
}

// Finds tiles, one warp. A barrier counts as complete before its first phase, so that slots are free at first.
template <Weights kind>
__device__ __forceinline__ void scout(const Arguments& args, Shared<kind>& shared) {
    int32_t steps = 0;
    uint32_t index = blockIdx.x;
#pragma unroll 1
    for (uint32_t number = 0; steps >= 0; number++, index += gridDim.x) {
        const uint32_t slot = number % kSlots;
        const Tile tile = find_tile(args, index);
        wait(shared.tile_free[slot], (number / kSlots + 1) % 2);
        steps = tile.steps;
        if (threadIdx.x % 32 == 0) {
            shared.tiles[slot] = tile;
            arrive(shared.tile_full[slot]);
        }
    }
}

// Loads what steps need, one thread.
template <Weights kind>
__device__ __forceinline__ void load_steps(const Arguments& args, Shared<kind>& shared) {
    using Step = Stage<kind>;
    constexpr uint32_t bytes = sizeof(Step::scales);
    const uint32_t boxes = args.tile_tokens * kTokenBytes + sizeof(Step::codes) + (args.scales.bytes ? bytes : 0);
    Ring<kStages> ring;
    each_tile<false>(shared, [&](const Tile& tile) {
        const int32_t token = tile.token, line = tile.line, matrix = tile.group, steps = tile.steps;
        const int64_t tile_of_all = int64_t(matrix) * arranged_tiles_of(args.problem) + line / kTileLines;
        const uint8_t* scales = args.scales.bytes + tile_of_all * steps * bytes;
#pragma unroll 1
        for (int32_t step = 0; step < steps; step++, ring.next(), scales += bytes) {
            Step& to = shared.stages[ring.at()];
            Barrier& full = shared.full[ring.at()];
            wait(shared.free[ring.at()], ring.parity() ^ 1);
            arrive_expecting(full, boxes);
            load_tile(to.tokens, args.tokens, {step * kStepCodes, token}, full);
            load_tile(to.codes, args.codes, {step * Step::line_bytes, line, matrix}, full);
            if (args.scales.bytes) load_bytes(to.scales, scales, bytes, full);
        }
    });
}

}  // namespace mxq::cuda::sm90::bf16
