// Quantizes rectangles, patch by patch. Part of kernels.cpp.
//
//     rows mode    patches of a row or of a few short ones go straight to the rows of the rowwise part
//     panel mode   columns are seen together. A panel has as many rows as a block, in strips of up to 32 rows, and 256 columns,
//                  or 512 with blocks of 16. With a columnwise part it has 128, and panels are gathered in a tile of 256 rows
//
//     panel of 128 rows     four strips -> maxima of columns -> scales; the four strips once more -> codes
#pragma once
#include "cpu/quantize_codes.h"
#include "cpu/quantize_four_over_six.h"
#include "cpu/quantize_fast_path.h"
#include "cpu/quantize_output.h"
#include "cpu/quantize_values.h"

namespace mxq::cpu {
namespace {

struct PatchQuantizer {
    enum class Held { Nothing, Input, TransformedRows, TransformedColumns };  // what `values` holds

    const QuantizeSlice& slice;
    const QuantizeProblem& problem;
    const PartOutput rowwise, columnwise;
    const LoadValues load;
    const ScaleSteps scale_steps;
    const ChoiceSteps choice;
    const CodeSteps code_steps;
    const bool whole;          // whether a scale stands for a whole K-major row, or for more
    const bool stores_scales;  // whether scales are stored here: compact ones of whole K-major rows are not
    const bool are_bytes;     // whether scales are bytes, not fp32
    const int64_t block;      // how many codes the steps take together
    const int64_t strip_rows;  // how many rows of a panel are held at a time
    const int64_t panel_cols;  // how many columns a panel has
    const bool stream;

    Rectangle patch{};
    Rectangle next_panel{};
    int64_t height = 0, pitch = 0;  // the rows and columns of the patch when it is filled up with zeros
    Held held = Held::Nothing;

    FastPath fast_path;
    BlockScales scales;
    TileScales tile_scales;
    union {
        alignas(64) float values[kPatch];
        alignas(64) uint8_t transposed[kTile][kTileRows];  // the tile, once its values are not needed any more
    };
    alignas(64) uint8_t random[kPatch];
    alignas(64) uint8_t codes[kPatch];
    alignas(64) uint8_t packed[kPatchCols];  // has room to spare, because codes of 8 bits are not packed
    alignas(64) uint8_t tile[kTileRows][kTile];

    PatchQuantizer(const QuantizeSlice& slice, int64_t matrix, bool stream)
        : slice(slice), problem(slice.problem),
          rowwise(problem, problem.rowwise, slice.rowwise, problem.has_rowwise, matrix),
          columnwise(problem, problem.columnwise, slice.columnwise, problem.has_columnwise, matrix),
          load(loader_of(problem)), scale_steps(scale_steps_of(problem)), choice(choice_steps_of(problem)),
          code_steps(code_steps_of(problem)), whole(problem.tile.length == 0),
          stores_scales(!whole || is_swizzled_output(problem)), are_bytes(problem.format->scale != ScaleType::F32),
          block(whole ? kMxBlock : problem.tile.length),
          strip_rows(least(block, kMxBlock)), panel_cols(problem.has_columnwise ? kTile : kPatch / strip_rows), stream(stream),
          fast_path(problem) {
        tile_scales.are_bytes = are_bytes;
    }

    // ---- The patch at hand ----------------------------------------------------------------------------------------------

    // Goes to a patch, to be filled up to `rows` rows. `next` is the patch that comes after it, or has no rows.
    void move_to(const Rectangle& at, int64_t rows, const Rectangle& next) {
        patch = at;
        height = rows;
        pitch = round_up(at.cols, block > kMxBlock ? block : kMxBlock);
        held = Held::Nothing;
        if (fast_path.serves()) fast_path.load(patch, height, pitch, next);
    }

    // Goes to the strip of a panel that starts at row `first` of the panel.
    void move_to_strip(const Rectangle& panel, int64_t first) {
        const Rectangle at = {panel.matrix, panel.row + first, panel.col, least(strip_rows, panel.rows - first), panel.cols};
        if (patch.row != at.row || patch.col != at.col || patch.rows != at.rows)
            move_to(at, strip_rows, panel.rows <= strip_rows ? next_panel : Rectangle{});
    }

