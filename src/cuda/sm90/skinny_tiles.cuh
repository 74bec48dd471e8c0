// Finds which tile of which product a block of skinny_sm90 makes, and brings its tokens to shared memory.
//
//     blocks    one after the other: the shares of a tile's contraction, in a cluster; the tiles of 128 lines of weights
//               beside the same tokens; the next tokens of the group, or of the next one
//
//     tokens    a ring of stages, 128 codes each, filled by one thread as all warps leave them
#pragma once
#include "cuda/memory/operand.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/skinny_tokens.h"

namespace mxq::cuda::sm90::skinny {

constexpr int kLines = 128, kWarps = kLines / 16, kThreads = 32 * kWarps;
constexpr int kStages = 4, kMostCluster = 8;
constexpr int kPitch = kLines + 4;                    // of the sums of a token, in floats
constexpr int kSteps = kChunkCodes / 16, kBatch = 2;  // instructions of 16 codes; of which so many are made at once
constexpr int kCoreBytes = 16 * 2 * kTokenRows;       // of eight tokens and 16 codes

// Holds what the kernel is called with.
struct Arguments {
    GemmProblem problem;
    GroupSumUnits units;  // of A's codes and scales, of tokens, of D's rows
    Bf16DecodeRule rule;
    uint32_t missing;  // 2^(127 - bias of the codes) as BF16, in both halves
    const uint8_t* tokens;
    uint32_t tile_tokens, weight_tiles, chunks, cluster;
    bool scaled;  // weights have a scale byte for every block, or for a line
};

// Describes the tile of a block.
struct Tile {
    TileOperand a, b;
    int64_t group, d_row;          // of the first token
    uint32_t row, rows, padded;    // first token of the group; tokens, and rows of D, of the tile
    uint32_t line;                 // first of weights
    uint32_t first_chunk, chunks;  // of the block's share
    const uint8_t* tokens;
    uint32_t eights;  // of tokens
};

// Holds what the threads of a block share. The sums take the place of the tokens once these are multiplied.
struct Shared {
    union {
        alignas(128) uint8_t tokens[kStages][kMostTokens / kTokenRows * kTokenRowsBytes];
        float sums[kMostTokens][kPitch];
    };
    Barrier full[kStages], free[kStages];
    Group group;
    Tile tile;
};

// Returns false where there are no tokens. All threads of the block call it.
__device__ __forceinline__ bool find_tile(const Arguments& args, Shared& shared, Tile& tile) {
    const GemmProblem& p = args.problem;
    const uint32_t index = blockIdx.x / args.cluster, rank = blockIdx.x % args.cluster;
    const uint32_t token_tile = index / args.weight_tiles;
    int64_t first_token = 0, padded;
    uint32_t rows;
    if (p.grouping == Grouping::Rows) {
        find_group_tile({p.groups, p.group_rows}, args.units, token_tile, shared.group);
        const Group& group = shared.group;
        if (!group.exists()) return false;
        tile.row = (token_tile - group.first_group_tile) * args.tile_tokens;
        tile.group = group.index;
        tile.a = operand_of_group(p.a, group.first(), group.rows);
        tile.b = operand_of_matrix(p.b, group.index);
        tile.d_row = group.starts[kColumnwiseCodes] + tile.row;
        first_token = group.starts[kRowwiseCodes];
        rows = group.rows;
        padded = round_up_to_power(int64_t(group.rows), p.d.group_unit);
    } else {
        tile.row = token_tile * args.tile_tokens;
        tile.group = 0;
        tile.a = operand_of_matrix(p.a, 0);
        tile.b = operand_of_matrix(p.b, 0);
        tile.d_row = tile.row;
        rows = uint32_t(p.m);
        padded = p.m;
    }
    tile.rows = min(rows - tile.row, args.tile_tokens);
    tile.padded = tile.row + args.tile_tokens >= rows ? uint32_t(padded) - tile.row : tile.rows;
    tile.eights = (tile.rows + kTokenRows - 1) / kTokenRows;
    tile.line = (index % args.weight_tiles) * kLines;
    const uint32_t share = (args.chunks + args.cluster - 1) / args.cluster;
    tile.first_chunk = min(rank * share, args.chunks);
    tile.chunks = min(share, args.chunks - tile.first_chunk);
    tile.tokens = args.tokens + (first_token + tile.row) * int64_t(args.chunks) * (kChunkCodes * 2);
    return true;
}

// Loads the tokens of a chunk of the share, one thread, once all warps have left what its stage had. A barrier counts as
// complete before its first phase, so that stages are free at first.
__device__ __forceinline__ void load_tokens(const Tile& tile, Shared& shared, uint32_t chunk) {
    if (chunk >= tile.chunks) return;
    const uint32_t stage = chunk % kStages, bytes = tile.eights * kTokenRowsBytes;
    wait(shared.free[stage], (chunk / kStages + 1) % 2);
    arrive_expecting(shared.full[stage], bytes);
    load_bytes(shared.tokens[stage], tile.tokens + int64_t(tile.first_chunk + chunk) * bytes, bytes, shared.full[stage]);
}

}  // namespace mxq::cuda::sm90::skinny
