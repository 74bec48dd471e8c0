// An MX operand as FP8 codes under fp32 scales of 1x128 or 128x128, by numerics/rebase.h: what is read where and written where,
// for the kernel of rebase.cu and for tests on the host.
//
//                      lines                          codes of a line
//     no groups         of every expert                padded to 128
//     groups of rows    a group's, padded              padded to 128
//     contraction       all                            a group's, padded to 128
//
// All that is padded is zero codes (NaN in what is left of a block of scale 255), and scales of +0 where a line is no line of
// the operand.
#pragma once
#include "core/context.h"
#include "core/problem.h"
#include "numerics/rebase.h"

namespace mxq::cuda {

constexpr int kRebaseTile = 128;
static_assert(kRebaseTile == kWideBlock && kRebaseTile == kSwizzleRows);

struct RebaseCall {
    GemmOperand from, to;  // `to`: F32 scales, a row of them for each line or for 128 lines
    Grouping grouping;     // of this operand: None for single matrices and experts
    GroupedRows grouped;
    bool keeps_codes;      // they have scales of 128 already, which alone are written
};

// The expert or group that a tile is part of.
struct RebaseScope {
    int64_t matrix;       // 0 with groups
    int64_t rows;         // of the group
    GroupStart from, to;
};

// Where a tile starts, from the pointers of the call on, and what is left from there on; below 0 past the end.
static_assert(MXQ_MAX_DIM <= 0x7FFFFFFF);
struct RebaseTile {
    int64_t codes, scales, to_codes, to_scales;  // in bytes, to_scales in floats
    int32_t lines, length;                       // that the operand has
    int32_t scaled;                              // codes that have scales
    int32_t to_lines;                            // that are written, of codes and of scales
    int64_t next_scales, next_to_scales;         // from this tile's to those of the one beside it
};

// From a tile to another one. All layouts are linear in tiles.
struct RebaseStep {
    int64_t codes, scales, to_codes, to_scales;
    int32_t lines, length;
};

// Steps to the next expert, to the tile below and to the one beside.
struct RebaseGrid {
    RebaseStep matrix, down, across;
};

// Lines and codes of a line that the operand has in a scope.
MXQ_HD int64_t lines_of_scope(const RebaseCall& call, const RebaseScope& scope) {
    return call.grouping == Grouping::Rows ? scope.rows : call.from.lines;
}
MXQ_HD int64_t length_of_scope(const RebaseCall& call, const RebaseScope& scope) {
    return call.grouping == Grouping::Contraction ? round_up_to_power(scope.rows, call.from.units.codes) : call.from.length;
}
MXQ_HD int64_t written_lines(const RebaseCall& call, const RebaseScope& scope) {
    return call.grouping == Grouping::Rows ? round_up_to_power(scope.rows, call.to.units.scales) : call.to.lines;
}

// Codes that have a scale. Compact square tiles are there for a group's rows, all else for its padding too.
MXQ_HD int64_t scaled_length(const RebaseCall& call, const RebaseScope& scope) {
    const ScaleLayout& layout = call.from.layout;
    const int64_t length = length_of_scope(call, scope);
    if (call.grouping != Grouping::Contraction || layout.tile_rows <= 1) return length;
    const int64_t of_tiles = round_up_to_power(scope.rows, layout.block);
    return length < of_tiles ? length : of_tiles;
}

// By an expert, and by so many lines and codes, multiples of 128.
inline RebaseStep rebase_step(const RebaseCall& call, int64_t matrix, int32_t lines, int32_t codes) {
    const GemmOperand &from = call.from, &to = call.to;
    // A tile of 128 has one scale, blocks of 32 and all that is swizzled four.
    const int64_t column = from.layout.block == kWideBlock ? codes / kWideBlock : codes / kMxBlock;
    return {(matrix * from.lines + lines) * from.line_bytes + codes / 8 * from.bits,
            from.layout.offset(matrix, lines, column),
            (matrix * to.lines + lines) * to.line_bytes + codes,
            to.layout.offset(matrix, lines, codes / kWideBlock),
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

// Where a group's codes start in an operand, in bytes.
MXQ_HD int64_t codes_of_group(const RebaseCall& call, const GemmOperand& operand, const GroupStart& start) {
    return call.grouping == Grouping::Rows ? start.codes * operand.line_bytes
                                           : int64_t(uint32_t(start.codes) / 8) * operand.bits;
}

MXQ_HD RebaseTile tile_of_matrix(const RebaseCall& call, const RebaseGrid& grid, int64_t matrix, uint32_t down, uint32_t across) {
    RebaseTile tile{0, 0, 0, 0, int32_t(call.from.lines), int32_t(call.from.length), int32_t(call.from.length),
                    int32_t(call.to.lines), grid.across.scales, grid.across.to_scales};
    if (matrix > 0) advance(tile, grid.matrix, uint32_t(matrix));
    advance(tile, grid.down, down);
    advance(tile, grid.across, across);
    return tile;
}

// Groups differ in where they start, in their rows, and in two steps that go by those.
MXQ_HD RebaseTile tile_of_group(const RebaseCall& call, const RebaseGrid& grid, const RebaseScope& scope, uint32_t down,
                                uint32_t across) {
    const bool by_rows = call.grouping == Grouping::Rows;
    const int64_t length = length_of_scope(call, scope), to_lines = written_lines(call, scope);
    RebaseTile tile{codes_of_group(call, call.from, scope.from),
                    group_scale_offset(call.from.layout, scope.from),
                    codes_of_group(call, call.to, scope.to),
                    by_rows ? call.to.layout.columns * scope.to.scales : scope.to.codes / kWideBlock * call.to.lines,
                    int32_t(lines_of_scope(call, scope)),
                    int32_t(length),
                    int32_t(scaled_length(call, scope)),
                    int32_t(to_lines),
                    grid.across.scales,
                    by_rows ? to_lines : grid.across.to_scales};
    RebaseStep below = grid.down, beside = grid.across;
    beside.to_scales = tile.next_to_scales;
    if (!by_rows && call.from.layout.swizzled) below.scales = round_up_to_power(length / kMxBlock, kSwizzleColumns) * kRebaseTile;
    advance(tile, below, down);
    advance(tile, beside, across);
    return tile;
}

// From a tile's first scale to a line's.
MXQ_HD int64_t scales_of_line(const ScaleLayout& layout, uint32_t line) {
    if (layout.swizzled) return swizzle_in_tile(line, 0);
    return (layout.tile_rows == 1 ? line : line / uint32_t(layout.tile_rows)) * layout.line_stride;
}

// The bytes of a line's four blocks, from the first one's; 0 for those that it does not have.
MXQ_HD uint32_t rebase_scale_word(const ScaleLayout& layout, const uint8_t* from, int32_t scaled) {
    if (scaled <= 0) return 0;
    const int32_t blocks = scaled >= kRebaseTile ? 4 : (scaled + int32_t(kMxBlock) - 1) / int32_t(kMxBlock);
    const uint32_t existing = ~0u >> (8 * (4 - blocks));
    if (layout.block == kWideBlock) return *from * 0x01010101u & existing;
    if ((layout.swizzled || blocks == 4) && reinterpret_cast<uintptr_t>(from) % 4 == 0)
        return *reinterpret_cast<const uint32_t*>(from) & existing;
    uint32_t word = 0;
    for (int i = 0; i < 4; i++)
        if (i < blocks) word |= uint32_t(from[i]) << (8 * i);
    return word;
}

// The scale that a line by itself would get; a tile gets the largest.
template <class E>
MXQ_HD uint32_t rebase_line_scale(const RebaseCall& call, uint32_t word) {
    return call.keeps_codes ? word & 0xFF : rebased_scale<E>(word);
}

// A block of threads takes 32 lines of four tiles that are beside each other. Each warp has four of the lines, one after another:
//
//     lane 0     16 codes, half a block of 32      lane 1, ...     the next 16      512 codes of a line at once
//
// A lane has half of a tile's four scales too, of line `rebase_scale_line` and tile `rebase_scale_tile`.
constexpr int kRebaseThreads = 256, kRebaseTiles = 4, kWarpLines = 4, kRebaseCodes = 16;
constexpr int kRebaseLines = kRebaseThreads / 32 * kWarpLines, kRebaseLength = kRebaseTiles * kRebaseTile;
constexpr int kRebaseQuarters = kRebaseTile / kRebaseLines;  // of a tile
static_assert(kRebaseLength == 32 * kRebaseCodes);
MXQ_HD int rebase_line(uint32_t thread) { return int(thread / 32 * kWarpLines); }
MXQ_HD int rebase_code(uint32_t thread) { return int(thread % 32 * kRebaseCodes); }
MXQ_HD int rebase_scale_line(uint32_t thread) { return rebase_line(thread) + int(thread % 32 / 8); }
MXQ_HD int rebase_scale_tile(uint32_t thread) { return int(thread % 8 / 2); }
MXQ_HD int rebase_scale_half(uint32_t thread) { return int(thread % 2); }

// What the call writes, by its other members and without pointers: scales for one line or for 128 (`tile_lines`); lines, of a
// group too, a multiple of `line_unit`, a power of two.
GemmOperand rebased_operand(const RebaseCall& call, int32_t tile_lines, int32_t line_unit);

// Bytes of it.
uint64_t rebased_code_bytes(const GemmOperand& to);
uint64_t rebased_scale_bytes(const GemmOperand& to);

// Enqueues a call.
void rebase(const Context& context, const RebaseCall& call, void* stream);

}  // namespace mxq::cuda
