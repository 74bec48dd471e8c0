// Groups of rows from one alignment to another. Codes of rows are copied and followed by zeros, whatever the input has in
// its padding; scales are copied in the same way, a row at a time.
//
//     rowwise      a group is some lines:                columnwise   a group is some columns of every line:
//                  in   aaa bb ccc                                    in   aaabbccc     out   aaa.bb..ccc.
//                  out  aaa.bb..ccc.                                       aaabbccc           aaa.bb..ccc.
#include <cstring>

#include "core/context.h"
#include "cpu/engine.h"
#include "core/groups.h"
#include "cpu/implementations.h"
#include "cpu/jobs.h"

namespace mxq::cpu {
namespace {

// A group on both sides.
struct GroupMove {
    GroupStart in, out;
    int64_t rows, in_padded, out_padded;
};

// ---- Codes ---------------------------------------------------------------------------------------------------------------

// K-major rows of bytes, of which the first are copied and the others zero.
struct CodeMove {
    const uint8_t* in;
    uint8_t* out;
    int64_t in_stride, out_stride;
    int64_t lines, bytes;  // copied
};

Job<CodeMove> move_of_codes(const PadProblem::Part& part, const GroupMove& at) {
    CodeMove move{part.in.codes, part.out.codes, part.in.line_stride, part.out.line_stride, at.rows, part.line_bytes};
    int64_t lines = at.out_padded, bytes = part.line_bytes;
    const int64_t has_codes = part.columnwise ? part.lines > 0 : part.line_bytes > 0;  // a part without any may be at NULL
    if (part.columnwise) {                                                             // every start is a whole byte
        move.in += has_codes * at.in.codes * part.bits / 8;
        move.out += has_codes * at.out.codes * part.bits / 8;
        move.lines = lines = part.lines;
        move.bytes = codes_of_columns(at.rows) * part.bits / 8;
        bytes = at.out_padded * part.bits / 8;
    } else {
        move.in += has_codes * at.in.codes * part.in.line_stride;
        move.out += has_codes * at.out.codes * part.out.line_stride;
    }
    return {move, {1, lines, bytes, kRectangleRows, kRectangleCols}, 0};
}

void move_codes(const CodeMove& move, const Rectangle& at, int /*worker*/) {
    for (int64_t line = at.row; line < at.row + at.rows; line++) {
        const int64_t copied = line < move.lines ? std::clamp(move.bytes - at.col, int64_t(0), at.cols) : 0;
        uint8_t* to = move.out + line * move.out_stride + at.col;
        if (copied > 0) std::memcpy(to, move.in + line * move.in_stride + at.col, size_t(copied));
        std::memset(to + copied, 0, size_t(at.cols - copied));
    }
}

// ---- Scales --------------------------------------------------------------------------------------------------------------

struct ScaleMove {
    const uint8_t* in;
    uint8_t* out;
    ScaleLayout in_layout, out_layout;
    int64_t in_lines, out_lines;      // that have scales; of the input, those of rows
    int64_t in_columns, out_columns;  // of each
    int64_t tile_lines;               // a line that is new in a tile has the tile's scale
    bool rows_are_padded;             // up to the line stride
};

bool is_whole(const ScaleLayout& layout) { return layout.block == MXQ_MAX_DIM && layout.line_stride == 0; }

// Returns how many columns of scales a row of a columnwise group has.
int64_t columns_of(const ScaleLayout& layout, int64_t rows, int64_t padded) {
    if (layout.block == MXQ_MAX_DIM) return 1;
    return ceil_div(layout.tile_rows == 1 ? padded : rows, layout.block);
}

Job<ScaleMove> move_of_scales(const PadProblem::Part& part, const GroupMove& at) {
    const ScaleLayout &from = part.in.layout, &to = part.out.layout;
    ScaleMove move{part.in.scales + group_scale_offset(from, at.in) * from.bytes,
                   part.out.scales + group_scale_offset(to, at.out) * to.bytes,
                   from,
                   to,
                   at.rows,
                   at.out_padded,
                   from.columns,
                   to.columns,
                   part.tile_lines,
                   !part.columnwise && to.bytes == 4 && to.tile_rows > 1};
    if (part.columnwise) {
        move.in_lines = move.out_lines = part.lines;
        move.in_columns = columns_of_rows(from, at.rows);
        move.out_columns = columns_of(to, at.rows, at.out_padded);
        if (from.swizzled) move.in_layout.columns = columns_of(from, at.rows, at.in_padded);
        if (to.swizzled) move.out_layout.columns = move.out_columns;
    } else if (to.tile_rows > 1) {
        move.in_lines = move.out_lines = round_up(at.rows, to.tile_rows);
    }
    if (is_whole(to)) move.in_lines = move.out_lines = 1;
    const int64_t lines = to.swizzled ? round_up(move.out_lines, kSwizzleRows) : move.out_lines;
    return {move, {1, lines, move.out_columns, kRectangleRows, kRectangleCols}, 0};
}

// Visits scales [first, first + count) of a row, in runs that lie together.
template <class Visit>
void visit_line(const ScaleLayout& layout, int64_t line, int64_t first, int64_t count, const Visit& visit) {
    const bool contiguous = !layout.swizzled && layout.column_stride == 1;
    const int64_t each = contiguous ? count : 1;
    for (int64_t i = 0; i < count; i += each)
        visit(layout.offset(0, line, first + i) * layout.bytes, i * layout.bytes, size_t(each * layout.bytes));
}

void load_line(const ScaleMove& move, int64_t line, int64_t first, int64_t count, uint8_t* to) {
    if (move.in_layout.repeat == kWholeLine && count > 0) {  // one byte for all that the output has
        std::memset(to, move.in[move.in_layout.offset(0, line, 0)], size_t(count));
        return;
    }
    visit_line(move.in_layout, line, first, count,
               [&](int64_t there, int64_t here, size_t bytes) { std::memcpy(to + here, move.in + there, bytes); });
}

void store_line(const ScaleMove& move, int64_t line, int64_t first, int64_t count, const uint8_t* from) {
    visit_line(move.out_layout, line, first, count,
               [&](int64_t there, int64_t here, size_t bytes) { std::memcpy(move.out + there, from + here, bytes); });
}

// Returns the row of `in` that has the scales of this one, or -1.
int64_t source_line(const ScaleMove& move, int64_t line) {
    if (line >= move.out_lines) return -1;
    if (line < move.in_lines) return line;
    const int64_t first = move.tile_lines > 1 ? line / move.tile_lines * move.tile_lines : line;
    return first < move.in_lines ? first : -1;
}

void fill(const ScaleLayout& layout, int64_t first, int64_t last, uint8_t* scales) {
    if (first < last) std::memset(scales + first * layout.bytes, 0, size_t((last - first) * layout.bytes));
}

void move_scales(const ScaleMove& move, const Rectangle& at, int /*worker*/) {
    const ScaleLayout& to = move.out_layout;
    // Behind a row of fp32 scales of square tiles cuBLASLt has zeros.
    const int64_t padded = move.rows_are_padded && at.col + at.cols == move.out_columns ? to.line_stride : 0;
    const int64_t written = to.swizzled ? round_up(at.cols, kSwizzleColumns) : at.cols;
    uint8_t scales[kRectangleCols * sizeof(float)];
    for (int64_t line = at.row; line < at.row + at.rows; line += to.tile_rows) {
        const int64_t source = source_line(move, line);
        const int64_t copied = source < 0 ? 0 : std::clamp(move.in_columns - at.col, int64_t(0), at.cols);
        load_line(move, source, at.col, copied, scales);
        fill(to, copied, written, scales);
        store_line(move, line, at.col, written, scales);
        for (int64_t i = move.out_columns; i < padded; i++) std::memset(move.out + to.offset(0, line, i) * 4, 0, 4);
    }
}

// ---- All of a call -------------------------------------------------------------------------------------------------------

template <class Integer>
void write_bounds(const std::vector<GroupStart>& starts, void* to, size_t first) {
    for (size_t g = 0; to && g + 1 < starts.size(); g++) static_cast<Integer*>(to)[g] = Integer(starts[g + first].codes);
}

void write_bounds(int32_t type, const std::vector<GroupStart>& starts, void* to, size_t first) {
    type == MXQ_TYPE_INT32 ? write_bounds<int32_t>(starts, to, first) : write_bounds<int64_t>(starts, to, first);
}

template <class Move>
void add(std::vector<Job<Move>>& jobs, const Job<Move>& job) {
    if (job.grid.rows * job.grid.cols > 0) add_job(jobs, job.work, job.grid);
}

// Everything is allocated before anything is written.
struct Plan {
    std::vector<Job<CodeMove>> codes;
    std::vector<Job<ScaleMove>> scales;
    std::vector<GroupStart> starts[2];  // of each part in out
};

std::vector<GroupStart> add_part(const PadProblem::Part& part, int64_t rows, const std::vector<Group>& groups, Plan& plan) {
    const std::vector<GroupStart> in = group_starts(groups, part.in.units);
    std::vector<GroupStart> out = group_starts(groups, part.out.units);
    // Without elements there is no scale but a TENSOR one.
    const bool empty = rows == 0 || (part.columnwise ? part.lines : part.line_bytes) == 0;
    const bool has_scales = part.out.scales && (!empty || is_whole(part.out.layout));
    const bool one_for_all = is_whole(part.out.layout) && part.out.layout.group_index_stride == 0;
    for (size_t g = 0; g < groups.size(); g++) {
        const GroupMove group{in[g], out[g], groups[g].rows, in[g + 1].codes - in[g].codes, out[g + 1].codes - out[g].codes};
        add(plan.codes, move_of_codes(part, group));
        if (has_scales && (g == 0 || !one_for_all)) add(plan.scales, move_of_scales(part, group));
    }
    return out;
}

void run(const Context& context, const PadProblem& problem, const Launch&) {
    const std::vector<Group> groups = read_groups(problem.grouped, "in");
    Plan plan;
    for (int32_t i = 0; i < problem.count; i++)
        plan.starts[i] = add_part(problem.parts[i], problem.grouped.rows, groups, plan);
    for_each_rectangle(context.cpu->pool(), plan.codes, move_codes);
    for_each_rectangle(context.cpu->pool(), plan.scales, move_scales);
    for (int32_t i = 0; i < problem.count; i++) {
        write_bounds(problem.grouped.groups.type, plan.starts[i], problem.parts[i].starts, 0);
        write_bounds(problem.grouped.groups.type, plan.starts[i], problem.parts[i].ends, 1);
    }
}

}  // namespace

const PadImplementation pad_groups = {.name = "cpu", .declines = needs_cpu, .run = run};

}  // namespace mxq::cpu