    // Loads `values` with what is wanted of the patch, unless they hold it.
    void hold(Held wanted) {
        if (held == wanted) return;
        load(problem, patch, height, pitch, values);
        held = wanted;
        // Blocks that are nothing but padding are not transformed and stay +0.
        const int64_t rows = rows_within(problem.source.rows, patch), first = patch.row / block * block;
        if (wanted == Held::TransformedRows) transform_rows(rows * pitch, problem.rowwise.hadamard_mask, values);
        if (wanted == Held::TransformedColumns && first < problem.source.rows)
            transform_columns(height, pitch, problem.columnwise.hadamard_mask, values);
    }
    void hold_for_rows() { hold(problem.rowwise.transformed ? Held::TransformedRows : Held::Input); }
    void hold_for_columns() { hold(problem.columnwise.transformed ? Held::TransformedColumns : Held::Input); }

    // Makes the random bytes of the patch for a part, if codes are rounded by them.
    void make_random(const QuantizedPart& part, int64_t rows) {
        if (!problem.seed_offset) return;
        const int64_t line = patch.matrix * part.lines + (part.columnwise ? patch.col : slice.first_row + patch.row);
        const int64_t chunk = part.columnwise ? slice.first_chunk + patch.row / kNvBlock : patch.col / kNvBlock;
        (part.columnwise ? random_of_columns : random_of_rows)({problem.seed_offset, line, chunk}, rows, pitch, random);
    }

    // Packs and stores `count` codes of a K-major row. Where a byte holds several, codes of 0 must follow them.
    void store_codes(const QuantizedPart& part, int64_t line, int64_t first, int64_t count, const uint8_t* from) {
        uint8_t* const to = line_of(part, patch.matrix, line, first);
        if (!code_steps.pack) {
            store_line(to, from, count, stream);
            return;
        }
        code_steps.pack(from, count, packed);
        store_line(to, packed, packed_bytes(count, part.bits), stream);
    }

    // ---- Rowwise, in blocks of a line -----------------------------------------------------------------------------------

    // Stores the codes and scales of the patch in the rowwise part.
    void make_rows() {
        const int64_t rows = rows_within(problem.rowwise.lines, patch);
        if (rows == 0) return;
        const int64_t row_blocks = pitch / block;
        if (!fast_path.serves() || !fast_path.encode_rows(rowwise.rule, rows * row_blocks, scales, codes)) encode_rows(rows);
        for (int64_t row = 0; row < rows; row++) {
            const int64_t first = row * row_blocks;
            store_codes(problem.rowwise, patch.row + row, patch.col, patch.cols, codes + row * pitch);
            if (stores_scales)
                rowwise.store(patch.matrix, patch.row + row, patch.col, patch.cols,
                              {scales.bytes + first, scales.stored + first, scales.maxima + first});
        }
    }

    void encode_rows(int64_t rows) {
        const int64_t blocks = rows * pitch / block;
        hold_for_rows();
        whole ? take_row_scales(rows) : make_row_scales(blocks);
        make_random(problem.rowwise, rows);
        code_steps.blocks(values, blocks, scales, random, codes);
    }

    void make_row_scales(int64_t blocks) {
        scale_steps.block_maxima(values, blocks, scales.maxima);
        choice.rows ? choice.rows(values, pitch, blocks, rowwise.rule.nvfp4, scales)
                    : scale_steps.make(rowwise.rule, blocks, scales);
    }

    // Makes the scales of rows without blocks from their maxima.
    void take_row_scales(int64_t rows) {
        const int64_t row_blocks = pitch / block;
        for (int64_t row = 0; row < rows; row++) {
            const uint32_t maximum = are_bytes ? rowwise.maximum(patch.matrix, patch.row + row) : 0;
            const float multiplier = are_bytes ? 0 : rowwise.multiplier(patch.matrix, patch.row + row);
            for (int64_t i = row * row_blocks; i < (row + 1) * row_blocks; i++) {
                scales.maxima[i] = maximum;
                scales.multipliers[i] = multiplier;
            }
        }
        if (are_bytes) scale_steps.make(rowwise.rule, rows * row_blocks, scales);
    }

    // ---- Columnwise, and square tiles of either part --------------------------------------------------------------------

