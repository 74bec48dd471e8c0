// pad_groups: groups of rows from one alignment to another, padded or unpadded, plain tensors and quantized parts with their
// scales and the padded starts and ends, in one launch. The blocks of threads of a part:
//
//     block 0          starts and ends of all groups
//     flat_blocks      scales that no alignment moves: one for all or for a group, one for every line of a group
//     stretches each   128 rows of a group, rowwise: all of them and 1024 bytes of each row
//                                           columnwise: those columns of 512 lines
//
//     rowwise      in   aaa bb ccc        columnwise   in   aaabbccc     out   aaa.bb..ccc.
//                  out  aaa.bb..ccc.                        aaabbccc           aaa.bb..ccc.
//
// A slab of codes is a rectangle of bytes of which the part that the input has is copied and the rest is zero, eight accesses
// in flight a thread, each as wide as alignments allow: 16 bytes where rows are aligned. Scales follow as words of four bytes
// or as numbers. Bound by memory.
#include "cuda/memory/codes.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/device.h"
#include "cuda/memory/groups.cuh"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 8;
constexpr int kRowBytes = 1024;    // of a row that a block of threads takes
constexpr int kLines = 512;        // columnwise
constexpr int kFlatScales = 4096;  // that a block of threads copies
constexpr int kSlab = int(kSwizzleRows);

struct Part {
    PadProblem::Part problem;
    int64_t flat_scales, flat_blocks;
    int64_t stretches;  // blocks of threads for a slab
    int64_t blocks;
    int32_t access;     // bytes
    bool has_scales;    // that move
};

struct Arguments {
    Part parts[2];
    GroupedRows grouped;
};

// A slab of 128 rows of a group, and some bytes or lines of it.
struct Slab {
    Group group;               // first: in the input, second: in the output
    int64_t row;               // of the group
    int64_t in_rows, out_rows; // of the group, padding included
    int64_t stretch;
};

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Lines of `across` accesses each.
struct Rectangle {
    const uint8_t* from;
    uint8_t* to;
    int64_t from_stride, to_stride;
    int lines, across, copied_lines, copied_across;
};

template <class Word>
__device__ __forceinline__ void move_rectangle(const Rectangle& r) {
    const int count = r.lines * r.across;
#pragma unroll 1
    for (int first = threadIdx.x; first < count; first += kInFlight * kThreads) {
        Word words[kInFlight];
#pragma unroll
        for (int k = 0; k < kInFlight; k++) {
            const int i = first + k * kThreads, line = uint32_t(i) / uint32_t(r.across), place = i - line * r.across;
            const bool exists = line < r.copied_lines && place < r.copied_across;
            words[k] = exists ? __ldcs(reinterpret_cast<const Word*>(r.from + line * r.from_stride) + place) : Word{};
        }
#pragma unroll
        for (int k = 0; k < kInFlight; k++) {
            const int i = first + k * kThreads, line = uint32_t(i) / uint32_t(r.across), place = i - line * r.across;
            if (i < count) __stcs(reinterpret_cast<Word*>(r.to + line * r.to_stride) + place, words[k]);
        }
    }
}

__device__ __forceinline__ void move_codes(const Rectangle& r, int access) {
    switch (access) {
        case 16: return move_rectangle<uint4>(r);
        case 8: return move_rectangle<uint2>(r);
        case 4: return move_rectangle<uint32_t>(r);
        case 2: return move_rectangle<uint16_t>(r);
        default: return move_rectangle<uint8_t>(r);
    }
}

// How many of `most` places from `first` on lie before `end`.
__device__ __forceinline__ int before(int64_t end, int64_t first, int64_t most) {
    return int(min(max(end - first, int64_t(0)), most));
}

__device__ __forceinline__ Rectangle rows_of_slab(const Part& part, const Slab& slab) {
    const PadProblem::Side &in = part.problem.in, &out = part.problem.out;
    const int64_t byte = slab.stretch * kRowBytes;
    const int across = before(part.problem.line_bytes, byte, kRowBytes) / part.access;
    return {in.codes + (slab.group.first.codes + slab.row) * in.line_stride + byte,
            out.codes + (slab.group.second.codes + slab.row) * out.line_stride + byte,
            in.line_stride,
            out.line_stride,
            before(slab.out_rows, slab.row, kSlab),
            across,
            before(slab.in_rows, slab.row, kSlab),
            across};
}

