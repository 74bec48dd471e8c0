// The rowwise part of 8 bits alone from BF16, in squares of 32x32 or 128x128 that share a scale, as quantize_rowwise streams
// it: aligned lines, without groups. A block of threads takes a row of squares, 256 columns wide, whose rows it reads and
// writes as whole lines; nothing waits for more than the rows of its squares:
//
//             lanes 0 .. 31, a vector each      squares of 32: 8 warps of 4 rows. Of 128: 16 warps of 8
//     warp 0  [row 0      256 columns ]
//             [row 1                  ]
//     warp 1  [row 4                  ]         the lanes of a square meet by shuffles, the warps in shared memory
//
// Bytes an element: 2 read, 1 written; bound by memory.
#pragma once
#include "cuda/memory/codes.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/magnitudes.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/types.cuh"
#include "dispatch/implementation.h"
#include "numerics/fp8_scale.h"

namespace mxq::cuda::rowwise_squares {

constexpr int kCount = Vector<Bf16>::count, kColumns = 32 * kCount;

struct Arguments {
    const Bf16* in;
    int64_t row_stride, line_bytes;
    uint8_t *codes, *scales;
    ScaleLayout layout;
    uint32_t matrices, rows, cols, down;  // rows of squares in a matrix
    ScaleRounding scale_rounding;
    Nonfinite nonfinite;
    bool is_float;  // scales are fp32
    bool power_of_two;
    float epsilon;
    float* amax;
};

// A shape of squares: of `warps` x `warp_rows` rows.
template <int warps, int warp_rows_>
struct Squares {
    static constexpr int threads = warps * 32, warp_rows = warp_rows_, side = warps * warp_rows;
    static constexpr int lanes = side / kCount, in_block = kColumns / side;
};

// Returns the largest magnitude of a lane's vectors as bits of an fp32 value.
template <Nonfinite policy, int n>
__device__ __forceinline__ uint32_t lane_maximum(const Vector<Bf16> (&vectors)[n]) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < n; i++) largest = vector_magnitudes<Bf16, policy>(vectors[i], largest);
    return largest_bits<Bf16>(largest);
}

// Stores fp32 scales of a row of squares by the first lanes of a warp, and what fills up the last line of them.
template <class S>
__device__ __forceinline__ void store_floats(const Arguments& a, int64_t at, int64_t column, float scale, uint32_t maximum) {
    auto* const scales = reinterpret_cast<float*>(a.scales);
    scales[at] = scale;
    if (a.amax) a.amax[at] = bits_float(maximum);
    const int64_t behind = column + 1 == a.layout.columns ? a.layout.line_stride - a.layout.columns : 0;
    for (int64_t i = 1; i <= behind; i++) {
        scales[at + i] = 0;
        if (a.amax) a.amax[at + i] = 0;
    }
}

// Stores scale bytes in 128 x 4 tiles: those of the warp's rows, the words of a row by lanes 0 .. and 16 .. of the warp.
template <class S>
__device__ __forceinline__ void store_swizzled(const Arguments& a, uint32_t matrix, int64_t row, uint32_t scale) {
    const int lane = threadIdx.x % 32, tile = lane / 16;
    const int64_t column = (int64_t(blockIdx.x) * 2 + tile) * kSwizzleColumns;
    uint32_t word = scale * 0x01010101u;
    if constexpr (S::side == kMxBlock) {
        word = scale << (lane / 4 % 4 * 8);
        word |= __shfl_xor_sync(kAllLanes, word, 4);
        word |= __shfl_xor_sync(kAllLanes, word, 8);
    }
    if (lane % 16 >= S::warp_rows || column >= a.layout.columns) return;
    const int left = int(min(a.layout.columns - column, kSwizzleColumns));
    if (row + lane % 16 >= a.rows) word = 0;
    store_shared_scale_word(a.scales + a.layout.offset(matrix, row + lane % 16, column), word & (~0u >> (32 - 8 * left)),
                            kSwizzleColumns);
}

