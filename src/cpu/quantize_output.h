// Stores the scales that quantize makes, and gathers those of tiles. Part of kernels.cpp.
#pragma once
#include "cpu/decode_lines.h"
#include "cpu/kernels.h"
#include "cpu/moves.h"
#include "cpu/quantize_scales.h"

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
    const int shift;  // from a code's position in its K-major row to its column of scales

    PartOutput(const QuantizeProblem& problem, const QuantizedPart& part, const Maxima& maxima, bool present, int64_t matrix)
        : problem(problem), part(part), maxima(maxima), rule{}, shift(present ? block_shift(part.layout) : 0) {
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

    // Stores the scales of `count` codes of a K-major row from `position` on, a multiple of 128.
    void store(int64_t matrix, int64_t line, int64_t position, int64_t count, const LineScales& scales) const {
        const ScaleLayout& layout = part.layout;
        const bool is_padding = !part.columnwise && line >= problem.source.rows;  // of its group; fp32 scales are +0
        // Square tiles that would begin in the padding of a group have no scales.
        if (layout.tile_rows != 1 && is_padding) return;
        const int64_t column = position >> shift, columns = ((count - 1) >> shift) + 1;
        const int64_t within = least(columns, layout.columns - column);
        if (within <= 0) return;
        if (layout.bytes == sizeof(float))
            store_fp32(matrix, line, column, within, is_padding ? LineScales{nullptr, kNoScales, scales.maxima} : scales);
        else if (layout.repeat == 1)
            store_bytes(matrix, line, column, within, scales.bytes);
        else
            store_repeated(matrix, line, column, within, scales.bytes);
    }

    // Stores fp32 scales, and their maxima where the part keeps these.
    void store_fp32(int64_t matrix, int64_t line, int64_t column, int64_t count, const LineScales& scales) const {
        const bool has_padding = part.layout.column_stride == 1 && !(part.columnwise && problem.grouped.groups.set);
        auto* const to = reinterpret_cast<float*>(part.scales);
        store_floats(to, has_padding, matrix, line, column, count, scales.stored);
        if (part.amax) store_floats(part.amax, has_padding, matrix, line, column, count, scales.maxima);
    }

    // Stores fp32 scales of a row, or their maxima. With `has_padding` the end of a row, from its last column up to its
    // stride, is set to zero.
    void store_floats(float* to, bool has_padding, int64_t matrix, int64_t line, int64_t column, int64_t count,
                      const void* from) const {
        const ScaleLayout& layout = part.layout;
        if (layout.tile_rows != 1 && line % layout.tile_rows != 0) return;
        float* const first = to + layout.offset(matrix, line, column);
        for (int64_t i = 0; i < count; i++)
            memcpy(first + i * layout.column_stride, static_cast<const char*>(from) + i * int64_t(sizeof(float)),
                   sizeof(float));
        if (has_padding && column + count == layout.columns)
            for (int64_t i = layout.columns; i < layout.line_stride; i++) first[i - column] = 0;
    }

    // Stores scales of a byte. A swizzled row is stored in whole words, with zeros where the last one has no scales.
    void store_bytes(int64_t matrix, int64_t line, int64_t column, int64_t count, const uint8_t* from) const {
        const ScaleLayout& layout = part.layout;
        uint8_t* to = part.scales + layout.offset(matrix, line, column);
        if (!layout.swizzled) {
            if (layout.tile_rows == 1 || line % layout.tile_rows == 0) memcpy(to, from, size_t(count));
            return;
        }
        for (; count >= kSwizzleColumns; count -= kSwizzleColumns, from += kSwizzleColumns, to += kSwizzleBytes)
            memcpy(to, from, kSwizzleColumns);
        if (count == 0) return;
        uint8_t last[kSwizzleColumns] = {};
        for (int64_t i = 0; i < count; i++) last[i] = from[i];
        memcpy(to, last, kSwizzleColumns);
    }

    // Stores swizzled scales of a coarse tile, which has a byte for every 32 codes that it covers.
    void store_repeated(int64_t matrix, int64_t line, int64_t column, int64_t count, const uint8_t* bytes) const {
        uint8_t repeated[kPatchCols / kMxBlock];
        for (int64_t i = 0; i < count; i++) repeated[i] = bytes[i / part.layout.repeat];
        store_bytes(matrix, line, column, count, repeated);
    }

    // Clears the swizzled scales below the last K-major row: those of `line` and the rows up to a multiple of 128, for
    // `count` codes from `position` on.
    void clear_below(int64_t matrix, int64_t line, int64_t position, int64_t count) const {
        const ScaleLayout& layout = part.layout;
        const int64_t first = position / layout.block, last = first + ceil_div(count, layout.block);
        for (int64_t row = line; layout.swizzled && row < round_up(line, kSwizzleRows); row++)
            for (int64_t column = first; column < last; column += kSwizzleColumns)
                memset(part.scales + layout.offset(matrix, row, column), 0, kSwizzleColumns);
    }
};

// The scales of a tile: for each panel of 16, 32 or 128 rows, one a column.
struct TileScales {
    alignas(64) uint8_t bytes[kTileRows / kNvBlock][kTile];
    alignas(64) float stored[kTileRows / kBlock128][kTile];
    alignas(64) uint32_t maxima[kTileRows / kBlock128][kTile];
    bool are_bytes;

    LineScales column(int64_t col) const { return {bytes[0] + col, stored[0] + col, maxima[0] + col}; }

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

    // Takes `count` scales, which are `step` apart.
    MXQ_HD void take(const LineScales& from, bool are_bytes, int64_t step, int64_t count) {
        for (int64_t i = 0; are_bytes && i < count; i++) bytes[i] = from.bytes[i * step];
        for (int64_t i = 0; !are_bytes && i < count; i++) {
            stored[i] = from.stored[i * step];
            maxima[i] = from.maxima[i * step];
        }
    }
    LineScales view() const { return {bytes, stored, maxima}; }
};

}  // namespace
}  // namespace mxq::cpu
