// Quantize. Part of kernels.cpp.
//
//     rows mode    patches of a few rows, straight to the lines of the rowwise part
//     tile mode    slabs of 32 rows (128 for blocks of 128) x 128 columns, eight or two of which make a tile of codes;
//                  columnwise and square blocks are made in bands: a block's rows
#pragma once
#include "cpu/quantize_codes.h"
#include "cpu/quantize_four_over_six.h"
#include "cpu/quantize_halves.h"
#include "cpu/quantize_output.h"
#include "cpu/quantize_values.h"

namespace mxq::cpu {
namespace {

struct Maker {
    const QuantizeSlice& slice;
    const QuantizeProblem& problem;
    const PartOutput rowwise, columnwise;
    const LoadValues load;
    const ScaleSteps scale_steps;
    const ChoiceSteps choice;
    const CodeSteps code_steps;
    const bool whole;    // lines have no blocks
    const int64_t block;  // codes that the steps take together
    const int64_t unit;   // rows of a slab; also what the columns of a patch are rounded up to
    const bool stream;

    Rectangle patch;
    int64_t height, pitch;  // of the patch as it is filled with zeros
    bool loaded;            // `values` are those of the patch

    Shortened shortened;
    BlockScales scales;
    TileScales tile_scales;
    alignas(64) float values[kPatch];
    alignas(64) uint8_t random[kPatch];
    alignas(64) uint8_t codes[kPatch];
    alignas(64) uint8_t packed[kPatchCols];  // with room to spare: codes of a byte are not packed
    alignas(64) uint8_t tile[kTileRows][kTile], transposed[kTile][kTileRows];

    Maker(const QuantizeSlice& slice, int64_t matrix, bool stream)
        : slice(slice), problem(slice.problem),
          rowwise(problem, problem.rowwise, slice.rowwise, problem.has_rowwise, matrix),
          columnwise(problem, problem.columnwise, slice.columnwise, problem.has_columnwise, matrix),
          load(loader_of(problem)), scale_steps(scale_steps_of(problem)), choice(choice_steps_of(problem)),
          code_steps(code_steps_of(problem)), whole(problem.tile.length == 0), block(whole ? kMxBlock : problem.tile.length),
          unit(block > kMxBlock ? block : kMxBlock), stream(stream), shortened(problem) {
        tile_scales.are_bytes = problem.format->scale != ScaleType::F32;
    }

    void begin(const Rectangle& at, int64_t rows) {
        patch = at;
        height = rows;
        pitch = round_up(at.cols, unit);
        loaded = false;
        shortened.load(patch, height, pitch);
    }

    void need_values() {
        if (!loaded) load(problem, patch, height, pitch, values);
        loaded = true;
    }

    RandomPlace random_place(const QuantizedPart& part) const {
        const int64_t first = patch.matrix * part.lines + (part.columnwise ? patch.col : slice.first_row + patch.row);
        const int64_t position = part.columnwise ? patch.row : patch.col;
        return {problem.seed_offset, first, position / 16 + (part.columnwise ? slice.first_chunk : 0)};
    }

    // Followed by codes 0, where a byte holds several.
    void store_codes(const QuantizedPart& part, int64_t line, int64_t first, int64_t count, const uint8_t* from) {
        uint8_t* const to = line_of(part, patch.matrix, line, first);
        if (!code_steps.pack) {
            store_line(to, from, count, stream);
            return;
        }
        code_steps.pack(from, count, packed);
        store_line(to, packed, packed_bytes(count, part.bits), stream);
    }

    // ---- Rowwise, in blocks of a line ----------------------------------------------------------------------------------

    void make_rows() {
        const int64_t rows = rows_within(problem.rowwise.lines, patch);
        if (rows == 0) return;
        if (!shortened.encode_rows(rows * pitch / block, scales, codes)) encode_rows(rows);
        const int64_t row_blocks = pitch / block;
        const auto window = rowwise.window(patch.matrix, patch.row, patch.col);
        for (int64_t row = 0; row < rows; row++) {
            const int64_t first = row * row_blocks;
            store_codes(problem.rowwise, patch.row + row, patch.col, patch.cols, codes + row * pitch);
            if (!whole)
                rowwise.store(window, patch.matrix, patch.row + row, patch.col, patch.cols,
                              {scales.bytes + first, scales.stored + first, scales.maxima + first});
        }
    }

    void encode_rows(int64_t rows) {
        const int64_t blocks = rows * pitch / block;
        need_values();
        if (problem.hadamard.rowwise) {
            transform_rows(rows_within(problem.in.rows, patch) * pitch, problem.hadamard.mask, values);
            loaded = false;
        }
        whole ? take_row_multipliers(rows) : make_row_scales(blocks);
        if (problem.seed_offset) random_of_rows(random_place(problem.rowwise), rows, pitch, random);
        code_steps.blocks(values, blocks, scales, random, codes);
    }

    void make_row_scales(int64_t blocks) {
        scale_steps.block_maxima(values, blocks, scales.maxima);
        choice.rows ? choice.rows(values, pitch, blocks, rowwise.rule, scales)
                    : scale_steps.make(rowwise.rule, blocks, scales);
    }

    void take_row_multipliers(int64_t rows) {
        const int64_t row_blocks = pitch / block;
        for (int64_t row = 0; row < rows; row++) {
            const float multiplier = rowwise.multiplier(patch.matrix, patch.row + row);
            for (int64_t i = 0; i < row_blocks; i++) scales.multipliers[row * row_blocks + i] = multiplier;
        }
    }

    // ---- Columnwise, and square tiles of either part -------------------------------------------------------------------

