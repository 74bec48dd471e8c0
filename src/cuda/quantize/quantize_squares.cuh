// The way of quantize_tile for few elements: BF16 to the columnwise part of MXFP8, or to both parts, in 1x32 blocks.
//
// A tile of 128 x 128 is 128 elements a thread, one after another, while most of the chip has no tile. Here a warp takes a
// square of 32 x 32, whole blocks in both directions, by itself:
//
//                  lane 0    lane 1   lane 2   lane 3        a lane holds 4 rows of one 16-byte vector
//     rows 0..3    [vector]  [vector] [vector] [vector]
//     rows 4..7    lane 4    ...                             8 such lanes have the rows of a column, 4 the columns of a row
//
// so that every lane ends up with the maximum of one row and of one column, whose scales it makes. Codes of columns cross
// between the lanes in shared memory, a word of 4 rows each. Short code on purpose: it runs once, and fetching it counts.
#pragma once
#include "cuda/quantize/quantize_tile.cuh"
#include "cuda/tile/source.cuh"

namespace mxq::cuda {

constexpr int kSide32 = int(kMxBlock);
constexpr int kSquareWarps = 4;  // of a block of threads, side by side
constexpr int kSquareThreads = kSquareWarps * 32;
constexpr int kLaneRows = 4;

struct SquareArguments {
    int64_t across, down;  // blocks of threads in a row of squares, rows of squares in a matrix
    bool wide_in, wide[2];
    QuantizeProblem problem;
};

// Tells which accesses of a square a lane makes (Accesses of memory/elements.cuh): access i is a row of its four.
struct SquareLane {
    int row, column;  // in the square
    int rows, columns;  // of the square that exist

    __device__ __forceinline__ bool exists(int i) const { return row + i < rows && column < columns; }
    __device__ __forceinline__ int valid(int i) const {
        return row + i < rows ? min(columns - column, Vector<Bf16>::count) : 0;
    }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const { return (row + i) * stride + column; }
};

// A square in the matrix: its first row and column.
struct SquarePlace {
    int64_t matrix, row, col;
};

// Columns of codes, 32 bytes each, every 8 of them moved so that the lanes of a word meet different banks.
struct SquareColumns {
    alignas(16) uint32_t words[kSide32 * 8 + 4 * 8];

