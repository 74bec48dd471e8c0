// The small kernels around a call of cuBLASLt: see arrays.h. None of them reads or writes codes.
//
//     fill   one thread block loops over the ends: a thread per group writes its sizes and pointers
//     pack   128 rows and 16 columns a block, thread t: eight columns of row t % 128, all read before one is written
//     zero   16 bytes a thread, by the blocks that pack a group's last 128 rows, or by eight
//
// One launch, prepare_groups, does all three before a grouped product and divides its blocks among them. Three kernels,
// each of which looped over the ends, took 36 us longer than a bare call (docs/performance.md).
#include "core/group_view.h"
#include "cuda/cublaslt/arrays.h"
#include "cuda/tile/location.cuh"

namespace mxq::cuda::lt {
namespace {

constexpr int kThreads = 256;

// ---- Arrays ----------------------------------------------------------------------------------------------------------------

struct Fill {
    GroupedCall call;
    GroupArrays to;
};

__device__ float factor(const GemmProblem& p, int64_t index) {
    return multiply_rn(p.alpha, multiply_rn(global_scale(p.a, index), global_scale(p.b, index)));
}

__device__ void write_group(const Fill& args, const Group& group) {
    const GemmProblem& p = args.call.p;
    const GroupEntry at = entry_of_group(args.call, group.first(), group.second(), group.rows);
    const GroupArrays& to = args.to;
    const int64_t g = group.index;
    to.sizes.m[g] = int32_t(at.m);
    to.sizes.n[g] = int32_t(at.n);
    to.sizes.k[g] = int32_t(at.k);
    to.sizes.a_ld[g] = int32_t(p.b.line_bytes * 8 / p.b.bits);
    to.sizes.b_ld[g] = int32_t(p.a.line_bytes * 8 / p.a.bits);
    to.sizes.d_ld[g] = int32_t(p.d.row_stride);
    to.a[g] = at.a;
    to.b[g] = at.b;
    to.a_scales[g] = at.a_scales;
    to.b_scales[g] = at.b_scales;
    to.d[g] = at.d;
    to.alpha[g] = factor(p, g);
    to.alphas[g] = to.alpha + g;
    to.betas[g] = to.beta;
}

__device__ void fill(const Fill& args) {
    const GemmProblem& p = args.call.p;
    if (threadIdx.x == 0) *args.to.beta = p.beta;
    for_each_group({p.groups, p.group_rows}, p.a.units, second_units(args.call),
                [&](const Group& group) { write_group(args, group); });
}

__global__ void fill_factors_kernel(const __grid_constant__ GemmProblem p, float* to) {
    to[0] = factor(p, 0);
    to[1] = p.beta;
}

// ---- Scales ----------------------------------------------------------------------------------------------------------------

constexpr int kThreadColumns = 8, kPackColumns = kThreads / int(kSwizzleRows) * kThreadColumns;

struct Pack {
    GemmOperand operand;
    GroupedRows grouped;
    Grouping grouping;  // of this operand: None for single matrices and experts
    int64_t lines;      // of one matrix, or rows of tiles
    float* to;
    GroupSumUnits units;
    uint32_t row_tiles, matrices, parts;  // blocks: 128 rows of one matrix, every so many columns

    __host__ __device__ uint32_t blocks() const { return row_tiles * matrices * parts; }
};

// Tells a block which row tile, matrix and part it packs.
struct PackBlock {
    uint32_t row_tile, matrix, part;

