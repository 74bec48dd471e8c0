// The warps of weights_sm90 that multiply nothing: one finds tiles, and one loads them, tokens and codes by the copy engine.
#pragma once
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/slots.cuh"
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

// Copies the scales of a block, those of every 32nd line from the lane's own on. Lines behind the last count as the last, since
// nobody stores their sums.
__device__ __forceinline__ void copy_scales(const GemmProblem& p, const uint8_t* scales, int32_t line, int32_t block,
                                            uint32_t (&to)[kTileLines]) {
    const uint32_t* const first = reinterpret_cast<const uint32_t*>(scales) + block * p.b.layout.column_stride;
    const uint32_t last = uint32_t(p.n) - 1;
#pragma unroll
    for (uint32_t i = threadIdx.x % 32; i < kTileLines; i += 32)
        copy_word(&to[i], first + scale_line(p.b.layout, min(uint32_t(line) + i, last)));
}

// Loads the steps of a tile; a warp calls it. A barrier counts as complete before its first phase, so that stages are free at
// first.
template <int tokens>
__device__ __forceinline__ void load_steps(const Arguments& args, Shared<tokens>& shared, const Tile& tile,
                                           Ring<Shared<tokens>::kStages>& ring) {
    constexpr uint32_t bytes = tokens * kTokenBytes + kTileLines * kLineBytes;
    const int32_t line = tile.line, matrix = tile.group, token = tile.token;
    const Steps blocks = blocks_of_cta(args);
    const uint8_t* const scales = matrix_scales(args.problem.b, matrix);
#pragma unroll 1
    for (int32_t step = blocks.first * kBlockSteps; step < (blocks.first + blocks.count) * kBlockSteps; step++, ring.next()) {
        Stage<tokens>& stage = shared.stages[ring.at()];
        Barrier& full = shared.full[ring.at()];
        wait(shared.free[ring.at()], ring.parity() ^ 1);
        if (step % kBlockSteps == 0) copy_scales(args.problem, scales, line, step / kBlockSteps, shared.scales[ring.at()]);
        arrive_after_copies(full);
        if (elect_lane()) {
            arrive_expecting(full, bytes);
            load_tile(stage.codes, args.codes, {step * kLineBytes, line, matrix}, full);
            load_tile(stage.tokens_of_step, args.tokens, {step * kStepNumbers, token, 0}, full);
        }
        __syncwarp();
    }
}

// Finds tiles, one warp.
template <int tokens>
__device__ __forceinline__ void find_tiles(const Arguments& args, Shared<tokens>& shared) {
    bool exists = true;
#pragma unroll 1
    for (uint32_t number = 0; exists; number++) {
        const uint32_t slot = number % kSlots;
        const Tile tile = bf16::find_tile(args, cluster_index() + number * cluster_count());
        wait(shared.tile_free[slot], (number / kSlots + 1) % 2);
        if (read_thread() % 32 == 0) {
            shared.tiles[slot] = tile;
            arrive(shared.tile_full[slot]);
        }
        exists = tile.exists;
    }
}

// Loads all tiles, one warp.
template <int tokens>
__device__ __forceinline__ void load_tiles(const Arguments& args, Shared<tokens>& shared) {
    Ring<Shared<tokens>::kStages> ring;
    each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) { load_steps(args, shared, tile, ring); });
}

}  // namespace mxq::cuda::sm90::weights
