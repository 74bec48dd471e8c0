// How weights_sm90 cuts a product: rows of A of a tile, and how many CTAs, a cluster then, share its contraction.
//
//     rows of a tile    16, 32, 64 and 128, 144 or 192: as many as a product has, or most groups
//     many tiles        each CTA takes whole tiles
//     few tiles         what costs least by a model in nanoseconds of an H200: blocks of 128 numbers, the end of a tile, and
//                       what a cluster exchanges
//
// Two CTAs with tiles of up to 64 rows run on an SM at once, and the SM with most blocks decides. us of a block on an H200,
// 2026-11-30, MXFP4 and FP8 with scales of 128:
//
//     rows of a tile         16, 32        64
//     a CTA alone            0.5 to 0.8    0.8 to 1.2
//     both of two            0.9 to 1.1    1.1 to 1.4
#pragma once
#include <algorithm>
#include <cstdint>

namespace mxq::cuda::sm90::weights {

constexpr int32_t kFewestTokens = 16, kLeastTokens = 32, kSomeTokens = 64, kMostTokens = 128;  // of a tile
constexpr int32_t kWideTokens = 192, kFoldedTokens = 144;  // where kMostTokens are short: of BF16 and of FP8
constexpr int32_t kMostSharing = 8;  // CTAs, as many as any Hopper takes in a cluster
constexpr int64_t kLeastBlocks = 2;  // of 128 codes of a CTA, where some share a tile's

// Returns how many CTAs with such tiles run on an SM.
constexpr int32_t ctas_of_sm(int32_t tokens) { return tokens >= kMostTokens ? 1 : 2; }

struct Cut {
    int32_t tokens, sharing;
};

// Returns the rows of tiles, `fewest` or more, for products with so many rows, of groups on average. Groups differ in size.
constexpr int32_t tokens_of(int64_t rows, bool grouped, int32_t fewest) {
    if (rows <= (grouped ? fewest * 3 / 4 : fewest)) return fewest;
    if (rows <= (grouped ? kLeastTokens * 3 / 4 : kLeastTokens)) return kLeastTokens;
    return rows <= (grouped ? kSomeTokens * 3 / 4 : kSomeTokens) ? kSomeTokens : kMostTokens;
}

// Returns the rows of equal tiles of at most so many rows of a product.
constexpr int32_t rows_of_equal_tiles(int64_t rows, int64_t most) {
    constexpr int64_t unit = 16;
    const int64_t tiles = (rows + most - 1) / most;
    return int32_t(((rows + tiles - 1) / tiles + unit - 1) / unit * unit);
}

// Says how a contraction is cut where rows must be invariant: into pieces of so many numbers, the last may have fewer. Each
// is summed by itself, and they are added one after the other.
struct Pieces {
    uint32_t numbers, count, of_cta;
};

constexpr int64_t kPieceUnit = 256;  // numbers: a block of any kernel

// Returns the pieces of a contraction, for a CTA each: enough for most SMs where a product has few rows, but none so short
// that many rows pay for it. They depend on B alone. us of MXFP4 on an H200, 2026-11-30 (4 pieces: sums loaded by fours):
//
//     rows                   16      64      256     4096
//     (4096,4096), 2 pieces  16.4    19.0    27.6    257
//                  4         14.4    22.0    34.9    367
//     (8192,8192), 2         26.7    39.3    71.0    842
//                  4         26.5    35.9            1016
inline Pieces pieces_of(int64_t n, int64_t k, int64_t tile_lines) {
    constexpr int64_t ctas = 128, least_numbers = 2048;
    n = std::max<int64_t>(n, 1), k = std::max<int64_t>(k, 1);  // of products that are declined later
    const int64_t tiles = (n + tile_lines - 1) / tile_lines;
    const int64_t wanted = std::clamp<int64_t>(std::min(ctas / tiles, k / least_numbers), 1, kMostSharing);
    const int64_t numbers = ((k + wanted - 1) / wanted + kPieceUnit - 1) / kPieceUnit * kPieceUnit;
    return {uint32_t(numbers), uint32_t((k + numbers - 1) / numbers), 1};
}

// Holds what a chip runs at once.
struct Room {
    int64_t multiprocessors, ctas;
};

// Returns how many clusters of so many CTAs run at once. SMs of a cluster are neighbours, and how many are differs from chip
// to chip: so that all chips cut alike, some are left out. Of 3 to 8 CTAs one H200 runs 77 to 91% of them, one on an SM.
inline int64_t clusters_at_once(const Room& room, int32_t sharing) {
    if (sharing <= 2) return room.ctas / sharing;
    return (room.ctas > room.multiprocessors ? room.ctas * 9 / 10 : room.ctas * 4 / 5) / sharing;
}

// Returns the nanoseconds of so many tiles of so many blocks of 128 codes.
inline int64_t cost_of(int64_t tiles, int64_t blocks, const Cut& cut, const Room& room) {
    const int64_t at_once = clusters_at_once(room, cut.sharing), rounds = (tiles + at_once - 1) / at_once;
    const int64_t of_sm = (tiles * cut.sharing + room.multiprocessors - 1) / room.multiprocessors;  // CTAs or tiles
    const int64_t alone = cut.tokens >= kMostTokens ? 1150 : cut.tokens == kSomeTokens ? 900 : 650;
    const int64_t of_two = cut.tokens == kSomeTokens ? 1350 : 1000;
    const int64_t of_block = room.ctas == room.multiprocessors ? alone * of_sm : of_sm == 1 ? alone : of_two * of_sm / 2;
    const int64_t end = (cut.tokens >= kMostTokens ? 1600 : 1000) + (cut.sharing > 1 ? 1500 : 0);
    return (blocks + cut.sharing - 1) / cut.sharing * of_block + rounds * end;
}

// Returns the cut for a chip. A contraction is shared where all tiles then run at once.
inline Cut cut_of(int64_t tiles, int64_t blocks, int32_t tokens, const Room& room) {
    Cut best{tokens, 1};
    int64_t least = cost_of(tiles, blocks, best, room);
    for (int32_t sharing = 2; sharing <= kMostSharing; sharing++) {
        const Cut cut{tokens, sharing};
        if (tiles > clusters_at_once(room, sharing) || blocks < kLeastBlocks * sharing) break;
        const int64_t cost = cost_of(tiles, blocks, cut, room);
        if (cost < least) best = cut, least = cost;
    }
    return best;
}

}  // namespace mxq::cuda::sm90::weights