__device__ __forceinline__ Rectangle columns_of_slab(const Part& part, const Slab& slab) {
    const PadProblem::Side &in = part.problem.in, &out = part.problem.out;
    const int64_t line = slab.stretch * kLines, bits = part.problem.bits;
    const int lines = before(part.problem.lines, line, kLines);
    return {in.codes + line * in.line_stride + (slab.group.first.codes + slab.row) * bits / 8,
            out.codes + line * out.line_stride + (slab.group.second.codes + slab.row) * bits / 8,
            in.line_stride,
            out.line_stride,
            lines,
            int(before(slab.out_rows, slab.row, kSlab) * bits / 8 / part.access),
            lines,
            int(before(slab.in_rows, slab.row, kSlab) * bits / 8 / part.access)};
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// The scales of a group on one side.
struct ScaleSide {
    uint8_t* scales;
    ScaleLayout layout;
    int64_t lines, columns;  // that have scales
};

__device__ __forceinline__ ScaleSide side_of_group(const PadProblem::Part& part, const PadProblem::Side& side,
                                                   const GroupStart& start, int64_t rows, int64_t padded) {
    ScaleSide s{side.scales + group_scale_offset(side.layout, start) * side.layout.bytes, side.layout, part.lines,
                side.layout.columns};
    const int64_t tile_rows = side.layout.tile_rows;
    if (part.columnwise) {
        s.columns = ceil_div(tile_rows > 1 ? rows : padded, side.layout.block);
        if (side.layout.swizzled) s.layout.columns = s.columns;
    } else {
        s.lines = tile_rows > 1 ? round_up(rows, tile_rows) : padded;
    }
    return s;
}

// The input's line that has the scales of the output's, or -1. A line that is new in a tile has the tile's.
__device__ __forceinline__ int64_t source_line(const ScaleSide& in, const ScaleSide& out, int64_t line, int32_t tile_lines) {
    if (line >= out.lines) return -1;
    const int64_t source = line < in.lines || tile_lines <= 1 ? line : line - line % tile_lines;
    return source < in.lines ? source : -1;
}

// Bytes `column` .. `column` + 3 of a line; in a tile all of them are written, else `written`.
__device__ __forceinline__ void move_bytes(const ScaleSide& in, const ScaleSide& out, int64_t line, int64_t source,
                                           int64_t column, int64_t written) {
    const int64_t exist = source < 0 ? 0 : min(min(in.columns, out.columns) - column, kSwizzleColumns);
    uint32_t word = 0;
    if (exist > 0) {
        const uint8_t* from = in.scales + in.layout.offset(0, source, column);
        word = load_scale_word(from, in.layout.swizzled ? kSwizzleColumns : exist);
        word &= ~0u >> (8 * int(kSwizzleColumns - exist));
    }
    store_scale_word(out.scales + out.layout.offset(0, line, column), word, out.layout.swizzled ? kSwizzleColumns : written);
}

// One number; in padding, and past the columns of square tiles, +0.
__device__ __forceinline__ void move_number(const ScaleSide& in, const ScaleSide& out, int64_t line, int64_t source,
                                            int64_t column) {
    uint32_t bits = 0;
    if (source >= 0 && column < min(in.columns, out.columns))
        bits = reinterpret_cast<const uint32_t*>(in.scales)[in.layout.offset(0, source, column)];
    reinterpret_cast<uint32_t*>(out.scales)[out.layout.offset(0, line, column)] = bits;
}

// Lines [first_line, + lines) and columns [first_column, end_column) of the output. Neighbouring threads take what is
// neighbouring there.
__device__ __forceinline__ void move_scales(const ScaleSide& in, const ScaleSide& out, int32_t tile_lines, int64_t first_line,
                                            int lines, int64_t first_column, int64_t end_column) {
    const int step = out.layout.bytes == 1 ? int(kSwizzleColumns) : 1;
    const int across = int(ceil_div(max(end_column - first_column, int64_t(0)), step));
    const bool down = out.layout.swizzled || out.layout.column_stride > 1;
#pragma unroll 1
    for (int i = threadIdx.x; i < lines * across; i += kThreads) {
        int in_slab = down ? i % lines : i / across;
        const int64_t column = first_column + (down ? i / lines : i % across) * step;
        if (out.layout.swizzled) in_slab = in_slab / kSlab * kSlab + in_slab % 4 * 32 + in_slab % kSlab / 4;
        const int64_t line = first_line + in_slab;
        if (!out.layout.swizzled && (line >= out.lines || line % out.layout.tile_rows != 0)) continue;
        const int64_t source = source_line(in, out, line, tile_lines);
        if (step == 1) move_number(in, out, line, source, column);
        else move_bytes(in, out, line, source, column, end_column - column);
    }
}

__device__ __forceinline__ void move_slab_scales(const Part& part, const Slab& slab) {
    const PadProblem::Part& p = part.problem;
    const ScaleSide in = side_of_group(p, p.in, slab.group.first, slab.group.rows, slab.in_rows);
    const ScaleSide out = side_of_group(p, p.out, slab.group.second, slab.group.rows, slab.out_rows);
    if (p.columnwise) {
        const int64_t column = slab.row / out.layout.block, line = slab.stretch * kLines;
        const int64_t lines = out.layout.swizzled ? round_up(p.lines, kSwizzleRows) : p.lines;
        move_scales(in, out, 1, line, before(lines, line, kLines), column,
                    min(out.columns, column + max(kSlab / out.layout.block, 1)));
    } else {
        const bool pads_rows = out.layout.bytes == 4 && out.layout.tile_rows > 1;
        const int64_t columns = pads_rows ? out.layout.line_stride : out.columns;
        const int64_t share = round_up(ceil_div(columns, part.stretches), kSwizzleColumns), column = slab.stretch * share;
        move_scales(in, out, p.tile_lines, slab.row, kSlab, column, min(columns, column + share));
    }
}

__device__ __forceinline__ void copy_flat_scales(const Part& part, int64_t block) {
    const auto* from = reinterpret_cast<const uint32_t*>(part.problem.in.scales);
    auto* to = reinterpret_cast<uint32_t*>(part.problem.out.scales);
    const int64_t end = min((block + 1) * kFlatScales, part.flat_scales);
    for (int64_t i = block * kFlatScales + threadIdx.x; i < end; i += kThreads) to[i] = from[i];
}

// ---- Starts and ends -------------------------------------------------------------------------------------------------

__device__ __forceinline__ void write_bound(void* to, int32_t type, int64_t group, int64_t value) {
    if (!to) return;
    if (type == MXQ_TYPE_INT32) static_cast<int32_t*>(to)[group] = int32_t(value);
    else static_cast<int64_t*>(to)[group] = value;
}

__device__ __forceinline__ void write_bounds(const PadProblem::Part& part, const GroupedRows& grouped) {
    if (!part.starts && !part.ends) return;
    walk_groups(grouped, part.out.units, part.out.units, [&](const Group& group) {
        const int64_t start = group.first.codes, end = start + round_up(group.rows, part.out.units.codes);
        write_bound(part.starts, grouped.groups.type, group.first.index, start);
        write_bound(part.ends, grouped.groups.type, group.first.index, end);
    });
}

// ---- All of a part ---------------------------------------------------------------------------------------------------

__device__ __forceinline__ void move_slab(const Part& part, const GroupedRows& grouped, int64_t block) {
    const PadProblem::Part& p = part.problem;
    const int64_t index = block / part.stretches;
    __shared__ Slab slab;
    const Group group = group_of_slab(grouped, p.in.units, p.out.units, index);
    if (!group.exists()) return;
    if (threadIdx.x == 0)
        slab = {group, (index - group.slab) * kSlab, round_up(group.rows, p.in.units.codes),
                round_up(group.rows, p.out.units.codes), block - index * part.stretches};
    __syncthreads();
    move_codes(p.columnwise ? columns_of_slab(part, slab) : rows_of_slab(part, slab), part.access);
    if (part.has_scales) move_slab_scales(part, slab);
}

__global__ void __launch_bounds__(kThreads, 3) pad_groups_kernel(const __grid_constant__ Arguments a) {
    int64_t block = block_index();
    const int which = block < a.parts[0].blocks ? 0 : 1;
    if (which == 1) block -= a.parts[0].blocks;
    const Part& part = a.parts[which];
    if (block >= part.blocks) return;
    if (block == 0) return write_bounds(part.problem, a.grouped);
    if (block <= part.flat_blocks) return copy_flat_scales(part, block - 1);
    move_slab(part, a.grouped, block - 1 - part.flat_blocks);
}

Reason declines(const Context& context, const PadProblem&) { return needs_cuda(context); }

// Bytes of the widest access that all lines allow.
int32_t widest_access(const PadProblem::Part& p) {
    const int64_t unit = p.columnwise ? kNvBlock * p.bits / 8 : p.line_bytes;  // groups of columns start at whole 16
    const uint64_t all = uint64_t(reinterpret_cast<uintptr_t>(p.in.codes) | reinterpret_cast<uintptr_t>(p.out.codes)) |
                         uint64_t(p.in.line_stride | p.out.line_stride | unit) | 16;
    return int32_t(all & -all);
}

Part part_of(const PadProblem::Part& p, const GroupedRows& grouped) {
    Part part{p, 0, 0, 1, 0, widest_access(p), false};
    const ScaleLayout& layout = p.out.layout;
    const bool one = layout.block == MXQ_MAX_DIM && layout.line_stride == 0;  // for all, or for a group
    const bool empty = grouped.rows == 0 || (p.columnwise ? p.lines : p.line_bytes) == 0;
    const bool flat = one || (p.columnwise && layout.block == MXQ_MAX_DIM);
    if (p.out.scales && flat && (one || !empty))
        part.flat_scales = layout.group_index_stride == 0 ? 1 : layout.group_index_stride * grouped.groups.count;
    part.flat_blocks = ceil_div(part.flat_scales, kFlatScales);
    part.has_scales = p.out.scales && !flat;
    part.stretches = p.columnwise ? ceil_div(p.lines, kLines) : ceil_div(p.line_bytes, kRowBytes);
    part.blocks = 1 + part.flat_blocks + (empty ? 0 : slabs_bound(grouped) * part.stretches);
    return part;
}

void run(const Context& context, const PadProblem& problem, const Launch& call) {
    Arguments a{{}, problem.grouped};
    for (int i = 0; i < problem.count; i++) a.parts[i] = part_of(problem.parts[i], problem.grouped);
    launch(context, pad_groups_kernel, "pad_groups", grid_of(a.parts[0].blocks + a.parts[1].blocks), dim3(kThreads), 0,
           call.stream, a);
}

void load(const Context&) { load_kernel(reinterpret_cast<const void*>(pad_groups_kernel), 0); }

}  // namespace

const PadImplementation pad_groups = {"pad_groups", declines, nullptr, run, load};

}  // namespace mxq::cuda
