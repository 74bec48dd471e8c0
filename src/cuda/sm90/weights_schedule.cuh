// Which tiles a CTA of weights_sm90 takes, and which blocks of their contraction:
//
//     few tiles      the CTAs of a cluster take equal shares of each tile
//     rounds         CTA c of G takes whole tiles: c, c + G, c + 2 G, ... behind those that are shared
//     shared tiles   those of the last round and of the one before, where CTAs would idle: the blocks of all of them in a
//                    row, in equal shares (stream-K)
//     pieces         where rows must be invariant, parts of each tile that depend on B alone: a CTA takes some of a tile, or
//                    all of them and then those of other tiles
//
//     tiles     |--- 0 ---|--- 1 ---|--- 2 ---|      a CTA may have the end of a tile, whole tiles, and the beginning of
//     CTAs      |--- 0 ------|--- 1 ------|---       another
//
// A CTA takes its share first, from the last tile to the first. So it leaves the beginning of a tile before all else, and
// the CTA that has the end waits for CTAs before it alone, which the hardware starts before it.
#pragma once
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

constexpr uint32_t kSharingBlocks = 3;  // that a CTA must save at least: what it takes to share costs as much

// Returns how many tiles of tokens the groups have, for all lanes of a warp.
__device__ __forceinline__ uint32_t count_group_tiles(const GroupedRows& grouped, const bf16::TokenUnits& units) {
    const int lane = int(read_thread() % 32), count = grouped.groups.count;
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

// Begins the schedule of a CTA. A warp calls it.
template <bool has_pieces>
__device__ __forceinline__ void begin_schedule(const Arguments& args, uint32_t of_tile, Schedule& to) {
    const GemmProblem& p = args.problem;
    const uint32_t ctas = cluster_count(), cta = cluster_index();
    Schedule schedule{cta, 0, 0, 1, of_tile, {}};
    if (has_pieces && args.pieces.count > 0) {
        const uint32_t of_cta = args.pieces.of_cta, ctas_of_tile = (args.pieces.count + of_cta - 1) / of_cta;
        const uint32_t first = cta % ctas_of_tile * of_cta;
        schedule = {cta / ctas_of_tile, first, first, ctas / ctas_of_tile, of_tile, {}};
    } else if (args.shares_tiles) {
        const uint32_t of_tokens = p.grouping == Grouping::Rows ? count_group_tiles({p.groups, p.group_rows}, args.units)
                                                                : args.units.group_tiles(uint32_t(p.m));
        const uint32_t tiles = of_tokens * args.line_tiles, rest = tiles % ctas;
        if (rest > 0 && (ctas - rest) * of_tile >= kSharingBlocks * ctas) {
            const uint32_t shared = tiles < ctas ? tiles : ctas + rest, all = shared * of_tile;
            const uint32_t of_share = max((all + ctas - 1) / ctas, uint32_t(kLeastBlocks)), begin = min(cta * of_share, all);
            schedule = {cta + shared, begin, min(of_share, all - begin), of_share, of_tile, {}};
        }
    }
    if (read_thread() % 32 == 0) to = schedule;
    __syncwarp();
}

// Takes the next piece, of so many blocks, and returns the number of its tile.
__device__ __forceinline__ uint32_t next_piece(const Pieces& pieces, uint32_t blocks, Schedule& schedule) {
    const uint32_t piece = schedule.left, first = piece * blocks, tile = schedule.tile;
    schedule.part = {int32_t(first), int32_t(min(blocks, schedule.of_tile - first)),
                     blockIdx.x * pieces.of_cta - schedule.begin, piece + 1 == pieces.count, uint16_t(piece)};
    if (++schedule.left == min(schedule.begin + pieces.of_cta, pieces.count))
        schedule.tile += schedule.of_share, schedule.left = schedule.begin;
    return tile;
}

// Returns the number of the next tile, of which the CTA takes the schedule's part. A warp calls it.
template <bool has_pieces>
__device__ __forceinline__ uint32_t next_tile(const Arguments& args, uint32_t piece_blocks, Schedule& of) {
    Schedule schedule = of;
    const uint32_t of_tile = schedule.of_tile, begin = schedule.begin, end = begin + schedule.left;
    uint32_t tile = schedule.tile;
    if (has_pieces && args.pieces.count > 0) {
        tile = next_piece(args.pieces, piece_blocks, schedule);
    } else if (schedule.left == 0) {
        const uint32_t cta = block_of_cluster();
        const int32_t first = int32_t(of_tile * cta / args.sharing), last = int32_t(of_tile * (cta + 1) / args.sharing);
        schedule.part = {first, last - first, 0, true, 0};
        schedule.tile += cluster_count();
    } else {
        tile = (end - 1) / of_tile;
        const uint32_t first = tile * of_tile, from = max(begin, first);
        const uint32_t first_cta = first / schedule.of_share;
        schedule.part = {int32_t(from - first), int32_t(end - from), first_cta, end == first + of_tile,
                         uint16_t(has_pieces ? blockIdx.x - first_cta : 0)};
        schedule.left = from - begin;
    }
    __syncwarp();  // all have read it
    if (read_thread() % 32 == 0) of = schedule;
    __syncwarp();
    return tile;
}

// Gives the last tile of a group all rows of D that pad the group: more than a tile has, where tiles are small.
__device__ __forceinline__ void pad_last_tile(const Arguments& args, bf16::Tile& tile) {
    if (args.problem.grouping != Grouping::Rows || tile.row + int32_t(args.units.tile_tokens) < tile.group_rows) return;
    tile.padded = int32_t(round_up_to_power(tile.group_rows, args.problem.d.group_unit)) - tile.row;
}

// Finds tiles, one warp.
template <class Block>
__device__ __forceinline__ void find_tiles(const Arguments& args, Block& shared) {
    begin_schedule<Block::kHasPieces>(args, uint32_t((args.problem.k + Block::kBlock - 1) / Block::kBlock), shared.schedule);
    bool exists = true;
#pragma unroll 1
    for (Ring<kSlots> slots; exists; slots.next()) {
        const uint32_t piece_blocks = args.pieces.numbers / Block::kBlock;
        bf16::Tile tile = bf16::find_tile(args, next_tile<Block::kHasPieces>(args, piece_blocks, shared.schedule));
        pad_last_tile(args, tile);
        wait(shared.tile_free[slots.at()], slots.parity() ^ 1);
        if (read_thread() % 32 == 0) {
            static_cast<Tile&>(shared.tiles[slots.at()]) = {tile, shared.schedule.part};
            arrive(shared.tile_full[slots.at()]);
        }
        exists = tile.exists;
        __syncwarp();
    }
}

}  // namespace mxq::cuda::sm90::weights
