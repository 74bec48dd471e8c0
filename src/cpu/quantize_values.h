// Loads patches of fp32 values from a plain tensor or from codes, and transforms them (Hadamard) along rows or down columns.
// Part of kernels.cpp.
//
//     patch      `height` x `pitch` values; zeros where the input has no row or column
#pragma once
#include "cpu/activate_rows.h"
#include "cpu/decode_lines.h"
#include "cpu/kernels.h"
#include "cpu/moves.h"
#include "numerics/convert.h"

namespace mxq::cpu {
namespace {

template <class T>
MXQ_HD const T* input_line(const PlainMatrix& in, int64_t matrix, int64_t row, int64_t col) {
    return reinterpret_cast<const T*>(expert_data(in, matrix)) + row * in.row_stride + col;
}

// Returns how many rows of the patch lie within the first `rows` of the matrix.
MXQ_HD int64_t rows_within(int64_t rows, const Rectangle& patch) {
    const int64_t left = rows - patch.row;
    return left < 0 ? 0 : least(left, patch.rows);
}

// Prefetches the row that the next patch has in the same place, unless it is beyond the rectangle. The hardware's prefetcher
// sees no stream in rows that lie far apart.
template <class T>
MXQ_HD void prefetch_next(const PlainMatrix& in, const Rectangle& patch, int64_t row, int64_t height) {
    const int64_t at = patch.row + row, next = at + height;
    if (next < in.rows && next / kSwizzleRows == at / kSwizzleRows)
        prefetch(input_line<T>(in, patch.matrix, next, patch.col), patch.cols * int64_t(sizeof(T)));
}

// Clears what a patch of rows x cols is filled up with to height x pitch.
MXQ_HD void clear_beyond(int64_t rows, int64_t cols, int64_t height, int64_t pitch, float* values) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = cols; i < pitch; i++) values[row * pitch + i] = 0;
    for (int64_t i = rows * pitch; i < height * pitch; i++) values[i] = 0;
}

// Calls load(row, to) for each row of a patch that the source has, and clears what the patch is filled up with.
template <class Load>
MXQ_HD void load_rows(const QuantizeProblem& problem, const Rectangle& patch, int64_t height, int64_t pitch, float* values,
                      const Load& load) {
    const int64_t rows = rows_within(problem.source.rows, patch);
    for (int64_t row = 0; row < rows; row++) load(row, values + row * pitch);
    clear_beyond(rows, patch.cols, height, pitch, values);
}

template <class T>
void load_values(const QuantizeProblem& problem, const Rectangle& patch, int64_t height, int64_t pitch, float* values) {
    load_rows(problem, patch, height, pitch, values, [&](int64_t row, float* to) {
        prefetch_next<T>(problem.source.plain, patch, row, height);
        load_row(input_line<T>(problem.source.plain, patch.matrix, patch.row + row, patch.col), patch.cols, to);
    });
}

template <class T>
void load_activated(const QuantizeProblem& problem, const Rectangle& patch, int64_t height, int64_t pitch, float* values) {
    const ActivatedMatrix& from = problem.source.activated;
    load_rows(problem, patch, height, pitch, values, [&](int64_t row, float* to) {
        activate_row(from, input_line<T>(from.in, patch.matrix, patch.row + row, 0), patch.matrix, patch.row + row,
                     patch.col, patch.cols, to);
    });
}

template <class T>
void load_gradients(const QuantizeProblem& problem, const Rectangle& patch, int64_t height, int64_t pitch, float* values) {
    const ActivationGradient& gradient = problem.source.gradient;
    load_rows(problem, patch, height, pitch, values, [&](int64_t row, float* to) {
        differentiate_row(gradient, input_line<T>(gradient.from.in, patch.matrix, patch.row + row, 0),
                          element_address(gradient.result, patch.matrix, patch.row + row, 0), patch.matrix, patch.row + row,
                          patch.col, patch.cols, to);
    });
}

void decode_rowwise(const QuantizeProblem& problem, const Rectangle& patch, int64_t height, int64_t pitch, float* values) {
    const LineDecoder decode(problem.source.quantized);
    load_rows(problem, patch, height, pitch, values,
              [&](int64_t row, float* to) { decode(patch.matrix, patch.row + row, patch.col, patch.cols, to); });
}