    static __device__ __forceinline__ int line(int column) { return column * 8 + column / 8 * 8; }
};

// Returns the maximum of row threadIdx.x % 4 of the lane's four, as bits.
template <Nonfinite policy>
__device__ __forceinline__ uint32_t row_maximum(const Vector<Bf16> (&vectors)[kLaneRows]) {
    uint32_t pairs[kLaneRows / 2];
#pragma unroll
    for (int i = 0; i < kLaneRows / 2; i++) {
        const uint32_t first = vector_magnitudes<Bf16, policy>(vectors[i]);
        const uint32_t second = vector_magnitudes<Bf16, policy>(vectors[i + 2]);
        pairs[i] = larger<Bf16>(__byte_perm(first, second, 0x5410), __byte_perm(first, second, 0x7632));
    }
    halve_pairs<1, 2>(pairs);
    const uint32_t pair = larger<Bf16>(pairs[0], __shfl_xor_sync(kAllLanes, pairs[0], 2));
    return magnitude_bits<Bf16>(pair, threadIdx.x / 2 % 2);
}

// Returns the maximum of column threadIdx.x / 4 of the lane's eight, as bits, where the columns are in the order of
// column_of_lane.
template <Nonfinite policy>
__device__ __forceinline__ uint32_t column_maximum(const Vector<Bf16> (&vectors)[kLaneRows]) {
    uint32_t words[4] = {};
#pragma unroll
    for (int w = 0; w < 4; w++)
#pragma unroll
        for (int i = 0; i < kLaneRows; i++) words[w] = larger_magnitudes<Bf16, policy>(words[w], vectors[i].words[w]);
    halve_pairs<4, 4>(words);
    halve_pairs<8, 2>(words);
    const uint32_t pair = larger<Bf16>(words[0], __shfl_xor_sync(kAllLanes, words[0], 16));
    return magnitude_bits<Bf16>(pair, threadIdx.x / 16 % 2);
}

// Returns which of its eight columns a lane makes the scale of: bits 2 and 3 of the lane name the word, bit 4 the half.
__device__ __forceinline__ int column_of_lane(int lane) { return lane / 4 % 4 * 2 + lane / 16; }
// Returns the lane / 4 that makes the scale of a column.
__device__ constexpr int lane_of_column(int column) { return column / 2 + column % 2 * 4; }

// Stores the scale of a line, and returns the factor of its codes. Swizzled tiles have scales of what does not exist: zeros,
// since padding quantizes to them.
template <class E>
__device__ __forceinline__ float put_scale(const QuantizeProblem& p, const QuantizedPart& part, int64_t matrix, int64_t line,
                                           int64_t block, uint32_t maximum) {
    uint32_t scale[1] = {maximum};
    scales_of<E>(scale, p.scale_rounding, p.nonfinite);
    const bool stores = part.layout.swizzled ? block < round_up(part.layout.columns, kSwizzleColumns)
                                             : line < part.lines && block < part.layout.columns;
    if (stores) part.scales[part.layout.offset(matrix, line, block)] = uint8_t(scale[0]);
    return scale_reciprocal(scale[0]);
}

template <class E>
__device__ __forceinline__ void emit_rows(const SquareArguments& a, const SquarePlace& place, const SquareLane& lane,
                                          const Vector<Bf16> (&vectors)[kLaneRows], uint32_t maximum) {
    const QuantizedPart& part = a.problem.rowwise;
    const float factor = put_scale<E>(a.problem, part, place.matrix, place.row + lane.row + threadIdx.x % 4,
                                      place.col / kSide32, maximum);
    uint8_t* const to = part.line(place.matrix, place.row) + place.col;
#pragma unroll
    for (int i = 0; i < kLaneRows; i++)
        store_codes(quantize_vector<E>(vectors[i], __shfl_sync(kAllLanes, factor, i, 4)), a.wide[0], to, part.line_bytes, lane,
                    i);
}

// Stores columns of codes from shared memory, by all lanes.
__device__ __forceinline__ void store_square_columns(const SquareColumns& codes, uint8_t* to, int64_t stride, bool wide,
                                                     int columns, int rows) {
    const int lane = threadIdx.x % 32;
    if (wide) {
#pragma unroll
        for (int first = 0; first < 2 * kSide32; first += 32) {
            const int column = (first + lane) / 2, half = lane % 2;
            if (column < columns && half * 16 < rows)
                *reinterpret_cast<uint4*>(to + column * stride + half * 16) =
                    *reinterpret_cast<const uint4*>(&codes.words[codes.line(column) + half * 4]);
        }
        return;
    }
    const int log2_bytes = 32 - __clz(rows - 1);  // lanes of a column, a byte each
#pragma unroll 1
    for (int i = lane; i < columns << log2_bytes; i += 32) {
        const int column = i >> log2_bytes, row = i & ((1 << log2_bytes) - 1);
        const auto* from = reinterpret_cast<const uint8_t*>(&codes.words[codes.line(column)]);
        if (row < rows) to[column * stride + row] = from[row];
    }
}

template <class E>
__device__ __forceinline__ void emit_columns(const SquareArguments& a, const SquarePlace& place, const SquareLane& lane,
                                             const Vector<Bf16> (&vectors)[kLaneRows], uint32_t maximum, SquareColumns& codes) {
    const QuantizedPart& part = a.problem.columnwise;
    const float factor =
        put_scale<E>(a.problem, part, place.matrix, place.col + lane.column + column_of_lane(threadIdx.x % 32),
                     place.row / kSide32, maximum);
#pragma unroll
    for (int c = 0; c < Vector<Bf16>::count; c++) {
        const float of_column = __shfl_sync(kAllLanes, factor, lane_of_column(c) * 4 + threadIdx.x % 4);
        const auto product = [&](int i) { return multiply_rn(vectors[i][c], of_column); };
        codes.words[codes.line(lane.column + c) + lane.row / kLaneRows] =
            encode_pair<E>(product(0), product(1)) | encode_pair<E>(product(2), product(3)) << 16;
    }
    __syncwarp();
    if (lane.rows > 0)
        store_square_columns(codes, part.line(place.matrix, place.col) + place.row, part.line_bytes, a.wide[1], lane.columns,
                             lane.rows);
}

template <class E>
__global__ void __launch_bounds__(kSquareThreads) quantize_squares_kernel(const __grid_constant__ SquareArguments a) {
    __shared__ SquareColumns columns[kSquareWarps];
    const QuantizeProblem& p = a.problem;
    const int warp = threadIdx.x / 32, lane_index = threadIdx.x % 32;
    const uint32_t line = row_of_blocks(), down = uint32_t(a.down), matrix = p.source.matrices == 1 ? 0 : line / down;
    if (matrix >= p.source.matrices) return;
    const SquarePlace place{matrix, int64_t(line - matrix * down) * kSide32,
                            (int64_t(blockIdx.x) * kSquareWarps + warp) * kSide32};
    const PlainMatrix& in = p.source.plain;
    const SquareLane lane{lane_index / 4 * kLaneRows, lane_index % 4 * Vector<Bf16>::count,
                          int(min(max(p.source.rows - place.row, int64_t(0)), int64_t(kSide32))),
                          int(min(max(p.source.cols - place.col, int64_t(0)), int64_t(kSide32)))};
    Vector<Bf16> vectors[kLaneRows];
    load_vectors(vectors, a.wide_in,
                 static_cast<const Bf16*>(in.data) + (matrix * p.source.rows + place.row) * in.row_stride + place.col,
                 in.row_stride, lane);
    const bool saturates = p.nonfinite == Nonfinite::Saturate;
    if (p.has_rowwise)
        emit_rows<E>(a, place, lane, vectors,
                     saturates ? row_maximum<Nonfinite::Saturate>(vectors) : row_maximum<Nonfinite::Propagate>(vectors));
    if (p.has_columnwise)
        emit_columns<E>(a, place, lane, vectors,
                        saturates ? column_maximum<Nonfinite::Saturate>(vectors) : column_maximum<Nonfinite::Propagate>(vectors),
                        columns[warp]);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns how many elements squares take at most: as long as they are faster than tiles. A square stores a scale a byte, which
// is dearest for compact rowwise scales, one of which lies in another sector than the next. H200, in a graph, E4M3, us of tiles
// and of squares (mxq_bench --graph --verb quantize --to mxfp8_e4m3, both libraries in turns, 2026-11-23):
//
//     rows of 7168          1            32           128          512          1024         2048
//     both, compact     14.9  2.7     6.2  3.2     6.5  4.4     8.5  9.1    13.0 17.3    20.6 31.8
//     both, swizzled    14.5  2.7                  6.3  3.7     8.4  6.7
//     columnwise        13.2  2.0     4.6  2.4     4.8  3.0     6.6  5.1     9.2  9.4    14.6 16.8
inline int64_t most_in_squares(const QuantizeProblem& p) {
    const bool compact_rows = p.has_rowwise && !p.rowwise.layout.swizzled;
    return int64_t(1) << (compact_rows ? 21 : 22);
}

inline bool fits_squares(const QuantizeProblem& p) {
    const bool plain = !p.source.is_quantized() && p.source.plain.format == MXQ_FORMAT_BF16 && !p.grouped.set();
    return plain && p.format->is_mx() && p.format->bits == 8 && p.tile.id == MXQ_SCALING_1X32 && p.has_columnwise &&
           p.source.matrices * p.source.rows * p.source.cols <= most_in_squares(p);
}

inline SquareArguments square_arguments(const QuantizeProblem& p) {
    SquareArguments a{ceil_div(p.source.cols, int64_t(kTile)), ceil_div(p.source.rows, int64_t(kSide32)),
                      is_wide_plain(p.source.plain), {}, p};
    if ((p.has_rowwise && p.rowwise.layout.swizzled) || p.columnwise.layout.swizzled) a.down = round_up(a.down, kTileBlocks);
    if (p.has_rowwise) a.wide[0] = is_wide(p.rowwise, Vector<Bf16>::count);
    a.wide[1] = is_aligned(p.columnwise.codes, 16) && p.columnwise.line_bytes % 16 == 0 && p.columnwise.length % 16 == 0;
    return a;
}

}  // namespace mxq::cuda
