// Gathers maxima that stand for more than blocks: the pass before quantize, and all that amax does. Part of kernels.cpp.
//
//     patch of values -> Hadamard transform, if asked for -> maxima of 32 values -> maximum of each line
//                                                                                -> maximum of the rectangle -> of the matrix
//
// Rectangles run at the same time. A maximum is raised by compare and exchange on its bits, which gives the same for any order.
#pragma once
#include "cpu/quantize_scales.h"
#include "cpu/quantize_values.h"

namespace mxq::cpu {
namespace {

// Raises a maximum to magnitude bits, if those are larger.
MXQ_HD void raise(float* maximum, uint32_t bits) {
    auto* const largest = reinterpret_cast<uint32_t*>(maximum);
    uint32_t before = __atomic_load_n(largest, __ATOMIC_RELAXED);
    while (before < bits && !__atomic_compare_exchange_n(largest, &before, bits, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

MXQ_HD uint32_t larger_bits(uint32_t a, uint32_t b) { return a < b ? b : a; }

MXQ_HD uint32_t largest_of(const uint32_t* maxima, int64_t count) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) largest = larger_bits(largest, maxima[i]);
    return largest;
}

constexpr int64_t kGatherPatch = kMxBlock * kTile;

struct MaximaGatherer {
    const QuantizeSlice& slice;
    const QuantizeProblem& problem;
    const LoadValues load;
    const ScaleSteps steps;  // of blocks of 32
    uint32_t rowwise_total = 0, columnwise_total = 0;
    alignas(64) float values[kGatherPatch];
    alignas(64) uint32_t maxima[kGatherPatch / kMxBlock];

    explicit MaximaGatherer(const QuantizeSlice& slice)
        : slice(slice), problem(slice.problem), load(loader_of(problem)), steps(maxima_steps_of(problem, kMxBlock)) {}

    // Gathers the maxima of a patch for both parts.
    void gather(const Rectangle& patch, int64_t height, int64_t pitch) {
        load(problem, patch, height, pitch, values);
        if (slice.rowwise.first) gather_rows(patch, pitch);
        if (!slice.columnwise.first) return;
        if (slice.rowwise.first && problem.rowwise.transformed) load(problem, patch, height, pitch, values);
        gather_columns(patch, height, pitch);
    }

    void gather_rows(const Rectangle& patch, int64_t pitch) {
        const int64_t rows = rows_within(problem.source.rows, patch), row_blocks = pitch / kMxBlock;
        if (problem.rowwise.transformed) transform_rows(rows * pitch, problem.rowwise.hadamard_mask, values);
        steps.block_maxima(values, rows * row_blocks, maxima);
        if (slice.rowwise.line_stride == 0) {
            rowwise_total = larger_bits(rowwise_total, largest_of(maxima, rows * row_blocks));
            return;
        }
        for (int64_t row = 0; row < rows; row++)
            raise(slice.rowwise.at(patch.matrix, patch.row + row), largest_of(maxima + row * row_blocks, row_blocks));
    }

    void gather_columns(const Rectangle& patch, int64_t height, int64_t pitch) {
        const int64_t rows = rows_within(problem.source.rows, patch);
        // Rows beyond the group's padding are zero and are not transformed.
        if (problem.columnwise.transformed)
            transform_columns(round_up(rows, kNvBlock), pitch, problem.columnwise.hadamard_mask, values);
        if (slice.columnwise.line_stride == 0) {
            steps.block_maxima(values, height * pitch / kMxBlock, maxima);
            columnwise_total = larger_bits(columnwise_total, largest_of(maxima, height * pitch / kMxBlock));
            return;
        }
        memset(maxima, 0, size_t(pitch) * sizeof *maxima);
        steps.raise_column_maxima(values, height, pitch, maxima);
        for (int64_t i = 0; i < patch.cols; i++) raise(slice.columnwise.at(patch.matrix, patch.col + i), maxima[i]);
    }

    // Gathers the maxima of a rectangle: in patches of 32 x 128 where columns are seen together, else of a few long rows.
    void rectangle(const Rectangle& region) {
        const bool by_columns = problem.columnwise.transformed ||
                                (slice.columnwise.first && slice.columnwise.line_stride != 0) ||
                                (problem.source.is_quantized() && problem.source.quantized.columnwise);
        const int64_t width = by_columns ? kTile : kPatchCols;
        for (int64_t col = 0; col < region.cols; col += width) {
            const int64_t cols = least(width, region.cols - col), pitch = round_up(cols, kMxBlock);
            const int64_t height = by_columns ? kMxBlock : kGatherPatch / pitch;
            for (int64_t row = 0; row < region.rows; row += height)
                gather({region.matrix, region.row + row, region.col + col, least(height, region.rows - row), cols}, height,
                       pitch);
        }
        if (slice.rowwise.first && slice.rowwise.line_stride == 0) raise(slice.rowwise.at(region.matrix, 0), rowwise_total);
        if (slice.columnwise.first && slice.columnwise.line_stride == 0)
            raise(slice.columnwise.at(region.matrix, 0), columnwise_total);
    }
};

void gather_rectangle(const QuantizeSlice& slice, const Rectangle& region) { MaximaGatherer(slice).rectangle(region); }

}  // namespace
}  // namespace mxq::cpu
