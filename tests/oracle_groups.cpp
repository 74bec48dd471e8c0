// Groups of rows: oracle_groups.h says what each function does.
#include "oracle_groups.h"

namespace oracle {

std::vector<int64_t> padded_starts(const Ends& ends, int64_t alignment) {
    std::vector<int64_t> starts{0};
    for (size_t g = 0; g < ends.size(); ++g)
        starts.push_back(starts.back() + alignment * ceil_div(group_rows(ends, g), alignment));
    return starts;
}

int64_t written_end(const Ends& ends, const std::vector<int64_t>& starts, size_t g, bool accumulate) {
    return accumulate ? starts[g] + group_rows(ends, g) : starts[g + 1];
}

std::vector<bool> written_rows(const Ends& ends, const std::vector<int64_t>& starts, int64_t rows, bool accumulate) {
    std::vector<bool> written(static_cast<size_t>(rows), false);
    for (size_t g = 0; g < ends.size(); ++g)
        std::fill(written.begin() + starts[g], written.begin() + written_end(ends, starts, g, accumulate), true);
    return written;
}

int64_t padded_bound(int64_t rows, int64_t groups, int64_t alignment) {
    return alignment * ((rows + (alignment - 1) * std::min(groups, rows)) / alignment);
}

Floats pad_groups(const Floats& x, int64_t cols, const Ends& ends, int64_t alignment, int64_t capacity) {
    Floats out(static_cast<size_t>(capacity * cols), 0.0f);
    auto starts = padded_starts(ends, alignment);
    for (size_t g = 0; g < ends.size(); ++g) {
        auto first = x.begin() + (ends[g] - group_rows(ends, g)) * cols;
        std::copy(first, first + group_rows(ends, g) * cols, out.begin() + starts[g] * cols);
    }
    return out;
}

Written pad_rows(const Bytes& rows_of_x, int64_t row_bytes, int64_t rows, const Ends& ends, int64_t alignment) {
    auto starts = padded_starts(ends, alignment);
    auto size = static_cast<size_t>(padded_bound(rows, static_cast<int64_t>(ends.size()), alignment) * row_bytes);
    Written out{Bytes(size, 0), Bytes(size, 0)};
    for (size_t g = 0; g < ends.size(); ++g) {
        auto first = rows_of_x.begin() + (ends[g] - group_rows(ends, g)) * row_bytes;
        std::copy(first, first + group_rows(ends, g) * row_bytes, out.bytes.begin() + starts[g] * row_bytes);
    }
    std::fill(out.written.begin(), out.written.begin() + starts.back() * row_bytes, uint8_t{1});
    return out;
}

Written unpad_rows(const Bytes& padded, int64_t row_bytes, int64_t rows, const Ends& ends, int64_t alignment) {
    auto starts = padded_starts(ends, alignment);
    auto size = static_cast<size_t>(rows * row_bytes);
    Written out{Bytes(size, 0), Bytes(size, 0)};
    for (size_t g = 0; g < ends.size(); ++g) {
        auto first = padded.begin() + starts[g] * row_bytes;
        int64_t m = group_rows(ends, g);
        std::copy(first, first + m * row_bytes, out.bytes.begin() + (ends[g] - m) * row_bytes);
    }
    if (!ends.empty()) std::fill(out.written.begin(), out.written.begin() + ends.back() * row_bytes, uint8_t{1});
    return out;
}

Bytes on_background(const Bytes& bytes, const Bytes& written, uint8_t background) {
    Bytes out(bytes.size(), background);
    for (size_t i = 0; i < bytes.size(); ++i)
        if (written[i]) out[i] = bytes[i];
    return out;
}

Bytes swizzle_row_groups(const Bytes& scales, int64_t blocks, const Ends& ends) {
    Bytes out;
    for (size_t g = 0; g < ends.size(); ++g) {
        int64_t rows = group_rows(ends, g);
        Bytes one = swizzle_positions(scales.data() + (ends[g] - rows) * blocks, rows, blocks);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

Bytes swizzle_contraction_groups(const uint8_t* scales, int64_t rows, int64_t blocks, const Ends& block_ends) {
    Bytes out;
    for (size_t g = 0; g < block_ends.size(); ++g) {
        int64_t width = group_rows(block_ends, g), first = block_ends[g] - width;
        Bytes slice;
        for (int64_t i = 0; i < rows; ++i)
            slice.insert(slice.end(), scales + i * blocks + first, scales + i * blocks + first + width);
        Bytes one = swizzle_positions(slice.data(), rows, width);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

int64_t columnwise_alignment(const Spec& spec) {
    if (spec.format == MXQ_FORMAT_NVFP4) return 16;
    return spec.scaling == MXQ_SCALING_1X128 || spec.scaling == MXQ_SCALING_128X128 ? 128 : 32;
}

GroupLayout::GroupLayout(const Spec& spec, int64_t rows, int64_t cols, const Groups& groups, int32_t part, bool swizzled)
    : spec_(spec),
      rows_(rows),
      cols_(cols),
      groups_(groups),
      columnwise_(part == MXQ_PART_COLUMNWISE),
      swizzled_(swizzled),
      alignment_(groups.alignment(spec, part)),
      tile_(stored_tile(spec.scaling)),
      starts_(padded_starts(groups.ends, alignment_)) {
    if (columnwise_ && swizzled && is_fp8(spec.format) && tile_.width == 128)
        throw std::logic_error("oracle: swizzled fp32 scales are grouped by rows only");
    const int64_t block = is_mx(spec.format) && tile_.width == whole ? 32 : tile_.width;
    if (columnwise_ && block != whole && alignment_ % block)
        throw std::logic_error("oracle: the columnwise alignment is not a multiple of the block");
}

int64_t GroupLayout::code_bytes() const {
    return columnwise_ ? cols_ * row_bytes(spec_.format, capacity()) : capacity() * row_bytes(spec_.format, cols_);
}

int64_t GroupLayout::scales() const {
    int64_t unit = position_width(spec_.format), groups = groups_.count();
    if (spec_.scaling == MXQ_SCALING_TENSOR) return spec_.per_matrix ? groups : 1;
    if (is_swizzled_bytes())
        return columnwise_ ? 128 * ceil_div(cols_, 128) * padded_bound(rows_, groups, std::max(alignment_, 4 * unit)) / unit
                           : 4 * ceil_div(ceil_div(cols_, unit), 4) * padded_bound(rows_, groups, 128);
    if (spec_.scaling == MXQ_SCALING_ROW) return columnwise_ ? groups * cols_ : capacity();
    if (columnwise_) return ceil_div(cols_, tile_.height) * columnwise_stride();
    int64_t across = ceil_div(cols_, tile_.width);
    if (tile_.height == 1) return capacity() * across;
    return tile_capacity() * (swizzled_ ? 4 * ceil_div(across, 4) : across);
}

Placement GroupLayout::placement(size_t g) const {
    Placement out = scale_placement(spec_, line_rows(g), line_cols(g), swizzled_);
    out.row_bytes = row_bytes(spec_.format, columnwise_ ? capacity() : cols_);
    (columnwise_ ? out.first_code : out.first_byte) = columnwise_ ? start(g) : start(g) * out.row_bytes;
    auto number = static_cast<int64_t>(g);
    if (spec_.scaling == MXQ_SCALING_TENSOR) {
        out.first_scale = spec_.per_matrix ? number : 0;
    } else if (out.kind == Placement::Kind::swizzled) {
        out.first_scale = swizzled_start(g);
    } else if (spec_.scaling == MXQ_SCALING_ROW) {
        out.first_scale = columnwise_ ? number * cols_ : start(g);
    } else if (out.kind == Placement::Kind::outer_major) {
        out.first_scale = start(g);
        out.stride = capacity();
    } else {
        int64_t first = tile_.height == 1 ? start(g) / (columnwise_ ? tile_.width : 1) : tile_start(g);
        if (columnwise_) out.stride = columnwise_stride();
        out.first_scale = columnwise_ ? first : first * out.stride;
        if (tile_.height > 1) (columnwise_ ? out.cols_with_scale : out.rows_with_scale) = tiles(g) * tile_.height;
    }
    return out;
}

Bytes GroupLayout::codes_written() const {
    Bytes out(static_cast<size_t>(code_bytes()), 0);
    for (size_t g = 0; g < groups_.ends.size(); ++g) {
        Placement at = placement(g);
        int64_t first = at.first_code * code_bits(spec_.format) / 8, bytes = row_bytes(spec_.format, line_cols(g));
        for (int64_t i = 0; i < line_rows(g); ++i) mark(out, at.first_byte + i * at.row_bytes + first, bytes);
    }
    return out;
}

Bytes GroupLayout::scales_written() const {
    Bytes out(static_cast<size_t>(scales() * scale_bytes(spec_.format)), spec_.scaling == MXQ_SCALING_TENSOR);
    if (rows_ == 0 || cols_ == 0) return out;  // a tensor without elements has scales under TENSOR only
    for (size_t g = 0; g < groups_.ends.size(); ++g) mark_scales(g, out);
    return out;
}

Bytes GroupLayout::scales_moved() const {
    Bytes out(static_cast<size_t>(scales() * scale_bytes(spec_.format)), 0);
    for (size_t g = 0; g < groups_.ends.size() && cols_ > 0; ++g)
        if (group_rows(groups_.ends, g) > 0)
            mark_scales(g, out);
        else if (!swizzled_ && columnwise_ && spec_.scaling == MXQ_SCALING_ROW)
            mark(out, static_cast<int64_t>(g) * cols_, cols_);
    return out;
}

void GroupLayout::mark_scales(size_t g, Bytes& scales) const {
    Placement at = placement(g);
    int64_t size = scale_bytes(spec_.format);
    if (at.kind == Placement::Kind::swizzled) return mark(scales, at.first_scale, swizzled_start(g + 1) - at.first_scale);
    each_scale(at, line_rows(g), line_cols(g), [&](int64_t i, int64_t j) {
        bool has_padding = swizzled_ && spec_.scaling == MXQ_SCALING_128X128 && j == 0;  // behind the row of scales
        mark(scales, at.scale(i, j) * size, (has_padding ? at.stride : 1) * size);
    });
}

int64_t GroupLayout::tiles(size_t g) const { return ceil_div(group_rows(groups_.ends, g), tile_.height); }

int64_t GroupLayout::tile_start(size_t g) const {
    return padded_starts(groups_.ends, tile_.height)[g] / tile_.height;
}  // T[g]

int64_t GroupLayout::tile_capacity() const { return padded_bound(rows_, groups_.count(), tile_.height) / tile_.height; }

int64_t GroupLayout::columnwise_stride() const { return tile_.height == 1 ? capacity() / tile_.width : tile_capacity(); }

int64_t GroupLayout::swizzled_start(size_t g) const {
    int64_t unit = position_width(spec_.format), tiles = 0;  // rows of tiles, or columns of tiles if columnwise
    for (size_t h = 0; h < g; ++h)
        tiles += columnwise_ ? ceil_div(padded(h) / unit, 4) : ceil_div(group_rows(groups_.ends, h), 128);
    return 512 * tiles * (columnwise_ ? ceil_div(cols_, 128) : ceil_div(ceil_div(cols_, unit), 4));
}

void GroupLayout::mark(Bytes& written, int64_t first, int64_t count) {
    std::fill(written.begin() + first, written.begin() + first + count, uint8_t{1});
}

Part GroupedPart::on(uint8_t background) const {
    Part out = stored;
    out.codes = on_background(stored.codes, codes_written, background);
    out.scales = on_background(stored.scales, scales_written, background);
    return out;
}

GroupedPart marked(const GroupLayout& layout, Part stored) {
    return {std::move(stored), layout.codes_written(), layout.scales_written()};
}

// Returns the rows of group g, with padding, up to the end of the last block that has a row.
static int64_t rows_in_blocks(const Spec& spec, const GroupLayout& layout, int64_t m, size_t g, int32_t part) {
    const Tile tile = tile_of(spec.scaling);
    const int64_t height = part == MXQ_PART_ROWWISE ? tile.height : tile.width;
    return height == whole ? layout.padded(g) : std::min(layout.padded(g), ceil_div(m, height) * height);
}

std::vector<Floats> group_lines(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Groups& groups,
                                int32_t part) {
    GroupLayout layout(spec, rows, cols, groups, part, false);
    std::vector<Floats> out;
    for (size_t g = 0; g < groups.ends.size(); ++g) {
        int64_t m = group_rows(groups.ends, g), padded_rows = rows_in_blocks(spec, layout, m, g, part);
        auto first = x.begin() + (groups.ends[g] - m) * cols;
        Floats padded(first, first + m * cols);
        padded.resize(static_cast<size_t>(padded_rows * cols), 0.0f);
        out.push_back(lines_of(spec, padded.data(), padded_rows, cols, part));
    }
    return out;
}

Floats group_amax(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Groups& groups, int32_t part) {
    return amaxes(group_lines(spec, x, rows, cols, groups, part), spec.per_matrix);
}

void clear_padding(const Spec& spec, Matrix& matrix, int64_t m, int32_t part) {
    Tile tile = tile_of(spec.scaling);
    int64_t height = part == MXQ_PART_ROWWISE ? tile.height : tile.width;
    if (height == whole) return;
    const int64_t end = ceil_div(m, height) * height;  // of the blocks that have rows
    const int64_t first_row = part == MXQ_PART_ROWWISE ? end : 0, first_col = part == MXQ_PART_ROWWISE ? 0 : end;
    for (int64_t i = first_row; i < matrix.rows; ++i)
        for (int64_t j = first_col; j < matrix.cols; ++j) {
            matrix.codes[static_cast<size_t>(i * matrix.cols + j)] = 0;
            matrix.scales[tile_number(spec, matrix, i, j)] = 0;
        }
}

GroupedPart quantize_groups(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Groups& groups,
                            int32_t part, bool swizzled) {
    GroupLayout layout(spec, rows, cols, groups, part, swizzled);
    std::vector<Floats> matrices = group_lines(spec, x, rows, cols, groups, part);
    Floats amax = amaxes(matrices, spec.per_matrix), shared = shared_numbers(spec, amax);
    Part out = empty_part(spec, layout.code_bytes(), layout.scales(), amax, shared);
    for (size_t g = 0; g < groups.ends.size(); ++g) {
        Origin origin = part == MXQ_PART_ROWWISE ? Origin{part, layout.start(g), 0} : Origin{part, 0, layout.start(g)};
        float of_group = shared[spec.per_matrix ? g : 0];
        const Shape lines = line_shape({1, rows_in_blocks(spec, layout, group_rows(groups.ends, g), g, part), cols}, part);
        Matrix matrix = quantize_matrix(spec, matrices[g], lines.rows, lines.cols, origin, of_group);
        put_matrix(spec, matrix, layout.placement(g), out);
    }
    return marked(layout, std::move(out));
}

Floats dequantize_groups(const Spec& spec, const Part& stored, int64_t rows, int64_t cols, const Groups& groups,
                         int32_t part, bool swizzled) {
    GroupLayout layout(spec, rows, cols, groups, part, swizzled);
    Floats out(static_cast<size_t>(rows * cols), 0.0f), scales = decode_scales(spec, stored);
    for (size_t g = 0; g < groups.ends.size(); ++g) {
        int64_t m = group_rows(groups.ends, g);
        bool columnwise = part == MXQ_PART_COLUMNWISE;
        const int64_t stored_rows = columnwise && spec.transforms(part) ? 16 * ceil_div(m, 16) : m;
        Floats one = decode_matrix(spec, stored.codes.data(), stored.scales.data(), layout.placement(g),
                                   columnwise ? cols : stored_rows, columnwise ? stored_rows : cols,
                                   scales[scales.size() > 1 ? g : 0]);
        if (spec.transforms(part)) undo_hadamard_lines(one, spec.mask(part));
        if (columnwise) one = transposed(one.data(), cols, stored_rows);
        std::copy(one.begin(), one.begin() + m * cols, out.begin() + (groups.ends[g] - m) * cols);
    }
    return out;
}

GroupedPart requantize_groups(const Spec& from, const Part& stored, int32_t from_part, bool from_swizzled,
                              const Groups& from_groups, const Spec& to, int64_t rows, int64_t cols, const Groups& to_groups,
                              int32_t to_part, bool to_swizzled) {
    if (from.transforms(from_part))  // the values pass as they are, to a part that is transformed alike
        return requantize_groups(untransformed(from), stored, from_part, from_swizzled, from_groups, untransformed(to), rows,
                                 cols, to_groups, to_part, to_swizzled);
    Floats x = dequantize_groups(from, stored, rows, cols, from_groups, from_part, from_swizzled);
    return quantize_groups(to, x, rows, cols, to_groups, to_part, to_swizzled);
}

Matrix resized(const Spec& spec, const Matrix& matrix, int64_t rows, int64_t cols) {
    Grid grid = grid_of(tile_of(spec.scaling), rows, cols), old = grid_of(tile_of(spec.scaling), matrix.rows, matrix.cols);
    Matrix out{rows, cols, Bytes(static_cast<size_t>(rows * cols), 0), {}, {}};
    out.scales.assign(static_cast<size_t>(grid.rows * grid.cols), 0);
    for (int64_t i = 0; i < std::min(rows, matrix.rows); ++i)
        for (int64_t j = 0; j < std::min(cols, matrix.cols); ++j)
            out.codes[static_cast<size_t>(i * cols + j)] = matrix.codes[static_cast<size_t>(i * matrix.cols + j)];
    for (int64_t r = 0; r < std::min(grid.rows, old.rows); ++r)
        for (int64_t c = 0; c < std::min(grid.cols, old.cols); ++c)
            out.scales[static_cast<size_t>(r * grid.cols + c)] = matrix.scales[static_cast<size_t>(r * old.cols + c)];
    return out;
}

void clear_input_padding(const Spec& spec, Matrix& matrix, int64_t m, int32_t part) {
    const bool rowwise = part == MXQ_PART_ROWWISE;
    const int64_t kept = rowwise ? m : 16 * ceil_div(m, 16);
    for (int64_t i = 0; i < matrix.rows; ++i)
        for (int64_t j = 0; j < matrix.cols; ++j)
            if ((rowwise ? i : j) >= kept) matrix.codes[static_cast<size_t>(i * matrix.cols + j)] = 0;
    clear_padding(spec, matrix, m, part);
}

GroupedPart realign_part(const Spec& spec, const Part& stored, int64_t rows, int64_t cols, const Groups& from,
                         const Groups& to, int32_t part, bool swizzled) {
    GroupLayout source(spec, rows, cols, from, part, swizzled), target(spec, rows, cols, to, part, swizzled);
    Part out{Bytes(static_cast<size_t>(target.code_bytes()), 0), {}, {}, stored.global_scale};
    out.scales.assign(static_cast<size_t>(target.scales() * scale_bytes(spec.format)), 0);
    if (spec.scaling == MXQ_SCALING_TENSOR) out.scales = stored.scales;
    if (spec.scaling == MXQ_SCALING_TENSOR || spec.format == MXQ_FORMAT_NVFP4) out.amax = stored.amax;
    for (size_t g = 0; g < from.ends.size(); ++g) {
        Matrix matrix = get_matrix(spec, stored, source.placement(g), source.line_rows(g), source.line_cols(g));
        clear_input_padding(spec, matrix, group_rows(from.ends, g), part);
        put_matrix(spec, resized(spec, matrix, target.line_rows(g), target.line_cols(g)), target.placement(g), out);
    }
    return marked(target, std::move(out));
}

Written move_group_scales(const Spec& spec, const Bytes& scales, int64_t rows, int64_t cols, const Groups& groups,
                          int32_t part, bool to_swizzled) {
    GroupLayout source(spec, rows, cols, groups, part, !to_swizzled), target(spec, rows, cols, groups, part, to_swizzled);
    if (spec.scaling == MXQ_SCALING_TENSOR) return {scales, target.scales_written()};
    Written out{Bytes(static_cast<size_t>(target.scales() * scale_bytes(spec.format)), 0), target.scales_moved()};
    for (size_t g = 0; g < groups.ends.size() && cols > 0; ++g) {  // lines without codes have no swizzled scales
        if (group_rows(groups.ends, g) == 0) continue;
        Placement from = source.placement(g), to = target.placement(g);
        each_scale(to, target.line_rows(g), target.line_cols(g), [&](int64_t i, int64_t j) {
            if (!from.has_scale(i, j)) return;
            put_scale(spec.format, out.bytes.data(), to.scale(i, j),
                      get_scale(spec.format, scales.data(), from.scale(i, j)));
        });
    }
    return out;
}

Part quantize_groups_rowwise(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Ends& ends,
                             bool swizzled) {
    return quantize_groups(spec, x, rows, cols, {ends}, MXQ_PART_ROWWISE, swizzled).on(untouchable);
}

Part quantize_groups_columnwise(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Ends& ends,
                                bool swizzled) {
    return quantize_groups(spec, x, rows, cols, {ends}, MXQ_PART_COLUMNWISE, swizzled).on(untouchable);
}

}  // namespace oracle
