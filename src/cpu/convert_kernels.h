// Convert: rows of plain numbers to fp32, 1024 at a time, and from there to the output's type. Part of kernels.cpp.
#pragma once
#include "cpu/dequantize_kernels.h"
#include "cpu/quantize_values.h"

namespace mxq::cpu {
namespace {

using LoadRow = void (*)(const void* from, int64_t count, float* to);

inline LoadRow load_row_of(int32_t format) {
    return with_plain(format, []<class T>(T) -> LoadRow {
        return [](const void* from, int64_t count, float* to) { load_row(static_cast<const T*>(from), count, to); };
    });
}

inline int64_t number_bytes(const PlainMatrix& matrix) { return matrix.format == MXQ_FORMAT_F32 ? 4 : 2; }

// Returns where a number is stored.
inline uint8_t* number_at(const PlainMatrix& matrix, int64_t index, int64_t row, int64_t col) {
    return expert_data(matrix, index) + (row * matrix.row_stride + col) * number_bytes(matrix);
}

struct ConvertBuffers {
    alignas(64) float values[kPatchCols] = {};
    alignas(64) uint8_t out[kPatchCols * sizeof(float)];
};

void convert_rectangle(const ConvertProblem& problem, const Rectangle& region, bool stream, void* scratch) {
    static_assert(sizeof(ConvertBuffers) <= kScratchBytes && alignof(ConvertBuffers) <= kScratchAlignment);
    ConvertBuffers& buffers = *::new (scratch) ConvertBuffers;
    const LoadRow load = load_row_of(problem.in.format);
    const auto convert = with_plain(problem.out.format, []<class T>(T) { return &convert_values<T>; });
    for (int64_t row = region.row; row < region.row + region.rows; row++)
        for (int64_t col = region.col; col < region.col + region.cols; col += kPatchCols) {
            const int64_t count = least(kPatchCols, region.col + region.cols - col);
            load(number_at(problem.in, region.matrix, row, col), count, buffers.values);
            convert(buffers.values, count, buffers.out);
            store_line(number_at(problem.out, region.matrix, row, col), buffers.out, count * number_bytes(problem.out),
                       stream);
        }
    finish_stores();
}

}  // namespace
}  // namespace mxq::cpu
