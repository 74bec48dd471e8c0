// Dequantize of parts with a Hadamard transform, which it undoes. Part of kernels.cpp.
//
//     rowwise      codes of a row of up to 1024 columns -- decode --> fp32 -- undo --> values --> the row of the output
//     columnwise   16 codes of each of 128 columns ------- decode --> fp32 -- undo --> columns of 16 values
//                                                                                          |
//                                                                                          +--> 16 rows of the output
//
// The last 16 codes of a columnwise group may reach into its padding, which every alignment has room for.
#pragma once
#include "cpu/dequantize_kernels.h"
#include "cpu/quantize_values.h"

namespace mxq::cpu {
namespace {

// Undoes the transform of every sixteen neighbours: the same steps as transform_rows, with the signs last.
void undo_transform(int64_t count, uint32_t mask, float* values) {
    transform_rows(count, 0, values);
    uint32_t signs[kSixteen];
    for (int i = 0; i < kSixteen; i++) signs[i] = (mask >> i & 1) << 31;
    for (int64_t i = 0; i < count; i++) values[i] = bits_float(float_bits(values[i]) ^ signs[i % kSixteen]);
}

// Dequantizes rectangles of one problem whose part is transformed.
struct TransformUndoer {
    const DequantizeProblem& problem;
    const LineDecoder decode;
    const decltype(&convert_values<float>) convert;
    const bool stream;

    alignas(64) float values[kTile * kSixteen];  // a row, or sixteen values of each column of a tile
    alignas(64) float row[kTile] = {};
    alignas(64) uint8_t out[kPatchCols * sizeof(float)];

    TransformUndoer(const DequantizeProblem& problem, bool stream)
        : problem(problem),
          decode(problem.in),
          convert(with_plain(problem.out.format, []<class T>(T) { return &convert_values<T>; })),
          stream(stream) {
        static_assert(kPatchCols <= kTile * kSixteen);
    }

    // Decodes codes [first, first + count) of a K-major row, and undoes their transform.
    void decode_line(int64_t matrix, int64_t line, int64_t first, int64_t count, float* to) const {
        decode(matrix, line, first, count, to);
        undo_transform(count, problem.in.hadamard_mask, to);
    }

    // Stores `count` values of a row, which has room for whole sixteens.
    void store(int64_t matrix, int64_t to_row, int64_t col, int64_t count, const float* from) {
        convert(from, count, out);
        store_line(element_address(problem.out, matrix, to_row, col), out, count * problem.out.element_bytes(), stream);
    }

    void rows(const Rectangle& region) {
        for (int64_t at = region.row; at < region.row + region.rows; at++)
            for (int64_t col = region.col; col < region.col + region.cols; col += kPatchCols) {
                const int64_t count = least(kPatchCols, region.col + region.cols - col);
                decode_line(region.matrix, at, col, count, values);
                store(region.matrix, at, col, count, values);
            }
    }

    void columns(const Rectangle& region) {
        for (int64_t col = region.col; col < region.col + region.cols; col += kTile)
            for (int64_t at = region.row; at < region.row + region.rows; at += kSixteen)
                sixteen_rows({region.matrix, at, col, least(kSixteen, region.row + region.rows - at),
                              least(kTile, region.col + region.cols - col)});
    }

    void sixteen_rows(const Rectangle& at) {
        for (int64_t i = 0; i < at.cols; i++) decode_line(at.matrix, at.col + i, at.row, kSixteen, values + i * kSixteen);
        for (int64_t j = 0; j < at.rows; j++) {
            for (int64_t i = 0; i < at.cols; i++) row[i] = values[i * kSixteen + j];
            store(at.matrix, at.row + j, at.col, at.cols, row);
        }
    }
};

void undo_rectangle(const DequantizeProblem& problem, const Rectangle& region, bool stream, void* scratch) {
    static_assert(sizeof(TransformUndoer) <= kScratchBytes && alignof(TransformUndoer) <= kScratchAlignment);
    TransformUndoer& undoer = *::new (scratch) TransformUndoer(problem, stream);
    problem.columnwise ? undoer.columns(region) : undoer.rows(region);
    finish_stores();
}

void dequantize_any_rectangle(const DequantizeProblem& problem, const Rectangle& region, bool stream, void* scratch) {
    (problem.in.transformed ? undo_rectangle : dequantize_rectangle)(problem, region, stream, scratch);
}

}  // namespace
}  // namespace mxq::cpu
