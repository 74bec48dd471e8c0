// Which tile of which product a block of wgmma_plain_sm90 makes next, and what it has of it in shared memory.
//
//     the blocks of a cluster take two tiles of 128 x 256 that share lines of B or A (cluster_turns.cuh)
//
//     a step         64 elements of the contraction, boxes of 64 lines x 128 bytes each
//     as it lies     a row is a line, 64 elements of it                    A  0     B  0 1 2 3      each box 8 KB under the
//     across         a row is an element of the contraction, of 64 lines      1                     128-byte swizzle
#pragma once
#include <cuda.h>

#include "cuda/sm90/barrier.cuh"
#include "cuda/sm90/cluster_turns.cuh"
#include "cuda/sm90/rows_output.cuh"

namespace mxq::cuda::sm90::plain {

constexpr int kTileRows = 128, kTileColumns = 256;
constexpr int kMostBand = 9;  // tiles of a band
constexpr int kStep = 64;     // elements of the contraction
constexpr int kBox = 64;      // lines of a box
constexpr int kRowBytes = 128, kBoxBytes = kBox * kRowBytes;
constexpr int kStages = 4, kSlots = 2;
constexpr int kConsumerWarps = 8;
static_assert(kTileRows == kConsumerWarps * kWarpRows && kRowBytes == kStep * 2 && kRowBytes == kBox * 2);

struct Arguments {
    CUtensorMap a_map, b_map;
    GemmProblem problem;
    TurnUnits units;
    TileBands bands;
    bool wide;  // D takes copies of 16 bytes
};

// One tile of one product.
struct Tile {
    bool exists;  // else there are no more
    int32_t steps;
    int32_t a_line, b_line, b_matrix, a_first, b_first;  // where its operands begin: lines, and elements of the contraction
    int32_t cut;                   // elements that the last step has of the group's; 0: no others follow them
    int32_t row;                         // of its product or group, the tile's first
    int32_t rows, padded_rows, columns;  // of D, from the tile's first on; below 128 or 256 at the edges
    int32_t column, group;
    int64_t d_row;
    bool shares_a;  // with the other block: lines of A, not of B
    GroupStart a_start, b_start;  // of the group in the operands that it divides
    int32_t group_rows;
};

struct Stage {
    alignas(1024) uint8_t a[kTileRows / kBox][kBoxBytes];
    uint8_t b[kTileColumns / kBox][kBoxBytes];
};

struct Shared {
    Stage stages[kStages];
    alignas(16) uint8_t out[kConsumerWarps][kWarpRows * kTurnPitch];
    Tile tiles[kSlots];
    Barrier full[kStages], free[kStages], tile_full[kSlots], tile_free[kSlots];
};
static_assert(sizeof(Shared) <= 227 * 1024, "what a block may have");

// Returns this block's tile of the cluster's turn `index`, for all lanes of a warp.
__device__ __forceinline__ Tile find_tile(const Arguments& args, uint32_t index) {
    const GemmProblem& p = args.problem;
    const GroupedRows grouped{p.groups, p.group_rows};
    Tile tile{};
    uint32_t in_product = index, row_tiles = uint32_t(ceil_div(p.m, int64_t(kTileRows)));
    int64_t rows = p.m, padded = p.m, length = p.k;
    if (p.grouping == Grouping::Rows) {
        const Group group = find_group_by<GroupBy::Tile>(grouped, args.units, index);
        if (!group.exists()) return tile;
        in_product -= group.first_group_tile;
        row_tiles = (group.rows + kTileRows - 1) / kTileRows;
        rows = group.rows;
        padded = round_up_to_power(rows, p.d.group_unit);
        tile.group = tile.b_matrix = group.index;
        tile.a_start = group.start(kSourcePart);
        tile.group_rows = int32_t(group.rows);
        tile.a_line = int32_t(group.starts[kSourceCodes]);
        tile.d_row = group.starts[kRowwiseCodes];
    } else {
        const uint32_t of_product = args.units.turns(row_tiles), product = index / of_product;
        const bool along = p.grouping == Grouping::Contraction;
        if (product >= (along ? uint32_t(p.groups.count) : 1)) return tile;
        in_product -= product * of_product;
        tile.group = int32_t(product);
        tile.d_row = product * p.m;
        if (along) {
            const Group group = find_group_by<GroupBy::Index>(grouped, args.units, product);
            length = group.rows;
            tile.a_start = group.start(kSourcePart), tile.b_start = group.start(kColumnwisePart);
            tile.group_rows = int32_t(group.rows);
            tile.a_first = int32_t(group.starts[kSourceCodes]);
            tile.b_first = int32_t(group.starts[kColumnwiseCodes]);
            tile.cut = int32_t(length) % kStep;
        }
    }
    const TilePlace place = place_in_product<kTileColumns>(args.bands, p.n, in_product, row_tiles);
    const int64_t row = int64_t(place.row_tile) * kTileRows;
    tile.exists = true;
    tile.steps = int32_t((length + kStep - 1) / kStep);
    tile.row = int32_t(row);
    tile.a_line += tile.row;
    tile.b_line = tile.column = place.column;
    tile.rows = int32_t(min(rows - row, int64_t(kTileRows)));
    tile.padded_rows = int32_t(min(padded - row, int64_t(kTileRows)));
    tile.columns = place.columns;
    tile.d_row += row;
    tile.shares_a = place.shares_a;
    return tile;
}

}  // namespace mxq::cuda::sm90::plain
