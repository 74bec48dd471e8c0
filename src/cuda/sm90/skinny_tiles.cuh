// Which part of which tile of which product a block of skinny_sm90 makes next, and what it has of it in shared memory.
//
//     a tile    256 lines of weights and up to 16 or 64 tokens of a group, or 192 and 128, and all steps along the
//     contraction: one or two chunks of 128 codes; of F16 half as many tokens, in two parts
//
//     tiles     |--- 0 ---|--- 1 ---|--- 2 ---|      the steps of all tiles in a row, in equal shares: a block may have the
//     blocks    |--- 0 ------|--- 1 ------|---       end of a tile, whole tiles, and the beginning of another
//
// A block takes the tiles of its share from the last to the first. So it leaves the beginning of a tile first of all, and
// the block that has the end, and waits for the beginning, comes to it last of all. It waits for blocks before it alone,
// which the hardware starts before it.
#pragma once
#include <cuda.h>

#include "cuda/memory/operand.cuh"
#include "cuda/sm90/barrier.cuh"
#include "cuda/sm90/skinny_tokens.h"
#include "cuda/sm90/skinny_weights.cuh"

namespace mxq::cuda::sm90::skinny {

// Tiles of 128 tokens have fewer lines: their sums need registers that sixteen warps have not.
constexpr int kWarpLines = 16;
constexpr int warps_of(int tile_tokens) { return tile_tokens > kManyTokens ? 12 : 16; }
constexpr int lines_of(int tile_tokens) { return warps_of(tile_tokens) * kWarpLines; }
constexpr int threads_of(int tile_tokens) { return 32 * (warps_of(tile_tokens) + 2); }

constexpr int kSlots = 2;
constexpr int kOutTokens = 64;                   // whose sums a warp brings to shared memory at once, at most
constexpr int kSteps = kChunkCodes / 16;         // instructions of 16 codes
constexpr int kCoreBytes = 16 * 2 * kTokenRows;  // of eight tokens and 16 codes
constexpr uint32_t kLeastShare = 2;              // steps of a block

// Says how the steps of all tiles are shared.
struct Shares {
    uint32_t all, of_block;
};

MXQ_HD Shares share(uint32_t all, uint32_t blocks) {
    const uint32_t even = (all + blocks - 1) / blocks;
    return {all, even > kLeastShare ? even : kLeastShare};
}

// Holds what the kernel is called with.
struct Arguments {
    CUtensorMap codes, tokens;  // tokens of tiles of 16
    GemmProblem problem;
    GroupSumUnits units;  // of A's codes and scales, of tokens, of D's rows
    Bf16DecodeRule rule;
    uint32_t missing;         // 2^(127 - bias of the codes) as BF16, in both halves
    const uint8_t* arranged;  // tokens of tiles of 64, as the pass leaves them
    float* parts;             // sums of beginnings of tiles, a place for each block
    uint64_t* flags;          // of each warp of each block: `mark` where its part is there
    uint64_t mark;            // a number that no other launch has
    uint32_t tile_tokens, tile_lines, weight_tiles;
    uint32_t token_parts;         // of a number of A: 2 of F16, eight tokens' high parts before their low ones
    uint32_t tile_rows;           // of A: as many as tokens, or of F16 half as many
    uint32_t steps, step_chunks;  // of a tile; chunks of a step
    Shares shares;                // without groups, whose ends only the device knows
    bool scaled;                  // weights have a scale byte for every block, or for a line
    bool adjacent;                // scales of a line lie one after the other, or by fours that do
};

// Describes a block's part of a tile.
struct Tile {
    TileOperand a, b;
    ScaleSteps scale_steps;
    int64_t d_row;                      // of the first token
    const uint8_t* arranged;            // its tokens, where a pass leaves them
    uint32_t group, row, rows, padded;  // first token of the group; tokens, and rows of D, of the tile
    uint32_t line;                      // first of weights
    uint32_t first_step, steps;         // of the part; no steps: there are no more parts
    uint32_t first_block;               // that has a part of the tile
    uint32_t eights;                    // of tokens, those of F16 in two parts
};

// Returns how many chunks of 128 codes a step has: more where they are small, since a step costs some thirty instructions.
constexpr int chunks_of_step(int bits, int tile_tokens) { return bits == 4 && tile_tokens == kFewTokens ? 2 : 1; }

// Tokens of tiles of 16 lie in pieces of eight tokens and 64 codes, a kilobyte each, as the copy engine swizzles them: first
// the pieces of the first 64 codes of each chunk, and behind a gap those of the second. With the gap eight lanes read from
// all banks.
constexpr int kPieceBytes = kTokenRows * 128, kPieceGap = 256;

template <int chunks>
constexpr int kSecondPieces = chunks*(kFewTokens / kTokenRows) * kPieceBytes + kPieceGap;

// Holds a step of a tile: chunks of its lines, and of its tokens.
template <Weights kind, int tile_tokens>
struct Stage {
    static constexpr int chunks = chunks_of_step(weight_bits<kind>, tile_tokens);
    static constexpr int line_bytes = kChunkCodes / 8 * weight_bits<kind>;  // of a chunk
    alignas(1024) uint8_t codes[chunks * lines_of(tile_tokens) * line_bytes];
    alignas(1024) uint8_t tokens[tile_tokens == kFewTokens ? 2 * kSecondPieces<chunks> - kPieceGap
                                                           : chunks * (tile_tokens / kTokenRows * kTokenRowsBytes)];
};

// Holds what the threads of a block share.
template <Weights kind, int tile_tokens>
struct Shared {
    using OneStage = Stage<kind, tile_tokens>;
    static constexpr int warps = warps_of(tile_tokens), out_tokens = tile_tokens < kOutTokens ? tile_tokens : kOutTokens;
    static constexpr int kMostBytes = 227 * 1024, kRest = warps * out_tokens * kWarpLines * 4 + 2048;
    static constexpr int fitting = (kMostBytes - kRest) / int(sizeof(OneStage)), kStages = fitting < 8 ? fitting : 8;
    OneStage stages[kStages];
    alignas(16) float sums[warps][out_tokens * kWarpLines];
    Tile tiles[kSlots];
    Barrier full[kStages], free[kStages], tile_full[kSlots], tile_free[kSlots], left;
};

// Returns how many tiles of tokens the groups have, for all lanes of a warp.
__device__ __forceinline__ uint32_t count_group_tiles(const GroupedRows& grouped, const GroupSumUnits& units) {
    const int lane = threadIdx.x % 32, count = grouped.groups.count;
    uint32_t row = 0, tiles = 0;
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
        const uint32_t own = base + lane < count ? uint32_t(clamped_end(grouped, base + lane)) : 0;
        const uint32_t end = max(scan_lanes<Scan::Max>(own), row);
        tiles += units.group_tiles(end - shift_up(end, row));
        row = __shfl_sync(kAllLanes, end, 31);
    }
    return __reduce_add_sync(kAllLanes, tiles);
}

