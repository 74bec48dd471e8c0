// swizzle_scales: compact scales to swizzled ones and back, of every format; experts or groups; one or two parts a launch.
//
// A lane moves a square of 4 x 4 words, by 16-byte accesses on both sides:
//
//                      tile 0   tile 1   tile 2   tile 3
//     row r            word     word     word     word      16 bytes of a compact row
//     row r + 32       word     word     word     word
//     row r + 64       word     word     word     word
//     row r + 96       word     word     word     word
//                      16 bytes of a swizzled tile of 128 rows x 4
//
// A warp takes 16 such r of two adjacent squares: whole 32-byte sectors of compact rows, 256 bytes of a swizzled tile.
// Columnwise groups have at most 8 columns in a tile, and take 32 r of one square. fp32 scales are squares of 128 rows x 4.
//
//     swizzle_scales_kernel         any scales, with groups and experts; unaligned ones word by word or byte by byte
//     swizzle_square_rows_kernel    aligned scales without groups, through shared memory
//
// Bytes: one read and one written for 16 elements or more. Bound by the launch.
#include <algorithm>
#include <utility>

#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/memory/async_copy.cuh"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/memory/scale_words.cuh"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kSide = 4;                   // of a lane's square, in words or numbers
constexpr int kGroupSquares = 2 * kWarps;  // of a group tile for a thread block

// One part of the problem. fp32 scales have the output's layout as `compact`, the input's as `swizzled`, and rows of scales
// as lines.
struct Part {
    const uint8_t* in;
    uint8_t* out;
    int64_t matrices, lines;
    ScaleLayout compact, swizzled;
    GroupUnits compact_units, swizzled_units;
    bool columnwise, to_swizzled;
    bool compact_wide, swizzled_wide;  // every access to this side is of 16 aligned bytes
    int32_t row_lines;                 // K-major rows of a row of fp32 scales; 1 for bytes
    int32_t square_columns;            // scales in a row of a square
    bool paired;                       // a warp takes half of the rows of two squares, not all of one
    int64_t down, across;              // squares of a matrix; `across` is even where they are paired
    int64_t tile_blocks;               // thread blocks of a group tile
    int64_t blocks;
};

struct Arguments {
    Part parts[2];
    GroupedRows grouped;
};

// The scales of an expert or a group: their offsets, and which exist.
struct ScaleScope {
    const uint8_t* in;
    uint8_t* out;
    ScaleLayout compact, swizzled;
    int64_t lines;            // after them swizzled tiles are zero
    int64_t compact_columns;  // of this scope; the layout of groups counts all groups
};

// The square of a lane: words[i][j] is that of row `line` + 32 i at scale column `column` + 4 j (fp32: + j).
struct Square {
    int64_t line, column;
    int tiles;  // 1 to 4; below 1 the square is empty
    uint32_t words[kSide][kSide];
};

// ---- Bytes -----------------------------------------------------------------------------------------------------------

// Returns four equal bytes of a coarse tile's scale, zero in columns that do not exist.
__device__ __forceinline__ uint32_t load_coarse_word(const ScaleScope& scope, int64_t line, int64_t column) {
    const int64_t tile = column >> log2_of(uint32_t(scope.swizzled.repeat));
    const int64_t existing = min(scope.swizzled.columns - column, kSwizzleColumns);
    if (line >= scope.lines || tile >= scope.compact_columns || existing <= 0) return 0;
    return (scope.in[scope.compact.offset(0, line, tile)] * 0x01010101u) & (~0u >> (8 * int(kSwizzleColumns - existing)));
}

__device__ __forceinline__ void load_compact(Square& s, const ScaleScope& scope, bool wide) {
#pragma unroll
    for (int i = 0; i < kSide; i++) {
        const int64_t line = s.line + i * 32;
        const uint8_t* from = scope.in + scope.compact.offset(0, line, s.column);
        if (wide) {
            const uint4 v = line < scope.lines && s.tiles > 0 ? *reinterpret_cast<const uint4*>(from) : uint4{};
            s.words[i][0] = v.x, s.words[i][1] = v.y, s.words[i][2] = v.z, s.words[i][3] = v.w;
            continue;
        }
#pragma unroll
        for (int j = 0; j < kSide; j++) {
            const int64_t column = s.column + j * kSwizzleColumns;
            if (scope.swizzled.repeat > 1) s.words[i][j] = load_coarse_word(scope, line, column);
            else s.words[i][j] = load_scale_word(from + j * 4, line < scope.lines ? scope.compact_columns - column : 0);
        }
    }
}

