// pad_groups: groups of rows from one alignment to another, padded or unpadded: plain tensors, and quantized parts with
// their scales, with the padded starts and ends, in one launch.
//
//     rowwise      in   aaa bb ccc        columnwise   in   aaabbccc     out   aaa.bb..ccc.
//                  out  aaa.bb..ccc.                        aaabbccc           aaa.bb..ccc.
//
// The thread blocks of a part, in this order:
//
//     1                        starts and ends of all groups
//     flat_blocks              scales that no alignment moves: one for all or for a group, one for every column of a group
//     stretches a group tile   128 rows of a group; rowwise 1024 bytes of each row, columnwise those codes of 512 columns
//
// A stretch of codes is a rectangle of bytes: rows of the group are copied, padding is zero. A thread has eight accesses in
// flight, as wide as alignments allow, up to 16 bytes. Scales follow as words of four bytes or as fp32. Each byte is read
// once and written once. Bound by memory.
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/memory/codes.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/memory/scale_words.cuh"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 8;       // accesses of a thread
constexpr int kRowBytes = 1024;    // of each row, rowwise, for a thread block
constexpr int kLines = 512;        // K-major rows, columnwise, of a thread block
constexpr int kFlatScales = 4096;  // of a thread block
constexpr int kGroupTile = int(kSwizzleRows);  // rows of a group tile

struct Part {
    PadProblem::Part problem;
    int64_t flat_scales, flat_blocks;
    int64_t stretches;  // thread blocks of a group tile
    int64_t blocks;
    int32_t access;     // bytes
    bool moves_scales;  // with the codes
};

struct Arguments {
    Part parts[2];
    GroupedRows grouped;
};

// The work of a thread block: one stretch of a group tile.
struct Stretch {
    Group group;                // first: in the input, second: in the output
    int64_t row;                // of the group
    int64_t in_rows, out_rows;  // of the group, padding included
    int64_t index;              // in the group tile
};

// ---- Codes -----------------------------------------------------------------------------------------------------------

// `lines` K-major rows of `across` accesses each. The input has `copied_lines` and `copied_across` of these.
struct Rectangle {
    const uint8_t* from;
    uint8_t* to;
    int64_t from_stride, to_stride;
    int lines, across, copied_lines, copied_across;
};

