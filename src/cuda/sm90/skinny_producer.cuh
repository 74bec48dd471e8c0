// The warp of skinny_sm90 that multiplies nothing: it finds the parts of tiles that the block makes, and one of its threads
// has the copy engine bring codes and tokens, as many steps ahead as there are stages.
//
//     first part     find | load codes | describe it to the consumers | wait for the pass that writes tokens | load tokens
//     of 16 tokens   find | load codes and tokens, those of F16 once the pass has written them | describe
//     others         find | describe | load codes and tokens of a step as a stage is free
#pragma once
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/skinny_tiles.cuh"

namespace mxq::cuda::sm90::skinny {

// Steps whose codes are asked for before all else. More would have the scales of the first wait behind them.
constexpr uint32_t kFirstSteps = 2;

// Loads steps of a part. `loaded` says how many the block loaded before.
template <Weights kind, int tile_tokens>
struct Loader {
    using Block = Shared<kind, tile_tokens>;
    static constexpr uint32_t stages = Block::kStages;
    const Arguments& args;
    Block& shared;
    uint32_t loaded;

    __device__ __forceinline__ uint32_t stage_of(uint32_t step) const { return (loaded + step) % stages; }
    __device__ __forceinline__ void load_codes(const Part& part, uint32_t step) const {
        const uint32_t stage = stage_of(step);
        const int32_t byte = int32_t(part.first_step + step) * Block::OneStage::chunks * Block::OneStage::line_bytes;
        load_tile(shared.stages[stage].codes, args.codes, {byte, int32_t(part.line), part.group.index}, shared.full[stage]);
    }
    // Loads tokens, and says how many bytes the stage waits for. `arranged`: those of the tile, where a pass leaves them.
    __device__ __forceinline__ void load_tokens(const Part& part, const uint8_t* arranged, uint32_t step) const {
        constexpr uint32_t chunks = Block::OneStage::chunks;
        const uint32_t stage = stage_of(step), eights = part.eights, bytes = chunks * eights * kTokenRowsBytes;
        auto& to = shared.stages[stage];
        arrive_expecting(shared.full[stage], uint32_t(sizeof to.codes) + bytes);
        if constexpr (tile_tokens == kFewTokens) {
            const int32_t code = int32_t((part.first_step + step) * chunks * kChunkCodes);
            for (uint32_t eight = 0; eight < eights; eight += args.token_parts)
#pragma unroll
                for (uint32_t i = 0; i < 2 * chunks; i++)
                    load_tile(to.tokens + i % 2 * kSecondPieces<int(chunks)> + (i / 2 * 2 + eight) * kPieceBytes,
                              args.tokens, {code + int32_t(i) * 64, int32_t(part.token + eight * kTokenRows), 0},
                              shared.full[stage]);
        } else {
            load_bytes(to.tokens, arranged + int64_t(part.first_step + step) * bytes, bytes, shared.full[stage]);
        }
    }
    __device__ __forceinline__ void load_step(const Part& part, const uint8_t* arranged, uint32_t step) const {
        // A barrier counts as complete before its first phase, so that stages are free at first.
        wait(shared.free[stage_of(step)], ((loaded + step) / stages + 1) % 2);
        load_tokens(part, arranged, step);
        load_codes(part, step);
    }
};

template <Weights kind, int tile_tokens>
__device__ __forceinline__ void produce(const Arguments& args, Shared<kind, tile_tokens>& shared) {
    constexpr bool as_they_lie = tile_tokens == kFewTokens;  // tokens, without a pass that would have to end before
    const Shares shares = share_steps(args);
    const uint32_t begin = min(blockIdx.x * shares.of_block, shares.all);
    uint32_t end = min(begin + shares.of_block, shares.all);
    Loader<kind, tile_tokens> loader{args, shared, 0};
#pragma unroll 1
    for (uint32_t number = 0;; number++) {
        const Part part = find_part(args, shares, begin, end);
        const uint32_t ahead = number == 0 ? min(kFirstSteps, part.steps) : 0;
        if (ahead > 0 && elect_lane())
            for (uint32_t step = 0; step < ahead; step++) {
                loader.load_codes(part, step);
                if constexpr (as_they_lie) {
                    if (args.token_parts == 2) wait_for_previous_kernel();  // which writes them
                    loader.load_tokens(part, nullptr, step);
                }
            }
        __syncwarp();
        const uint32_t slot = number % kSlots;
        wait(shared.tile_free[slot], (number / kSlots + 1) % 2);
        Tile& tile = shared.tiles[slot];
        const Tile found = describe_part(args, part);
        if (threadIdx.x % 32 == 0) {
            tile = found;
            arrive(shared.tile_full[slot]);
        }
        if (part.steps == 0) {
            if (number == 0) wait_for_previous_kernel();
            return;
        }
        __syncwarp();
        if (elect_lane()) {
            if (number == 0 && !as_they_lie) {
                wait_for_previous_kernel();
                for (uint32_t step = 0; step < ahead; step++) loader.load_tokens(part, found.arranged, step);
            }
#pragma unroll 1
            for (uint32_t step = ahead; step < part.steps; step++) loader.load_step(part, found.arranged, step);
        }
        __syncwarp();
        loader.loaded += part.steps;
        end -= part.steps;
    }
}

}  // namespace mxq::cuda::sm90::skinny
