// What a CTA of weights_fp8_sm90 has of its tiles in shared memory.
//
//     a tile     128 lines of weights and 16, 32 or 64 tokens (rows of A)
//     a step     a stage of the ring: 256 codes of the contraction, 128 bytes of each line and two boxes of 128 of each token
#pragma once
#include "cuda/sm90/weights_fp8_tokens.h"
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

struct Fp8Arguments : Arguments {
    const float* token_scales;  // as the pass leaves them
    uint32_t token_lines;       // rows of A
};

template <int tokens, TokenScales scales_of_tokens>
struct Fp8Shared {
    static constexpr int kTokens = tokens, kHalves = 1, kSteps = 1;  // steps of a block
    static constexpr int kBlock = 2 * kBlockNumbers, kLine = kBlock / 2, kBoxes = kBlock / kBlockNumbers;
    static constexpr TokenScales kTokenScales = scales_of_tokens;
    static constexpr Weights kKind = Weights::Bits4;
    static constexpr int kFloats = floats_of(scales_of_tokens) * tokens;  // of a box
    struct Stage {
        alignas(1024) uint8_t boxes[kBoxes][tokens * kBlockNumbers];
        uint8_t codes[kHalves][kTileLines * kLine];
    };
    static constexpr int kCtas = tokens == kSomeTokens ? 1 : 2, kMostBytes = 227 * 1024 / kCtas - (kCtas - 1) * 1024;
    static constexpr int kRest = int(sizeof(bf16::OutOfWarps)) + 1024,
                         kStageBytes = sizeof(Stage) + sizeof(ScalesOfLines<kKind, kBlock>) + kBoxes * kFloats * sizeof(float);
    static constexpr int fitting = (kMostBytes - kRest) / kStageBytes;
    static constexpr int kStages = fitting < 8 ? fitting : 8;
    Stage stages[kStages];
    alignas(128) bf16::OutOfWarps out;
    ScalesOfLines<kKind, kBlock> scales[kStages][kHalves];
    alignas(16) float token_scales[kStages][kBoxes][kFloats > 0 ? kFloats : 1];
    Tile tiles[kSlots];
    Barrier full[kStages], free[kStages], tile_full[kSlots], tile_free[kSlots];
};

}  // namespace mxq::cuda::sm90::weights
