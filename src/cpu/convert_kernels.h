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

struct ConvertBuffers {
    alignas(64) float values[kPatchCols] = {};
    alignas(64) uint8_t out[kPatchCols * sizeof(float)];
};

// Stores a rectangle of numbers, of which load(row, col, count, values) makes `count` neighbours.
template <class Load>
void store_rectangle(const PlainMatrix& out, const Rectangle& region, bool stream, void* scratch, const Load& load) {
    static_assert(sizeof(ConvertBuffers) <= kScratchBytes && alignof(ConvertBuffers) <= kScratchAlignment);
    ConvertBuffers& buffers = *::new (scratch) ConvertBuffers;
    const auto convert = with_plain(out.format, []<class T>(T) { return &convert_values<T>; });
    for (int64_t row = region.row; row < region.row + region.rows; row++)
        for (int64_t col = region.col; col < region.col + region.cols; col += kPatchCols) {
            const int64_t count = least(kPatchCols, region.col + region.cols - col);
            load(row, col, count, buffers.values);
            convert(buffers.values, count, buffers.out);
            store_line(element_address(out, region.matrix, row, col), buffers.out, count * out.element_bytes(), stream);
        }
    finish_stores();
}

void convert_rectangle(const ConvertProblem& problem, const Rectangle& region, bool stream, void* scratch) {
    const LoadRow load = load_row_of(problem.in.format);
    store_rectangle(problem.out, region, stream, scratch, [&](int64_t row, int64_t col, int64_t count, float* values) {
        load(element_address(problem.in, region.matrix, row, col), count, values);
    });
}

}  // namespace
}  // namespace mxq::cpu
