// Stores the scales that quantize makes, and gathers those of tiles. Part of kernels.cpp.
#pragma once
#include "cpu/kernels.h"
#include "cpu/moves.h"
#include "cpu/quantize_scales.h"
#include "cpu/scale_window.h"

namespace mxq::cpu {
namespace {

// The scales of a K-major row, as bytes or as fp32 with their maxima, which are fp32 bits.
struct LineScales {
    const uint8_t* bytes;
    const float* stored;
    const uint32_t* maxima;
};

// Returns whether the scales of a problem's parts are swizzled.
MXQ_HD bool is_swizzled_output(const QuantizeProblem& problem) {
    return (problem.has_rowwise ? problem.rowwise : problem.columnwise).layout.swizzled;
}

inline constexpr float kNoScales[kPatchCols / kBlock128] = {};

// One part of the output, and the rule of its scales.
struct PartOutput {
    const QuantizeProblem& problem;
    const QuantizedPart& part;
    const Maxima& maxima;
    ScaleRule rule;

    PartOutput(const QuantizeProblem& problem, const QuantizedPart& part, const Maxima& maxima, bool present, int64_t matrix)
        : problem(problem), part(part), maxima(maxima), rule{} {
        rule.fp8 = fp8_rule_of(problem);
        if (present && part.scale_type == ScaleType::E4M3)
            rule.nvfp4 = nvfp4_global(part.amax[matrix * part.scope_stride], part.scale_max);
    }

    // Returns the bits of the maximum of a K-major row without blocks.
    uint32_t maximum(int64_t matrix, int64_t line) const { return float_bits(*maxima.at(matrix, line)); }

    // Returns the multiplier of a K-major row without blocks, under an fp32 scale.
    float multiplier(int64_t matrix, int64_t line) const {
        if (problem.quantization_scale) return problem.quantization_scale[matrix * part.layout.matrix_scales];
        return fp8_quantization_scale(*maxima.at(matrix, line), rule.fp8);
    }

    // Returns the window from the swizzled tile on that holds the scale of the K-major row's code at `position`.
    ScaleWindow window(int64_t matrix, int64_t line, int64_t position) const {
        return {part.scales, part.layout, matrix, line / kSwizzleRows * kSwizzleRows, position / part.layout.block};
    }

    // Stores the scales of `count` codes of a K-major row from `position` on. `window` must hold them.
    void store(const ScaleWindow& window, int64_t matrix, int64_t line, int64_t position, int64_t count,
               const LineScales& scales) const {
        const ScaleLayout& layout = part.layout;
        // Square tiles that would begin in the padding of a group have no scales.
        if (layout.tile_rows != 1 && !part.columnwise && line >= problem.source.rows) return;
        const int64_t column = position / layout.block, columns = ceil_div(count, layout.block);
        const int64_t within = least(columns, layout.columns - column);
        if (within <= 0) return;
        if (layout.bytes == sizeof(float))
            store_fp32(matrix, line, column, within, is_padding(line) ? LineScales{nullptr, kNoScales, scales.maxima} : scales);
        else if (layout.repeat == 1)
            window.store(line % kSwizzleRows, within, scales.bytes);
        else
            store_repeated(window, line % kSwizzleRows, within, scales.bytes);
    }

    // Returns whether a K-major row only pads its group; its fp32 scales are +0.
    bool is_padding(int64_t line) const { return !part.columnwise && line >= problem.source.rows; }

    // Stores fp32 scales, and their maxima where the part keeps these.
    void store_fp32(int64_t matrix, int64_t line, int64_t column, int64_t count, const LineScales& scales) const {
        const bool has_padding = part.layout.column_stride == 1 && !(part.columnwise && problem.grouped.groups.set);
        auto* const to = reinterpret_cast<float*>(part.scales);
        store_floats(to, part.layout, has_padding, matrix, line, column, count, scales.stored);
        if (part.amax)
            store_floats(part.amax, part.layout, has_padding, matrix, line, column, count, scales.maxima);
    }

    // Stores swizzled scales of a coarse tile, which has a byte for every 32 codes that it covers.
    void store_repeated(const ScaleWindow& window, int64_t line, int64_t count, const uint8_t* bytes) const {
        uint8_t repeated[kPatchCols / kMxBlock];
        for (int64_t i = 0; i < count; i++) repeated[i] = bytes[i / part.layout.repeat];
        window.store(line, count, repeated);
    }
};

// The scales of a tile: for each panel of 16, 32 or 128 rows, one a column.
struct TileScales {
    alignas(64) uint8_t bytes[kTileRows / kNvBlock][kTile];
    alignas(64) float stored[kTileRows / kBlock128][kTile];
    alignas(64) uint32_t maxima[kTileRows / kBlock128][kTile];
    bool are_bytes;

    void keep(int64_t panel, int64_t count, const BlockScales& scales) {
        if (are_bytes) {
            memcpy(bytes[panel], scales.bytes, size_t(count));
            return;
        }
        memcpy(stored[panel], scales.stored, size_t(count) * sizeof(float));
        memcpy(maxima[panel], scales.maxima, size_t(count) * sizeof(uint32_t));
    }
};

// A K-major row of scales, gathered from a column of a tile's scales or from a row of square tiles.
struct GatheredLine {
    uint8_t bytes[kBandCols / kNvBlock];
    float stored[kBandCols / kNvBlock];
    uint32_t maxima[kBandCols / kNvBlock];

    // Takes the scales of a column of a tile, one of each panel.
    MXQ_HD void take_column(const TileScales& scales, int64_t col, int64_t panels) {
        for (int64_t i = 0; scales.are_bytes && i < panels; i++) bytes[i] = scales.bytes[i][col];
        for (int64_t i = 0; !scales.are_bytes && i < panels; i++) {
            stored[i] = scales.stored[i][col];
            maxima[i] = scales.maxima[i][col];
        }
    }
    // Takes the scales of square tiles: `count` of them, each of which `step` columns share.
    MXQ_HD void take_tiles(const BlockScales& scales, bool are_bytes, int64_t step, int64_t count) {
        for (int64_t i = 0; are_bytes && i < count; i++) bytes[i] = scales.bytes[i * step];
        for (int64_t i = 0; !are_bytes && i < count; i++) {
            stored[i] = scales.stored[i * step];
            maxima[i] = scales.maxima[i * step];
        }
    }
    LineScales view() const { return {bytes, stored, maxima}; }
};

}  // namespace
}  // namespace mxq::cpu
