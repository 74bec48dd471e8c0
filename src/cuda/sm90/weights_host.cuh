// Prepares launches of weights_sm90 and weights_fp8_sm90 on the host. Counts tiles and CTAs, finds the memory of the workspace
// that CTAs leave sums in, and fills most arguments of the kernels.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>

#include "cuda/device.h"
#include "cuda/memory/groups.cuh"
#include "cuda/sm90/line_scales.cuh"
#include "cuda/sm90/weight_kind.h"
#include "cuda/sm90/weights_tiles.cuh"
#include "dispatch/reason.h"

namespace mxq::cuda::sm90::weights {

// Returns the tiles of a product at most, each of so many rows of A and so many lines.
inline int64_t tiles_of(const GemmProblem& p, int64_t rows, int64_t lines = kTileLines) {
    const int64_t of_tokens =
        p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, rows) : ceil_div(p.m, rows);
    return of_tokens * ceil_div(p.n, lines);
}

// Returns what a product may use of a chip: each CTA has an SM of its own where SMs are limited.
inline Room room_of(const Context& context, const GemmProblem& p, int32_t ctas_of_sm) {
    const int64_t all = context.cuda->multiprocessors;
    if (p.sm_count > 0) return {std::min<int64_t>(p.sm_count, all), std::min<int64_t>(p.sm_count, all)};
    return {all, all * ctas_of_sm};
}

inline Reason needs_sizes(const GemmProblem& p, double tiles) {
    constexpr int64_t most = int64_t(1) << 31;
    if (p.grouping == Grouping::Contraction) return "needs groups of rows or none, found groups along the contraction";
    if (p.m == 0 || p.n == 0 || p.k == 0) return "needs elements in both operands, found none";
    if (p.a.lines >= most || p.n >= most || p.k >= most) return "needs less than 2^31 rows, columns and codes of a line";
    if (tiles > 4294000000.0)  // those of all CTAs are counted in 32 bits
        return [tiles] { return format_text("needs less than 2^32 tiles of D, found %.0f", tiles); };
    return {};
}

// How many CTAs a product has, whether they share tiles of the last rounds, and the memory that this takes of the workspace.
struct Ctas {
    int64_t count;
    bool share_tiles;
    uint64_t sum_bytes, bytes;  // of the sums that they leave, and with what says that they are there
    Pieces pieces;
};

// Returns the CTAs of so many tiles whose contraction is cut into pieces. A CTA has one piece or some of a tile where all
// then run at once, else all of a tile at a time.
inline Ctas ctas_of_pieces(Pieces pieces, int32_t tokens, int64_t tiles, int64_t at_once) {
    const auto ctas_of_tile = [&] { return ceil_div(int64_t(pieces.count), int64_t(pieces.of_cta)); };
    while (pieces.of_cta < pieces.count && tiles * ctas_of_tile() > at_once) pieces.of_cta++;
    const int64_t count = ctas_of_tile() > 1 ? tiles * ctas_of_tile() : std::min(tiles, at_once);
    const uint64_t places = pieces.count > 1 ? uint64_t(count) * pieces.of_cta : 0;
    const uint64_t sums = places * tokens * kTileLines * sizeof(float);
    return {count, false, sums, sums + places * kConsumerWarps * sizeof(uint64_t), pieces};
}

inline Ctas ctas_of(const GemmProblem& p, const Cut& cut, int64_t tiles, int64_t blocks, int64_t at_once) {
    if (p.row_invariant) return ctas_of_pieces(pieces_of(p.n, p.k, kTileLines), cut.tokens, tiles, at_once);
    if (cut.sharing > 1) return {tiles * cut.sharing, false, 0, 0, {}};
    const int64_t count = std::min(ceil_div(tiles * blocks, kLeastBlocks), at_once);
    const uint64_t sums = uint64_t(count) * cut.tokens * kTileLines * sizeof(float);
    return {count, true, sums, sums + uint64_t(count) * kConsumerWarps * sizeof(uint64_t), {}};
}

// Returns a number that no other launch of this process has, and that no memory has by chance; its low bits are zero.
inline uint64_t next_mark() {
    static std::atomic<uint64_t> launches{uint64_t(std::chrono::steady_clock::now().time_since_epoch().count())};
    uint64_t mark = launches.fetch_add(0x9E3779B97F4A7C15ull);  // then mixed, so that near numbers have nothing in common
    mark = (mark ^ mark >> 30) * 0xBF58476D1CE4E5B9ull;
    mark = (mark ^ mark >> 27) * 0x94D049BB133111EBull;
    return (mark ^ mark >> 31) & ~kMostRepair;
}

// Fills what does not depend on the kernel. Tiles have so many rows of A and so many lines.
inline void fill_arguments(Arguments& args, const GemmProblem& p, int32_t rows, int32_t lines, int32_t sharing = 1) {
    args.problem = p;
    args.shifted = has_shifted_scales(p.b);
    args.has_blocks = is_block_scaled(p.b);
    args.swizzled = has_tiles_of_scales(p.b);
    args.line_tiles = uint32_t(ceil_div(p.n, int64_t(lines)));
    args.sharing = uint32_t(sharing);
    args.parts = uint32_t(parts_of_numbers(p.a));
    args.units.at[kSourceCodes] = uint32_t(p.a.units.codes);
    args.units.at[kSourceScales] = uint32_t(p.a.units.scales);
    args.units.at[kRowwiseCodes] = uint32_t(p.d.group_unit);
    args.units.set_tokens(uint32_t(rows));
    const int64_t element = find_format(p.d.format)->bits / 8;
    args.wide = p.d.row_stride * element % 16 == 0 && reinterpret_cast<uintptr_t>(p.d.data) % 16 == 0;
}

// Gives CTAs that share tiles their memory.
inline void share_tiles(Arguments& args, const Ctas& ctas, void* memory) {
    args.shares_tiles = ctas.share_tiles;
    args.pieces = ctas.pieces;
    args.left_sums = static_cast<float*>(memory);
    args.left = reinterpret_cast<uint64_t*>(static_cast<uint8_t*>(memory) + ctas.sum_bytes);
    args.mark = next_mark();
}

}  // namespace mxq::cuda::sm90::weights
