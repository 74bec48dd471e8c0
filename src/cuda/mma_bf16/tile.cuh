// Which part of which product a block of mma_bf16 makes, and where its operands lie.
//
//     one product: blocks go down a panel of 16 row tiles, then to the next column of tiles, then to the next panel, so that
//     both operands of the blocks that run at once come from L2
//
//                  column 0    1    2              a block:  128 lines of A  x  128 or 256 lines of B, all of K
//         row  0          0   16   32
//              1          1   17   33              Grouping::None         the one product
//             ...                                  Grouping::Rows         a row tile is 128 rows of one group, its last fewer;
//             15         15   31   47                                     B is the group's matrix
//             16         48   64   80              Grouping::Contraction  a product for each group, one after another
#pragma once
#include "core/group_view.h"
#include "cuda/memory/groups.cuh"
#include "numerics/decode_to_bf16.h"
#include "numerics/packing.h"

namespace mxq::cuda::mma {

constexpr int kThreads = 256;
constexpr int kTileRows = 128, kStep = 64;  // of D, of the contraction
constexpr int kPanel = 16;                  // row tiles that run together
static_assert(kTileRows == kSwizzleRows, "Group::first_group_tile counts row tiles");

// Holds what the loop needs of an operand, the same in every group. "Scaled" operands have a scale byte for every block; the
// others, plain numbers and codes whose fp32 scales come after the sums, count as under a scale of 1.
struct LoopOperand {
    int64_t code_steps[4];     // bytes from a line to those 64, 128, 192 lines further
    int64_t scale_steps[2];    // likewise, of their scales
    int32_t scale_advance[2];  // bytes from the scale of an even step to the next one's, and of an odd step
    int32_t bits;
    bool scaled;
    uint32_t tiny_below;  // scales under which products may be below fp32's range; of plain numbers: bits of magnitudes
    Bf16DecodeRule rule;
};

struct Arguments {
    GemmProblem problem;
    LoopOperand a, b;
    uint32_t row_tiles, column_tiles;  // of one matrix of D; Grouping::Rows: the most that all groups take
    bool aligned;                      // lines begin and end at multiples of 16 codes and of what is loaded at once
    bool wide;                         // D takes 16-byte stores
    bool factored;                     // an operand has one fp32 factor for a line
    bool to_nearest;                   // sums are: D is F32, or more than sums (see round_sum)
    bool more;                         // D is more than sums
    bool mixed;                        // plain numbers times fp32 scales: sums of codes alone may leave fp32's range
};

// An operand of one product: its first line, codes and scales.
struct TileOperand {
    const uint8_t *codes, *scales;
    ScaleLayout layout;
    float global;  // NVFP4: the decode scale
};

// One tile of one product.
struct Tile {
    TileOperand a, b;
    int64_t m, padded_m, k;  // padded_m: rows that D has
    int64_t row, column;     // of the tile
    int64_t first_row;       // of the product in D
    int64_t group;           // 0 without groups
    int64_t b_far_scale;     // bytes from the scale of a line of B to that of the line kSwizzleRows further
};

__device__ inline TileOperand operand_of_matrix(const GemmOperand& operand, int64_t matrix) {
    return {matrix_codes(operand, matrix), matrix_scales(operand, matrix), operand.layout, global_scale(operand, matrix)};
}

__device__ inline TileOperand operand_of_group(const GemmOperand& operand, const GroupStart& start, int64_t rows) {
    return {group_codes(operand, start), group_scales(operand, start), group_layout(operand, rows),
            global_scale(operand, start.index)};
}

// Return the first scale of a line, and the way from there to that of code k, without the slow divisions by what the compiler
// does not know to be powers of two.
__device__ __forceinline__ int64_t scale_line(ScaleLayout layout, uint32_t line) {
    const int shift = layout.swizzled ? 0 : log2_of(uint32_t(layout.tile_rows));
    layout.tile_rows = 1;
    return layout.offset(0, line >> shift, 0);
}

__device__ __forceinline__ int64_t scale_in_line(ScaleLayout layout, uint32_t k) {
    layout.tile_rows = 1;
    return layout.block == MXQ_MAX_DIM ? 0 : layout.offset(0, 0, k >> log2_of(uint32_t(layout.block)));
}

// Returns false where there is no such group. All threads of the block call it.
__device__ inline bool enter_group(const GemmProblem& p, uint32_t matrix, int64_t row_tile, Tile& tile) {
    const GroupedRows grouped{p.groups, p.group_rows};
    if (p.grouping == Grouping::Rows) {
        const Group group = group_of_tile(grouped, p.a.units, {p.d.group_unit, 1}, row_tile);
        if (!group.exists()) return false;
        tile.m = group.rows;
        tile.padded_m = round_up(group.rows, p.d.group_unit);
        tile.row = (row_tile - group.first_group_tile) * kTileRows;
        tile.first_row = group.second().codes;
        tile.group = group.index;
        tile.a = operand_of_group(p.a, group.first(), group.rows);
        tile.b = operand_of_matrix(p.b, group.index);
    } else {
        const Group group = group_of_index(grouped, p.a.units, p.b.units, matrix);
        // Padding is zeros, but what a Hadamard transform, of sixteens, made of it belongs to the sum.
        tile.k = round_up(group.rows, kNvBlock);
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

// Makes the compiler compute this value here and once: not again where it is used, and not together with what comes after.
__device__ __forceinline__ void keep(uint32_t& value) { asm volatile("" : "+r"(value)); }

// ---- One value -----------------------------------------------------------------------------------------------------------

__device__ inline uint32_t code_at(int32_t bits, const uint8_t* line, uint32_t k) {
    if (bits == 4) return load_code<4>(line, k);
    if (bits == 6) return load_code<6>(line, k);
    if (bits == 8) return line[k];
    return reinterpret_cast<const uint16_t*>(line)[k];
}

__device__ inline uint32_t without_sign(int32_t bits, uint32_t code) { return code & ((1u << (bits - 1)) - 1); }

// Returns the value of a code of an element of so many bits.
__device__ inline float element_value(int32_t bits, Element element, uint32_t code) {
    static_assert(kElementCount == 5, "the elements are told apart below");
    if (bits == 4) return decode<E2M1>(code);
    if (bits == 6) return element == Element::E2M3 ? decode<E2M3>(code) : decode<E3M2>(code);
    if (bits == 8) return element == Element::E4M3 ? decode<E4M3>(code) : decode<E5M2>(code);
    return to_float(Bf16{uint16_t(code)});
}

__device__ inline float element_at(const GemmOperand& operand, int32_t bits, const TileOperand& at, uint32_t line, uint32_t k) {
    uint32_t code = code_at(bits, at.codes + line * operand.line_bytes, k);
    keep(code);
    return element_value(bits, operand.element, code);
}

// Returns the value of the scale byte of a block; 1 where there is none.
__device__ inline float block_scale_at(const GemmOperand& operand, int32_t bits, const TileOperand& at, uint32_t line,
                                       uint32_t k) {
    if (operand.scale_type != ScaleType::E8M0 && operand.scale_type != ScaleType::E4M3) return 1;
    const uint32_t scale = at.scales[scale_line(at.layout, line) + scale_in_line(at.layout, k)];
    return bits == E2M1::bits && operand.scale_type == ScaleType::E4M3 ? decode<E4M3>(scale) : scale_value(scale);
}

// Returns an operand's fp32 value at (line, k), as dequantized.
__device__ inline float operand_value(const GemmOperand& operand, const TileOperand& at, uint32_t line, uint32_t k) {
    const float value = multiply_rn(element_at(operand, operand.bits, at, line, k),
                                    block_scale_at(operand, operand.bits, at, line, k));
    if (operand.scale_type == ScaleType::E4M3) return multiply_rn(value, at.global);
    if (operand.scale_type != ScaleType::F32) return value;
    const float* const scales = reinterpret_cast<const float*>(at.scales);
    return multiply_rn(value, scales[scale_line(at.layout, line) + scale_in_line(at.layout, k)]);
}

}  // namespace mxq::cuda::mma
