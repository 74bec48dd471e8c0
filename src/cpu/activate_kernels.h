// Activates rectangles to plain numbers, 1024 of a row at a time. Part of kernels.cpp.
#pragma once
#include "cpu/convert_kernels.h"

namespace mxq::cpu {
namespace {

void activate_rectangle(const ActivateProblem& problem, const Rectangle& region, bool stream, void* scratch) {
    ConvertBuffers& buffers = *::new (scratch) ConvertBuffers;
    const LoadValues load = loader_of(problem.quantize);
    const auto convert = with_plain(problem.out.format, []<class T>(T) { return &convert_values<T>; });
    for (int64_t row = region.row; row < region.row + region.rows; row++)
        for (int64_t col = region.col; col < region.col + region.cols; col += kPatchCols) {
            const int64_t count = least(kPatchCols, region.col + region.cols - col);
            load(problem.quantize, {region.matrix, row, col, 1, count}, 1, count, buffers.values);
            convert(buffers.values, count, buffers.out);
            store_line(number_at(problem.out, region.matrix, row, col), buffers.out, count * number_bytes(problem.out),
                       stream);
        }
    finish_stores();
}

}  // namespace
}  // namespace mxq::cpu
