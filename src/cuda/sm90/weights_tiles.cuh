// What a CTA of weights_sm90 has of its tiles in shared memory, and which steps of them it takes.
//
//     a tile     128 lines of weights and 16 to 128 tokens (rows of A), those of F16 in two parts
//     a block    128 numbers of the contraction: two steps of codes of 8 bits, one of 4 bits; 256 in tiles of few tokens
//     a step     a stage of the ring: 64 or 128 bytes of each line, and the tokens' numbers for them in boxes of 64
//
// Tiles come in the order of bf16_tiles.cuh. The CTAs of a cluster have the same tile, and blocks of it in equal shares.
#pragma once
#include <type_traits>

#include "cuda/sm90/bf16_exchange.cuh"
#include "cuda/sm90/line_scales.cuh"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/weights_cut.h"

namespace mxq::cuda::sm90::weights {

using bf16::Arguments;
using bf16::kTileLines;
using bf16::kWarpLines;
using bf16::Tile;

constexpr int kBlockNumbers = 128, kBoxNumbers = 64;
constexpr int kTokenBytes = kBoxNumbers * 2, kLineBytes = 64;  // of a box, and of a step where nothing else is said
template <Weights kind>
constexpr int kBlockSteps = kBlockNumbers / (kLineBytes * 8 / weight_bits<kind>);

// Returns the bytes of a line in a step. Tiles of few tokens have room for more, and so half as many steps.
constexpr int step_bytes(int bits, int tokens) { return bits == 4 && tokens <= kFewestTokens ? 2 * kLineBytes : kLineBytes; }
constexpr int kConsumerWarps = bf16::kConsumerWarps, kThreads = 3 * kWarpgroup;
constexpr int kSlots = 2;

// Multiplies scales of 128, and divides sums as D is written: the range of BF16 would leave totals subnormal under small
// scales. Totals that it takes out of range are made again.
constexpr float kLift = 0x1p64f, kUnlift = 0x1p-64f;

struct Steps {
    int32_t first, count;  // blocks
};

// Returns the blocks of the contraction that this CTA takes.
template <int numbers = kBlockNumbers>
__device__ __forceinline__ Steps blocks_of_cta(const Arguments& args) {
    const uint32_t all = uint32_t((args.problem.k + numbers - 1) / numbers), part = block_of_cluster();
    const uint32_t first = all * part / args.sharing;
    return {int32_t(first), int32_t(all * (part + 1) / args.sharing - first)};
}

template <Weights kind, int tokens, int halves>
struct Stage {
    static constexpr int kLine = step_bytes(weight_bits<kind>, tokens), kNumbers = kLine * 8 / weight_bits<kind>;
    static constexpr int kBoxes = kNumbers / kBoxNumbers;
    alignas(1024) uint8_t boxes[kBoxes][tokens * kTokenBytes];
    uint8_t codes[halves][kTileLines * kLine];
};

// The scales of 128 lines in a stage: those of 128 codes come with a block's first step, those of blocks in words of four.
template <Weights kind, int numbers>
using StageScales = std::conditional_t<kind == Weights::Bits8, float[kTileLines], ScalesOfLines<kind, numbers>>;

// Holds what a CTA gets from all CTAs of its cluster: its pieces in order, and of each those of all.
template <int tokens>
struct Exchange {
    static constexpr int of_warp = tokens / bf16::kOutTokens, pieces = kConsumerWarps * of_warp;
    bf16::PartOfPiece sums[pieces + kMostSharing];
    uint32_t repair[kMostSharing][kConsumerWarps];
};

template <Weights kind, int tokens, int halves>
struct Shared {
    static constexpr Weights kKind = kind;
    using OneStage = Stage<kind, tokens, halves>;
    static constexpr int kHalves = halves, kLine = OneStage::kLine;
    static constexpr int kBlock = std::max(kBlockNumbers, OneStage::kNumbers), kSteps = kBlock / OneStage::kNumbers;
    static constexpr int kOutTokens = std::max(tokens, bf16::kOutTokens);  // of sums
    static constexpr bool kRepeats = false;  // the last scale of a line
    static constexpr int kCtas = ctas_of_sm(tokens, halves), kMostBytes = 227 * 1024 / kCtas - (kCtas - 1) * 1024;
    static constexpr int kRest = int(sizeof(bf16::OutOfWarps)) + 1024,
                         kStageBytes = sizeof(OneStage) + halves * sizeof(StageScales<kind, kBlock>);
    static constexpr int fitting = (kMostBytes - kRest) / kStageBytes;
    static constexpr int kStages = fitting < 8 ? fitting : 8;
    OneStage stages[kStages];
    alignas(128) bf16::OutOfWarps out;
    StageScales<kind, kBlock> scales[kStages][halves];
    Tile tiles[kSlots];
    Barrier full[kStages], free[kStages], tile_full[kSlots], tile_free[kSlots];
};

}  // namespace mxq::cuda::sm90::weights