__device__ __forceinline__ void store_compact(const Square& s, const ScaleScope& scope, bool wide) {
#pragma unroll
    for (int i = 0; i < kSide; i++) {
        const int64_t line = s.line + i * 32;
        if (line >= scope.lines || s.tiles <= 0 || (scope.compact.tile_rows > 1 && line % scope.compact.tile_rows != 0)) continue;
        if (wide) {
            auto* to = reinterpret_cast<uint4*>(scope.out + scope.compact.offset(0, line, s.column));
            *to = {s.words[i][0], s.words[i][1], s.words[i][2], s.words[i][3]};
            continue;
        }
#pragma unroll
        for (int j = 0; j < kSide; j++) {
            const int32_t repeat = scope.swizzled.repeat;
            const int64_t first = s.column + j * kSwizzleColumns, column = first >> log2_of(uint32_t(repeat));
            const bool begins = repeat < kWholeLine || first == 0;  // a coarse scale is read where its repetition starts
            const int64_t left = begins && j < s.tiles ? scope.compact_columns - column : 0;
            store_scale_word(scope.out + scope.compact.offset(0, line, column), s.words[i][j],
                             repeat > 1 ? min(left, int64_t(1)) : left);
        }
    }
}

__device__ __forceinline__ void load_swizzled(Square& s, const ScaleScope& scope, bool wide) {
#pragma unroll
    for (int j = 0; j < kSide; j++) {
        if (j >= s.tiles) continue;
        const uint8_t* from = scope.in + scope.swizzled.offset(0, s.line, s.column + j * kSwizzleColumns);
        if (wide) {
            const uint4 v = *reinterpret_cast<const uint4*>(from);
            s.words[0][j] = v.x, s.words[1][j] = v.y, s.words[2][j] = v.z, s.words[3][j] = v.w;
        } else {
#pragma unroll
            for (int i = 0; i < kSide; i++) s.words[i][j] = load_scale_word(from + i * 4, kSwizzleColumns);
        }
    }
}

__device__ __forceinline__ void store_swizzled(const Square& s, const ScaleScope& scope, bool wide) {
#pragma unroll
    for (int j = 0; j < kSide; j++) {
        if (j >= s.tiles) continue;
        uint8_t* to = scope.out + scope.swizzled.offset(0, s.line, s.column + j * kSwizzleColumns);
        if (wide) {
            *reinterpret_cast<uint4*>(to) = {s.words[0][j], s.words[1][j], s.words[2][j], s.words[3][j]};
        } else {
#pragma unroll
            for (int i = 0; i < kSide; i++) store_scale_word(to + i * 4, s.words[i][j], kSwizzleColumns);
        }
    }
}

// ---- Numbers ---------------------------------------------------------------------------------------------------------

// Returns the columns of an fp32 layout, with the +0 that pads its rows.
__device__ __forceinline__ int64_t padded_columns(const ScaleLayout& layout) {
    return layout.column_stride == 1 ? max(layout.line_stride, layout.columns) : layout.columns;
}

__device__ __forceinline__ void move_numbers(Square& s, const ScaleScope& scope) {
    const auto* from = reinterpret_cast<const uint32_t*>(scope.in);
    auto* to = reinterpret_cast<uint32_t*>(scope.out);
#pragma unroll
    for (int i = 0; i < kSide; i++)
#pragma unroll
        for (int j = 0; j < kSide; j++) {
            const int64_t line = s.line + i * 32, column = s.column + j;
            const bool exists = line < scope.lines && column < scope.compact_columns;
            s.words[i][j] = exists ? from[scope.swizzled.offset(0, line, column)] : 0;
        }
#pragma unroll
    for (int i = 0; i < kSide; i++)
#pragma unroll
        for (int j = 0; j < kSide; j++) {
            const int64_t line = s.line + i * 32, column = s.column + j;
            if (line < scope.lines && column < padded_columns(scope.compact))
                to[scope.compact.offset(0, line, column)] = s.words[i][j];
        }
}

// ---- Squares of an expert or a group ----------------------------------------------------------------------------------

__device__ __forceinline__ void move_square(const Part& part, const ScaleScope& scope, Square& s) {
    if (part.compact.bytes == 4) {
        move_numbers(s, scope);
    } else if (part.to_swizzled) {
        load_compact(s, scope, part.compact_wide);
        store_swizzled(s, scope, part.swizzled_wide);
    } else {
        load_swizzled(s, scope, part.swizzled_wide);
        store_compact(s, scope, part.compact_wide);
    }
}

