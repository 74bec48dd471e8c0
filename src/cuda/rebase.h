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

// A tile's codes. Its first line and code, here and below, count from the scope's first.
struct RebaseCodes {
    const uint8_t* from;
    uint8_t* to;
    int32_t lines, length;  // that the operand has of it: 0 to 128
    int32_t to_lines;       // that are written, of codes and of scales
};

MXQ_HD int32_t part_of_tile(int64_t size, int64_t first) {
    const int64_t left = size - first;
    return int32_t(left < 0 ? 0 : left < kRebaseTile ? left : kRebaseTile);
}

// Lines and codes of a line that the operand has in a scope.
MXQ_HD int64_t lines_of_scope(const RebaseCall& call, const RebaseScope& scope) {
    return call.grouping == Grouping::Rows ? scope.rows : call.from.lines;
}
MXQ_HD int64_t length_of_scope(const RebaseCall& call, const RebaseScope& scope) {
    return call.grouping == Grouping::Contraction ? round_up(scope.rows, call.from.units.codes) : call.from.length;
}
MXQ_HD int64_t written_lines(const RebaseCall& call, const RebaseScope& scope) {
    return call.grouping == Grouping::Rows ? round_up(scope.rows, call.to.units.scales) : call.to.lines;
}

MXQ_HD RebaseCodes rebase_codes_at(const RebaseCall& call, const RebaseScope& scope, int64_t line, int64_t code) {
    const GemmOperand &from = call.from, &to = call.to;
    const bool by_rows = call.grouping == Grouping::Rows, by_codes = call.grouping == Grouping::Contraction;
    RebaseCodes at;
    at.lines = part_of_tile(lines_of_scope(call, scope), line);
    at.length = part_of_tile(length_of_scope(call, scope), code);
    at.to_lines = part_of_tile(written_lines(call, scope), line);
    at.from = from.line(scope.matrix, line + (by_rows ? scope.from.codes : 0)) +
              (code + (by_codes ? scope.from.codes : 0)) / 8 * from.bits;
    at.to = to.line(scope.matrix, line + (by_rows ? scope.to.codes : 0)) + code + (by_codes ? scope.to.codes : 0);
    return at;
}

// Blocks of 32 that have a scale, of the tile from `code` on. Compact square tiles are there for a group's rows, all else for
// its padding too.
MXQ_HD int32_t scaled_blocks_of_tile(const RebaseCall& call, const RebaseScope& scope, int64_t code) {
    const ScaleLayout& layout = call.from.layout;
    int64_t length = part_of_tile(length_of_scope(call, scope), code);
    if (call.grouping == Grouping::Contraction && layout.tile_rows > 1) {
        const int64_t of_tiles = round_up(part_of_tile(scope.rows, code), layout.block);
        length = length < of_tiles ? length : of_tiles;
    }
    return int32_t((length + kMxBlock - 1) / kMxBlock);
}

// The scale bytes of the four blocks of a line; 0 for those that it does not have.
MXQ_HD uint32_t rebase_scale_word(const RebaseCall& call, const RebaseScope& scope, int64_t line, int64_t code) {
    const int32_t blocks = scaled_blocks_of_tile(call, scope, code);
    if (line >= lines_of_scope(call, scope) || blocks == 0) return 0;
    ScaleLayout layout = call.from.layout;
    const bool wide = layout.block == kWideBlock, grouped = call.grouping != Grouping::None;
    if (call.grouping == Grouping::Contraction && layout.swizzled) layout.columns = length_of_scope(call, scope) / kMxBlock;
    const uint8_t* const from = call.from.scales + (grouped ? group_scale_offset(layout, scope.from) : 0) +
                                layout.offset(scope.matrix, line, wide ? code / kWideBlock : code / kMxBlock);
    const uint32_t existing = ~0u >> (8 * (4 - blocks));
    if (wide) return *from * 0x01010101u & existing;
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

// Where a line's or a tile's fp32 scale goes; lines of a tile are next to each other.
MXQ_HD float* rebased_scale_at(const RebaseCall& call, const RebaseScope& scope, int64_t line, int64_t code) {
    const ScaleLayout& layout = call.to.layout;
    float* const scales = reinterpret_cast<float*>(call.to.scales);
    if (call.grouping == Grouping::None) return scales + layout.offset(scope.matrix, line, code / kWideBlock);
    if (call.grouping == Grouping::Rows)
        return scales + layout.columns * scope.to.scales + code / kWideBlock * written_lines(call, scope) + line;
    return scales + (scope.to.codes + code) / kWideBlock * call.to.lines + line;
}

// 128x128: how many scales of +0 follow the tile's.
MXQ_HD int32_t zeros_behind(const RebaseCall& call, int64_t code) {
    const ScaleLayout& layout = call.to.layout;
    return code / kWideBlock == layout.columns - 1 ? int32_t(layout.line_stride - layout.columns) : 0;
}

// Which codes of a tile a thread has: of each of four lines 16, which are one block's half.
//
//     lane 0..7    128 codes of a line      lane 8..15    of the next line      a warp: four lines at once, 16 in all
constexpr int kRebaseThreads = 256, kRebaseShares = 4, kRebaseCodes = 16, kShareLines = 4;
MXQ_HD int rebase_line(int thread, int share) { return thread / 32 * 16 + share * kShareLines + thread % 32 / 8; }
MXQ_HD int rebase_code(int thread) { return thread % 8 * kRebaseCodes; }

// What the call writes, by its other members and without pointers: scales for one line or for 128 (`tile_lines`); lines, of a
// group too, a multiple of `line_unit`, a power of two.
GemmOperand rebased_operand(const RebaseCall& call, int32_t tile_lines, int32_t line_unit);

// Bytes of it.
uint64_t rebased_code_bytes(const GemmOperand& to);
uint64_t rebased_scale_bytes(const GemmOperand& to);

// Enqueues a call.
void rebase(const Context& context, const RebaseCall& call, void* stream);

}  // namespace mxq::cuda
