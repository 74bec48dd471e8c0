// What a CTA of weights_sm90 has of its tiles in shared memory, and which steps of them it takes.
//
//     a tile     128 lines of weights and 16 to 192 tokens (rows of A), those of F16 in two parts
//     a block    128 numbers of the contraction, a step; of FP8 with scales of 128 two steps; of FP4 256 in tiles of few
//     tokens a step     a stage of the ring: 64 to 128 bytes of each line, and the tokens' numbers for them in boxes of 64
//
// Tiles come in the order of bf16_tiles.cuh.
#pragma once
#include <type_traits>

#include "cuda/sm90/bf16_exchange.cuh"
#include "cuda/sm90/line_scales.cuh"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/weights_cut.h"

namespace mxq::cuda::sm90::weights {

using bf16::kTileLines;
using bf16::kWarpLines;

// Holds what a kernel is called with.
struct Arguments : bf16::Arguments {
    float* left_sums;   // of parts of tiles, a place for each
    uint64_t* left;     // of each consumer warp of each place: `mark`, and in its low bits repairs, once its sums are there
    uint64_t mark;      // a number that no other launch has
    bool shares_tiles;  // those of the last rounds
    Pieces pieces;      // of a contraction that is cut alike for any number of rows; 0: it is not
};

// Says which blocks of a tile's contraction a CTA takes.
struct Part {
    int32_t first_block, blocks;
    uint32_t first_place;  // of the sums of the tile's first part
    bool ends;             // with the contraction
    uint16_t before;       // parts of the tile before this one
};
struct Tile : bf16::Tile, Part {};

// Says which tiles a CTA takes next (weights_schedule.cuh). It lies in shared memory, since registers are short.
struct Schedule {
    uint32_t tile;         // the next whole one, or one of pieces
    uint32_t begin, left;  // of the CTA's share: its first block, and how many are left; of pieces: the first, the next
    uint32_t of_share, of_tile;  // blocks; where there are pieces, tiles at once
    Part part;                   // of the tile that was found last
};

constexpr int kBlockNumbers = 128, kBoxNumbers = 64;
constexpr int kFewRows = 8;   // of a box of tiles of 16 tokens: most have no more rows of A

// Returns the rows of A of a box, where these are in one part. Large tiles come in boxes, as many as have rows.
MXQ_HD constexpr int rows_of_box(int tokens) {
    return tokens == kFewestTokens ? kFewRows : tokens > kSomeTokens ? kSomeTokens : tokens;
}

constexpr int kBoxGap = 256;  // between even and odd boxes of 16 tokens, so that lanes that read both read from all banks
constexpr int kTokenBytes = kBoxNumbers * 2, kLineBytes = 64;  // of a box, and of a step of FP8 with scales of 128

// Returns the bytes of a line in a step. Tiles of few tokens have room for more, and so half as many steps.
constexpr int step_bytes(Weights kind, int tokens) {
    if (kind == Weights::Fp8Blocks) return kLineBytes;
    if (kind == Weights::Bits6 || kind == Weights::Bits8) return kBlockNumbers / 8 * (kind == Weights::Bits8 ? 8 : 6);
    return tokens <= kFewestTokens ? kBlockNumbers : kBlockNumbers / 2;
}
constexpr int kConsumerWarps = bf16::kConsumerWarps, kThreads = 3 * kWarpgroup;
constexpr int kSlots = 2;
constexpr uint64_t kMostRepair = 0xFFFF;  // a bit for each line of a warp

// Multiplies scales of 128, and divides sums as D is written: the range of BF16 would leave totals subnormal under small
// scales. Totals that it takes out of range are made again.
constexpr float kLift = 0x1p64f, kUnlift = 0x1p-64f;

template <Weights kind, int tokens>
struct Stage {
    static constexpr int kLine = step_bytes(kind, tokens), kNumbers = kLine * 8 / weight_bits<kind>;
    static constexpr int kBoxes = kNumbers / kBoxNumbers, kBoxBytes = tokens * kTokenBytes;
    static constexpr int kGap = tokens == kFewestTokens ? kBoxGap : 0;
    // Returns the offset of a box.
    static __device__ constexpr int box_at(int box) {
        return kGap == 0 ? box * kBoxBytes : box % 2 * (kBoxes / 2 * kBoxBytes + kGap) + box / 2 * kBoxBytes;
    }
    alignas(1024) uint8_t boxes[kBoxes * kBoxBytes + kGap];
    alignas(1024) uint8_t codes[kTileLines * kLine];
};

// The scales of 128 lines in a stage: those of 128 codes come with a block's first step, others in words of four.
template <Weights kind, int numbers>
using StageScales = std::conditional_t<kind == Weights::Fp8Blocks, float[kTileLines], ScalesOfLines<kind, numbers>>;

// Holds what a CTA gets from all CTAs of its cluster: its pieces in order, and of each those of all.
template <int tokens>
struct Exchange {
    static constexpr int of_warp = tokens / bf16::kOutTokens, pieces = kConsumerWarps * of_warp;
    bf16::PartOfPiece sums[pieces + kMostSharing];
    uint32_t repair[kMostSharing][kConsumerWarps];
};

template <Weights kind, int tokens>
struct Shared {
    static constexpr Weights kKind = kind;
    using OneStage = Stage<kind, tokens>;
    static constexpr int kTokens = tokens, kLine = OneStage::kLine;
    static constexpr int kBlock = std::max(kBlockNumbers, OneStage::kNumbers), kSteps = kBlock / OneStage::kNumbers;
    static constexpr int kOutTokens = std::max(tokens, bf16::kOutTokens);  // of sums
    static constexpr bool kRepeats = false;  // the last scale of a line
    static constexpr bool kFolded = false;   // scales, into codes
    static constexpr bool kHasPieces = true;
    static constexpr bool kCopiesScales = tokens != kFewestTokens;  // a warp; else the consumers, but for swizzled ones
    static constexpr int kCtas = ctas_of_sm(tokens), kMostBytes = 227 * 1024 / kCtas - (kCtas - 1) * 1024;
    static constexpr int kRest = int(sizeof(bf16::OutOfWarps)) + 1024,
                         kStageBytes = sizeof(OneStage) + sizeof(StageScales<kind, kBlock>);
    static constexpr int fitting = (kMostBytes - kRest) / kStageBytes;
    static constexpr int kStages = fitting < 8 ? fitting : 8;
    OneStage stages[kStages];
    alignas(128) bf16::OutOfWarps out;
    StageScales<kind, kBlock> scales[kStages];
    Tile tiles[kSlots];
    Schedule schedule;
    Barrier full[kStages], free[kStages], tile_full[kSlots], tile_free[kSlots];
};

}  // namespace mxq::cuda::sm90::weights
