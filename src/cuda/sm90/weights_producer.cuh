// The warps of weights_sm90 that multiply nothing: one finds tiles, one loads codes, one tokens, one scales.
#pragma once
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/slots.cuh"
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

// Calls `begin(tile)` with each tile, and `load(number of the stage, step)` with each of its steps as a stage is free. A
// warp calls it. A barrier counts as complete before its first phase, so that stages are free at first.
template <class Block, class Begin, class Load>
__device__ __forceinline__ void each_step(const Arguments& args, Block& shared, const Begin& begin, const Load& load) {
    constexpr int32_t steps = Block::kSteps;
    const Steps blocks = blocks_of_cta<Block::kBlock>(args);
    Ring<Block::kStages> ring;
    each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) {
        begin(tile);
#pragma unroll 1
        for (int32_t step = blocks.first * steps; step < (blocks.first + blocks.count) * steps; step++, ring.next()) {
            wait(shared.free[ring.at()], ring.parity() ^ 1);
            load(ring.at(), step);
        }
    });
}

// Loads codes, one warp.
template <class Block>
__device__ __forceinline__ void load_codes(const Arguments& args, Block& shared) {
    int32_t line, matrix;
    each_step(
        args, shared, [&](const Tile& tile) { line = tile.line, matrix = tile.group; },
        [&](uint32_t at, int32_t step) {
            if (elect_lane()) {
                arrive_expecting(shared.full[at], sizeof(shared.stages[at].codes));
#pragma unroll
                for (int half = 0; half < Block::kHalves; half++)
                    load_tile(shared.stages[at].codes[half], args.codes,
                              {step * Block::kLine, line + half * kTileLines, matrix}, shared.full[at]);
            }
            __syncwarp();
        });
}

// Loads tokens, one warp. Those of FP4 weights come from a pass.
template <Weights kind, int tokens, int halves>
__device__ __forceinline__ void load_tokens(const Arguments& args, Shared<kind, tokens, halves>& shared) {
    if (kind != Weights::Bits8) wait_for_previous_kernel();
    int32_t token;
    each_step(
        args, shared, [&](const Tile& tile) { token = tile.token; },
        [&](uint32_t at, int32_t step) {
            if (elect_lane()) {
                using OneStage = Stage<kind, tokens, halves>;
                arrive_expecting(shared.full[at], sizeof(OneStage::boxes));
#pragma unroll
                for (int box = 0; box < OneStage::kBoxes; box++)
                    load_tile(shared.stages[at].boxes[box], args.tokens,
                              {step * OneStage::kNumbers + box * kBoxNumbers, token, 0}, shared.full[at]);
            }
            __syncwarp();
        });
}

// Loads scales of 128 codes, one warp, each lane those of every 32nd line from its own on. Lines behind the last count as
// the last, since nobody stores their sums. Where they lie is computed once a tile: computed each time, it kept the
// consumers waiting.
template <int tokens>
__device__ __forceinline__ void load_scales(const Arguments& args, Shared<Weights::Bits8, tokens, 1>& shared) {
    constexpr int of_lane = kTileLines / 32;
    const GemmProblem& p = args.problem;
    const int32_t stride = int32_t(p.b.layout.column_stride), first = blocks_of_cta(args).first;
    const uint32_t* of_line[of_lane];
    each_step(
        args, shared,
        [&](const Tile& tile) {
            const uint32_t* const scales = reinterpret_cast<const uint32_t*>(matrix_scales(p.b, tile.group));
#pragma unroll
            for (int i = 0; i < of_lane; i++) {
                const uint32_t line = min(uint32_t(tile.line) + 32 * i + read_thread() % 32, uint32_t(p.n) - 1);
                of_line[i] = scales + scale_line(p.b.layout, line) + first * p.b.layout.column_stride;
            }
        },
        [&](uint32_t at, int32_t step) {
            if (step % kBlockSteps<Weights::Bits8> == 0)
#pragma unroll
                for (int i = 0; i < of_lane; i++) {
                    copy_word(reinterpret_cast<uint32_t*>(&shared.scales[at][0][32 * i + read_thread() % 32]), of_line[i]);
                    of_line[i] += stride;
                }
            arrive_after_copies(shared.full[at]);
        });
}

// Loads scales of blocks, one warp. Those of a line's last step come apart, where blocks or words of it may not exist.
template <class Block>
__device__ __forceinline__ void load_block_scales(const Arguments& args, Block& shared) {
    constexpr Weights kind = Block::kKind;
    constexpr int halves = Block::kHalves, codes = Block::kBlock;
    const GemmProblem& p = args.problem;
    const Steps steps = blocks_of_cta<codes>(args);
    const int64_t end = int64_t(steps.first + steps.count) * codes;
    const bool has_last = end > p.k || (args.shifted && end == p.k);
    Ring<Block::kStages> ring;
    each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) {
        const ScalePlaces<halves> places = find_scales<halves>(p, tile);
#pragma unroll 1
        for (int32_t step = steps.first; step < steps.first + steps.count - has_last; step++, ring.next()) {
            wait(shared.free[ring.at()], ring.parity() ^ 1);
            if (args.shifted)
                copy_shifted_scales<kind, false, codes>(p, places, step, shared.scales[ring.at()]);
            else
                copy_scales<kind, false, codes>(p, places, step, shared.scales[ring.at()]);
            arrive_after_copies(shared.full[ring.at()]);
        }
        if (!has_last) return;
        wait(shared.free[ring.at()], ring.parity() ^ 1);
        copy_last_scales<kind, halves, codes, Block::kRepeats>(p, tile, args.shifted, steps.first + steps.count - 1,
                                                               shared.scales[ring.at()]);
        arrive(shared.full[ring.at()]);
        ring.next();
    });
}
template <Weights kind, int tokens, int halves>
__device__ __forceinline__ void load_scales(const Arguments& args, Shared<kind, tokens, halves>& shared) {
    load_block_scales(args, shared);
}

// Gives the last tile of a group all rows of D that pad the group: more than a tile has, where tiles are small.
__device__ __forceinline__ void pad_last_tile(const Arguments& args, Tile& tile) {
    if (args.problem.grouping != Grouping::Rows || tile.row + int32_t(args.tile_tokens) < tile.group_rows) return;
    tile.padded = int32_t(round_up_to_power(tile.group_rows, args.problem.d.group_unit)) - tile.row;
}

// Finds tiles, one warp.
template <class Block>
__device__ __forceinline__ void find_tiles(const Arguments& args, Block& shared) {
    bool exists = true;
#pragma unroll 1
    for (uint32_t number = 0; exists; number++) {
        const uint32_t slot = number % kSlots;
        Tile tile = bf16::find_tile(args, cluster_index() + number * cluster_count());
        tile.line *= Block::kHalves;
        pad_last_tile(args, tile);
        wait(shared.tile_free[slot], (number / kSlots + 1) % 2);
        if (read_thread() % 32 == 0) {
            shared.tiles[slot] = tile;
            arrive(shared.tile_full[slot]);
        }
        exists = tile.exists;
    }
}

}  // namespace mxq::cuda::sm90::weights
