// The warps of wgmma_bf16_sm90 that multiply nothing: one thread loads tokens and codes of a step by the copy engine,
// another arranged scales, and a warp finds tiles. A stage is full when its bytes are there, and free when all consumers
// have left it.
#pragma once
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/sm90/bf16_tiles.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/slots.cuh"

namespace mxq::cuda::sm90::bf16 {

// Finds tiles, one warp. A barrier counts as complete before its first phase, so that slots are free at first.
template <Weights kind>
__device__ __forceinline__ void scout(const Arguments& args, Shared<kind>& shared) {
    bool exists = true;
    uint32_t index = cluster_index();
#pragma unroll 1
    for (uint32_t number = 0; exists; number++, index += cluster_count()) {
        const uint32_t slot = number % kSlots;
        const Tile tile = find_tile(args, index);
        wait(shared.tile_free[slot], (number / kSlots + 1) % 2);
        exists = tile.exists;
        if (threadIdx.x % 32 == 0) {
            shared.tiles[slot] = tile;
            arrive(shared.tile_found[slot]);
        }
        wait_for_previous_kernel();
        __syncwarp();
        const bool any_scales = exists && find_any_scales(args, shared.tiles[slot]);
        if (threadIdx.x % 32 == 0) {
            shared.tiles[slot].any_scales = any_scales;
            arrive(shared.tile_full[slot]);
        }
    }
}

// Calls `load` with each step of each tile and the stage that it is for, as the stage is free. One thread calls it.
template <Weights kind, class Load>
__device__ __forceinline__ void each_step(const Arguments& args, Shared<kind>& shared, const Load& load) {
    const Steps steps = steps_of_block(args);
    Ring<kStages> ring;
    each_tile<false>(shared, shared.tile_found, [&](const Tile& tile) {
        const int32_t token = tile.token, line = tile.line, matrix = tile.group;
#pragma unroll 1
        for (int32_t step = steps.first; step < steps.end; step++, ring.next()) {
            wait(shared.free[ring.at()], ring.parity() ^ 1);
            load(shared.stages[ring.at()], shared.full[ring.at()], step, token, line, matrix);
        }
    });
}

// Loads tokens and codes, which need not wait for the pass over scales: it began when all that was before it had ended.
template <Weights kind>
__device__ __forceinline__ void load_operands(const Arguments& args, Shared<kind>& shared) {
    using Step = Stage<kind>;
    const uint32_t bytes = args.units.tile_tokens * args.parts * kTokenBytes + sizeof(Step::codes);
    each_step(args, shared, [&](Step& to, Barrier& full, int32_t step, int32_t token, int32_t line, int32_t matrix) {
        arrive_expecting(full, bytes);
        load_tile(to.tokens, args.tokens, {step * kStepCodes, token, 0}, full);
        load_tile(to.codes, args.codes, {step * Step::line_bytes, line, matrix}, full);
    });
}

template <Weights kind>
__device__ __forceinline__ void load_scales(const Arguments& args, Shared<kind>& shared) {
    constexpr uint32_t bytes = sizeof(Stage<kind>::scales);
    const uint32_t steps = arranged_steps_of(args.problem), tiles = arranged_tiles_of(args.problem);
    each_step(args, shared, [&](Stage<kind>& to, Barrier& full, int32_t step, int32_t, int32_t line, int32_t matrix) {
        const int64_t tile = int64_t(matrix) * tiles + line / kTileLines;
        arrive_expecting(full, bytes);
        load_bytes(to.scales, args.scales.bytes + (tile * steps + step) * bytes, bytes, full);
    });
}

}  // namespace mxq::cuda::sm90::bf16