// Copies a rectangle word by word. What the input lacks is zero.
template <class Word>
__device__ __forceinline__ void move_rectangle(const Rectangle& r) {
    const int count = r.lines * r.across;
#pragma unroll 1
    for (int first = threadIdx.x; first < count; first += kInFlight * kThreads) {
        Word words[kInFlight];
#pragma unroll
        for (int k = 0; k < kInFlight; k++) {
            const int i = first + k * kThreads, line = uint32_t(i) / uint32_t(r.across), access = i - line * r.across;
            const bool exists = line < r.copied_lines && access < r.copied_across;
            words[k] = exists ? *(reinterpret_cast<const Word*>(r.from + line * r.from_stride) + access) : Word{};
        }
#pragma unroll
        for (int k = 0; k < kInFlight; k++) {
            const int i = first + k * kThreads, line = uint32_t(i) / uint32_t(r.across), access = i - line * r.across;
            if (i < count) __stcs(reinterpret_cast<Word*>(r.to + line * r.to_stride) + access, words[k]);
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

// Returns how many of `most` positions from `first` on are before `end`.
__device__ __forceinline__ int before(int64_t end, int64_t first, int64_t most) {
    return int(min(max(end - first, int64_t(0)), most));
}

__device__ __forceinline__ Rectangle rows_of_stretch(const Part& part, const Stretch& stretch) {
    const PadProblem::Side &in = part.problem.in, &out = part.problem.out;
    const int64_t byte = stretch.index * kRowBytes;
    const int across = before(part.problem.line_bytes, byte, kRowBytes) / part.access;
    return {in.codes + (stretch.group.first().codes + stretch.row) * in.line_stride + byte,
            out.codes + (stretch.group.second().codes + stretch.row) * out.line_stride + byte,
            in.line_stride,
            out.line_stride,
            before(stretch.out_rows, stretch.row, kGroupTile),
            across,
            before(stretch.group.rows, stretch.row, kGroupTile),
            across};
}

__device__ __forceinline__ Rectangle columns_of_stretch(const Part& part, const Stretch& stretch) {
    const PadProblem::Side &in = part.problem.in, &out = part.problem.out;
    const int64_t line = stretch.index * kLines, bits = part.problem.bits;
    const int lines = before(part.problem.lines, line, kLines);
    return {in.codes + line * in.line_stride + (stretch.group.first().codes + stretch.row) * bits / 8,
            out.codes + line * out.line_stride + (stretch.group.second().codes + stretch.row) * bits / 8,
            in.line_stride,
            out.line_stride,
            lines,
            int(before(stretch.out_rows, stretch.row, kGroupTile) * bits / 8 / part.access),
            lines,
            int(before(codes_of_columns(stretch.group.rows), stretch.row, kGroupTile) * bits / 8 / part.access)};
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// The scales of a group on one side.
struct ScaleSide {
    uint8_t* scales;
    ScaleLayout layout;
    int64_t lines, columns;  // with scales
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

// Returns the K-major row of the input whose scales a row of the output gets, or -1. Padding inside of a square tile has the
// scales of the tile.
__device__ __forceinline__ int64_t source_line(const ScaleSide& in, const ScaleSide& out, int64_t line, int32_t tile_lines) {
    if (line >= out.lines) return -1;
    const int64_t source = line < in.lines || tile_lines <= 1 ? line : line - line % tile_lines;
    return source < in.lines ? source : -1;
}

// Moves the scale bytes `column` .. `column` + 3 of a K-major row. All are written in a swizzled tile, else `written` of
// them.
__device__ __forceinline__ void move_bytes(const ScaleSide& in, const ScaleSide& out, int64_t line, int64_t source,
                                           int64_t column, int64_t written) {
    const int64_t exist = source < 0 ? 0 : min(min(in.columns, out.columns) - column, kSwizzleColumns);
    uint32_t word = 0;
    if (exist > 0) {
        const bool whole_line = in.layout.repeat == kWholeLine;  // one byte for all columns that the output has
        const uint8_t* from = in.scales + in.layout.offset(0, source, whole_line ? 0 : column);
        word = whole_line ? *from * 0x01010101u : load_scale_word(from, in.layout.swizzled ? kSwizzleColumns : exist);
        word &= ~0u >> (8 * int(kSwizzleColumns - exist));
    }
    store_scale_word(out.scales + out.layout.offset(0, line, column), word, out.layout.swizzled ? kSwizzleColumns : written);
}

// Moves one fp32 scale. Padding, and columns after those of square tiles, are +0.
__device__ __forceinline__ void move_number(const ScaleSide& in, const ScaleSide& out, int64_t line, int64_t source,
                                            int64_t column) {
    uint32_t bits = 0;
    if (source >= 0 && column < min(in.columns, out.columns))
        bits = reinterpret_cast<const uint32_t*>(in.scales)[in.layout.offset(0, source, column)];
    reinterpret_cast<uint32_t*>(out.scales)[out.layout.offset(0, line, column)] = bits;
}

// Moves the scales of `lines` K-major rows from `first_line` on, in the columns [first_column, end_column) of the output.
// Neighbouring threads write neighbouring scales.
__device__ __forceinline__ void move_scales(const ScaleSide& in, const ScaleSide& out, int32_t tile_lines, int64_t first_line,
                                            int lines, int64_t first_column, int64_t end_column) {
    const int step = out.layout.bytes == 1 ? int(kSwizzleColumns) : 1;
    const int across = int(ceil_div(max(end_column - first_column, int64_t(0)), step));
    const bool down = out.layout.swizzled || out.layout.column_stride > 1;
#pragma unroll 1
    for (int i = threadIdx.x; i < lines * across; i += kThreads) {
        int line_index = down ? i % lines : i / across;
        const int64_t column = first_column + (down ? i / lines : i % across) * step;
        if (out.layout.swizzled)
            line_index = line_index / kGroupTile * kGroupTile + line_index % 4 * 32 + line_index % kGroupTile / 4;
        const int64_t line = first_line + line_index;
        if (!out.layout.swizzled && (line >= out.lines || line % out.layout.tile_rows != 0)) continue;
        const int64_t source = source_line(in, out, line, tile_lines);
        if (step == 1) move_number(in, out, line, source, column);
        else move_bytes(in, out, line, source, column, end_column - column);
    }
}

__device__ __forceinline__ void move_stretch_scales(const Part& part, const Stretch& stretch) {
    const PadProblem::Part& p = part.problem;
    ScaleSide in = side_of_group(p, p.in, stretch.group.first(), stretch.group.rows, stretch.in_rows);
    in.lines = p.columnwise ? in.lines : min(in.lines, round_up(stretch.group.rows, in.layout.tile_rows));
    in.columns = p.columnwise ? columns_of_rows(in.layout, stretch.group.rows) : in.columns;
    const ScaleSide out = side_of_group(p, p.out, stretch.group.second(), stretch.group.rows, stretch.out_rows);
    if (p.columnwise) {
        const int64_t column = stretch.row / out.layout.block, line = stretch.index * kLines;
        const int64_t lines = out.layout.swizzled ? round_up(p.lines, kSwizzleRows) : p.lines;
        move_scales(in, out, 1, line, before(lines, line, kLines), column,
                    min(out.columns, column + max(kGroupTile / out.layout.block, 1)));
    } else {
        const bool pads_rows = out.layout.bytes == 4 && out.layout.tile_rows > 1;
        const int64_t columns = pads_rows ? out.layout.line_stride : out.columns;
        const int64_t share = round_up(ceil_div(columns, part.stretches), kSwizzleColumns), column = stretch.index * share;
        move_scales(in, out, p.tile_lines, stretch.row, kGroupTile, column, min(columns, column + share));
    }
}

// Copies scales of one or four bytes.
template <class Scale>
__device__ __forceinline__ void copy_flat_scales(const Part& part, int64_t block) {
    const auto* from = reinterpret_cast<const Scale*>(part.problem.in.scales);
    auto* to = reinterpret_cast<Scale*>(part.problem.out.scales);
    const int64_t end = min((block + 1) * kFlatScales, part.flat_scales);
    for (int64_t i = block * kFlatScales + threadIdx.x; i < end; i += kThreads) to[i] = from[i];
}

__device__ __forceinline__ void copy_flat_scales(const Part& part, int64_t block) {
    part.problem.out.layout.bytes == 1 ? copy_flat_scales<uint8_t>(part, block) : copy_flat_scales<uint32_t>(part, block);
}

// ---- Starts and ends -------------------------------------------------------------------------------------------------

// Writes a start or an end of a group if the caller wants them.
__device__ __forceinline__ void write_bound(void* to, int32_t type, int64_t group, int64_t value) {
    if (!to) return;
    if (type == MXQ_TYPE_INT32) static_cast<int32_t*>(to)[group] = int32_t(value);
    else static_cast<int64_t*>(to)[group] = value;
}

__device__ __forceinline__ void write_bounds(const PadProblem::Part& part, const GroupedRows& grouped) {
    if (!part.starts && !part.ends) return;
    for_each_group(grouped, part.out.units, part.out.units, [&](const Group& group) {
        const int64_t start = group.first().codes, end = start + round_up(group.rows, part.out.units.codes);
        write_bound(part.starts, grouped.groups.type, group.index, start);
        write_bound(part.ends, grouped.groups.type, group.index, end);
    });
}

// ---- All of a part ---------------------------------------------------------------------------------------------------

__device__ __forceinline__ void move_stretch(const Part& part, const GroupedRows& grouped, int64_t block) {
    const PadProblem::Part& p = part.problem;
    const int64_t group_tile = block / part.stretches;
    __shared__ Stretch stretch;
    const Group group = find_group<GroupBy::Tile>(grouped, p.in.units, p.out.units, group_tile);
    if (!group.exists()) return;
    if (threadIdx.x == 0)
        stretch = {group, (group_tile - group.first_group_tile) * kGroupTile, round_up(group.rows, p.in.units.codes),
                   round_up(group.rows, p.out.units.codes), block - group_tile * part.stretches};
    __syncthreads();
    move_codes(p.columnwise ? columns_of_stretch(part, stretch) : rows_of_stretch(part, stretch), part.access);
    if (part.moves_scales) move_stretch_scales(part, stretch);
}

__global__ void __launch_bounds__(kThreads, 3) pad_groups_kernel(const __grid_constant__ Arguments a) {
    int64_t block = block_index();
    const int index = block < a.parts[0].blocks ? 0 : 1;
    if (index == 1) block -= a.parts[0].blocks;
    const Part& part = a.parts[index];
    if (block >= part.blocks) return;
    if (block == 0) return write_bounds(part.problem, a.grouped);
    if (block <= part.flat_blocks) return copy_flat_scales(part, block - 1);
    move_stretch(part, a.grouped, block - 1 - part.flat_blocks);
}

// Returns the bytes of the widest access that all K-major rows allow.
int32_t widest_access(const PadProblem::Part& p) {
    const int64_t unit = p.columnwise ? kNvBlock * p.bits / 8 : p.line_bytes;  // columnwise groups start at multiples of 16
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
    part.moves_scales = p.out.scales && !flat;
    part.stretches = p.columnwise ? ceil_div(p.lines, kLines) : ceil_div(p.line_bytes, kRowBytes);
    part.blocks = 1 + part.flat_blocks + (empty ? 0 : group_tiles_bound(grouped) * part.stretches);
    return part;
}

void run(const Context& context, const PadProblem& problem, const Launch& call) {
    Arguments a{{}, problem.grouped};
    for (int i = 0; i < problem.count; i++) a.parts[i] = part_of(problem.parts[i], problem.grouped);
    launch(context, pad_groups_kernel, "pad_groups", grid_of(a.parts[0].blocks + a.parts[1].blocks), dim3(kThreads), 0,
           call.stream, a);
}

void load(const Context&) { load_kernel(pad_groups_kernel); }

}  // namespace

const PadImplementation pad_groups = {"pad_groups", needs_cuda_alone, nullptr, run, load};

}  // namespace mxq::cuda