    // Encodes a panel to rows of the tile from `row` on. For the rowwise part of square tiles it stores codes and scales at
    // once.
    void make_columns(const PartOutput& output, const Rectangle& panel, int64_t row) {
        const bool is_fast = make_fast_scales(output, panel);
        if (!is_fast) make_column_scales(output, panel);
        for (int64_t first = 0; first < panel.rows; first += strip_rows) {
            move_to_strip(panel, first);
            uint8_t* const to = problem.has_columnwise ? tile[row + first] : codes;
            const int64_t code_pitch = problem.has_columnwise ? kTile : pitch;
            is_fast ? fast_path.encode_columns(pitch, scales, to, code_pitch) : encode_columns(output, to, code_pitch);
            if (!output.part.columnwise) store_square_rows(to, code_pitch);
        }
        if (stores_scales && problem.has_columnwise) tile_scales.keep(row / block, pitch, scales);
    }

    // Makes the scales of a panel's columns by the fast path. Returns false where the exact path is needed.
    bool make_fast_scales(const PartOutput& output, const Rectangle& panel) {
        if (!fast_path.serves()) return false;
        fast_path.clear_column_maxima(kBandCols);
        for (int64_t first = 0; first < panel.rows; first += strip_rows) {
            move_to_strip(panel, first);
            fast_path.raise_column_maxima(pitch);
        }
        return fast_path.make_column_scales(output.rule, pitch, scales);
    }

    void make_column_scales(const PartOutput& output, const Rectangle& panel) {
        memset(scales.maxima, 0, sizeof(uint32_t) * kBandCols);
        for (int64_t first = 0; !whole && first < panel.rows; first += strip_rows) {
            move_to_strip(panel, first);
            hold_for_columns();
            scale_steps.raise_column_maxima(values, height, pitch, scales.maxima);
        }
        if (whole) {
            move_to_strip(panel, 0);
            take_column_scales(output);
            return;
        }
        if (problem.square_tiles) spread_maxima(pitch, block, scales.maxima);
        choice.columns ? choice.columns(values, pitch, pitch, output.rule.nvfp4, scales)
                       : scale_steps.make(output.rule, pitch, scales);
    }

    // Makes the scales of columns without blocks from their maxima.
    void take_column_scales(const PartOutput& output) {
        for (int64_t i = 0; are_bytes && i < patch.cols; i++) scales.maxima[i] = output.maximum(patch.matrix, patch.col + i);
        if (are_bytes) return scale_steps.make(output.rule, pitch, scales);
        for (int64_t i = 0; i < patch.cols; i++) scales.multipliers[i] = output.multiplier(patch.matrix, patch.col + i);
        for (int64_t i = patch.cols; i < pitch; i++) scales.multipliers[i] = 0;
    }

    // Encodes the patch, whose columns have a scale each, by the exact path.
    void encode_columns(const PartOutput& output, uint8_t* to, int64_t code_pitch) {
        hold_for_columns();
        make_random(output.part, height);
        code_steps.columns(values, height, pitch, scales, random, to, code_pitch);
    }

    // Stores the codes and scales of the patch in the rowwise part of square tiles.
    void store_square_rows(const uint8_t* from, int64_t code_pitch) {
        const int64_t rows = rows_within(problem.rowwise.lines, patch);
        GatheredLine line;
        line.take({scales.bytes, scales.stored, scales.maxima}, are_bytes, block, pitch / block);
        for (int64_t row = 0; row < rows; row++) {
            store_codes(problem.rowwise, patch.row + row, patch.col, patch.cols, from + row * code_pitch);
            rowwise.store(patch.matrix, patch.row + row, patch.col, patch.cols, line.view());
        }
    }

    // Returns whether the codes of a rowwise part of square tiles serve the columnwise part: not if they are random, or
    // relative to different global maxima.
    bool parts_share_codes() const {
        return problem.has_rowwise && !problem.seed_offset &&
               float_bits(rowwise.rule.nvfp4.amax) == float_bits(columnwise.rule.nvfp4.amax);
    }

    // Makes the codes of a panel for square tiles and for the columnwise part; `row` is its first row in the tile.
    void make_panel(const Rectangle& panel, int64_t row) {
        if (problem.has_rowwise && problem.square_tiles) make_columns(rowwise, panel, row);
        if (problem.has_columnwise && !(problem.square_tiles && parts_share_codes())) make_columns(columnwise, panel, row);
    }