__device__ __forceinline__ ScaleScope scope_at(const Part& part, int64_t compact_start, int64_t swizzled_start) {
    const int64_t compact = compact_start * part.compact.bytes, swizzled = swizzled_start * part.swizzled.bytes;
    return {part.in + (part.to_swizzled ? compact : swizzled), part.out + (part.to_swizzled ? swizzled : compact),
            part.compact, part.swizzled, part.lines, part.compact.columns};
}

// Padding has scales where it has codes. Compact tiles of several rows exist only for rows of the group.
__device__ __forceinline__ ScaleScope scope_of_group(const Part& part, const Group& group) {
    ScaleScope scope =
        scope_at(part, group_scale_offset(part.compact, group.first()), group_scale_offset(part.swizzled, group.second()));
    const int64_t padded = round_up(group.rows, part.compact_units.codes), tile_rows = part.compact.tile_rows;
    if (part.columnwise) {
        scope.swizzled.columns = padded / part.swizzled.block;
        scope.compact_columns = ceil_div(tile_rows > 1 ? group.rows : padded, part.compact.block);
    } else if (part.row_lines > 1) {
        scope.lines = ceil_div(group.rows, part.row_lines);
    } else {
        scope.lines = tile_rows > 1 ? min(padded, round_up(group.rows, tile_rows)) : padded;
    }
    return scope;
}

__device__ __forceinline__ Square square_at(const Part& part, const ScaleScope& scope, int64_t down, int64_t across) {
    const int lane = int(threadIdx.x % 32);
    const int64_t row = part.paired ? across % 2 * 16 + lane / 2 : lane;
    const int64_t square = part.paired ? across - across % 2 + lane % 2 : across;
    Square s{down * kSwizzleRows + row, square * part.square_columns, 0, {}};
    s.tiles = int(min(ceil_div(scope.swizzled.columns - s.column, kSwizzleColumns), int64_t(kSide)));
    return s;
}

// Moves some squares of a group tile.
__device__ __forceinline__ void move_group_squares(const Part& part, const GroupedRows& grouped, int64_t block) {
    const int64_t group_tile = block / part.tile_blocks, first = (block - group_tile * part.tile_blocks) * kGroupSquares;
    const Group group = find_group<GroupBy::Tile>(grouped, part.compact_units, part.swizzled_units, group_tile);
    if (!group.exists()) return;
    ScaleScope scope = scope_of_group(part, group);
    const int64_t in_group = group_tile - group.first_group_tile, tile_lines = kSwizzleRows / part.row_lines;
    const int64_t tile_columns = kSwizzleRows / part.swizzled.block;
    if (!part.columnwise) scope.lines = min(scope.lines, (in_group + 1) * tile_lines);
    const int64_t end = min(first + kGroupSquares, part.columnwise ? part.down : part.across);
#pragma unroll 1
    for (int64_t i = first + threadIdx.x / 32; i < end; i += kWarps) {
        Square s = square_at(part, scope, part.columnwise ? i : 0, part.columnwise ? 0 : i);
        if (part.columnwise) {
            s.column = in_group * tile_columns;
            s.tiles = int(ceil_div(min(scope.swizzled.columns - s.column, tile_columns), kSwizzleColumns));
        } else {
            s.line += in_group * tile_lines;
        }
        move_square(part, scope, s);
    }
}

__global__ void __launch_bounds__(kThreads) swizzle_scales_kernel(const __grid_constant__ Arguments a) {
    int64_t block = block_index();
    const int index = block < a.parts[0].blocks ? 0 : 1;
    if (index == 1) block -= a.parts[0].blocks;
    const Part& part = a.parts[index];
    if (block >= part.blocks) return;
    if (a.grouped.groups.set) return move_group_squares(part, a.grouped, block);
    const int64_t task = block * kWarps + threadIdx.x / 32, line = task / part.across, matrix = line / part.down;
    if (matrix >= part.matrices) return;
    const ScaleScope scope = scope_at(part, matrix * part.compact.matrix_scales, matrix * part.swizzled.matrix_scales);
    Square s = square_at(part, scope, line - matrix * part.down, task - line * part.across);
    move_square(part, scope, s);
}

// ---- Rows of squares -----------------------------------------------------------------------------------------------------

// Transposes a square of words.
__device__ __forceinline__ void transpose_words(uint4 (&words)[kSide]) {
    const uint4 a = words[0], b = words[1], c = words[2], d = words[3];
    words[0] = {a.x, b.x, c.x, d.x}, words[1] = {a.y, b.y, c.y, d.y};
    words[2] = {a.z, b.z, c.z, d.z}, words[3] = {a.w, b.w, c.w, d.w};
}

