// The warps of weights_sm90 that load: one codes, one tokens, one scales.
#pragma once
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/slots.cuh"
#include "cuda/sm90/weights_schedule.cuh"

namespace mxq::cuda::sm90::weights {

// Calls `begin(tile)` with each tile, and `load(number of the stage, step)` with each of its steps as a stage is free. A
// warp calls it. A barrier counts as complete before its first phase, so that stages are free at first.
template <class Block, class Begin, class Load>
__device__ __forceinline__ void each_step(const Arguments& args, Block& shared, const Begin& begin, const Load& load) {
    constexpr int32_t steps = Block::kSteps;
    Ring<Block::kStages> ring;
    each_tile<true>(shared, shared.tile_full, [&](const Tile& tile) {
        begin(tile);
#pragma unroll 1
        for (int32_t step = tile.first_block * steps; step < (tile.first_block + tile.blocks) * steps; step++, ring.next()) {
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
                load_tile(shared.stages[at].codes, args.codes, {step * Block::kLine, line, matrix}, shared.full[at]);
            }
            __syncwarp();
        });
}

// Loads tokens, one warp. A pass may write them.
template <Weights kind, int tokens>
__device__ __forceinline__ void load_tokens(const Arguments& args, Shared<kind, tokens>& shared) {
    constexpr int of_box = rows_of_box(tokens);
    wait_for_previous_kernel();
    int32_t token, boxes_of_rows = 1;
    each_step(
        args, shared,
        [&](const Tile& tile) {
            token = tile.token;
            if (of_box < tokens && args.parts == 1) boxes_of_rows = (tile.rows + of_box - 1) / of_box;
        },
        [&](uint32_t at, int32_t step) {
            if (elect_lane()) {
                using OneStage = Stage<kind, tokens>;
                const int32_t rows = of_box < tokens && args.parts == 1 ? boxes_of_rows * of_box : tokens;
                arrive_expecting(shared.full[at], uint32_t(OneStage::kBoxes * rows * kTokenBytes));
#pragma unroll
                for (int box = 0; box < OneStage::kBoxes; box++)
                    for (int32_t row = 0; row < boxes_of_rows * of_box; row += of_box)
                        load_tile(shared.stages[at].boxes + OneStage::box_at(box) + row * kTokenBytes, args.tokens,
                                  {step * OneStage::kNumbers + box * kBoxNumbers, token + row, 0}, shared.full[at]);
            }
            __syncwarp();
        });
}

// Loads scales of 128 codes, one warp, each lane those of every 32nd line from its own on. Lines behind the last count as
// the last, since nobody stores their sums. Where they lie is computed once a tile: computed each time, it kept the
// consumers waiting.
template <int tokens>
__device__ __forceinline__ void load_scales(const Arguments& args, Shared<Weights::Fp8Blocks, tokens>& shared) {
    constexpr int of_lane = kTileLines / 32;
    const GemmProblem& p = args.problem;
    const int32_t stride = int32_t(p.b.layout.column_stride);
    const uint32_t* of_line[of_lane];
    each_step(
        args, shared,
        [&](const Tile& tile) {
            const uint32_t* const scales = reinterpret_cast<const uint32_t*>(matrix_scales(p.b, tile.group));
#pragma unroll
            for (int i = 0; i < of_lane; i++) {
                const uint32_t line = min(uint32_t(tile.line) + 32 * i + read_thread() % 32, uint32_t(p.n) - 1);
                of_line[i] = scales + scale_line(p.b.layout, line) + tile.first_block * p.b.layout.column_stride;
            }
        },
        [&](uint32_t at, int32_t step) {
            if (step % shared.kSteps == 0)
#pragma unroll
                for (int i = 0; i < of_lane; i++) {
                    copy_word(reinterpret_cast<uint32_t*>(&shared.scales[at][32 * i + read_thread() % 32]), of_line[i]);
                    of_line[i] += stride;
                }
            arrive_after_copies(shared.full[at]);
        });
}

// Finds the references of a tile's lines: of each, the largest of four scales of its part, far from one another.
template <int block_numbers, class FoldedTile>
__device__ __forceinline__ void find_references(const GemmProblem& p, FoldedTile& tile) {
    constexpr int32_t samples = 4;
    const uint8_t* const scales = matrix_scales(p.b, tile.group);
    uint32_t at[samples];
#pragma unroll
    for (int32_t sample = 0; sample < samples; sample++) {
        const int32_t block = tile.first_block + tile.blocks * sample / samples;
        at[sample] = uint32_t(scale_in_line(p.b.layout, uint32_t(block * block_numbers)));
    }
#pragma unroll 1
    for (uint32_t line = read_thread() % 32; line < kTileLines; line += 32) {
        const uint8_t* const of_line = scales + scales_of_line(p, tile, line);
        uint32_t largest = 0;
#pragma unroll
        for (uint32_t offset : at) largest = max(largest, uint32_t(__ldg(of_line + offset)));
        tile.references[line] = uint8_t(largest);
    }
    __threadfence_block();  // ahead of an arrival that waits for copies alone
}

// Calls `begin(tile)` with each tile, and `load(number of the stage, step)` with each of its steps. Loads those of a line's
// last step apart, where blocks or words of it may not exist. A warp calls it.
template <class Block, class Begin, class Load>
__device__ __forceinline__ void each_step_of_scales(const Arguments& args, Block& shared, const Begin& begin,
                                                    const Load& load) {
    constexpr int codes = Block::kBlock;
    const GemmProblem& p = args.problem;
    const bool last_is_apart = args.has_blocks && (p.k % codes != 0 || args.shifted);
    Ring<Block::kStages> ring;
    each_tile<true>(shared, shared.tile_full, [&](auto& tile) {
        begin(tile);
        if constexpr (Block::kFolded) find_references<codes>(p, tile);
        const bool has_last = last_is_apart && tile.ends;
        const int32_t end = tile.first_block + tile.blocks - has_last;
#pragma unroll 1
        for (int32_t step = tile.first_block; step < end; step++, ring.next()) {
            wait(shared.free[ring.at()], ring.parity() ^ 1);
            load(ring.at(), step);
        }
        if (!has_last) return;
        wait(shared.free[ring.at()], ring.parity() ^ 1);
        copy_last_scales<Block::kKind, kTileLines, codes, Block::kRepeats>(p, tile, args.shifted, end,
                                                                           &shared.scales[ring.at()]);
        publish_shared_writes();  // the copy engine may write there next
        arrive(shared.full[ring.at()]);
        ring.next();
    });
}

// Loads swizzled scales, one warp: those of a step and 128 lines are neighbours, some tiles of 128 x 4.
template <class Block>
__device__ __forceinline__ void load_swizzled_scales(const Arguments& args, Block& shared) {
    constexpr uint32_t step_bytes = kScaleWords<Block::kKind, Block::kBlock> * kSwizzleBytes;
    const GemmProblem& p = args.problem;
    const uint8_t* from;
    each_step_of_scales(
        args, shared,
        [&](const Tile& tile) {
            from = matrix_scales(p.b, tile.group) +
                   uint32_t(tile.line / kTileLines) * uint32_t(p.b.layout.tile_row_scales()) +
                   uint32_t(tile.first_block) * step_bytes;
        },
        [&](uint32_t at, int32_t) {
            if (elect_lane()) {
                expect(shared.full[at], step_bytes);
                load_bytes(shared.scales[at], from, step_bytes, shared.full[at]);
            }
            __syncwarp();
            from += step_bytes;
            arrive(shared.full[at]);
        });
}

// Loads scales of blocks, one warp. Where lines have one scale, none are loaded.
template <class Block>
__device__ __forceinline__ void load_block_scales(const Arguments& args, Block& shared) {
    constexpr Weights kind = Block::kKind;
    constexpr int codes = Block::kBlock;
    if (args.swizzled) return load_swizzled_scales(args, shared);
    ScalePlaces<> places;
    each_step_of_scales(
        args, shared, [&](const Tile& tile) { places = find_scales(args.problem, tile); },
        [&](uint32_t at, int32_t step) {
            if (args.shifted)
                copy_shifted_scales<kind, false, codes>(args.problem, places, step, &shared.scales[at]);
            else if (args.has_blocks)
                copy_scales<kind, false, codes>(args.problem, places, step, &shared.scales[at]);
            arrive_after_copies(shared.full[at]);
        });
}
template <Weights kind, int tokens>
__device__ __forceinline__ void load_scales(const Arguments& args, Shared<kind, tokens>& shared) {
    load_block_scales(args, shared);
}

}  // namespace mxq::cuda::sm90::weights
