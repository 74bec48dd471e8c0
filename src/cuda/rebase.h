// An MX operand as FP8 codes under fp32 scales of 1x128 or 128x128, by numerics/rebase.h: what is read where and written where,
// for the kernel of rebase.cu and for tests on the host.
//
//                      lines                          codes of a line
//     no groups         of every expert                padded to 128
//     groups of rows    a group's, padded              padded to 128
//     contraction       all                            a group's, padded to 128
//
// All that is padded is zero codes (NaN in what is left of a block of scale 255), and scales of +0 where a line is no line of
// the operand. A tile of 128 lines by 128 codes is one step of the kernel.
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

// Where a tile starts, from the pointers of the call on, and what is left from there on; its first line and code, here and
// below, count from the scope's first. A block of threads finds its first tile by this and the next ones by RebaseStep: all
// layouts are linear in tiles.
struct RebaseTile {
    int64_t codes, scales, to_codes, to_scales;  // in bytes, to_scales in floats
    int32_t lines, length;                       // that the operand has; below 0 past the end
    int32_t scaled;                              // codes that have scales
    int32_t to_lines;                            // that are written, of codes and of scales
};

struct RebaseStep {
    int64_t codes, scales, to_codes, to_scales;
    int32_t lines, length;
};

// What is left of `size` from `first` on.
MXQ_HD int32_t rebase_left(int64_t size, int64_t first) {
    static_assert(MXQ_MAX_DIM <= 0x7FFFFFFF);
    return first < size ? int32_t(size - first) : 0;
}

// Units of groups are powers of two: no division.
MXQ_HD int64_t round_up_units(int64_t rows, int32_t unit) { return (rows + unit - 1) & -int64_t(unit); }

// Lines and codes of a line that the operand has in a scope.
MXQ_HD int64_t lines_of_scope(const RebaseCall& call, const RebaseScope& scope) {
    return call.grouping == Grouping::Rows ? scope.rows : call.from.lines;
}
MXQ_HD int64_t length_of_scope(const RebaseCall& call, const RebaseScope& scope) {
    return call.grouping == Grouping::Contraction ? round_up_units(scope.rows, call.from.units.codes) : call.from.length;
}
MXQ_HD int64_t written_lines(const RebaseCall& call, const RebaseScope& scope) {
    return call.grouping == Grouping::Rows ? round_up_units(scope.rows, call.to.units.scales) : call.to.lines;
}

// Codes, from `code` on, that have a scale. Compact square tiles are there for a group's rows, all else for its padding too.
MXQ_HD int32_t scaled_length(const RebaseCall& call, const RebaseScope& scope, int64_t code) {
    const ScaleLayout& layout = call.from.layout;
    const int64_t length = length_of_scope(call, scope);
    if (call.grouping != Grouping::Contraction || layout.tile_rows <= 1) return rebase_left(length, code);
    const int64_t of_tiles = round_up_units(scope.rows, layout.block);
    return rebase_left(length < of_tiles ? length : of_tiles, code);
}

// The operand's scales in a scope: those of a group along the contraction have columns of their own.
MXQ_HD ScaleLayout scales_of_scope(const RebaseCall& call, const RebaseScope& scope) {
    ScaleLayout layout = call.from.layout;
    if (call.grouping == Grouping::Contraction && layout.swizzled) layout.columns = length_of_scope(call, scope) / kMxBlock;
    return layout;
}

// Of a code's scale: a tile of 128 has one, blocks of 32 and all that is swizzled four.
MXQ_HD int64_t column_of(const ScaleLayout& layout, int64_t code) {
    return layout.block == kWideBlock ? code / kWideBlock : code / kMxBlock;
}

// Where a line's or a tile's fp32 scale goes; lines of a tile are next to each other.
MXQ_HD int64_t rebased_scale_at(const RebaseCall& call, const RebaseScope& scope, int64_t line, int64_t code) {
    const ScaleLayout& layout = call.to.layout;
    if (call.grouping == Grouping::None) return layout.offset(scope.matrix, line, code / kWideBlock);
    if (call.grouping == Grouping::Rows)
        return layout.columns * scope.to.scales + code / kWideBlock * written_lines(call, scope) + line;
    return (scope.to.codes + code) / kWideBlock * call.to.lines + line;
}