// Makes the scale of the lane's square and stores it. Returns what elements are multiplied by.
template <class E, class S>
__device__ __forceinline__ float put_scale(const Arguments& a, uint32_t matrix, int64_t row, uint32_t maximum) {
    const int lane = threadIdx.x % 32;
    const int64_t column = int64_t(blockIdx.x) * S::in_block + lane / S::lanes;
    const bool stores =
        threadIdx.x < 32 && lane % S::lanes == 0 && column < ceil_div(int64_t(a.cols), S::side) && row < a.rows;
    if (a.is_float) {
        const float factor = fp8_quantization_scale(bits_float(maximum), {E::max, a.epsilon, a.power_of_two});
        if (stores) store_floats<S>(a, a.layout.offset(matrix, row, column), column, fp8_stored_scale(factor), maximum);
        return factor;
    }
    uint32_t scale[1] = {maximum};
    scales_of<E>(scale, a.scale_rounding, a.nonfinite);
    if (a.layout.swizzled)
        store_swizzled<S>(a, matrix, row, scale[0]);
    else if (stores)
        store_kept(a.scales + a.layout.offset(matrix, row, column), uint8_t(scale[0]));
    return scale_reciprocal(scale[0]);
}

template <class E, class S>
__global__ void __launch_bounds__(S::threads, 1280 / S::threads)
    quantize_rowwise_squares_kernel(const __grid_constant__ Arguments a) {
    __shared__ uint32_t maxima[S::in_block];
    const uint32_t line = row_of_blocks(), matrix = a.matrices == 1 ? 0 : line / a.down;
    if (matrix >= a.matrices || line >= a.matrices * a.down) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t row = (line - matrix * a.down) * S::side + warp * S::warp_rows;
    const uint32_t column = blockIdx.x * kColumns + lane * kCount;
    const int existing = column < a.cols ? int(a.rows) - int(row) : 0;
    const int64_t source = int64_t(matrix) * a.rows + row;
    Vector<Bf16> vectors[S::warp_rows];
#pragma unroll
    for (int i = 0; i < S::warp_rows; i++)
        vectors[i] = load_vector_wide(a.in + (source + i) * a.row_stride + column, i < existing);
    if (threadIdx.x < S::in_block) maxima[threadIdx.x] = 0;
    __syncthreads();
    uint32_t largest = a.nonfinite == Nonfinite::Saturate ? lane_maximum<Nonfinite::Saturate>(vectors)
                                                          : lane_maximum<Nonfinite::Propagate>(vectors);
#pragma unroll
    for (int distance = 1; distance < S::lanes; distance *= 2)
        largest = max(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    if (lane % S::lanes == 0) atomicMax(&maxima[lane / S::lanes], largest);
    __syncthreads();
    const float factor = put_scale<E, S>(a, matrix, row, maxima[lane / S::lanes]);
    uint8_t* const codes = a.codes + source * a.line_bytes + column;
#pragma unroll
    for (int i = 0; i < S::warp_rows; i++) {
        const Codes<kCount> of_row = quantize_vector<E>(vectors[i], factor);
        if (i < existing) *reinterpret_cast<uint2*>(codes + i * a.line_bytes) = {of_row.words[0], of_row.words[1]};
    }
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns why squares of codes of 8 bits are left to others.
inline Reason declines(const QuantizeProblem& problem) {
    if (problem.source.plain.format != MXQ_FORMAT_BF16)
        return
            [format = problem.source.plain.format] { return std::string("needs bf16, found ") + find_format(format)->name; };
    if (problem.grouped.set()) return "needs no groups, since their squares begin anywhere";
    if (!is_wide<Bf16>(problem.source.plain) || !is_wide(problem.rowwise, kCount))
        return "needs aligned lines, found others";
    return "";
}

inline Arguments arguments(const QuantizeProblem& problem) {
    const PlainMatrix& in = problem.source.plain;
    const QuantizedPart& out = problem.rowwise;
    const bool is_float = problem.format->is_fp8();
    const int64_t rows = out.layout.swizzled ? round_up(in.rows, kSwizzleRows) : in.rows;
    return {static_cast<const Bf16*>(in.data),
            in.row_stride,
            out.line_bytes,
            out.codes,
            out.scales,
            out.layout,
            uint32_t(in.matrices),
            uint32_t(in.rows),
            uint32_t(in.cols),
            uint32_t(ceil_div(rows, int64_t(problem.tile.length))),
            problem.scale_rounding,
            is_float ? Nonfinite::Saturate : problem.nonfinite,
            is_float,
            problem.power_of_two,
            problem.epsilon,
            is_float ? out.amax : nullptr};
}

}  // namespace mxq::cuda::rowwise_squares
