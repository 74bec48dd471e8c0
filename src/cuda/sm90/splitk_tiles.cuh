// Brings to a block of splitk_sm90 what it has of its tile, by two warps.
//
//     a tile      128 lines of weights and all tokens, up to 32, 64, 96 or 128; its contraction is shared by the blocks of a cluster
//     a step      128 codes of the contraction: two boxes of tokens, a box of codes, and the scales of the lines in words
//     a block     as many steps on their way as it has room for, which is all of them where weights are small
#pragma once
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/operand.cuh"
#include "cuda/sm90/bf16_exchange.cuh"
#include "cuda/sm90/copy.cuh"

namespace mxq::cuda::sm90::splitk {

using bf16::Arguments;
using bf16::kTileLines;
using bf16::kWarpLines;
using bf16::Tile;

constexpr int kStepCodes = 128;
constexpr int kBoxCodes = 64, kBoxes = kStepCodes / kBoxCodes;  // of a token, 128 bytes
constexpr int kLineWarps = kTileLines / kWarpLines;             // which have all lines together
// Up to 64 tokens every other step is made by other warps; more leave no registers for so many.
template <int tokens>
constexpr int kHalves = tokens <= 64 ? 2 : 1;
template <int tokens>
constexpr int kConsumerWarps = kHalves<tokens>* kLineWarps;
constexpr int kMostStages = 8;

// Words of a line's scales in a step.
template <Weights kind>
constexpr int kScaleWords = kind == Weights::Nvfp4 ? 2 : 1;

template <Weights kind, int tokens>
struct Stage {
    static constexpr int line_bytes = kStepCodes / 8 * weight_bits<kind>;
    alignas(1024) uint8_t token_boxes[kBoxes][tokens * kBoxCodes * 2];
    alignas(1024) uint8_t codes[kTileLines * line_bytes];
    uint32_t scales[kScaleWords<kind> + 1][kTileLines];  // and a word more, see copy_shifted_scales
};

template <Weights kind, int tokens>
struct Shared {
    static constexpr int kMostBytes = 226 * 1024, fitting = kMostBytes / int(sizeof(Stage<kind, tokens>));
    static constexpr int kStages = fitting < kMostStages ? fitting : kMostStages;
    Stage<kind, tokens> stages[kStages];
    Tile tile;
    Barrier full[kStages], free[kStages];
};

// Says which steps a block makes, of how many.
struct Steps {
    int32_t first, count;
};

__device__ __forceinline__ Steps part_of_steps(const Arguments& args) {
    const uint32_t all = uint32_t((args.problem.k + kStepCodes - 1) / kStepCodes), part = block_of_cluster();
    const uint32_t first = all * part / args.sharing;
    return {int32_t(first), int32_t(all * (part + 1) / args.sharing - first)};
}

// Says where scales lie, for the lanes of a warp: of every 32nd line from the lane's own on.
struct ScalePlaces {
    const uint8_t* of_line[kTileLines / 32];
};

// Copies the scales of a step, words of four, whose first lie at multiples of 4 bytes. Lines behind the last count as the
// last, since nobody stores their sums; words behind the last of a line stay as they are.
template <Weights kind>
__device__ __forceinline__ void copy_scales(const GemmProblem& p, const ScalePlaces& places, int32_t step,
                                            uint32_t (&to)[kScaleWords<kind> + 1][kTileLines]) {
    constexpr int codes_of_word = kStepCodes / kScaleWords<kind>;
#pragma unroll
    for (int word = 0; word < kScaleWords<kind>; word++) {
        const uint32_t code = uint32_t(step * kStepCodes + word * codes_of_word);
        if (code >= p.k) return;
        const int64_t at = scale_in_line(p.b.layout, code);
#pragma unroll
        for (int i = 0; i < kTileLines / 32; i++)
            copy_word(&to[word][threadIdx.x % 32 + 32 * i], reinterpret_cast<const uint32_t*>(places.of_line[i] + at));
    }
}

// Copies the words that the scales of a step lie in, where lines begin anywhere: as many, and one more where the last scales of
// the line's step reach into it. Who reads them moves them to their place.
template <Weights kind>
__device__ __forceinline__ void copy_shifted_scales(const GemmProblem& p, const ScalePlaces& places, int32_t step,
                                                    uint32_t (&to)[kScaleWords<kind> + 1][kTileLines]) {
    constexpr int32_t of_step = 4 * kScaleWords<kind>;
    const int32_t first = step * of_step, count = min(int32_t(p.b.layout.columns) - first, of_step);
#pragma unroll
    for (int i = 0; i < kTileLines / 32; i++) {
        const uint8_t* const at = places.of_line[i] + first;
        const int32_t before = int32_t(reinterpret_cast<uintptr_t>(at) % 4);
#pragma unroll
        for (int word = 0; word <= kScaleWords<kind>; word++)
            if (4 * word < before + count)
                copy_word(&to[word][threadIdx.x % 32 + 32 * i], reinterpret_cast<const uint32_t*>(at - before) + word);
    }
}

// Returns where the scales of a line of the tile begin.
__device__ __forceinline__ const uint8_t* scales_of_line(const GemmProblem& p, const Tile& tile, uint32_t line) {
    return matrix_scales(p.b, tile.group) + scale_line(p.b.layout, uint32_t(min(int64_t(tile.line) + line, p.n - 1)));
}

__device__ __forceinline__ ScalePlaces find_scales(const GemmProblem& p, const Tile& tile) {
    ScalePlaces places;
#pragma unroll
    for (int i = 0; i < kTileLines / 32; i++) places.of_line[i] = scales_of_line(p, tile, threadIdx.x % 32 + 32 * i);
    return places;
}

// Calls `load` with each step of the block and its stage, as the stage is free.
template <Weights kind, int tokens, class Load>
__device__ __forceinline__ void each_step(const Arguments& args, Shared<kind, tokens>& shared, const Load& load) {
    constexpr int stages = Shared<kind, tokens>::kStages;
    const Steps steps = part_of_steps(args);
    Ring<stages> ring;
#pragma unroll 1
    for (int32_t step = 0; step < steps.count; step++, ring.next()) {
        if (step >= stages) wait(shared.free[ring.at()], ring.parity() ^ 1);
        load(shared.stages[ring.at()], shared.full[ring.at()], steps.first + step);
    }
}

// Loads tokens and codes; one thread calls it.
template <Weights kind, int tokens>
__device__ __forceinline__ void load_operands(const Arguments& args, Shared<kind, tokens>& shared) {
    using Step = Stage<kind, tokens>;
    const int32_t line = shared.tile.line, token = shared.tile.token;
    each_step(args, shared, [&](Step& to, Barrier& full, int32_t step) {
        arrive_expecting(full, uint32_t(sizeof to.token_boxes + sizeof to.codes));
        load_tile(to.codes, args.codes, {step * Step::line_bytes, line, 0}, full);
        if (args.parts == 2) wait_for_previous_kernel();  // the pass that writes them
#pragma unroll
        for (int box = 0; box < kBoxes; box++)
            load_tile(to.token_boxes[box], args.tokens, {step * kStepCodes + box * kBoxCodes, token, 0}, full);
    });
}

// Loads scales; a warp calls it.
template <Weights kind, int tokens>
__device__ __forceinline__ void load_scales(const Arguments& args, Shared<kind, tokens>& shared) {
    const ScalePlaces places = find_scales(args.problem, shared.tile);
    each_step(args, shared, [&](Stage<kind, tokens>& to, Barrier& full, int32_t step) {
        if (args.shifted)
            copy_shifted_scales<kind>(args.problem, places, step, to.scales);
        else
            copy_scales<kind>(args.problem, places, step, to.scales);
        arrive_after_copies(full);
    });
}

}  // namespace mxq::cuda::sm90::splitk
