// Which tile of which product a block of wgmma_bf16_sm90 makes next, and what it has of it in shared memory.
//
//     the product is made transposed: lines of weights are the rows of the instruction, tokens (lines of A) its columns
//
//     tiles      128 lines x 256 tokens, or 128 where there are few; of the same tokens one after the other, so that blocks
//                that work beside each other read the same tokens and then the same weights from L2
//     of F16     128 lines x the high parts of 128 tokens and their low parts, whose sums are added up in the end
//
//     scout      a tile ahead: finds the tile and writes it to one of two slots, then what the pass over scales says of it
//     all others take their part of the tile of a slot, and give the slot back
#pragma once
#include <cuda.h>

#include <bit>

#include "cuda/memory/operand.cuh"
#include "cuda/memory/weights.cuh"
#include "cuda/sm90/arrange_scales.h"
#include "cuda/sm90/barrier.cuh"
#include "cuda/sm90/bf16_cut.h"

namespace mxq::cuda::sm90::bf16 {

constexpr int kStepCodes = 64;  // of the contraction; 128 bytes of a token
constexpr int kTokenBytes = kStepCodes * 2;
constexpr int kStages = 5, kSlots = 2;
constexpr int kConsumerWarps = 8;
static_assert(kStepCodes == kArrangedCodes);
constexpr int kTileLines = kArrangedLines;  // of a tile
constexpr int kOutTokens = 32, kWarpLines = 16;  // on their way to D: of a turn, and of a warp
constexpr int kOutPitch = 48, kSumPitch = 20;    // of a token: bytes of elements, floats of sums

// Counts tiles of tokens, 2^tile_rows_log2 times an odd number below 16, in place of group tiles.
struct TokenUnits : GroupSumUnits {
    uint32_t tile_tokens = kTileLines;
    uint32_t inverse = 1u << 31;  // 2^31 by the odd number, rounded up

    void set_tokens(uint32_t tokens) {
        tile_tokens = tokens;
        tile_rows_log2 = uint32_t(std::countr_zero(tokens));
        const uint32_t odd = tokens >> tile_rows_log2;
        inverse = ((1u << 31) + odd - 1) / odd;
    }
    __device__ __forceinline__ uint32_t group_tiles(uint32_t rows) const {
        return __umulhi((rows + tile_tokens - 1) >> tile_rows_log2 << 1, inverse);
    }
};

// Holds what the kernel is called with.
struct Arguments {
    CUtensorMap tokens, codes;
    GemmProblem problem;
    TokenUnits units;  // of A's codes and scales, of D's rows
    Bf16DecodeRule rule;
    uint32_t missing;  // 2^(127 - bias of the codes) as BF16, in both halves
    ArrangedScales scales;
    uint32_t line_tiles;
    uint32_t sharing;  // blocks of a cluster, which share the contraction of a tile
    uint32_t parts;    // of a number of A: 2 of F16, a tile's high parts before its low ones
    bool wide;         // D takes copies of 16 bytes
    bool shifted;      // splitk_sm90, weights_sm90: scales of lines are unaligned
    bool has_blocks;   // weights_sm90: B has scales of blocks
    bool swizzled;     // weights_sm90: these are swizzled, and a stage gets whole tiles of them
};

// One tile of one product.
struct Tile {
    bool exists;           // else there are no more
    int32_t token, line;   // where its operands begin, as the maps count
    int32_t row, group;    // of A in its group
    int32_t rows, padded;  // tokens, and rows of D, of the tile
    int64_t d_row;         // of the first token
    int32_t group_rows;
    GroupStart start;  // of the group in A
    bool any_scales;   // some need more than one factor; known when the slot is full
};

// Holds a step of a tile: its tokens, and codes and arranged scales of its lines.
template <Weights kind>
struct Stage {
    static constexpr int line_bytes = kStepCodes / 8 * weight_bits<kind>;
    static constexpr int scale_bytes = arranged_step_bytes(kind == Weights::Nvfp4);
    alignas(1024) uint8_t tokens[kMostTokens * kTokenBytes];
    alignas(1024) uint8_t codes[kTileLines * line_bytes];
    uint8_t scales[kTileLines * scale_bytes];
};

// Holds what warps bring to D, on its way.
constexpr int kOutBytes = kOutTokens * kSumPitch * 4;  // of a warp
using OutOfWarps = uint8_t[kConsumerWarps][kOutBytes];

template <Weights kind>
struct Shared {
    Stage<kind> stages[kStages];
    alignas(128) OutOfWarps out;
    Tile tiles[kSlots];
    Barrier full[kStages], free[kStages], tile_found[kSlots], tile_full[kSlots], tile_free[kSlots];
};

// Returns whether some scales of a tile of lines need more than one factor, for all lanes of a warp.
__device__ __forceinline__ bool find_any_scales(const Arguments& args, const Tile& tile) {
    const GemmProblem& p = args.problem;
    if (!args.scales.bytes) return false;
    const uint32_t count = arranged_flags_of(p);
    const uint8_t* const flags =
        args.scales.flags + (int64_t(tile.group) * arranged_tiles_of(p) + tile.line / kTileLines) * count;
    bool any = false;
    for (uint32_t i = threadIdx.x % 32; i < count; i += 32) any |= flags[i] != 0;
    return __any_sync(kAllLanes, any);
}

// Says which steps of its tiles this block makes.
struct Steps {
    int32_t first, end;
};

__device__ __forceinline__ Steps steps_of_block(const Arguments& args) {
    const uint32_t all = arranged_steps_of(args.problem), part = block_of_cluster();
    return {int32_t(all * part / args.sharing), int32_t(all * (part + 1) / args.sharing)};
}

// Returns tile number `index`, for all lanes of a warp.
__device__ __forceinline__ Tile find_tile(const Arguments& args, uint32_t index) {
    const GemmProblem& p = args.problem;
    const uint32_t token_tile = index / args.line_tiles, line_tile = index - token_tile * args.line_tiles;
    const int32_t tokens = int32_t(args.units.tile_tokens);
    Tile tile{};
    int64_t rows = p.m, padded = p.m;
    if (p.grouping == Grouping::Rows) {
        const Group group = find_group_tile({p.groups, p.group_rows}, args.units, token_tile);
        if (!group.exists()) return tile;
        tile.row = int32_t(token_tile - group.first_group_tile) * tokens;
        tile.group = group.index;
        tile.token = int32_t(group.starts[kSourceCodes]) + tile.row;
        tile.d_row = int64_t(group.starts[kRowwiseCodes]) + tile.row;
        tile.group_rows = int32_t(group.rows);
        tile.start = group.first();
        rows = group.rows;
        padded = round_up_to_power(rows, p.d.group_unit);
    } else {
        if (int64_t(token_tile) * tokens >= p.m) return tile;
        tile.row = tile.token = int32_t(token_tile) * tokens;
        tile.d_row = tile.row;
    }
    tile.rows = int32_t(min(rows - tile.row, int64_t(tokens)));
    tile.padded = int32_t(min(padded - tile.row, int64_t(tokens)));
    tile.line = int32_t(line_tile) * kTileLines;
    tile.exists = true;
    return tile;
}

}  // namespace mxq::cuda::sm90::bf16
