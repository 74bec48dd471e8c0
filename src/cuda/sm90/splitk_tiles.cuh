// Brings to a block of splitk_sm90 what it has of its tile, by two warps.
//
//     a tile      128 lines of weights and all tokens, up to 32, 64, 96 or 128; the CTAs of a cluster split its contraction
//     a step      128 codes of the contraction: two boxes of tokens, a box of codes, and words of scales of the lines
//     a CTA       loads as many steps ahead as it has stages for: all of them where weights are small
#pragma once
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/memory/operand.cuh"
#include "cuda/sm90/bf16_exchange.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/line_scales.cuh"

namespace mxq::cuda::sm90::splitk {

using bf16::Arguments;
using bf16::kTileLines;
using bf16::kWarpLines;
using bf16::Tile;

constexpr int kStepCodes = kScaledCodes;
constexpr int kBoxCodes = 64, kBoxes = kStepCodes / kBoxCodes;  // of a token, 128 bytes
constexpr int kLineWarps = kTileLines / kWarpLines;             // which have all lines together
// Up to 64 tokens every other step is made by other warps; more leave no registers for so many.
template <int tokens>
constexpr int kHalves = tokens <= 64 ? 2 : 1;
template <int tokens>
constexpr int kConsumerWarps = kHalves<tokens>* kLineWarps;
constexpr int kMostStages = 8;

template <Weights kind, int tokens>
struct Stage {
    static constexpr int line_bytes = kStepCodes / 8 * weight_bits<kind>;
    alignas(1024) uint8_t token_boxes[kBoxes][tokens * kBoxCodes * 2];
    alignas(1024) uint8_t codes[kTileLines * line_bytes];
    ScalesOfLines<kind> scales;
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
    const ScalePlaces<> places = find_scales(args.problem, shared.tile);
    each_step(args, shared, [&](Stage<kind, tokens>& to, Barrier& full, int32_t step) {
        if (args.shifted)
            copy_shifted_scales<kind, true>(args.problem, places, step, &to.scales);
        else
            copy_scales<kind, true>(args.problem, places, step, &to.scales);
        arrive_after_copies(full);
    });
}

}  // namespace mxq::cuda::sm90::splitk