constexpr int kMostSquares = 16;  // of a thread block

// Returns the index in shared memory of the 16 bytes of row `row` in tile `tile` of square `index`. It is swizzled, so that
// eight adjacent squares use eight bank groups.
__device__ __forceinline__ int shared_index(int index, int tile, int row) {
    return (index * kSide + tile) * 32 + (row ^ (index & 7));
}

// The bytes of a thread block's squares on both sides: the thread's rows in the compact one, the whole tiles in the other.
struct WholeSquares {
    int64_t compact, swizzled, stride;
    int squares, lines;  // of the thread block; existing rows of the thread

    __device__ __forceinline__ explicit WholeSquares(const Part& part) : stride(part.compact.line_stride) {
        const uint32_t all = uint32_t(part.compact.columns) / (kSide * uint32_t(kSwizzleColumns));
        const uint32_t first = blockIdx.x * blockDim.x, down = uint32_t(part.down);
        const uint32_t matrix = part.matrices == 1 ? 0 : blockIdx.y / down, tile_row = blockIdx.y - matrix * down;
        const int64_t line = int64_t(tile_row) * kSwizzleRows + threadIdx.y;
        const bool exists = matrix < part.matrices && tile_row < down;  // the other part may have more
        squares = exists ? max(int(min(all, first + blockDim.x)) - int(first), 0) : 0;
        lines = int(min(ceil_div(max(part.lines - line, int64_t(0)), int64_t(32)), int64_t(kSide)));
        if (int(threadIdx.x) >= squares) lines = 0;
        compact = matrix * part.compact.matrix_scales + line * stride + (first + threadIdx.x) * (kSide * kSwizzleColumns);
        swizzled = matrix * part.swizzled.matrix_scales + (int64_t(tile_row) * all + first) * (kSide * kSwizzleBytes);
    }
};

// Moves the squares of parts without groups whose accesses are aligned 16-byte vectors, which most parts are, through shared
// memory. A thread block takes up to 16 adjacent squares of a row of tiles, so that a warp accesses 512 contiguous bytes on
// both sides:
//
//     threadIdx.x   the square                     compact     adjacent vectors of a row are neighbouring threads
//     threadIdx.y   its rows r, r + 32, ...        swizzled    all vectors of the tiles in their order
__global__ void __launch_bounds__(kMostSquares * 32) swizzle_square_rows_kernel(const __grid_constant__ Arguments a) {
    __shared__ uint4 shared[kMostSquares * kSide * 32];
    const Part& part = a.parts[blockIdx.z];
    const WholeSquares at(part);
    const int square = threadIdx.x, row = threadIdx.y, threads = blockDim.x * 32, thread = row * blockDim.x + square;
    const auto in_order = [&](int i) { return shared_index(i / (kSide * 32), i / 32 % kSide, i % 32); };
    const int units = at.squares * kSide * 32;  // vectors of the thread block's tiles
    uint4 words[kSide];
    if (part.to_swizzled) {
#pragma unroll
        for (int i = 0; i < kSide; i++)
            words[i] = i < at.lines ? *reinterpret_cast<const uint4*>(part.in + at.compact + i * 32 * at.stride) : uint4{};
        transpose_words(words);
#pragma unroll
        for (int j = 0; j < kSide; j++) shared[shared_index(square, j, row)] = words[j];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < kSide; j++)
            if (const int i = j * threads + thread; i < units)
                reinterpret_cast<uint4*>(part.out + at.swizzled)[i] = shared[in_order(i)];
    } else {
        const auto* const from = reinterpret_cast<const uint4*>(part.in + at.swizzled);
#pragma unroll
        for (int j = 0; j < kSide; j++)
            if (const int i = j * threads + thread; i < units) copy_word(&shared[in_order(i)], from + i);
        wait_for_copies();
        __syncthreads();
#pragma unroll
        for (int j = 0; j < kSide; j++) words[j] = shared[shared_index(square, j, row)];
        transpose_words(words);
#pragma unroll
        for (int i = 0; i < kSide; i++)
            if (i < at.lines) *reinterpret_cast<uint4*>(part.out + at.compact + i * 32 * at.stride) = words[i];
    }
}