    // The slab to rows of the tile from `row` on.
    void make_columns(const PartOutput& output, int64_t row) {
        if (problem.seed_offset)
            (output.part.columnwise ? random_of_columns : random_of_rows)(random_place(output.part), height, pitch, random);
        for (int64_t first = 0; first < height; first += block) {
            uint8_t* const to = tile[row + first];
            if (!shortened.encode_columns(pitch, scales, to, kTile)) encode_band(output, first, to);
            if (!whole) tile_scales.keep((row + first) / block, pitch, scales);
        }
        if (problem.hadamard.columnwise) loaded = false;
    }

    void encode_band(const PartOutput& output, int64_t first, uint8_t* to) {
        need_values();
        float* const band = values + first * pitch;
        // What is padding alone stays +0.
        if (problem.hadamard.columnwise && patch.row + first < problem.in.rows)
            transform_columns(block, pitch, problem.hadamard.mask, band);
        whole ? take_column_multipliers(output) : make_column_scales(output, band);
        code_steps.columns(band, block, pitch, scales, random + first * pitch, to, kTile);
    }

    void make_column_scales(const PartOutput& output, const float* band) {
        scale_steps.column_maxima(band, block, pitch, scales.maxima);
        if (problem.square_tiles) spread_maxima(pitch, block, scales.maxima);
        choice.columns ? choice.columns(band, pitch, pitch, output.rule, scales)
                       : scale_steps.make(output.rule, pitch, scales);
    }

    void take_column_multipliers(const PartOutput& output) {
        for (int64_t i = 0; i < patch.cols; i++) scales.multipliers[i] = output.multiplier(patch.matrix, patch.col + i);
        for (int64_t i = patch.cols; i < pitch; i++) scales.multipliers[i] = 0;
    }

    // Both parts of square tiles have the same codes, unless those are random or relative to different maxima.
    bool parts_share_codes() const {
        return !problem.seed_offset && float_bits(rowwise.rule.nvfp4.amax) == float_bits(columnwise.rule.nvfp4.amax);
    }

    void make_square(int64_t row) {
        if (problem.has_rowwise) {
            make_columns(rowwise, row);
            store_square_rows(row);
        }
        if (problem.has_columnwise && !(problem.has_rowwise && parts_share_codes())) make_columns(columnwise, row);
    }

    void store_square_rows(int64_t row) {
        const int64_t rows = rows_within(problem.rowwise.lines, patch);
        const auto window = rowwise.window(patch.matrix, patch.row, patch.col);
        for (int64_t i = 0; i < rows; i++) {
            TileLine line;
            line.take_band(tile_scales, (row + i) / block, block, pitch / block);
            store_codes(problem.rowwise, patch.row + i, patch.col, patch.cols, tile[row + i]);
            rowwise.store(window, patch.matrix, patch.row + i, patch.col, patch.cols, line.view());
        }
    }

    void store_columns(const Rectangle& at) {
        const int64_t length = least(at.rows, problem.columnwise.length - at.row);
        if (length <= 0) return;
        const auto window = columnwise.window(at.matrix, at.col, at.row);
        transpose_tile(tile, length, at.cols, transposed);
        for (int64_t col = 0; col < at.cols; col++) {
            store_codes(problem.columnwise, at.col + col, at.row, length, transposed[col]);
            if (whole) continue;
            TileLine line;
            line.take_column(tile_scales, col, ceil_div(length, block));
            columnwise.store(window, at.matrix, at.col + col, at.row, length, line.view());
        }
        window.clear(at.cols, round_up(at.cols, kSwizzleRows), ceil_div(length, problem.columnwise.layout.block));
    }

    // ---- Rectangles -----------------------------------------------------------------------------------------------------

    // Swizzled padding below the last line.
    void clear_below_rows(const Rectangle& piece) const {
        const int64_t rows = rows_within(problem.rowwise.lines, piece);
        rowwise.window(piece.matrix, piece.row, piece.col)
            .clear(rows, round_up(rows, kSwizzleRows), ceil_div(piece.cols, problem.rowwise.layout.block));
    }

    void rows(const Rectangle& piece) {
        for (int64_t col = 0; col < piece.cols; col += kPatchCols) {
            Rectangle at = {piece.matrix, piece.row, piece.col + col, 0, least(kPatchCols, piece.cols - col)};
            const int64_t most = kRowPatch / round_up(at.cols, unit);
            for (int64_t row = 0; row < piece.rows; row += at.rows) {
                at.row = piece.row + row;
                at.rows = least(most, piece.rows - row);
                begin(at, at.rows);
                make_rows();
            }
        }
        clear_below_rows(piece);
    }

    void tiles(const Rectangle& piece) {
        for (int64_t col = 0; col < piece.cols; col += kTile)
            make_tile({piece.matrix, piece.row, piece.col + col, piece.rows, least(kTile, piece.cols - col)});
    }

    void make_tile(const Rectangle& at) {
        for (int64_t row = 0; row < at.rows; row += unit) {
            begin({at.matrix, at.row + row, at.col, least(unit, at.rows - row), at.cols}, unit);
            if (problem.square_tiles) {
                make_square(row);
                continue;
            }
            if (problem.has_rowwise) make_rows();
            if (problem.has_columnwise) make_columns(columnwise, row);
        }
        if (problem.has_rowwise) clear_below_rows(at);
        if (problem.has_columnwise) store_columns(at);
    }
};

void quantize_rectangle(const QuantizeSlice& slice, const Rectangle& piece, bool stream) {
    Maker maker(slice, piece.matrix, stream);
    transposes(slice.problem) ? maker.tiles(piece) : maker.rows(piece);
    finish_stores();
}

}  // namespace
}  // namespace mxq::cpu