    __device__ PackBlock(const Pack& args, uint32_t block)
        : row_tile(block % args.row_tiles),
          matrix(block / args.row_tiles % args.matrices),
          part(block / args.row_tiles / args.matrices) {}
};

// Rows of one matrix of scales, and their destination.
struct PackedRows {
    const float* from;
    float* to;
    int64_t first, rows, count;  // `count` of them exist; the rest, up to `rows`, become +0
    int64_t columns, filled;     // columns that exist, and up to which +0 follows
    int64_t line_stride, column_stride;
};

__device__ const float* floats(const GemmOperand& operand) { return reinterpret_cast<const float*>(operand.scales); }

__device__ PackedRows rows_of_matrix(const Pack& args, const PackBlock& block) {
    const ScaleLayout& layout = args.operand.layout;
    const bool tiles = layout.tile_rows != 1;
    const int64_t filled = tiles ? round_up(layout.columns, kPackedColumns) : layout.columns;
    return {floats(args.operand) + block.matrix * layout.matrix_scales, args.to + block.matrix * args.lines * filled,
            int64_t(block.row_tile) * kSwizzleRows, args.lines, args.lines, layout.columns, filled,
            tiles ? filled : 1, tiles ? 1 : args.lines};
}

__device__ PackedRows rows_of_group(const Pack& args, const Group& group, uint32_t row_tile) {
    const ScaleLayout& layout = args.operand.layout;
    const int64_t rows = round_up(int64_t(group.rows), kPackedRows);
    return {floats(args.operand) + group_scale_offset(layout, group.first()), args.to + layout.columns * group.second().scales,
            int64_t(row_tile - group.first_group_tile) * kSwizzleRows, rows, group.rows, layout.columns, layout.columns, 1,
            rows};
}

__device__ PackedRows lines_of_group(const Pack& args, const PackBlock& block) {
    const ScaleLayout& layout = args.operand.layout;
    const Group group = find_group<GroupBy::Index>(args.grouped, args.operand.units, args.operand.units, block.matrix);
    const int64_t columns = ceil_div(group.rows, kBlock128);
    return {floats(args.operand) + group_scale_offset(layout, group.first()),
            args.to + group.first().codes / kBlock128 * args.lines, int64_t(block.row_tile) * kSwizzleRows, args.lines,
            args.lines, columns, columns, 1, args.lines};
}

__device__ void pack(const Pack& args, const PackedRows& rows, uint32_t part) {
    const ScaleLayout& layout = args.operand.layout;
    const int64_t row = rows.first + threadIdx.x % kSwizzleRows;
    if (row >= rows.rows) return;
    const float* const from = rows.from + row * layout.line_stride;
    float* const to = rows.to + row * rows.line_stride;
    const int64_t existing = row < rows.count ? rows.columns : 0;
    int64_t column = int64_t(part) * kPackColumns + threadIdx.x / kSwizzleRows * kThreadColumns;
    for (; column < rows.filled; column += int64_t(args.parts) * kPackColumns) {
        float scales[kThreadColumns];
#pragma unroll
        for (int i = 0; i < kThreadColumns; i++)
            scales[i] = column + i < existing ? from[(column + i) * layout.column_stride] : 0.0f;
#pragma unroll
        for (int i = 0; i < kThreadColumns; i++)
            if (column + i < rows.filled) to[(column + i) * rows.column_stride] = scales[i];
    }
}

// Packs what a block has of single matrices, experts or groups along the contraction.
__device__ void pack(const Pack& args, uint32_t index) {
    const PackBlock block(args, index);
    pack(args, args.grouping == Grouping::None ? rows_of_matrix(args, block) : lines_of_group(args, block), block.part);
}

__global__ void pack_scales_kernel(const __grid_constant__ Pack args) { pack(args, blockIdx.x); }

// ---- Zeros -----------------------------------------------------------------------------------------------------------------

constexpr uint32_t kZeroBlocks = 8;  // of a group, or of 128 of its rows: only those of the last rows have work

// Zeroes `rows` rows of D, which are whole multiples of 16 bytes, from `first` on.
__device__ void zero_rows(const GemmProblem& p, int64_t first, int64_t rows, uint32_t block, uint32_t blocks) {
    const int64_t d_bytes = p.d.element_bytes();
    const int64_t vectors = p.n * d_bytes / 16;
    for (int64_t row = 0; row < rows; row++) {
        uint4* const to = reinterpret_cast<uint4*>(static_cast<uint8_t*>(p.d.data) + (first + row) * p.d.row_stride * d_bytes);
        for (int64_t i = block * kThreads + threadIdx.x; i < vectors; i += blocks * kThreads) to[i] = {0, 0, 0, 0};
    }
}

// Zeroes the padding of D's groups of rows, or D of groups with an empty contraction.
__global__ void zero_rest_kernel(const __grid_constant__ GemmProblem p) {
    const bool by_rows = p.grouping == Grouping::Rows;
    const GroupUnits second = by_rows ? GroupUnits{p.d.group_unit, 1} : p.b.units;
    const Group group = find_group<GroupBy::Index>({p.groups, p.group_rows}, p.a.units, second, blockIdx.x / kZeroBlocks);
    const int64_t first = by_rows ? group.second().codes + group.rows : group.index * p.m;
    const int64_t rows = by_rows ? round_up(group.rows, p.d.group_unit) - group.rows : group.rows == 0 ? p.m : 0;
    zero_rows(p, first, rows, blockIdx.x % kZeroBlocks, kZeroBlocks);
}

// Zeroes the padding of a group of rows where this is its last row tile.
__device__ void zero_padding(const GemmProblem& p, const Group& group, uint32_t row_tile, uint32_t block, uint32_t blocks) {
    const int64_t end = int64_t(row_tile - group.first_group_tile + 1) * kSwizzleRows;
    const int64_t padding = round_up(int64_t(group.rows), p.d.group_unit) - group.rows;
    if (end >= group.rows) zero_rows(p, group.second().codes + group.rows, padding, block, blocks);
}

// ---- All before a grouped product ------------------------------------------------------------------------------------------

struct Prepare {
    Fill fill;
    Pack packs[2];
    bool packs_a, zeroes;  // by row tiles of A
    uint32_t ends[3];      // blocks that fill, which is one, then those of A, then of B
};

// Does all for a row tile of groups of rows: its scales in A, and the padding behind it in D.
__device__ void prepare_slab(const Prepare& args, uint32_t index) {
    __shared__ Group group;
    const Pack& a = args.packs[0];
    const PackBlock block(a, index);
    find_group_tile(a.grouped, a.units, block.row_tile, group);
    if (!group.exists()) return;
    if (args.zeroes) zero_padding(args.fill.call.p, group, block.row_tile, block.part, a.parts);
    if (args.packs_a) pack(a, rows_of_group(a, group, block.row_tile), block.part);
}

__global__ void prepare_groups_kernel(const __grid_constant__ Prepare args) {
    const uint32_t block = blockIdx.x;
    if (block < args.ends[0]) fill(args.fill);
    else if (block >= args.ends[1]) pack(args.packs[1], block - args.ends[1]);
    else if (args.packs[0].grouping == Grouping::Rows) prepare_slab(args, block - args.ends[0]);
    else pack(args.packs[0], block - args.ends[0]);
}

Pack pack_of(const GemmProblem& p, Side side, float* to) {
    const GemmOperand& operand = p.operand(side);
    const GroupedRows grouped{p.groups, p.group_rows};
    const Grouping grouping = p.grouping_of(side);
    Pack args{operand, grouped, grouping, ceil_div(operand.lines, operand.layout.tile_rows), to, {}, 0, 0, 0};
    args.units = group_sum_units(operand.units, {p.d.group_unit, kPackedRows});
    args.row_tiles = uint32_t(grouping == Grouping::Rows ? group_tiles_bound(grouped) : ceil_div(args.lines, kSwizzleRows));
    args.matrices = uint32_t(grouping == Grouping::None ? operand.matrices : grouping == Grouping::Rows ? 1 : p.groups.count);
    // Along the contraction a group has its share of the columns, or more, which its blocks take one after another.
    const int64_t columns = ceil_div(operand.layout.columns, grouping == Grouping::Contraction ? p.groups.count : 1);
    args.parts = uint32_t(min(ceil_div(columns, kPackColumns), int64_t(65535)));
    return args;
}

}  // namespace

void pack_scales(const Context& context, const GemmProblem& p, Side side, float* to, void* stream) {
    const Pack args = pack_of(p, side, to);
    launch(context, pack_scales_kernel, "pack_scales", args.blocks(), kThreads, 0, stream, args);
}

void prepare_groups(const Context& context, const GemmProblem& p, const PackedScales& packed, const Sides& packs,
                    const GroupArrays& to, void* stream) {
    const bool zeroes = p.grouping == Grouping::Rows && p.d.group_unit > 1 && !p.reads_d();
    Prepare args{{{p, packed}, to}, {}, packs.a, zeroes, {}};
    if (packs.a || zeroes) args.packs[0] = pack_of(p, Side::A, const_cast<float*>(packed.a));
    if (!packs.a) args.packs[0].parts = kZeroBlocks;
    if (packs.b) args.packs[1] = pack_of(p, Side::B, const_cast<float*>(packed.b));
    args.ends[0] = 1;
    args.ends[1] = args.ends[0] + args.packs[0].blocks();
    args.ends[2] = args.ends[1] + args.packs[1].blocks();
    launch(context, prepare_groups_kernel, "prepare_groups", args.ends[2], kThreads, 0, stream, args);
}

void fill_factors(const Context& context, const GemmProblem& p, float* to, void* stream) {
    launch(context, fill_factors_kernel, "fill_factors", 1, 1, 0, stream, p, to);
}

void zero_rest(const Context& context, const GemmProblem& p, void* stream) {
    const bool nothing = p.grouping == Grouping::Rows && p.d.group_unit == 1;
    if (nothing || p.reads_d() || p.groups.count == 0) return;
    launch(context, zero_rest_kernel, "zero_rest", uint32_t(p.groups.count) * kZeroBlocks, kThreads, 0, stream, p);
}

void load_arrays(const Context&) {
    load_kernel(prepare_groups_kernel);
    load_kernel(fill_factors_kernel);
    load_kernel(pack_scales_kernel);
    load_kernel(zero_rest_kernel);
}

}  // namespace mxq::cuda::lt