// Decodes a patch of a columnwise part, whose K-major rows are columns of the patch. It has at most kTile rows.
void decode_columnwise(const QuantizeProblem& problem, const Rectangle& patch, int64_t height, int64_t pitch, float* values) {
    constexpr int64_t width = 16;
    const LineDecoder decode(problem.source.quantized);
    const int64_t rows = rows_within(problem.source.rows, patch);
    alignas(64) float lines[width][kTile];
    for (int64_t col = 0; rows > 0 && col < patch.cols; col += width) {
        const int64_t count = least(width, patch.cols - col);
        for (int64_t i = 0; i < count; i++) decode(patch.matrix, patch.col + col + i, patch.row, rows, lines[i]);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < count; i++) values[row * pitch + col + i] = lines[i][row];
    }
    clear_beyond(rows, patch.cols, height, pitch, values);
}

using LoadValues = decltype(&decode_rowwise);

inline LoadValues loader_of(const QuantizeProblem& problem) {
    if (problem.source.is_quantized()) return problem.source.quantized.columnwise ? decode_columnwise : decode_rowwise;
    if (problem.source.is_gradient())
        return with_plain(problem.source.gradient.from.in.format, []<class T>(T) -> LoadValues { return load_gradients<T>; });
    if (problem.source.is_activated())
        return with_plain(problem.source.activated.in.format, []<class T>(T) -> LoadValues { return load_activated<T>; });
    return with_plain(problem.source.plain.format, []<class T>(T) -> LoadValues { return load_values<T>; });
}

// ---- Hadamard transform ---------------------------------------------------------------------------------------------

// The transform of numerics/hadamard.h, eight elements or columns at once. Lanes are passed by reference, because values of
// this type change the calling convention where there is no AVX.
typedef float Lanes __attribute__((vector_size(32)));
typedef uint32_t LaneBits __attribute__((vector_size(32)));
typedef LaneBits StoredLanes __attribute__((aligned(4), may_alias));

MXQ_HD void load_lanes(const float* from, const LaneBits& signs, Lanes& to) {
    to = Lanes(*reinterpret_cast<const StoredLanes*>(from) ^ signs);
}
MXQ_HD void store_lanes(const Lanes& lanes, float* to) { *reinterpret_cast<StoredLanes*>(to) = LaneBits(lanes); }

// Applies the butterflies of distance 1, 2 and 4 within eight lanes: each lane becomes its partner plus itself, itself being
// negated in the upper lane of a pair.
MXQ_HD void inner_butterflies(Lanes& v) {
    constexpr uint32_t n = 1u << 31;
    constexpr LaneBits signs[] = {{0, n, 0, n, 0, n, 0, n}, {0, 0, n, n, 0, 0, n, n}, {0, 0, 0, 0, n, n, n, n}};
    v = __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6) + Lanes(LaneBits(v) ^ signs[0]);
    v = __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5) + Lanes(LaneBits(v) ^ signs[1]);
    v = __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3) + Lanes(LaneBits(v) ^ signs[2]);
}

// Transforms every sixteen neighbours.
void transform_rows(int64_t count, uint32_t mask, float* values) {
    LaneBits signs[2];
    for (int i = 0; i < 16; i++) signs[i / 8][i % 8] = (mask >> i & 1) << 31;
    for (float* v = values; v < values + count; v += 16) {
        Lanes low, high;
        load_lanes(v, signs[0], low);
        load_lanes(v + 8, signs[1], high);
        inner_butterflies(low);
        inner_butterflies(high);
        store_lanes((low + high) * 0.25f, v);
        store_lanes((low - high) * 0.25f, v + 8);
    }
}

// Applies two stages, of `distance` and of twice that, to four rows of eight lanes. More rows would not stay in registers.
MXQ_HD void two_stages(float* first, int64_t distance, const uint32_t (&signs)[4], float factor) {
    Lanes v[4];
    for (int i = 0; i < 4; i++) load_lanes(first + i * distance, LaneBits{} + signs[i], v[i]);
    const Lanes a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
    store_lanes((a + c) * factor, first);
    store_lanes((b + d) * factor, first + distance);
    store_lanes((a - c) * factor, first + 2 * distance);
    store_lanes((b - d) * factor, first + 3 * distance);
}

// Transforms every sixteen rows of each column. `rows` is a multiple of sixteen.
void transform_columns(int64_t rows, int64_t pitch, uint32_t mask, float* values) {
    for (float* first = values; first < values + rows * pitch; first += 16 * pitch) {
        for (int row = 0; row < 16; row += 4) {
            uint32_t signs[4];
            for (int i = 0; i < 4; i++) signs[i] = (mask >> (row + i) & 1) << 31;
            for (int64_t col = 0; col < pitch; col += 8) two_stages(first + row * pitch + col, pitch, signs, 1.0f);
        }
        for (int row = 0; row < 4; row++)
            for (int64_t col = 0; col < pitch; col += 8) two_stages(first + row * pitch + col, 4 * pitch, {0, 0, 0, 0}, 0.25f);
    }
}

}  // namespace
}  // namespace mxq::cpu