    // Transposes the tile and stores its codes and scales in the columnwise part.
    void store_columns(const Rectangle& at) {
        const int64_t length = least(at.rows, problem.columnwise.length - at.row);
        if (length <= 0) return;
        transpose_tile(tile, code_steps.pack_columns ? code_steps.pack_columns(tile, length) : length, at.cols, transposed);
        held = Held::Nothing;
        const int64_t bytes = packed_bytes(length, problem.columnwise.bits);
        for (int64_t col = 0; col < at.cols; col++) {
            store_line(line_of(problem.columnwise, at.matrix, at.col + col, at.row), transposed[col], bytes, stream);
            if (!stores_scales) continue;
            GatheredLine line;
            line.take(tile_scales.column(col), are_bytes, kTile, ceil_div(length, block));
            columnwise.store(at.matrix, at.col + col, at.row, length, line.view());
        }
        columnwise.clear_below(at.matrix, at.col + at.cols, at.row, length);
    }

    // ---- Rectangles -----------------------------------------------------------------------------------------------------

    // Clears the swizzled padding below the last K-major row of the rowwise part.
    void clear_below_rows(const Rectangle& region) const {
        const int64_t rows = rows_within(problem.rowwise.lines, region);
        rowwise.clear_below(region.matrix, region.row + rows, region.col, region.cols);
    }

    void rows(const Rectangle& region) {
        for (int64_t col = 0; col < region.cols; col += kPatchCols) {
            Rectangle at = {region.matrix, region.row, region.col + col, 0, least(kPatchCols, region.cols - col)};
            const int64_t most = kRowPatch / round_up(at.cols, kBlock128);
            for (int64_t row = 0; row < region.rows; row += at.rows) {
                at.row = region.row + row;
                at.rows = least(most, region.rows - row);
                move_to(at, at.rows, most == 1 ? following(region, at, kPatchCols) : Rectangle{});
                make_rows();
            }
        }
        clear_below_rows(region);
    }

    // Returns the patch or panel that comes after `at`: the one below or, at the end, the topmost of the columns to the
    // right. It has no rows where the input does not have all of them.
    Rectangle following(const Rectangle& region, const Rectangle& at, int64_t width) const {
        Rectangle next = {at.matrix, at.row + at.rows, at.col, at.rows, at.cols};
        if (next.row >= region.row + region.rows) next.row = region.row, next.col += width;
        if (next.row + next.rows > problem.source.rows || next.col >= region.col + region.cols) next.rows = 0;
        return next;
    }

    void panels(const Rectangle& region) {
        for (int64_t col = 0; col < region.cols; col += panel_cols)
            make_strip(region,
                       {region.matrix, region.row, region.col + col, region.rows, least(panel_cols, region.cols - col)});
    }

    // Quantizes the columns of one panel for all rows of a rectangle, at most kTileRows: a tile, where there is a columnwise
    // part.
    void make_strip(const Rectangle& region, const Rectangle& at) {
        for (int64_t row = 0; row < at.rows; row += block) {
            const Rectangle panel = {at.matrix, at.row + row, at.col, least(block, at.rows - row), at.cols};
            next_panel = following(region, panel, panel_cols);
            for (int64_t first = 0; problem.has_rowwise && !problem.square_tiles && first < panel.rows; first += strip_rows) {
                move_to_strip(panel, first);
                make_rows();
            }
            make_panel(panel, row);
        }
        if (problem.has_rowwise) clear_below_rows(at);
        if (problem.has_columnwise) store_columns(at);
    }
};

void quantize_rectangle(const QuantizeSlice& slice, const Rectangle& region, bool stream, void* scratch) {
    static_assert(sizeof(PatchQuantizer) <= kScratchBytes && alignof(PatchQuantizer) <= kScratchAlignment);
    PatchQuantizer& quantizer = *::new (scratch) PatchQuantizer(slice, region.matrix, stream);
    transposes(slice.problem) ? quantizer.panels(region) : quantizer.rows(region);
    finish_stores();
}

}  // namespace
}  // namespace mxq::cpu
