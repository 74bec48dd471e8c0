// The warps of wgmma_bf16_sm90 that multiply nothing:
//
//     warp 0        tokens and codes of a step by the copy engine, one thread
//     warps 1, 2    scales of its lines, which may lie in any layout, a step ahead in registers
//     warp 3        finds tiles
//
// A stage is full when the boxes and both halves of the scales are there, and free when all consumers have left it.
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
template <Weights kind, int tokens>
__device__ __forceinline__ void scout(const Arguments& args, Shared<kind, tokens>& shared) {
    int32_t steps = 0;
    uint32_t index = blockIdx.x;
#pragma unroll 1
    for (uint32_t number = 0; steps >= 0; number++, index += gridDim.x) {
        const uint32_t slot = number % kSlots;
        const Tile tile = find_tile<tokens>(args, index);
        wait(shared.tile_free[slot], (number / kSlots + 1) % 2);
        steps = tile.steps;
        if (threadIdx.x % 32 == 0) {
            shared.tiles[slot] = tile;
            arrive(shared.tile_full[slot]);
        }
    }
}

// Loads tokens and codes, one thread.
template <Weights kind, int tokens>
__device__ __forceinline__ void load_boxes(const Arguments& args, Shared<kind, tokens>& shared) {
    using Step = Stage<kind, tokens>;
    Ring<kStages> ring;
    each_tile<false>(shared, [&](const Tile& tile) {
        const int32_t token = tile.token, line = tile.line, matrix = tile.group;
#pragma unroll 1
        for (int32_t step = 0; step < tile.steps; step++, ring.next()) {
            Step& to = shared.stages[ring.at()];
            Barrier& full = shared.full[ring.at()];
            wait(shared.free[ring.at()], ring.parity() ^ 1);
            arrive_expecting(full, sizeof(to.tokens) + sizeof(to.codes));
            load_tile(to.tokens, args.tokens, {step * kStepCodes, token}, full);
            load_tile(to.codes, args.codes, {step * Step::line_bytes, line, matrix}, full);
        }
    });
}

// Returns four factors of NVFP4 of four scale bytes. NaN needs no care: it makes all products NaN.
__device__ __forceinline__ uint2 factors_of(uint32_t scales) {
    uint32_t factors[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t scale = scales >> 8 * i & 0xFF, nan = 0x7FFF7FFF;
        factors[i] = needs_two_factors<Weights::Nvfp4>(bf16_decode_rule_nvfp4(), scale)
                         ? nan
                         : scale_factor<Weights::Nvfp4>(bf16_decode_rule_nvfp4(), scale);
    }
    return {permute_bytes(factors[0], factors[1], 0x5410), permute_bytes(factors[2], factors[3], 0x5410)};
}

// Returns the scale bytes of a line in the step that begins at code k, the first in the lowest byte: those of 32 codes each, or
// of 16 (NVFP4). Past the end they are 1, which the zeros there are multiplied with.
template <Weights kind>
__device__ __forceinline__ uint32_t load_scales(const Arguments& args, const uint8_t* line, uint32_t k) {
    constexpr uint32_t block = kind == Weights::Nvfp4 ? 16 : 32, one = kind == Weights::Nvfp4 ? 0x38 : 127;
    uint32_t word = 0;
#pragma unroll
    for (uint32_t i = 0; i < kStepCodes / block; i++) {
        const bool exists = args.scaled && k + i * block < uint32_t(args.problem.k);
        word |= (exists ? __ldg(line + scale_in_line(args.problem.b.layout, k + i * block)) : one) << 8 * i;
    }
    return word;
}

// Brings the scales of half of a tile's lines, one warp.
template <Weights kind, int tokens>
__device__ __forceinline__ void bring_scales(const Arguments& args, Shared<kind, tokens>& shared, uint32_t half) {
    constexpr int of_lane = tile_lines<tokens> / kScaleWarps / 32;
    const uint32_t first = half * (tile_lines<tokens> / kScaleWarps) + threadIdx.x % 32;
    Ring<kStages> ring;
    each_tile<true>(shared, [&](const Tile& tile) {
        const GemmOperand& b = args.problem.b;
        const uint8_t* const scales = matrix_scales(b, tile.group);
        const int32_t steps = tile.steps;
        const uint8_t* lines[of_lane];
        uint32_t ahead[of_lane];
#pragma unroll
        for (int i = 0; i < of_lane; i++) {
            const uint32_t line = min(uint32_t(tile.line) + first + 32 * i, uint32_t(args.problem.n) - 1);
            lines[i] = scales + scale_line(b.layout, line);
            ahead[i] = load_scales<kind>(args, lines[i], 0);
        }
#pragma unroll 1
        for (int32_t step = 0; step < steps; step++, ring.next()) {
            uint32_t now[of_lane];
#pragma unroll
            for (int i = 0; i < of_lane; i++) {
                now[i] = ahead[i];
                ahead[i] = load_scales<kind>(args, lines[i], (step + 1) * kStepCodes);
            }
            wait(shared.free[ring.at()], ring.parity() ^ 1);
#pragma unroll
            for (int i = 0; i < of_lane; i++) {
                LineScales<kind>& to = shared.stages[ring.at()].scales[first + 32 * i];
                if constexpr (kind == Weights::Nvfp4) to = factors_of(now[i]);
                else to = now[i];
            }
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive(shared.full[ring.at()]);
        }
    });
}

}  // namespace mxq::cuda::sm90::bf16
