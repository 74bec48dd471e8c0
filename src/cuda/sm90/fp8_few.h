// A kernel of wgmma_fp8_sm90 for few rows (fp8_few.cu), and when it takes less time than those for many. Sums are the same.
#pragma once
#include <cstdint>

#include "core/context.h"
#include "core/problem.h"
#include "cuda/sm90/tensor_map.h"

namespace mxq::cuda::sm90::few {

// Holds the tile of a CTA: rows by warpgroups of 64, and columns.
struct Tile {
    int32_t warpgroups, columns;
    bool operator==(const Tile&) const = default;
    constexpr int32_t rows() const { return 64 * warpgroups; }
};
constexpr Tile kTiles[] = {{1, 32}, {1, 64}, {2, 64}, {2, 128}};

// Returns about the cycles of a product of so many steps of 128 codes, on so many SMs. A step takes what its loads take, 55 bytes
// a cycle, or its products and the wait for the last.
constexpr int64_t cost_of(int64_t m, int64_t n, int64_t steps, const Tile& tile, int64_t sms) {
    const int64_t tiles = (m + tile.rows() - 1) / tile.rows() * ((n + tile.columns - 1) / tile.columns);
    const int64_t loads = (tile.rows() + tile.columns) * 128 / 55, products = 2 * tile.warpgroups * tile.columns + 100;
    return (tiles + sms - 1) / sms * (steps * (loads > products ? loads : products) + 2500);
}

constexpr Tile tile_of(int64_t m, int64_t n, int64_t steps, int64_t sms) {
    Tile best = kTiles[0];
    for (const Tile& tile : kTiles)
        if (cost_of(m, n, steps, tile, sms) < cost_of(m, n, steps, best, sms)) best = tile;
    return best;
}

// Returns whether that is less than what tiles of 128 x 192 take, of which clusters of two make two at once.
constexpr bool pays(int64_t m, int64_t n, int64_t steps, int64_t sms) {
    const int64_t pairs = (m + 127) / 128 * ((n + 383) / 384), rounds = (pairs + sms / 2 - 1) / (sms / 2);
    return cost_of(m, n, steps, tile_of(m, n, steps, sms), sms) < rounds * (steps * 830 + 3300);
}

// Enqueues D = A B^T of E4M3 codes with scales of 1 x 128 and 128 x 128 or 1 x 128, without groups, into BF16 or F32. Maps are of
// boxes of 128 codes of 64 lines of A, and of as many lines of B as a tile has columns.
void multiply(const Context& context, const GemmProblem& p, const Tile& tile, const TileMap& a, const TileMap& b, void* stream);

void load();

}  // namespace mxq::cuda::sm90::few
