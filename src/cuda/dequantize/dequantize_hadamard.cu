// dequantize_hadamard: a part with a Hadamard transform, which it undoes, to F32, F16 or BF16. NVFP4 in 1x16 and MXFP4 in
// blocks of one row; rowwise or columnwise, compact or swizzled scales, experts, groups.
//
// A thread block takes a tile of 128 rows x 32 columns. A thread holds one chunk of 16 neighbours along K as fp32, the unit
// of a transform:
//
//     rowwise      thread t: 16 elements of row t / 2, written as 32 or 64 contiguous bytes
//     columnwise   lane: a column, warp: 16 rows; a warp writes 64 or 128 contiguous bytes of one row after another
//
// With groups, a tile has rows of one group. The last chunk of a columnwise group may include padding, for which every
// alignment has room. Rows that pad the output are +0.
//
// Bytes an element: 0.53 or 0.56 read, 2 or 4 written, with about 10 instructions. This simple kernel has not been tuned.
#include "cuda/dequantize/dequantize.cuh"
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "numerics/hadamard.h"

namespace mxq::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 16;
constexpr int kRows = 128, kColumns = 32;  // of a tile

struct Arguments {
    DequantizeProblem problem;
    uint32_t tiles, matrix_tiles;  // of rows: all (with groups an upper bound), and of a matrix
    bool whole_words_in;           // chunks of codes are read in words
    bool whole_vectors_out;        // every row of the output is written in whole vectors
    GroupSumUnits units;
};

// The work of a thread block: an expert or a group, and the first row of the tile there.
struct TileRow {
    DequantizeScope scope;
    ScaleLayout layout;
    int32_t row;
};

// Finds the row of tiles of the thread block; false: there is none. All threads of the block call it.
__device__ __forceinline__ bool find_row(const Arguments& a, int64_t element_bytes, TileRow& tile) {
    __shared__ Group group;
    const DequantizeProblem& p = a.problem;
    const bool grouped = p.grouped.groups.set;
    if (!find_scope(a, grouped, row_of_blocks(), element_bytes, group, tile.scope, tile.row)) return false;
    tile.layout = grouped ? group_layout(p.in, group.rows) : p.in.layout;
    return true;
}

// Decodes the chunk at `position` of a K-major row, and undoes its transform.
__device__ __forceinline__ void load_chunk(const Arguments& a, const TileRow& tile, int64_t line, int64_t position,
                                           float (&values)[kChunk]) {
    const QuantizedPart& in = a.problem.in;
    const uint8_t* const codes = tile.scope.codes + line * in.line_bytes;
    const int64_t at = tile.layout.offset(0, line, uint32_t(position) / uint32_t(tile.layout.block));
    const float scale = load_scale<E2M1>(tile.scope.scales, in.scale_type, at);
#pragma unroll
    for (int half = 0; half < kChunk; half += 8) {
        const Packed<4, 8> packed = a.whole_words_in ? load_packed_wide<4, 8>(codes, position + half)
                                                     : load_packed_narrow<4, 8>(codes, position + half, 8);
        const Codes<8> bytes = unpack(packed);
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            const uint32_t pair = bytes.words[i / 4] >> (i % 4 * 8) & 0xFFFF;
            const float2 two = decode_scaled_pair<E2M1>(pair, scale, scale, tile.scope.global);
            values[half + i] = two.x;
            values[half + i + 1] = two.y;
        }
    }
    undo_hadamard_16(values, in.hadamard_mask);
}

template <class T>
__device__ __forceinline__ void store_row(const float (&values)[kChunk], bool whole_vectors, T* to) {
    if (whole_vectors) return store_values(values, to);
#pragma unroll
    for (int i = 0; i < kChunk; i++) to[i] = from_float<T>(values[i]);
}

template <class T>
__global__ void __launch_bounds__(kThreads) dequantize_hadamard_rowwise_kernel(const __grid_constant__ Arguments a) {
    TileRow tile;
    if (!find_row(a, sizeof(T), tile)) return;
    constexpr int chunks = kColumns / kChunk;
    const int row = tile.row + int(threadIdx.x) / chunks;
    const int64_t col = int64_t(blockIdx.x) * kColumns + threadIdx.x % chunks * kChunk;
    if (row >= tile.scope.out_rows || col >= a.problem.out.cols) return;
    float values[kChunk] = {};
    if (row < tile.scope.rows) load_chunk(a, tile, row, col, values);
    store_row(values, a.whole_vectors_out, reinterpret_cast<T*>(tile.scope.out) + row * a.problem.out.row_stride + col);
}

template <class T>
__global__ void __launch_bounds__(kThreads) dequantize_hadamard_columnwise_kernel(const __grid_constant__ Arguments a) {
    TileRow tile;
    if (!find_row(a, sizeof(T), tile)) return;
    const int row = tile.row + int(threadIdx.x) / kColumns * kChunk;
    const int64_t col = int64_t(blockIdx.x) * kColumns + threadIdx.x % kColumns, stride = a.problem.out.row_stride;
    if (row >= tile.scope.out_rows || col >= a.problem.out.cols) return;
    float values[kChunk] = {};
    if (row < tile.scope.rows) load_chunk(a, tile, col, row, values);
    T* const to = reinterpret_cast<T*>(tile.scope.out) + row * stride + col;
#pragma unroll
    for (int i = 0; i < kChunk; i++)
        if (row + i < tile.scope.out_rows) to[i * stride] = from_float<T>(row + i < tile.scope.rows ? values[i] : 0.0f);
}

static_assert(kThreads == kRows * kColumns / kChunk);

// The second value: the part is columnwise.
constexpr auto kernels = kernels_of(
    []<class T>(T, auto columnwise) {
        return kernel(columnwise.value ? dequantize_hadamard_columnwise_kernel<T> : dequantize_hadamard_rowwise_kernel<T>,
                      kThreads);
    },
    PlainTypes{}, Values<false, true>{});

Reason declines(const Context& context, const DequantizeProblem& problem) {
    if (!problem.in.transformed) return "needs a Hadamard transform to undo, found none";
    return needs_cuda(context);
}

void run(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    const PlainMatrix& out = problem.out;
    Arguments a{};
    a.problem = problem;
    a.matrix_tiles = uint32_t(ceil_div(out.rows, int64_t(kRows)));
    a.tiles = uint32_t(problem.grouped.set() ? group_tiles_bound(problem.grouped, kRows) : out.matrices * a.matrix_tiles);
    a.whole_words_in = is_word_wise(problem.in);
    a.whole_vectors_out = is_wide(out);
    a.units = group_sum_units(problem.in.units, {out.group_unit, 1});
    launch(context, kernels, {out.format, problem.columnwise}, "dequantize_hadamard",
           grid_of_rows(ceil_div(out.cols, int64_t(kColumns)), a.tiles), call.stream, a);
}

}  // namespace

const DequantizeImplementation dequantize_hadamard = {"dequantize_hadamard", declines, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