// Returns whether that kernel takes a part.
bool has_whole_squares(const Part& part) {
    constexpr int64_t most_rows = 65535;  // of a grid
    const bool whole_strides = part.compact.line_stride % 16 == 0 && part.compact.matrix_scales % 16 == 0;
    return whole_strides && part.compact.bytes == 1 && part.compact_wide && part.swizzled_wide && part.compact.tile_rows == 1 &&
           part.matrices * part.down <= most_rows;
}

void divide(Part& part, const GroupedRows& grouped) {
    part.down = ceil_div(part.lines, kSwizzleRows);
    part.paired = !grouped.set() || !part.columnwise;
    part.across = ceil_div(part.swizzled.columns, int64_t(part.square_columns));
    if (part.paired) part.across = round_up(part.across, 2);
    part.tile_blocks = ceil_div(part.columnwise ? part.down : part.across, kGroupSquares);
    part.blocks = grouped.set() ? group_tiles_bound(grouped) * part.tile_blocks
                                : ceil_div(part.matrices * part.down * part.across, kWarps);
}

Part part_of(const SwizzleProblem::Scales& s, const GroupedRows& grouped) {
    const bool to_swizzled = s.out_layout.swizzled;
    Part part{s.in, s.out, s.matrices, s.lines, s.out_layout, s.in_layout, s.out_units, s.in_units, s.columnwise,
              to_swizzled, false, false, 1, int32_t(kSwizzleColumns) * kSide, false, 0, 0, 0, 0};
    if (to_swizzled) {
        std::swap(part.compact, part.swizzled);
        std::swap(part.compact_units, part.swizzled_units);
    }
    if (part.compact.bytes == 4) {
        part.row_lines = part.compact.tile_rows;
        part.square_columns = kSide;
        part.lines = ceil_div(s.lines, int64_t(part.row_lines));
        part.compact.tile_rows = part.swizzled.tile_rows = 1;
    } else {
        const bool columns_stay = !grouped.set() || !s.columnwise;  // columnwise groups may start at any column
        part.compact_wide = columns_stay && part.swizzled.repeat == 1 && is_aligned(to_swizzled ? s.in : s.out, 16) &&
                            part.compact.columns % part.square_columns == 0;
        part.swizzled_wide = is_aligned(to_swizzled ? s.out : s.in, 16);
    }
    divide(part, grouped);
    return part;
}

void launch_square_rows(const Context& context, int64_t squares, int64_t rows, int32_t parts, const Launch& call,
                        const Arguments& a) {
    const int64_t blocks = ceil_div(squares, int64_t(kMostSquares)), of_block = ceil_div(squares, blocks);
    launch(context, swizzle_square_rows_kernel, "swizzle_scales", dim3(uint32_t(blocks), uint32_t(rows), uint32_t(parts)),
           dim3(uint32_t(of_block), 32), 0, call.stream, a);
}

// Enqueues zeros into the compact scales of rows of columnwise groups. Groups without rows have such scales, but no tiles,
// so no thread block writes theirs.
void clear_lines_of_groups(const Context& context, const Part& part, const GroupedRows& grouped, const Launch& call) {
    if (!grouped.set() || !part.columnwise || part.to_swizzled || !part.compact.has_one_of_line()) return;
    clear(context, part.out, size_t(grouped.groups.count * part.lines), "unswizzle_scales", call.stream);
}

void run(const Context& context, const SwizzleProblem& problem, const Launch& call) {
    Arguments a{{}, problem.grouped};
    for (int i = 0; i < problem.count; i++) {
        a.parts[i] = part_of(problem.parts[i], problem.grouped);
        clear_lines_of_groups(context, a.parts[i], problem.grouped, call);
    }
    const int64_t blocks = a.parts[0].blocks + a.parts[1].blocks;
    if (blocks == 0) return;
    bool whole = !problem.grouped.set();
    int64_t across = 0, rows = 0;
    for (int i = 0; i < problem.count; i++) {
        whole = whole && has_whole_squares(a.parts[i]);
        across = std::max(across, ceil_div(a.parts[i].swizzled.columns, int64_t(a.parts[i].square_columns)));
        rows = std::max(rows, a.parts[i].matrices * a.parts[i].down);
    }
    if (whole) return launch_square_rows(context, across, rows, problem.count, call, a);
    launch(context, swizzle_scales_kernel, "swizzle_scales", grid_of(blocks), dim3(kThreads), 0, call.stream, a);
}

void load(const Context&) {
    load_kernel(swizzle_scales_kernel);
    load_kernel(swizzle_square_rows_kernel);
}

}  // namespace

const SwizzleImplementation swizzle_scales = {"swizzle_scales", needs_cuda_alone, nullptr, run, load};

}  // namespace mxq::cuda
