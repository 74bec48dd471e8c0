// The small kernels around a call of cuBLASLt: see cublaslt_arrays.h. None of them reads or writes codes.
//
//     fill_groups   one block walks the ends: a thread per group writes its sizes and pointers
//     pack_scales   128 lines and 16 columns a block, thread t: eight columns of line t % 128, all read before one is written
//     zero_rest     a block row per group: 16 bytes a thread
#include "cuda/cublaslt_arrays.h"
#include "cuda/mma_tile.cuh"
#include "cuda/tile_places.cuh"

namespace mxq::cuda::lt {
namespace {

constexpr int kThreads = 256;

// ---- Arrays ----------------------------------------------------------------------------------------------------------------

struct Fill {
    GroupedCall call;
    GroupArrays to;
};

__device__ float factor(const GemmProblem& p, int64_t index) {
    return multiply_rn(p.alpha, multiply_rn(mma::global_scale(p.a, index), mma::global_scale(p.b, index)));
}

__device__ void write_group(const Fill& args, const Group& group) {
    const GemmProblem& p = args.call.p;
    const Places at = places_of_group(args.call, group.first, group.second, group.rows);
    const GroupArrays& to = args.to;
    const int64_t g = group.first.index;
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
}

__global__ void fill_groups_kernel(const __grid_constant__ Fill args) {
    const GemmProblem& p = args.call.p;
    if (threadIdx.x == 0) *args.to.beta = p.beta;
    walk_groups({p.groups, p.group_rows}, p.a.units, second_units(args.call),
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
};

// Some rows of one matrix of scales, and where they go.
struct PackedRows {
    const float* from;
    float* to;
    int64_t first, rows, count;  // `count` of them exist; the rest, up to `rows`, become +0
    int64_t columns, filled;     // columns that exist, and up to which +0 follows
    int64_t line_stride, column_stride;
};

__device__ const float* floats(const GemmOperand& operand) { return reinterpret_cast<const float*>(operand.scales); }

__device__ PackedRows rows_of_matrix(const Pack& args) {
    const ScaleLayout& layout = args.operand.layout;
    const bool tiles = layout.tile_rows != 1;
    const int64_t filled = tiles ? round_up(layout.columns, kPackedColumns) : layout.columns;
    return {floats(args.operand) + blockIdx.y * layout.matrix_scales, args.to + blockIdx.y * args.lines * filled,
            int64_t(blockIdx.x) * kSwizzleRows, args.lines, args.lines, layout.columns, filled,
            tiles ? filled : 1, tiles ? 1 : args.lines};
}

__device__ bool rows_of_group(const Pack& args, PackedRows& out) {
    __shared__ TileGroup group;
    const ScaleLayout& layout = args.operand.layout;
    if (threadIdx.x < 32) find_slab(args.grouped, args.units, blockIdx.x, group);
    __syncthreads();
    if (group.index < 0) return false;
    const GroupStart first{group.index, 0, group.starts[kSourceCodes], group.starts[kSourceScales]};
    const int64_t rows = round_up(int64_t(group.rows), kPackedRows);
    out = {floats(args.operand) + group_scale_offset(layout, first), args.to + layout.columns * group.starts[kRowwiseScales],
           int64_t(blockIdx.x - group.first_slab) * kSwizzleRows, rows, group.rows, layout.columns, layout.columns, 1, rows};
    return true;
}

__device__ PackedRows lines_of_group(const Pack& args) {
    const ScaleLayout& layout = args.operand.layout;
    const Group group = group_of_index(args.grouped, args.operand.units, args.operand.units, blockIdx.y);
    const int64_t columns = ceil_div(group.rows, kWideBlock);
    return {floats(args.operand) + group_scale_offset(layout, group.first),
            args.to + group.first.codes / kWideBlock * args.lines, int64_t(blockIdx.x) * kSwizzleRows, args.lines, args.lines,
            columns, columns, 1, args.lines};
}

__global__ void pack_scales_kernel(const __grid_constant__ Pack args) {
    PackedRows rows;
    if (args.grouping == Grouping::None) rows = rows_of_matrix(args);
    else if (args.grouping == Grouping::Contraction) rows = lines_of_group(args);
    else if (!rows_of_group(args, rows)) return;
    const ScaleLayout& layout = args.operand.layout;
    const int64_t row = rows.first + threadIdx.x % kSwizzleRows;
    if (row >= rows.rows) return;
    const float* const from = rows.from + row * layout.line_stride;
    float* const to = rows.to + row * rows.line_stride;
    const int64_t existing = row < rows.count ? rows.columns : 0;
    int64_t column = int64_t(blockIdx.z) * kPackColumns + threadIdx.x / kSwizzleRows * kThreadColumns;
    for (; column < rows.filled; column += int64_t(gridDim.z) * kPackColumns) {
        float scales[kThreadColumns];
#pragma unroll
        for (int i = 0; i < kThreadColumns; i++)
            scales[i] = column + i < existing ? from[(column + i) * layout.column_stride] : 0.0f;
#pragma unroll
        for (int i = 0; i < kThreadColumns; i++)
            if (column + i < rows.filled) to[(column + i) * rows.column_stride] = scales[i];
    }
}

// ---- Zeros -----------------------------------------------------------------------------------------------------------------

struct Zero {
    GemmProblem p;
    int32_t d_bytes;
};

// Rows of D are whole multiples of 16 bytes.
__global__ void zero_rest_kernel(const __grid_constant__ Zero args) {
    const GemmProblem& p = args.p;
    const bool by_rows = p.grouping == Grouping::Rows;
    const GroupUnits second = by_rows ? GroupUnits{p.d.group_unit, 1} : p.b.units;
    const Group group = group_of_index({p.groups, p.group_rows}, p.a.units, second, blockIdx.x);
    const int64_t first = by_rows ? group.second.codes + group.rows : group.first.index * p.m;
    const int64_t rows = by_rows ? round_up(group.rows, p.d.group_unit) - group.rows : group.rows == 0 ? p.m : 0;
    const int64_t pieces = p.n * args.d_bytes / 16;
    for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < rows * pieces; i += int64_t(gridDim.y) * kThreads) {
        uint8_t* const row = static_cast<uint8_t*>(p.d.data) + (first + i / pieces) * p.d.row_stride * args.d_bytes;
        reinterpret_cast<uint4*>(row)[i % pieces] = {0, 0, 0, 0};
    }
}

int32_t d_bytes(const GemmProblem& p) { return p.d.format == MXQ_FORMAT_F32 ? 4 : 2; }

Grouping grouping_of(const GemmProblem& p, const GemmOperand& operand) {
    return p.grouping == Grouping::Rows && &operand != &p.a ? Grouping::None : p.grouping;
}

}  // namespace

void pack_scales(const Context& context, const GemmProblem& p, const GemmOperand& operand, float* to, void* stream) {
    const GroupedRows grouped{p.groups, p.group_rows};
    const Grouping grouping = grouping_of(p, operand);
    Pack args{operand, grouped, grouping, ceil_div(operand.lines, operand.layout.tile_rows), to, {}};
    for (uint32_t& unit : args.units.at) unit = 1;
    args.units.at[kSourceCodes] = uint32_t(operand.units.codes);
    args.units.at[kSourceScales] = uint32_t(operand.units.scales);
    args.units.at[kRowwiseScales] = kPackedRows;
    const int64_t slabs = grouping == Grouping::Rows ? slabs_bound(grouped) : ceil_div(args.lines, kSwizzleRows);
    const int64_t matrices = grouping == Grouping::None ? operand.matrices : grouping == Grouping::Rows ? 1 : p.groups.count;
    const int64_t parts = min(ceil_div(operand.layout.columns, kPackColumns), int64_t(65535));
    launch(context, pack_scales_kernel, "pack_scales", dim3(uint32_t(slabs), uint32_t(matrices), uint32_t(parts)), kThreads, 0,
           stream, args);
}

void fill_group_arrays(const Context& context, const GemmProblem& p, const PackedScales& packed, const GroupArrays& to,
                       void* stream) {
    const Fill args{{p, packed, d_bytes(p)}, to};
    launch(context, fill_groups_kernel, "fill_groups", 1, kThreads, 0, stream, args);
}

void fill_factors(const Context& context, const GemmProblem& p, float* to, void* stream) {
    launch(context, fill_factors_kernel, "fill_factors", 1, 1, 0, stream, p, to);
}

void zero_rest(const Context& context, const GemmProblem& p, void* stream) {
    const bool by_rows = p.grouping == Grouping::Rows;
    if (p.reads_d() || p.groups.count == 0 || (by_rows && p.d.group_unit == 1)) return;
    const Zero args{p, d_bytes(p)};
    constexpr uint32_t kBlocksOfGroup = 8;
    launch(context, zero_rest_kernel, "zero_rest", dim3(uint32_t(p.groups.count), kBlocksOfGroup), kThreads, 0, stream, args);
}

}  // namespace mxq::cuda::lt

namespace mxq::cuda {

void load_cublaslt_arrays() {
    load_kernel(reinterpret_cast<const void*>(lt::fill_groups_kernel), 0);
    load_kernel(reinterpret_cast<const void*>(lt::fill_factors_kernel), 0);
    load_kernel(reinterpret_cast<const void*>(lt::pack_scales_kernel), 0);
    load_kernel(reinterpret_cast<const void*>(lt::zero_rest_kernel), 0);
}

}  // namespace mxq::cuda
