// How wgmma_bf16_sm90 cuts a product: tokens of a tile, and how many blocks, a cluster then, share its contraction.
//
//     many tiles    256 tokens; 128 where most groups have no more than 64, and of F16, which takes the room of 256
//     few tiles     whatever costs least, by a model in 50 ns of an H200: for each round of tiles the steps of a block, 0.65
//                   and 0.5 us each, the end of a tile, and what is exchanged then
#pragma once
#include <cstdint>
#include <initializer_list>

namespace mxq::cuda::sm90::bf16 {

constexpr int kMostTokens = 256, kFewTokens = 128;  // of a tile
constexpr int kMostSharing = 8;                     // blocks, as many as any Hopper takes in a cluster
constexpr int kLeastSteps = 4;                      // of a block, where some share a tile's

struct Cut {
    int32_t tokens, sharing;
};

// Holds the tiles of a product, those of 256 and those of 128 tokens, and the steps of its contraction.
struct TilesToCut {
    int64_t wide, narrow, steps;
    bool is_narrow;  // has those of 128 alone

    int64_t of(int32_t tokens) const { return tokens == kMostTokens ? wide : narrow; }
};

// Returns how many clusters of so many blocks run at once. The multiprocessors of a cluster are neighbours, and how many are
// neighbours may differ from chip to chip of one kind: so that all of them cut alike, a fifth are counted as left over. Of 2
// to 8 blocks one H200 runs 66, 39, 30, 22, 17, 15 and 15.
inline int64_t clusters_at_once(int64_t multiprocessors, int32_t sharing) {
    return sharing <= 2 ? multiprocessors / sharing : multiprocessors * 4 / 5 / sharing;
}

inline int64_t cost_of(const TilesToCut& tiles, const Cut& cut, int64_t clusters) {
    const int64_t rounds = (tiles.of(cut.tokens) + clusters - 1) / clusters;
    const int64_t steps = (tiles.steps + cut.sharing - 1) / cut.sharing;
    const int64_t step = cut.tokens == kMostTokens ? 13 : 10, end = cut.tokens == kMostTokens ? 40 : 20;
    return rounds * (steps * step + end + (cut.sharing > 1 ? 40 : 0));
}

// Returns the cut for so many multiprocessors. Tiles of which each has some are not shared, nor are those of which a block
// would have hardly any steps. Shared tiles are all made at once, so that each block has one.
inline Cut cut_of(const TilesToCut& tiles, int64_t multiprocessors) {
    Cut best{tiles.is_narrow ? kFewTokens : kMostTokens, 1};
    if (tiles.of(best.tokens) == 0 || tiles.of(best.tokens) >= multiprocessors) return best;
    int64_t least = cost_of(tiles, best, multiprocessors);
    for (const int32_t tokens : {best.tokens, kFewTokens})
        for (int32_t sharing = 1; sharing <= kMostSharing; sharing++) {
            const int64_t clusters = clusters_at_once(multiprocessors, sharing);
            if (sharing > 1 && (tiles.of(tokens) > clusters || tiles.steps < kLeastSteps * sharing)) break;
            const int64_t cost = cost_of(tiles, {tokens, sharing}, clusters);
            if (cost < least) best = {tokens, sharing}, least = cost;
        }
    return best;
}

}  // namespace mxq::cuda::sm90::bf16
