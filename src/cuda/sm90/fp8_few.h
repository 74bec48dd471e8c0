// A kernel of wgmma_fp8_sm90 for few rows (fp8_few.cu), and when it takes less time than those for many. Sums are the same.
#pragma once
#include <cstdint>

#include "core/context_type.h"
#include "core/problem.h"
#include "cuda/sm90/tensor_map.h"

namespace mxq::cuda::sm90::few {

// Holds the tile of a CTA: rows by warpgroups of 64, and columns.
struct Tile {
    int32_t warpgroups, columns;
    bool operator==(const Tile&) const = default;
    constexpr int32_t rows() const { return 64 * warpgroups; }
};
// Returns the tile of a product of so many steps of 128 codes on so many SMs, and whether it then takes less time than the
// tiles of the kernels for many rows.
Tile tile_of(int64_t m, int64_t n, int64_t steps, int64_t sms);
bool pays(int64_t m, int64_t n, int64_t steps, int64_t sms);

// Enqueues D = A B^T of E4M3 codes with scales of 1 x 128 and 128 x 128 or 1 x 128, without groups, into BF16 or F32. Maps
// are of boxes of 128 codes of 64 lines of A, and of as many lines of B as a tile has columns.
void multiply(const Context& context, const GemmProblem& p, const Tile& tile, const TileMap& a, const TileMap& b,
              void* stream);

void load();

}  // namespace mxq::cuda::sm90::few
