// Sums of a tile whose contraction the blocks of a cluster share: each has its part of the steps, and all lines and tokens.
//
//     a piece     16 lines, a warp's, and 32 tokens. The blocks have all pieces of the tile, and take turns with them:
//
//     warp 0      piece 0   piece 1   piece 2   ...   piece 7        warp 1     piece 8   piece 9   ...
//     3 blocks    block 0   block 1   block 2   ...   block 1                   block 2   block 0   ...
//
//     a piece's block adds up what all blocks have of it, block after block, and writes it to D
//
// Warps send their sums to the shared memory of a piece's block, where the stages were, and a lane takes what the same lane
// of other blocks sent: it has the same lines and tokens in all of them.
#pragma once
#include "cuda/sm90/bf16_output.cuh"

namespace mxq::cuda::sm90::bf16 {

constexpr int kTurnSums = kOutTokens / 2, kWarpPieces = kMostTokens / kOutTokens;  // of a thread; of a warp
constexpr int kPieces = kConsumerWarps * kWarpPieces;

// Holds the sums of a warp's threads for a piece.
using PartOfPiece = float4[kTurnSums / 4][32];

// Holds what a block gets from all blocks of its cluster.
struct Exchange {
    PartOfPiece sums[kPieces + kMostSharing];  // the block's pieces in turn, and of each those of all blocks
    uint32_t repair[kMostSharing][kConsumerWarps];
};

// Returns where the same object of another block of the cluster lies, for st.shared::cluster.
__device__ __forceinline__ uint32_t address_in_block(const void* own, uint32_t block) {
    uint32_t other;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(uint32_t(__cvta_generic_to_shared(own))), "r"(block));
    return other;
}

__device__ __forceinline__ void store_in_block(uint32_t at, const float4& of) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(of.x), "f"(of.y), "f"(of.z), "f"(of.w)
                 : "memory");
}

__device__ __forceinline__ void store_in_block(uint32_t at, uint32_t word) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(at), "r"(word) : "memory");
}

// Sends a thread's sums of a piece to where the same memory of a block of the cluster lies. The block's own memory is written as
// ever: where a block is alone, sync_cluster does not wait for stores to a cluster.
__device__ __forceinline__ void send_part(PartOfPiece& own, uint32_t block, const float* sums) {
    const uint32_t lane = threadIdx.x % 32, to = address_in_block(&own[0][lane], block);
    const bool here = block == block_of_cluster();
#pragma unroll
    for (uint32_t i = 0; i < kTurnSums / 4; i++) {
        const float4 of{sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
        if (here)
            own[i][lane] = of;
        else
            store_in_block(to + i * sizeof own[0], of);
    }
}

// Names the piece of a warp's turn: its block, and how many pieces that one has before.
struct Piece {
    uint32_t block, before;
    __device__ __forceinline__ Piece(uint32_t turn, uint32_t sharing) {
        const uint32_t number = consumer_warp() * kWarpPieces + turn;
        before = number / sharing, block = number - before * sharing;
    }
};

// Sends a warp's sums to the blocks of their pieces, and which of its lines are to be made again to all.
template <int count>
__device__ __forceinline__ void send_sums(Exchange& exchange, const Tile& tile, uint32_t sharing, uint32_t repair,
                                          const float (&sums)[count]) {
    const uint32_t own = block_of_cluster(), lane = threadIdx.x % 32;
    if (lane < sharing) store_in_block(address_in_block(&exchange.repair[own][consumer_warp()], lane), repair);
#pragma unroll
    for (uint32_t turn = 0; turn < count / kTurnSums; turn++) {
        if (int32_t(turn) * kOutTokens >= tile.rows) break;
        const Piece piece(turn, sharing);
        send_part(exchange.sums[piece.before * sharing + own], piece.block, &sums[turn * kTurnSums]);
    }
}

// Adds up so many parts of a piece, one after the other.
__device__ __forceinline__ void add_parts(const PartOfPiece* parts, uint32_t count, float (&sums)[kTurnSums]) {
#pragma unroll
    for (float& sum : sums) sum = 0;
#pragma unroll 2
    for (uint32_t part = 0; part < count; part++) {
#pragma unroll
        for (int i = 0; i < kTurnSums; i += 4) {
            const float4 of = parts[part][i / 4][threadIdx.x % 32];
            sums[i] = add_rn(sums[i], of.x), sums[i + 1] = add_rn(sums[i + 1], of.y);
            sums[i + 2] = add_rn(sums[i + 2], of.z), sums[i + 3] = add_rn(sums[i + 3], of.w);
        }
    }
}

// Takes a warp's sums of a shared tile to D. Nobody uses what `exchange` lies on any more when all consumers of the cluster
// have come here.
template <Weights kind, int count>
__device__ __forceinline__ void write_shared_tile(const Arguments& args, Exchange& exchange, const Tile& tile,
                                                  uint32_t repair, const float (&sums)[count], OutOfWarps& outs) {
    const uint32_t sharing = args.sharing;
    sync_cluster();
    send_sums(exchange, tile, sharing, repair, sums);
    sync_cluster();
    for (uint32_t block = 0; block < sharing; block++) repair |= exchange.repair[block][consumer_warp()];
    const int32_t line = first_line_of(tile);
    const Output output = output_of<kind>(args, tile, line);
#pragma unroll 1
    for (uint32_t turn = 0; int32_t(turn) * kOutTokens < tile.padded; turn++) {
        const Piece piece(turn, sharing);
        if (piece.block != block_of_cluster()) continue;
        float of_piece[kTurnSums];
        add_parts(&exchange.sums[piece.before * sharing], sharing, of_piece);
        add_bias_to_sums(args, tile, output, line, repair, of_piece);
        write_any_turn<kind>(args, tile, output, line, int(turn) * kOutTokens, repair, of_piece, outs[consumer_warp()]);
    }
}

}  // namespace mxq::cuda::sm90::bf16