__device__ __forceinline__ Shares share_steps(const Arguments& args) {
    const GemmProblem& p = args.problem;
    if (p.grouping != Grouping::Rows) return args.shares;
    const uint32_t token_tiles = count_group_tiles({p.groups, p.group_rows}, args.units);
    return share(token_tiles * args.weight_tiles * args.steps, gridDim.x);
}

// Says which steps of which lines a part has, and of which token tile.
struct Part {
    Group group;
    uint32_t row, rows;  // first token of the group; tokens
    uint32_t token;      // its first as the map counts
    uint32_t line;       // first of weights
    uint32_t first_step, steps;
    uint32_t first_block;  // that has a part of the tile
    uint32_t eights;       // of tokens, as in Tile
};

// Returns the part of a tile that ends before step `end` of all, and begins no earlier than `begin`; for all lanes of a
// warp.
__device__ __forceinline__ Part find_part(const Arguments& args, const Shares& shares, uint32_t begin, uint32_t end) {
    Part part{};
    if (begin >= end) return part;
    const uint32_t index = (end - 1) / args.steps, first = index * args.steps;
    uint32_t token_tile = index / args.weight_tiles, rows = uint32_t(args.problem.m);
    part.line = (index - token_tile * args.weight_tiles) * args.tile_lines;
    part.first_step = max(begin, first) - first;
    part.steps = end - first - part.first_step;
    part.first_block = first / shares.of_block;
    const GemmProblem& p = args.problem;
    if (p.grouping == Grouping::Rows) {
        part.group = find_group_tile({p.groups, p.group_rows}, args.units, token_tile);
        token_tile -= part.group.first_group_tile;
        rows = part.group.rows;
    }
    part.row = token_tile * args.tile_rows;
    part.rows = min(rows - part.row, args.tile_rows);
    part.eights = (part.rows + kTokenRows - 1) / kTokenRows * args.token_parts;
    part.token = uint32_t(part.group.starts[kSourceCodes]) + part.row;
    return part;
}

// Returns all that the consumers must know of a part.
__device__ __forceinline__ Tile describe_part(const Arguments& args, const Part& part) {
    const GemmProblem& p = args.problem;
    Tile tile{};
    tile.line = part.line, tile.first_step = part.first_step, tile.steps = part.steps, tile.first_block = part.first_block;
    if (part.steps == 0) return tile;
    int64_t first_token = 0, padded = p.m;  // as the pass counts
    uint32_t rows = uint32_t(p.m);
    tile.row = part.row, tile.rows = part.rows, tile.eights = part.eights;
    tile.d_row = tile.row;
    if (p.grouping == Grouping::Rows) {
        const Group& group = part.group;
        tile.group = group.index;
        tile.d_row = group.starts[kColumnwiseCodes] + tile.row;
        tile.a = operand_of_group(p.a, group.first(), group.rows);
        first_token = group.starts[kRowwiseCodes];
        rows = group.rows;
        padded = round_up_to_power(int64_t(group.rows), p.d.group_unit);
    } else {
        tile.a = operand_of_matrix(p.a, 0);
    }
    tile.b = operand_of_matrix(p.b, tile.group);
    tile.scale_steps = scale_steps(tile.b.layout, p.b.scale_type == ScaleType::E4M3 ? kNvBlock : kMxBlock);
    tile.padded = tile.row + args.tile_rows >= rows ? uint32_t(padded) - tile.row : tile.rows;
    tile.arranged = args.arranged + (first_token + tile.row) * int64_t(args.steps * args.step_chunks) *
                                        int64_t(args.token_parts * kChunkCodes * 2);
    return tile;
}

}  // namespace mxq::cuda::sm90::skinny
