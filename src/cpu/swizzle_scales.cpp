// Compact scales to swizzled ones and back, 128 rows at a time: each scale is read once and written as often as the layout
// has it.
//
//     compact     a b ...          a coarse tile's byte        swizzled    a a a a b b b b ...    in words of 4 columns,
//                                  stands once                             a a a a b b b b ...    512 bytes apart
#include <cstring>

#include "core/context.h"
#include "cpu/engine.h"
#include "core/groups.h"
#include "cpu/implementations.h"
#include "cpu/jobs.h"

namespace mxq::cpu {
namespace {

// Experts, or one group, of a part: what both layouts have of it.
struct Move {
    const uint8_t* in;
    uint8_t* out;
    ScaleLayout in_layout, out_layout;
    int64_t matrices;
    int64_t lines;    // that have scales
    int64_t columns;  // of compact scales
};

using Jobs = std::vector<Job<Move>>;

void store_words(uint8_t* out, const ScaleLayout& layout, const Rectangle& at, int64_t line, const uint8_t* scales) {
    uint8_t* to = out + layout.offset(at.matrix, line, at.col);
    for (int64_t i = 0; i < at.cols; i += kSwizzleColumns, to += kSwizzleBytes) std::memcpy(to, scales + i, kSwizzleColumns);
}

// Collects the compact scales of a row at the swizzled columns of a rectangle; zeros where there are none.
void expand_line(const Move& move, const Rectangle& at, int64_t line, uint8_t* scales) {
    const int64_t repeat = move.out_layout.repeat, first = at.col / repeat;
    const int64_t count = std::min(ceil_div(at.cols, repeat), move.columns - first);
    std::memset(scales, 0, size_t(round_up(at.cols, kSwizzleColumns)));
    if (line >= move.lines || count <= 0) return;
    const uint8_t* from = move.in + move.in_layout.offset(at.matrix, line, first);
    if (repeat == 1)
        std::memcpy(scales, from, size_t(count));
    else
        for (int64_t i = 0; i < at.cols && i < count * repeat; i++) scales[i] = from[i / repeat];
}

void swizzle(const Move& move, const Rectangle& at) {
    uint8_t scales[kRectangleCols];
    for (int64_t line = at.row; line < at.row + kSwizzleRows; line++) {
        expand_line(move, at, line, scales);
        store_words(move.out, move.out_layout, at, line, scales);
    }
}

// Takes a coarse tile's scale from its first position.
void unswizzle(const Move& move, const Rectangle& at) {
    const int64_t repeat = move.in_layout.repeat, first = ceil_div(at.col, repeat);
    const int64_t count = std::min(ceil_div(at.col + at.cols, repeat), move.columns) - first;
    for (int64_t line = at.row; line < std::min(at.row + at.rows, move.lines); line += move.out_layout.tile_rows) {
        const uint8_t* from = move.in + move.in_layout.offset(at.matrix, line, at.col);
        uint8_t* to = move.out + move.out_layout.offset(at.matrix, line, first);
        int64_t i = 0;
        if (repeat == 1)
            for (; i + kSwizzleColumns <= count; i += kSwizzleColumns)
                std::memcpy(to + i, from + i / kSwizzleColumns * kSwizzleBytes, kSwizzleColumns);
        for (; i < count; i++)
            to[i] = from[i * repeat / kSwizzleColumns * kSwizzleBytes + i * repeat % kSwizzleColumns];
    }
}

// fp32 scales differ in strides, and in zeros behind each row of scales of square tiles.
void restride(const Move& move, const Rectangle& at) {
    const ScaleLayout& to = move.out_layout;
    const int64_t padded = to.column_stride == 1 && at.col + at.cols == move.columns ? to.line_stride : 0;
    for (int64_t line = at.row; line < at.row + at.rows; line += to.tile_rows) {
        for (int64_t i = at.col; i < at.col + at.cols; i++)
            std::memcpy(move.out + to.offset(at.matrix, line, i) * int64_t(sizeof(float)),
                        move.in + move.in_layout.offset(at.matrix, line, i) * int64_t(sizeof(float)), sizeof(float));
        for (int64_t i = move.columns; i < padded; i++)
            std::memset(move.out + to.offset(at.matrix, line, i) * int64_t(sizeof(float)), 0, sizeof(float));
    }
}

void add(Jobs& jobs, const Move& move) {
    const bool tiles = move.in_layout.swizzled || move.out_layout.swizzled;
    const int64_t columns = !tiles ? move.columns : move.in_layout.swizzled ? move.in_layout.columns : move.out_layout.columns;
    add_job(jobs, move, {move.matrices, move.lines, columns, kRectangleRows, kRectangleCols});
}

// Returns the move of a group's scales. Compact square tiles have none in a group's padding but for those of tiles that have
// rows of it.
Move move_of_group(const SwizzleProblem::Scales& part, const GroupStart& in, const GroupStart& out, int64_t rows) {
    const ScaleLayout& compact = part.in_layout.swizzled ? part.out_layout : part.in_layout;
    const int64_t padded = round_up(rows, part.in_units.codes);
    const int64_t with_scales = compact.tile_rows == 1 ? padded : std::min(padded, round_up(rows, compact.block));
    Move move{part.in + group_scale_offset(part.in_layout, in) * part.in_layout.bytes,
              part.out + group_scale_offset(part.out_layout, out) * part.out_layout.bytes,
              part.in_layout, part.out_layout, 1, part.lines, compact.columns};
    if (!part.columnwise) {
        move.lines = with_scales;
        return move;
    }
    move.columns = ceil_div(with_scales, compact.block);
    for (ScaleLayout* layout : {&move.in_layout, &move.out_layout})
        if (layout->swizzled) layout->columns = ceil_div(padded, layout->block);
    return move;
}

// Zeroes the scales of groups without rows, which one scale for each row of a group has room for.
void clear_empty_groups(const SwizzleProblem::Scales& part, const std::vector<Group>& groups) {
    if (part.out_layout.swizzled || !part.columnwise || !part.out_layout.has_one_of_line()) return;
    for (size_t g = 0; g < groups.size(); g++)
        if (groups[g].rows == 0) std::memset(part.out + int64_t(g) * part.lines, 0, size_t(part.lines));
}

Jobs jobs_of(const SwizzleProblem& problem, const std::vector<Group>& groups) {
    Jobs jobs;
    for (int32_t i = 0; i < problem.count; i++) {
        const SwizzleProblem::Scales& part = problem.parts[i];
        if (!problem.grouped.set()) {
            const int64_t columns = (part.in_layout.swizzled ? part.out_layout : part.in_layout).columns;
            add(jobs, {part.in, part.out, part.in_layout, part.out_layout, part.matrices, part.lines, columns});
            continue;
        }
        const std::vector<GroupStart> in = group_starts(groups, part.in_units), out = group_starts(groups, part.out_units);
        for (size_t g = 0; g < groups.size(); g++)
            if (groups[g].rows > 0) add(jobs, move_of_group(part, in[g], out[g], groups[g].rows));
    }
    return jobs;
}

void run(const Context& context, const SwizzleProblem& problem, const Launch&) {
    const std::vector<Group> groups = problem.grouped.set() ? read_groups(problem.grouped, "in") : std::vector<Group>();
    for (int32_t i = 0; i < problem.count; i++) clear_empty_groups(problem.parts[i], groups);
    for_each_rectangle(context.cpu->pool(), jobs_of(problem, groups), [](const Move& move, const Rectangle& region, int) {
        if (move.out_layout.swizzled)
            swizzle(move, region);
        else if (move.in_layout.swizzled)
            unswizzle(move, region);
        else
            restride(move, region);
    });
}

}  // namespace

const SwizzleImplementation swizzle_scales = {.name = "cpu", .declines = needs_cpu, .run = run, .reads = Addresses::Strided};

}  // namespace mxq::cpu
