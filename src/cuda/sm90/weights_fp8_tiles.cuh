// What a CTA of weights_fp8_sm90 has of its tiles in shared memory.
//
//     a tile     128 lines of weights and 16, 32, 64 or 144 tokens (rows of A)
//     a step     a stage of the ring: 256 codes of the contraction, 128 bytes of each line and two boxes of 128 of each token
#pragma once
#include "cuda/sm90/weights_fp8_tokens.h"
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

struct Fp8Arguments : Arguments {
    const float* token_scales;  // as the pass leaves them
    uint32_t token_lines;       // rows of A
};

// Folding: row t of the table has codes times 2^(kMostFold - t), for scales 2^kRoom times a line's reference to 2^(kFolds - kRoom)
// below it. A reference is the largest of some of the line's scales.
constexpr uint32_t kFolds = 14, kRoom = 4;
constexpr int kMostFold = 6;
using FoldedCodes = uint2[kFolds + 2];
struct FoldedTile : Tile {
    uint8_t references[kTileLines];  // exponents
};

// Returns the rows of A of a box: large tiles come in boxes, as many as have rows.
MXQ_HD constexpr int32_t fp8_rows_of_box(int32_t tokens) { return tokens == kFoldedTokens ? kFoldedTokens / 3 : tokens; }

// Returns how many CTAs run on an SM: two, where their registers suffice.
constexpr int32_t fp8_ctas_of_sm(int32_t tokens, TokenScales scales) {
    return tokens >= kSomeTokens || (tokens == kLeastTokens && scales == TokenScales::Of32) ? 1 : 2;
}

template <int tokens, TokenScales scales_of_tokens>
struct Fp8Shared {
    static constexpr int kTokens = tokens,
                         kOutTokens = (tokens + bf16::kOutTokens - 1) / bf16::kOutTokens * bf16::kOutTokens,
                         kSteps = 1;  // of a block
    static constexpr int kBoxes = 2, kBlock = kBoxes * kBlockNumbers, kLine = kBlock / 2;
    static constexpr TokenScales kTokenScales = scales_of_tokens;
    static constexpr Weights kKind = Weights::Bits4;
    static constexpr bool kFolded = is_folded(tokens, scales_of_tokens);
    static constexpr bool kRepeats = true;  // the last scale of a line, where blocks do not exist
    static constexpr bool kHasPieces = false;
    static constexpr int kFloats = floats_of(scales_of_tokens) * tokens;  // of a box
    struct Stage {
        alignas(1024) uint8_t boxes[kBoxes][tokens * kBlockNumbers];
        uint8_t codes[kTileLines * kLine];
    };
    static constexpr int kCtas = fp8_ctas_of_sm(tokens, scales_of_tokens), kMostBytes = 227 * 1024 / kCtas - (kCtas - 1) * 1024;
    static constexpr int kRest = int(sizeof(bf16::OutOfWarps)) + 1024,
                         kStageBytes = sizeof(Stage) + sizeof(ScalesOfLines<kKind, kBlock>) + kBoxes * kFloats * sizeof(float);
    static constexpr int fitting = (kMostBytes - kRest) / kStageBytes;
    static constexpr int kStages = fitting < 8 ? fitting : 8;
    Stage stages[kStages];
    alignas(128) bf16::OutOfWarps out;
    ScalesOfLines<kKind, kBlock> scales[kStages];
    alignas(16) float token_scales[kStages][kBoxes][kFloats > 0 ? kFloats : 1];
    FoldedCodes folded;
    std::conditional_t<kFolded, FoldedTile, Tile> tiles[kSlots];
    Schedule schedule;
    Ring<kSlots> slots[kConsumerWarps];  // of the next tile of each, since registers are short
    Barrier full[kStages], free[kStages], tile_full[kSlots], tile_free[kSlots];
};

// The scales of a line that its sums are right with: those of blocks that are not zero, and the largest of those that are.
struct UsualScales {
    int32_t least, most, most_of_zeros;
};

// Returns whether sums of a line's part must be made again: a scale is unusual, or NaN. A warp calls it.
__device__ __noinline__ bool is_unusual_line(const GemmProblem& p, const Tile& tile, int32_t line, UsualScales usual) {
    constexpr int32_t numbers = 2 * kBlockNumbers;  // of the tile's blocks
    const uint8_t* const codes = matrix_codes(p.b, tile.group) + line * p.b.line_bytes;
    const uint8_t* const scales = matrix_scales(p.b, tile.group) + scale_line(p.b.layout, uint32_t(line));
    const uint32_t end = min(uint32_t(tile.first_block + tile.blocks) * numbers, uint32_t(p.k));
    bool unusual = false;
#pragma unroll 1
    for (uint32_t k = tile.first_block * numbers + read_thread() % 32 * kMxBlock; k < end; k += 32 * kMxBlock) {
        const int32_t scale = scales[scale_in_line(p.b.layout, k)];
        bool is_zero = false;
        if (k + kMxBlock <= end) {
            const uint4 block = *reinterpret_cast<const uint4*>(codes + k / 2);
            is_zero = ((block.x | block.y | block.z | block.w) & 0x77777777u) == 0;
        }
        unusual |= scale > usual.most_of_zeros || (!is_zero && (scale < usual.least || scale > usual.most));
    }
    return __any_sync(kAllLanes, unusual);
}

// Returns which of a warp's 16 lines are unusual, a bit each. A thread says whether its first and its second have marks.
// `usual_scales(of_line)` returns those of a line; all lanes call it.
template <class UsualOfLine>
__device__ __forceinline__ uint32_t unusual_lines(const GemmProblem& p, const Tile& tile, uint32_t first, uint32_t second,
                                                  const UsualOfLine& usual_scales) {
    uint32_t lines = 0;
#pragma unroll
    for (int l = 0; l < 2; l++) {
        const uint32_t ballot = __ballot_sync(kAllLanes, l == 0 ? first != 0 : second != 0);
        if (ballot == 0) continue;
#pragma unroll 1
        for (int of_line = 8 * l; of_line < 8 * l + 8; of_line++) {
            const int32_t line = bf16::first_line_of(tile) + of_line;
            if (!(ballot >> 4 * (of_line - 8 * l) & 0xF) || line >= p.n) continue;
            const UsualScales usual = usual_scales(of_line);
            if (is_unusual_line(p, tile, line, usual)) lines |= 1u << of_line;
        }
    }
    return lines;
}

}  // namespace mxq::cuda::sm90::weights
