// Which tiles of D the two blocks of a cluster take next: two that share the lines of B, or in an odd last row those of A.
// Each block loads half of what they share, for both.
//
//     in a group:   band 0            band 1           a band is so many tiles wide that the lines of B that the blocks
//                                                      of a moment need stay in L2, and those of A are read once a band. The
//                   0  1  2  3        6  7  8          number is that of the cluster's turn. Each turn has a tile, or clusters
//                   0  1  2  3        6  7  8          whose turns often had none would wait for the others
//                   4  4  5  5        9  9  10
#pragma once
#include <algorithm>

#include "core/error.h"
#include "cuda/memory/groups.cuh"
#include "dispatch/reason.h"

namespace mxq::cuda::sm90 {

constexpr int kCluster = 2;

// Counts turns where others count group tiles: those of two row tiles, and those of an odd last one, which takes its columns by
// twos.
struct TurnUnits : GroupSumUnits {
    uint32_t of_pair, of_last;
    MXQ_HD uint32_t turns(uint32_t row_tiles) const { return row_tiles / 2 * of_pair + row_tiles % 2 * of_last; }
    __device__ __forceinline__ uint32_t group_tiles(uint32_t rows) const { return turns(GroupSumUnits::group_tiles(rows)); }
};

// How the columns of D are divided.
struct TileBands {
    uint32_t column_tiles, count;
    // Returns the columns of tiles that a band has; the last one has what is left.
    MXQ_HD uint32_t width() const { return (column_tiles + count - 1) / count; }
};

// Where a tile lies in its product; no columns: the block has none in this turn.
struct TilePlace {
    uint32_t row_tile;
    int32_t column, columns;
    bool shares_a;  // with the other block: lines of A, not of B
};

// Returns this block's tile of the cluster's turn `index` in a product of `rows` row tiles and n columns.
template <int tile_columns>
__device__ __forceinline__ TilePlace place_in_product(const TileBands& bands, int64_t n, uint32_t index, uint32_t rows) {
    const uint32_t rank = blockIdx.x % kCluster, pairs = rows / 2, is_odd = rows % 2;
    const uint32_t width = bands.width(), of_band = pairs * width + is_odd * ((width + 1) / 2);
    const uint32_t band = index / of_band, columns = min(width, bands.column_tiles - band * width);
    const uint32_t in_band = index - band * of_band, pair = in_band / columns, column = in_band - pair * columns;
    TilePlace place;
    place.shares_a = pair == pairs;
    const uint32_t in_row = place.shares_a ? 2 * column + rank : column;
    place.column = int32_t((band * width + in_row) * tile_columns);
    place.columns = in_row < columns ? int32_t(min(n - place.column, int64_t(tile_columns))) : 0;
    place.row_tile = 2 * pair + (place.shares_a ? 0 : rank);
    return place;
}

// Returns bands of at most so many tiles.
inline TileBands tile_bands(int64_t n, int tile_columns, int most) {
    const int64_t tiles = ceil_div(n, int64_t(tile_columns));
    return {uint32_t(tiles), uint32_t(ceil_div(tiles, int64_t(most)))};
}

// Returns how the clusters' turns are counted.
inline TurnUnits turn_units(const TileBands& bands) {
    const uint32_t width = bands.width(), last = bands.column_tiles - (bands.count - 1) * width;
    TurnUnits units{};
    units.of_pair = bands.column_tiles;
    units.of_last = (bands.count - 1) * ((width + 1) / 2) + (last + 1) / 2;
    return units;
}

// Returns the most turns that the clusters of a call can take.
inline double most_turns(const GemmProblem& p, int tile_rows, int tile_columns) {
    const int64_t pair = 2 * tile_rows;
    const int64_t pairs = p.grouping == Grouping::Rows ? group_tiles_bound({p.groups, p.group_rows}, pair) : ceil_div(p.m, pair);
    return double(pairs) * double(ceil_div(p.n, int64_t(tile_columns))) *
           (p.grouping == Grouping::Contraction ? p.groups.count : 1);
}

// Returns why a product has too many tiles of so many rows and columns.
inline Reason needs_few_turns(const GemmProblem& p, int tile_rows, int tile_columns) {
    const double turns = most_turns(p, tile_rows, tile_columns);
    if (turns <= 2147483647.0) return {};
    return [=] {
        return format_text("needs at most 2^31 - 1 tiles of %d x %d in D, found %.0f", 2 * tile_rows, tile_columns, turns);
    };
}

// Returns how many clusters a call takes, of those that fit a device's multiprocessors or as many of them as it may take.
inline unsigned clusters_for(const GemmProblem& p, double turns, int32_t multiprocessors) {
    const int32_t allowed = p.sm_count > 0 ? std::min(p.sm_count, multiprocessors) : multiprocessors;
    return unsigned(std::min(turns, double(allowed / kCluster)));
}

}  // namespace mxq::cuda::sm90
