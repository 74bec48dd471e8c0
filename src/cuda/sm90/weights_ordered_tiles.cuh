// What a CTA of the kernels of weights_ordered.cu has in shared memory. Some warps decode weights there, and one warpgroup
// multiplies them, so that one sum runs over the whole contraction however many warps decode:
//
//     a tile     64 lines of weights and 32, 64 or 128 tokens (rows of A), those of F16 in two parts
//     a block    128 numbers of the contraction
//
//     ring       of a block                                      filled by           read by
//     codes      64 lines of codes, and their scales             the copy engine     a warpgroup that decodes
//     decoded    64 lines as BF16, two boxes of 64 numbers       that warpgroup      the warpgroup that multiplies
//     tokens     BF16, two boxes of 64 numbers                   the copy engine     the same
#pragma once
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights::ordered {

// Names weights: scales of blocks are multiplied into numbers, but those of FP8's 128 codes meet sums.
enum class Kind { Mxfp4, Nvfp4, Mxfp8, Fp8 };

template <Kind kind>
constexpr Weights kWeights = kind == Kind::Mxfp4   ? Weights::Bits4
                             : kind == Kind::Nvfp4 ? Weights::Nvfp4
                                                   : Weights::Bits8;
template <Kind kind>
constexpr bool kHasBlockScales = kind != Kind::Fp8;

constexpr int kLines = 64;                                // of a tile
constexpr int kBlockBoxes = kBlockNumbers / kBoxNumbers;  // of a block
constexpr int kDecoders = 3, kWarps = kWarpgroup / 32;    // warpgroups that decode; warps of one
constexpr int kOrderedThreads = (2 + kDecoders) * kWarpgroup;
constexpr int kDecodedStages = 4;
static_assert(kDecodedStages > kDecoders, "each warpgroup decodes a block of its own");

template <Kind kind, int tokens>
struct OrderedShared {
    static constexpr int kCodeBytes = kBlockNumbers / 8 * weight_bits<kWeights<kind>>;  // of a line
    static constexpr int kTokenStages = tokens == kMostTokens ? 3 : tokens == kSomeTokens ? 5 : 8;
    static constexpr int kCodeStages = kCodeBytes == 64 || tokens == kLeastTokens ? 8 : tokens == kSomeTokens ? 6 : 4;
    static_assert(kCodeStages >= kDecodedStages, "whoever decodes knows that codes of the round before have arrived");
    alignas(1024) uint8_t tokens_of[kTokenStages][kBlockBoxes][tokens * kTokenBytes];
    alignas(1024) uint8_t decoded[kDecodedStages][kBlockBoxes][kLines * kTokenBytes];
    alignas(1024) uint8_t codes[kCodeStages][kLines * kCodeBytes];
    alignas(128) uint8_t out[kWarps][bf16::kOutBytes];
    ScalesOfLines<kWeights<kind>> scales[kCodeStages];  // of blocks
    float scales_of_128[kCodeStages][kLines], decoded_scales[kDecodedStages][kLines];
    Tile tiles[kSlots];
    uint32_t repair[kSlots][kWarps];  // which lines of a tile have met Inf or NaN, 16 bits for each warp that multiplies
    Barrier code_full[kCodeStages], code_free[kCodeStages], decoded_full[kDecodedStages], decoded_free[kDecodedStages];
    Barrier token_full[kTokenStages], token_free[kTokenStages], tile_full[kSlots], tile_free[kSlots];
};

__device__ __forceinline__ int32_t blocks_of(const Arguments& args) {
    return int32_t((args.problem.k + kBlockNumbers - 1) / kBlockNumbers);
}

}  // namespace mxq::cuda::sm90::weights::ordered
