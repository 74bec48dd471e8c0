// An MX operand as FP8 codes under fp32 scales of 1x128 or 128x128, by numerics/rebase.h: what is read where and written
// where, for the kernel of rebase.cu and for tests on the host.
//
//                      K-major rows                   codes of a row
//     no groups         of every expert                padded to 128
//     groups of rows    a group's, padded              padded to 128
//     contraction       all                            a group's, padded to 128
//
// Padding is zero codes (NaN in the rest of a block of scale 255). Rows past the operand's last have scales of +0.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"
#include "numerics/rebase.h"

namespace mxq::cuda {

constexpr int kRebaseTile = 128;
static_assert(kRebaseTile == kBlock128 && kRebaseTile == kSwizzleRows);

struct RebaseCall {
    GemmOperand from, to;  // `to`: F32 scales, a row of them for each K-major row or for 128
    Grouping grouping;     // of this operand: None for single matrices and experts
    GroupedRows grouped;
    bool keeps_codes;      // codes stay where they are: they have scales of 128 already, and scales alone are written
};

// The expert or group that a tile is part of.
struct RebaseScope {
    uint32_t matrix;      // 0 with groups
    uint32_t rows;        // of the group
    GroupStart from, to;
};

// Where a tile starts, from the pointers of the call on, and what is left from there on; next_row 0 past the end.
static_assert(MXQ_MAX_DIM <= 0x7FFFFFFF);
struct RebaseTile {
    int64_t codes, scales, to_codes, to_scales;  // in bytes, to_scales in floats
    int32_t lines, length;                       // that the operand has
    int32_t scaled;                              // codes that have scales
    int32_t to_lines;                            // that are written, of codes and of scales
    int64_t next_scales, next_to_scales;         // from this tile's to those of the next along the row
};

// Leads from a tile to another one. All layouts are linear in tiles.
struct RebaseStep {
    int64_t codes, scales, to_codes, to_scales;
    int32_t lines, length;
};

// Steps to the next expert, to the tile next_row and to the next along the row.
struct RebaseGrid {
    RebaseStep matrix, down, across;
};

// Returns the step by so many experts, rows and codes; rows and codes are multiples of 128.
inline RebaseStep rebase_step(const RebaseCall& call, int64_t matrix, int32_t lines, int32_t codes) {
    const GemmOperand &from = call.from, &to = call.to;
    // A tile of 128 has one scale, blocks of 32 and all that is swizzled four.
    const int64_t column = from.layout.block == kBlock128 ? codes / kBlock128 : codes / kMxBlock;
    return {(matrix * from.lines + lines) * from.line_bytes + codes / 8 * from.bits,
            from.layout.offset(matrix, lines, column),
            (matrix * to.lines + lines) * to.line_bytes + codes,
            to.layout.offset(matrix, lines, codes / kBlock128),
            lines,
            codes};
}

inline RebaseGrid rebase_grid(const RebaseCall& call) {
    return {rebase_step(call, 1, 0, 0), rebase_step(call, 0, kRebaseTile, 0), rebase_step(call, 0, 0, kRebaseTile)};
}

MXQ_HD void advance(RebaseTile& tile, const RebaseStep& step, uint32_t times) {
    tile.codes += step.codes * times;
    tile.scales += step.scales * times;
    tile.to_codes += step.to_codes * times;
    tile.to_scales += step.to_scales * times;
    tile.lines -= step.lines * int32_t(times);
    tile.to_lines -= step.lines * int32_t(times);
    tile.length -= step.length * int32_t(times);
    tile.scaled -= step.length * int32_t(times);
}

MXQ_HD int32_t round_up_rows(uint32_t rows, int64_t power_of_two) {
    return int32_t((rows + uint32_t(power_of_two) - 1) & ~(uint32_t(power_of_two) - 1));
}

// Returns a scope's first tile. Groups differ in where they start and in their rows, which are K-major rows, or codes of
// each.
template <Grouping grouping>
MXQ_HD RebaseTile first_tile(const RebaseCall& call, const RebaseGrid& grid, const RebaseScope& scope) {
    const GemmOperand &from = call.from, &to = call.to;
    RebaseTile tile{0, 0, 0, 0, int32_t(from.lines), int32_t(from.length), int32_t(from.length), int32_t(to.lines),
                    grid.across.scales, grid.across.to_scales};
    if constexpr (grouping == Grouping::None) {
        if (scope.matrix > 0) advance(tile, grid.matrix, scope.matrix);
        return tile;
    }
    const uint32_t codes = uint32_t(scope.from.codes), to_codes = uint32_t(scope.to.codes);
    tile.scales = group_scale_offset(from.layout, scope.from);
    if constexpr (grouping == Grouping::Rows) {
        tile.lines = int32_t(scope.rows);
        tile.to_lines = round_up_rows(scope.rows, to.units.scales);
        tile.codes = codes * from.line_bytes;
        tile.to_codes = to_codes * to.line_bytes;
        tile.to_scales = uint32_t(scope.to.scales) * to.layout.columns;
        tile.next_to_scales = tile.to_lines;
    } else {
        tile.length = tile.scaled = round_up_rows(scope.rows, from.units.codes);
        // Compact square tiles exist for a group's rows alone, all else for its padding too.
        const int32_t of_tiles = round_up_rows(scope.rows, from.layout.block);
        if (from.layout.tile_rows > 1 && of_tiles < tile.scaled) tile.scaled = of_tiles;
        tile.codes = codes / 8 * int64_t(from.bits);
        tile.to_codes = to_codes;
        tile.to_scales = to_codes / uint32_t(kBlock128) * to.lines;
    }
    return tile;
}

// Returns tile (down, across) of its scope.
template <Grouping grouping>
MXQ_HD RebaseTile rebase_tile(const RebaseCall& call, const RebaseGrid& grid, const RebaseScope& scope, uint32_t down,
                              uint32_t across) {
    RebaseTile tile = first_tile<grouping>(call, grid, scope);
    RebaseStep next_row = grid.down, next_column = grid.across;
    next_column.to_scales = tile.next_to_scales;
    if (grouping == Grouping::Contraction && call.from.layout.swizzled)
        next_row.scales = round_up_rows(uint32_t(tile.length), kRebaseTile) / int32_t(kMxBlock) * int64_t(kSwizzleRows);
    advance(tile, next_row, down);
    advance(tile, next_column, across);
    return tile;
}

// Returns the offset of a row's first scale in a tile.
MXQ_HD int64_t scales_of_line(const ScaleLayout& layout, uint32_t line) {
    if (layout.swizzled) return swizzle_in_tile(line, 0);
    return (line >> log2_of(uint32_t(layout.tile_rows))) * layout.line_stride;
}

// Returns whether the four scale bytes of a row in any tile are one aligned word. Groups along the contraction are
// unaligned in a row of compact scales, unless they are padded to tiles.
inline bool has_scale_words(const RebaseCall& call) {
    const ScaleLayout& layout = call.from.layout;
    if (reinterpret_cast<uintptr_t>(call.from.scales) % 4 != 0) return false;
    if (layout.swizzled) return true;
    if (layout.block != kMxBlock || (layout.columns | layout.line_stride) % 4 != 0) return false;
    return call.grouping != Grouping::Contraction || (call.from.units.scales % kRebaseTile == 0 && layout.tile_rows == 1);
}

// What is loaded of a row's four scales in a tile: a word of all, or two bytes that are half of it. scale_word joins them
// later, since a branch that uses what it loads would wait for the load.
struct LoadedScales {
    uint32_t first, second;
};

// Returns how many of a tile's four blocks a row has, given its codes from there on.
MXQ_HD int32_t blocks_of_tile(int32_t scaled) {
    return scaled >= kRebaseTile ? 4 : scaled <= 0 ? 0 : (scaled + int32_t(kMxBlock) - 1) / int32_t(kMxBlock);
}

// Loads a row's scales in the tile. `words`: by has_scale_words. For a block that does not exist it loads another.
MXQ_HD LoadedScales load_scales(const ScaleLayout& layout, bool words, const uint8_t* from, int32_t scaled, int32_t half) {
    const int32_t blocks = blocks_of_tile(scaled);
    if (blocks == 0) return {0, 0};
    if (words) return {*reinterpret_cast<const uint32_t*>(from), 0};
    const bool one = layout.block > kMxBlock;  // which all blocks have
    const int32_t first = one ? 0 : 2 * half, second = one ? 0 : 2 * half + 1;
    return {from[first < blocks ? first : 0], from[second < blocks ? second : 0]};
}

// Returns the four scales as bytes, or the half that was loaded; 0 for blocks that the row does not have.
MXQ_HD uint32_t scale_word(const LoadedScales& loaded, bool words, int32_t scaled, int32_t half) {
    const uint32_t existing = uint32_t((uint64_t(1) << (8 * blocks_of_tile(scaled))) - 1);
    return (words ? loaded.first : (loaded.first | loaded.second << 8) << (16 * half)) & existing;
}

// Returns the scale of a row by itself; a tile gets the largest.
template <class E>
MXQ_HD uint32_t rebase_line_scale(const RebaseCall& call, uint32_t word) {
    return call.keeps_codes ? word & 0xFF : rebased_scale<E>(word);
}

// A thread block takes half of two neighbouring tiles. Each warp has eight of the rows, two in one access:
//
//     lane 0..15     256 codes of a row, 16 each: half a block of 32      lane 16..31     of the next row
//
// A lane has half of a tile's four scales too, of row `rebase_scale_line` and tile `rebase_scale_tile`.
constexpr int kRebaseThreads = 256, kRebaseTiles = 2, kRebaseCodes = 16, kRebaseAccesses = 4;
constexpr int kRebaseLength = kRebaseTiles * kRebaseTile, kLineLanes = kRebaseLength / kRebaseCodes;
constexpr int kAccessLines = 32 / kLineLanes, kWarpLines = kRebaseAccesses * kAccessLines;
constexpr int kRebaseLines = kRebaseThreads / 32 * kWarpLines, kRebaseHalves = kRebaseTile / kRebaseLines;
static_assert(kRebaseHalves == 2 && kRebaseThreads == kRebaseTile * kRebaseTiles && 32 == kWarpLines * kRebaseTiles * 2);
MXQ_HD int rebase_line(uint32_t thread, int access) {
    return int(thread / 32 * kWarpLines) + access * kAccessLines + int(thread % 32 / kLineLanes);
}
MXQ_HD int rebase_code(uint32_t thread) { return int(thread % kLineLanes * kRebaseCodes); }
MXQ_HD int rebase_scale_line(uint32_t thread) { return int(thread / (2 * kRebaseTiles)); }
MXQ_HD int rebase_scale_tile(uint32_t thread) { return int(thread / 2 % kRebaseTiles); }

// Returns the thread blocks along a whole row. Rows of 128x128 scales are padded: the scales in the padding are written
// too, as +0.
inline int64_t blocks_across(const RebaseCall& call) {
    const ScaleLayout& layout = call.to.layout;
    return ceil_div(layout.tile_rows > 1 ? layout.line_stride : layout.columns, kRebaseTiles);
}

// How a call lays out what it writes.
struct RebasedLayout {
    int32_t tile_lines;   // that share a scale: 1 or 128
    int32_t line_unit;    // rows, of a group too, are rounded up to it: a power of two up to kRebaseLines, since a thread
                          // block starts at the rows of a group
    int32_t column_unit;  // of 128x128: what the columns of scales are rounded up to
    bool by_lines;        // a row has one scale, and its codes stay
};

// Returns what the call writes, by its other members and without pointers.
GemmOperand rebased_operand(const RebaseCall& call, const RebasedLayout& layout);

// Return its bytes.
uint64_t rebased_code_bytes(const GemmOperand& to);
uint64_t rebased_scale_bytes(const GemmOperand& to);

// Enqueues a call.
void rebase(const Context& context, const RebaseCall& call, void* stream);

// Loads the kernels that rebase() enqueues.
void load_rebase(const Context&);

}  // namespace mxq::cuda