// The tile from this line and code on.
MXQ_HD RebaseTile rebase_tile_at(const RebaseCall& call, const RebaseScope& scope, int64_t line, int64_t code) {
    const GemmOperand &from = call.from, &to = call.to;
    const bool by_rows = call.grouping == Grouping::Rows, by_codes = call.grouping == Grouping::Contraction;
    const ScaleLayout scales = scales_of_scope(call, scope);
    const int64_t first_scale = by_rows || by_codes ? group_scale_offset(scales, scope.from) : 0;
    RebaseTile at;
    at.codes = (scope.matrix * from.lines + line + (by_rows ? scope.from.codes : 0)) * from.line_bytes +
               (code + (by_codes ? scope.from.codes : 0)) / 8 * from.bits;
    at.scales = first_scale + scales.offset(scope.matrix, line, column_of(scales, code));
    at.to_codes = (scope.matrix * to.lines + line + (by_rows ? scope.to.codes : 0)) * to.line_bytes + code +
                  (by_codes ? scope.to.codes : 0);
    at.to_scales = rebased_scale_at(call, scope, line, code);
    at.lines = rebase_left(lines_of_scope(call, scope), line);
    at.length = rebase_left(length_of_scope(call, scope), code);
    at.scaled = scaled_length(call, scope, code);
    at.to_lines = rebase_left(written_lines(call, scope), line);
    return at;
}

// By so many tiles: down the lines of a group along the contraction, along the codes of all else.
MXQ_HD RebaseStep rebase_step(const RebaseCall& call, const RebaseScope& scope, int64_t tiles) {
    const ScaleLayout scales = scales_of_scope(call, scope);
    const int64_t by = tiles * kRebaseTile;
    const int32_t left = by < 0x7FFFFFFF ? int32_t(by) : 0x7FFFFFFF;
    if (call.grouping == Grouping::Contraction)
        return {by * call.from.line_bytes, scales.offset(0, by, 0), by * call.to.line_bytes, by, left, 0};
    return {by / 8 * call.from.bits, scales.offset(0, 0, column_of(scales, by)), by,
            rebased_scale_at(call, scope, 0, by) - rebased_scale_at(call, scope, 0, 0), 0, left};
}

MXQ_HD void advance(RebaseTile& tile, const RebaseStep& step) {
    tile.codes += step.codes;
    tile.scales += step.scales;
    tile.to_codes += step.to_codes;
    tile.to_scales += step.to_scales;
    tile.lines -= step.lines;
    tile.to_lines -= step.lines;
    tile.length -= step.length;
    tile.scaled -= step.length;
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

// 128x128: how many scales of +0 follow the tile's.
MXQ_HD int32_t zeros_behind(const RebaseCall& call, int64_t code) {
    const ScaleLayout& layout = call.to.layout;
    return code / kWideBlock == layout.columns - 1 ? int32_t(layout.line_stride - layout.columns) : 0;
}

// Which codes of a tile a thread has: of each of four lines 16, which are one block's half. A warp has 16 lines.
//
//     lane 0..7    128 codes of a line      lane 8..15    of the next line      four lines at once
//
// It has their scales too: lane t those of line t % 16.
constexpr int kRebaseThreads = 256, kRebaseShares = 4, kRebaseCodes = 16, kShareLines = 4;
constexpr int kWarpLines = kRebaseShares * kShareLines;
MXQ_HD int rebase_line(uint32_t thread, int share) {
    return int(thread / 32 * kWarpLines + share * kShareLines + thread % 32 / 8);
}
MXQ_HD int rebase_code(uint32_t thread) { return int(thread % 8 * kRebaseCodes); }
MXQ_HD int rebase_scale_line(uint32_t thread) { return int(thread / 32 * kWarpLines + thread % kWarpLines); }

// What the call writes, by its other members and without pointers: scales for one line or for 128 (`tile_lines`); lines, of a
// group too, a multiple of `line_unit`, a power of two.
GemmOperand rebased_operand(const RebaseCall& call, int32_t tile_lines, int32_t line_unit);

// Bytes of it.
uint64_t rebased_code_bytes(const GemmOperand& to);
uint64_t rebased_scale_bytes(const GemmOperand& to);

// Enqueues a call. `tiles`: that a block takes one after another at most; 0: what suits the call.
void rebase(const Context& context, const RebaseCall& call, void* stream, int32_t tiles = 0);

}  // namespace mxq::cuda
