// Which tile of which product a block of mma_bf16 computes, and where its operands lie.
//
//     one product: blocks go down a panel of 16 row tiles, then to the next column of tiles, then to the next panel, so that
//     both operands of concurrent blocks come from L2
//
//                  column 0    1    2              a block:  128 rows of A  x  128 or 256 rows of B, all of K
//         row  0          0   16   32
//              1          1   17   33              Grouping::None         the one product
//             ...                                  Grouping::Rows         a row tile is 128 rows of one group, its last fewer;
//             15         15   31   47                                     B is the group's matrix
//             16         48   64   80              Grouping::Contraction  a product for each group, one after another
#pragma once
#include "core/group_view.h"
#include "cuda/memory/groups.cuh"
#include "cuda/memory/operand.cuh"
#include "numerics/decode_to_bf16.h"
#include "numerics/packing.h"

namespace mxq::cuda::mma {

constexpr int kThreads = 256;
constexpr int kTileRows = 128, kStep = 64;  // of D, of the contraction
constexpr int kPanel = 16;                  // row tiles that run together
static_assert(kTileRows == kSwizzleRows, "Group::first_group_tile counts row tiles");

// What the main loop needs of an operand, the same in every group. "Scaled" operands have a scale byte for every block. All
// others count as under a scale of 1: plain numbers, codes whose fp32 scales multiply sums, and MN-major operands, which
// are decoded when they are loaded.
struct LoopOperand {
    int64_t code_steps[4];     // bytes to the K-major rows 64, 128, 192 further
    int64_t scale_steps[2];    // likewise, of their scales
    int32_t scale_advance[2];  // bytes from the scale of an even step to the next one's, and of an odd step
    int32_t bits;  // of a code in registers: 16 of an MN-major operand, whatever it is stored in
    bool scaled;
    bool across;
    uint32_t tiny_below;  // scales under which products may be below fp32's range; of plain numbers: bits of magnitudes
    Bf16DecodeRule rule;
};

struct Arguments {
    GemmProblem problem;
    LoopOperand a, b;
    uint32_t row_tiles, column_tiles;  // of one matrix of D; Grouping::Rows: the most that all groups take
    bool aligned;                      // rows begin and end at multiples of 16 codes and of the size of a load
    bool wide;                         // D takes 16-byte stores
    bool factored;                     // an operand has one fp32 factor a row
    bool to_nearest;                   // sums are: D is F32, or more than sums (see round_sum)
    bool more;                         // D is more than sums
    bool mixed;                        // sums without fp32 scales that come after them may leave fp32's range
};

// One tile of one product.
struct Tile {
    TileOperand a, b;
    int64_t m, padded_m, k;  // padded_m: rows that D has
    int64_t row, column;     // of the tile
    int64_t first_row;       // of the product in D
    int64_t group;           // 0 without groups
    int64_t b_far_scale;     // bytes from the scale of a row of B to that of the row kSwizzleRows further
};

// Returns false where there is no such group. All threads of the block call it.
__device__ inline bool enter_group(const GemmProblem& p, uint32_t matrix, int64_t row_tile, Tile& tile) {
    const GroupedRows grouped{p.groups, p.group_rows};
    if (p.grouping == Grouping::Rows) {
        const Group group = find_group<GroupBy::Tile>(grouped, p.a.units, {p.d.group_unit, 1}, row_tile);
        if (!group.exists()) return false;
        tile.m = group.rows;
        tile.padded_m = round_up(group.rows, p.d.group_unit);
        tile.row = (row_tile - group.first_group_tile) * kTileRows;
        tile.first_row = group.second().codes;
        tile.group = group.index;
        tile.a = operand_of_group(p.a, group.first(), group.rows);
        tile.b = operand_of_matrix(p.b, group.index);
    } else {
        const Group group = find_group<GroupBy::Index>(grouped, p.a.units, p.b.units, matrix);
        // Padding of codes is zeros. But a Hadamard transform spreads values into the padding to a multiple of 16, which
        // belongs to the sum. Padding between rows of a plain operand is never read.
        tile.k = p.a.across || p.b.across ? int64_t(group.rows) : round_up(group.rows, kNvBlock);
        tile.first_row = group.index * p.m;
        tile.a = operand_of_group(p.a, group.first(), group.rows);
        tile.b = operand_of_group(p.b, group.second(), group.rows);
    }
    return true;
}

// Returns false where there is nothing to do for this block. All its threads call it.
template <int kTileColumns>
__device__ __forceinline__ bool find_tile(const Arguments& args, Tile& tile) {
    const GemmProblem& p = args.problem;
    const uint32_t matrix = blockIdx.x / (args.row_tiles * args.column_tiles);
    const uint32_t index = blockIdx.x % (args.row_tiles * args.column_tiles);
    const uint32_t panel = index / (kPanel * args.column_tiles) * kPanel;
    const uint32_t panel_rows = min(uint32_t(kPanel), args.row_tiles - panel);
    const uint32_t in_panel = index - panel * args.column_tiles;
    const int64_t row_tile = panel + in_panel % panel_rows;

    tile = {{}, {}, p.m, p.m, p.k, row_tile * kTileRows, int64_t(in_panel / panel_rows) * kTileColumns, 0, 0, 0};
    if (p.grouping != Grouping::None) {
        if (!enter_group(p, matrix, row_tile, tile)) return false;
    } else {
        tile.a = operand_of_matrix(p.a, 0);
        tile.b = operand_of_matrix(p.b, 0);
    }
    if (args.b.scaled) tile.b_far_scale = scale_line(tile.b.layout, kSwizzleRows);
    return !p.leaves_d(tile.k);
}

}  // namespace mxq::cuda::mma
