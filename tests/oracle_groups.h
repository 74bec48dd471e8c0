// Groups of rows, from the contract: where each starts, how operands are padded, and how their scales are laid out.
// A byte is "written" if the contract says what it holds; padding between groups is not.
//
//     Ends, Groups, group_rows, padded_starts, padded_bound, columnwise_alignment
//     GroupLayout                                         where the codes and scales of each group lie in a part
//     GroupedPart, on_background                          a part, and which of its bytes are written
//     quantize_groups(spec, x, rows, cols, groups, part, swizzled)
//     dequantize_groups(spec, stored, rows, cols, groups, part, swizzled)
//     requantize_groups(...)                              dequantizes, then quantizes
//     group_amax(spec, x, rows, cols, groups, part)
//     realign_part(spec, stored, rows, cols, from, to, part, swizzled)           pads and unpads quantized parts
//     move_group_scales(spec, scales, rows, cols, groups, part, to_swizzled)     swizzles and unswizzles
//     pad_rows, unpad_rows                                pad and unpad plain tensors, as bytes
//     pad_groups                                          pads plain values
//     swizzle_row_groups, swizzle_contraction_groups      swizzle scale bytes, without codes
//     quantize_groups_rowwise, quantize_groups_columnwise quantize with default alignments, NaN where nothing is written
#ifndef MXQ_TESTS_ORACLE_GROUPS_H
#define MXQ_TESTS_ORACLE_GROUPS_H

#include "oracle.h"

namespace oracle {

using Ends = std::vector<int64_t>;

inline int64_t group_rows(const Ends& ends, size_t g) { return ends[g] - (g ? ends[g - 1] : 0); }

// Returns P[0..G]: where each group starts once every group is padded to a multiple of `alignment`.
inline std::vector<int64_t> padded_starts(const Ends& ends, int64_t alignment) {
    std::vector<int64_t> starts{0};
    for (size_t g = 0; g < ends.size(); ++g)
        starts.push_back(starts.back() + alignment * ceil_div(group_rows(ends, g), alignment));
    return starts;
}

// Returns where the rows of D that a product writes of a group end: with its padding, which what adds to D leaves.
inline int64_t written_end(const Ends& ends, const std::vector<int64_t>& starts, size_t g, bool accumulate) {
    return accumulate ? starts[g] + group_rows(ends, g) : starts[g + 1];
}

// Returns which of `rows` rows of D a product of these groups writes.
inline std::vector<bool> written_rows(const Ends& ends, const std::vector<int64_t>& starts, int64_t rows, bool accumulate) {
    std::vector<bool> written(static_cast<size_t>(rows), false);
    for (size_t g = 0; g < ends.size(); ++g)
        std::fill(written.begin() + starts[g], written.begin() + written_end(ends, starts, g, accumulate), true);
    return written;
}

// Returns the most that P[G] can be for any ends.
inline int64_t padded_bound(int64_t rows, int64_t groups, int64_t alignment) {
    return alignment * ((rows + (alignment - 1) * std::min(groups, rows)) / alignment);
}

// ---- Rows of plain tensors ---------------------------------------------------------------------------------------------

// Moves the rows of x to where their padded groups stand in a matrix of `capacity` rows, which is zero elsewhere.
inline Floats pad_groups(const Floats& x, int64_t cols, const Ends& ends, int64_t alignment, int64_t capacity) {
    Floats out(static_cast<size_t>(capacity * cols), 0.0f);
    auto starts = padded_starts(ends, alignment);
    for (size_t g = 0; g < ends.size(); ++g) {
        auto first = x.begin() + (ends[g] - group_rows(ends, g)) * cols;
        std::copy(first, first + group_rows(ends, g) * cols, out.begin() + starts[g] * cols);
    }
    return out;
}

struct Written {
    Bytes bytes, written;  // written: 1 for each byte that is written, else 0
};

// Moves rows of row_bytes bytes into a matrix of padded_bound rows with zeros in the padding; unpad_rows moves them back.
inline Written pad_rows(const Bytes& rows_of_x, int64_t row_bytes, int64_t rows, const Ends& ends, int64_t alignment) {
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
inline Written unpad_rows(const Bytes& padded, int64_t row_bytes, int64_t rows, const Ends& ends, int64_t alignment) {
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

// Returns the bytes that a buffer must hold if it was filled with `background` before.
inline Bytes on_background(const Bytes& bytes, const Bytes& written, uint8_t background) {
    Bytes out(bytes.size(), background);
    for (size_t i = 0; i < bytes.size(); ++i)
        if (written[i]) out[i] = bytes[i];
    return out;
}

// ---- Scale bytes alone -------------------------------------------------------------------------------------------------

// Swizzles (rows, blocks) scale bytes whose rows are grouped: every group starts a new 128-row tile.
inline Bytes swizzle_row_groups(const Bytes& scales, int64_t blocks, const Ends& ends) {
    Bytes out;
    for (size_t g = 0; g < ends.size(); ++g) {
        int64_t rows = group_rows(ends, g);
        Bytes one = swizzle_positions(scales.data() + (ends[g] - rows) * blocks, rows, blocks);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

// Swizzles (rows, blocks) scale bytes whose columns are grouped, with ends counted in blocks: every group starts a new
// 4-column tile. Blocks past the last end belong to no group.
inline Bytes swizzle_contraction_groups(const uint8_t* scales, int64_t rows, int64_t blocks, const Ends& block_ends) {
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

// ---- Where groups lie in a part ----------------------------------------------------------------------------------------

// Returns the default alignment of the columnwise part.
inline int64_t columnwise_alignment(const Spec& spec) {
    if (spec.format == MXQ_FORMAT_NVFP4) return 16;
    return spec.scaling == MXQ_SCALING_1X128 || spec.scaling == MXQ_SCALING_128X128 ? 128 : 32;
}

struct Groups {
    Ends ends;
    int64_t rowwise = 1, columnwise = 0;  // alignments; 0: the default

    int64_t count() const { return static_cast<int64_t>(ends.size()); }
    int64_t alignment(const Spec& spec, int32_t part) const {
        return part == MXQ_PART_ROWWISE ? rowwise : columnwise ? columnwise : columnwise_alignment(spec);
    }
};

// The layout of one part of a grouped (rows, cols) tensor. Its lines are (padded rows, cols) if it is rowwise and
// (cols, padded rows) if it is columnwise.
class GroupLayout {
public:
    GroupLayout(const Spec& spec, int64_t rows, int64_t cols, const Groups& groups, int32_t part, bool swizzled)
        : spec_(spec), rows_(rows), cols_(cols), groups_(groups), columnwise_(part == MXQ_PART_COLUMNWISE), swizzled_(swizzled),
          alignment_(groups.alignment(spec, part)), tile_(stored_tile(spec.scaling)),
          starts_(padded_starts(groups.ends, alignment_)) {
        if (columnwise_ && swizzled && is_fp8(spec.format) && tile_.width == 128)
            throw std::logic_error("oracle: swizzled fp32 scales are grouped by rows only");
        const int64_t block = is_mx(spec.format) && tile_.width == whole ? 32 : tile_.width;
        if (columnwise_ && block != whole && alignment_ % block)
            throw std::logic_error("oracle: the columnwise alignment is not a multiple of the block");
    }

    int64_t start(size_t g) const { return starts_[g]; }                            // P[g]
    int64_t padded(size_t g) const { return starts_[g + 1] - starts_[g]; }          // rows of a group with its padding
    int64_t capacity() const { return padded_bound(rows_, groups_.count(), alignment_); }  // Mr or Mc
    int64_t line_rows(size_t g) const { return columnwise_ ? cols_ : padded(g); }
    int64_t line_cols(size_t g) const { return columnwise_ ? padded(g) : cols_; }

    int64_t code_bytes() const {
        return columnwise_ ? cols_ * row_bytes(spec_.format, capacity()) : capacity() * row_bytes(spec_.format, cols_);
    }
    // Returns the number of scales that a buffer must hold, whatever the ends are.
    int64_t scales() const {
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

    Placement placement(size_t g) const {
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

    // Return 1 for each byte of the codes, or of the scales, that is written, else 0.
    Bytes codes_written() const {
        Bytes out(static_cast<size_t>(code_bytes()), 0);
        for (size_t g = 0; g < groups_.ends.size(); ++g) {
            Placement at = placement(g);
            int64_t first = at.first_code * code_bits(spec_.format) / 8, bytes = row_bytes(spec_.format, line_cols(g));
            for (int64_t i = 0; i < line_rows(g); ++i) mark(out, at.first_byte + i * at.row_bytes + first, bytes);
        }
        return out;
    }
    Bytes scales_written() const {
        Bytes out(static_cast<size_t>(scales() * scale_bytes(spec_.format)), spec_.scaling == MXQ_SCALING_TENSOR);
        if (rows_ == 0 || cols_ == 0) return out;  // a tensor without elements has scales under TENSOR only
        for (size_t g = 0; g < groups_.ends.size(); ++g) mark_scales(g, out);
        return out;
    }

    // Returns 1 for each byte of scales that swizzle and unswizzle write: those of groups that have rows, and the zeros of other
    // groups where each of their columns has one compact scale. Else 0.
    Bytes scales_moved() const {
        Bytes out(static_cast<size_t>(scales() * scale_bytes(spec_.format)), 0);
        for (size_t g = 0; g < groups_.ends.size() && cols_ > 0; ++g)
            if (group_rows(groups_.ends, g) > 0)
                mark_scales(g, out);
            else if (!swizzled_ && columnwise_ && spec_.scaling == MXQ_SCALING_ROW)
                mark(out, static_cast<int64_t>(g) * cols_, cols_);
        return out;
    }

private:
    void mark_scales(size_t g, Bytes& scales) const {
        Placement at = placement(g);
        int64_t size = scale_bytes(spec_.format);
        if (at.kind == Placement::Kind::swizzled) return mark(scales, at.first_scale, swizzled_start(g + 1) - at.first_scale);
        each_scale(at, line_rows(g), line_cols(g), [&](int64_t i, int64_t j) {
            bool has_padding = swizzled_ && spec_.scaling == MXQ_SCALING_128X128 && j == 0;  // behind the row of scales
            mark(scales, at.scale(i, j) * size, (has_padding ? at.stride : 1) * size);
        });
    }
    bool is_swizzled_bytes() const { return swizzled_ && !is_fp8(spec_.format); }
    int64_t tiles(size_t g) const { return ceil_div(group_rows(groups_.ends, g), tile_.height); }
    int64_t tile_start(size_t g) const { return padded_starts(groups_.ends, tile_.height)[g] / tile_.height; }  // T[g]
    int64_t tile_capacity() const { return padded_bound(rows_, groups_.count(), tile_.height) / tile_.height; }
    int64_t columnwise_stride() const { return tile_.height == 1 ? capacity() / tile_.width : tile_capacity(); }
    // Returns the first byte of the swizzled scales of group g, or the end of all scales for g = G.
    int64_t swizzled_start(size_t g) const {
        int64_t unit = position_width(spec_.format), tiles = 0;  // rows of tiles, or columns of tiles if columnwise
        for (size_t h = 0; h < g; ++h)
            tiles += columnwise_ ? ceil_div(padded(h) / unit, 4) : ceil_div(group_rows(groups_.ends, h), 128);
        return 512 * tiles * (columnwise_ ? ceil_div(cols_, 128) : ceil_div(ceil_div(cols_, unit), 4));
    }
    static void mark(Bytes& written, int64_t first, int64_t count) {
        std::fill(written.begin() + first, written.begin() + first + count, uint8_t{1});
    }

    Spec spec_;
    int64_t rows_, cols_;
    Groups groups_;
    bool columnwise_, swizzled_;
    int64_t alignment_;
    Tile tile_;
    std::vector<int64_t> starts_;
};

// ---- Quantized parts ---------------------------------------------------------------------------------------------------

// A part of a grouped tensor. Codes and scales have the size that suffices for any ends; bytes that are not written are 0.
// An amax that is laid out like the scales is written where they are.
struct GroupedPart {
    Part stored;
    Bytes codes_written, scales_written;

    Part on(uint8_t background) const {
        Part out = stored;
        out.codes = on_background(stored.codes, codes_written, background);
        out.scales = on_background(stored.scales, scales_written, background);
        return out;
    }
};

inline GroupedPart marked(const GroupLayout& layout, Part stored) {
    return {std::move(stored), layout.codes_written(), layout.scales_written()};
}

// Returns for each group the lines of the part: its rows, followed by padding rows of +0.
inline std::vector<Floats> group_lines(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Groups& groups,
                                       int32_t part) {
    GroupLayout layout(spec, rows, cols, groups, part, false);
    std::vector<Floats> out;
    for (size_t g = 0; g < groups.ends.size(); ++g) {
        int64_t m = group_rows(groups.ends, g);
        auto first = x.begin() + (groups.ends[g] - m) * cols;
        Floats padded(first, first + m * cols);
        padded.resize(static_cast<size_t>(layout.padded(g) * cols), 0.0f);
        out.push_back(lines_of(spec, padded.data(), layout.padded(g), cols, part));
    }
    return out;
}

inline Floats group_amax(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Groups& groups, int32_t part) {
    return amaxes(group_lines(spec, x, rows, cols, groups, part), spec.per_matrix);
}

// Sets the codes and scales to 0 in blocks that lie wholly in the padding, at or past row m of the group.
inline void clear_padding(const Spec& spec, Matrix& matrix, int64_t m, int32_t part) {
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

inline GroupedPart quantize_groups(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Groups& groups,
                                   int32_t part, bool swizzled) {
    GroupLayout layout(spec, rows, cols, groups, part, swizzled);
    std::vector<Floats> matrices = group_lines(spec, x, rows, cols, groups, part);
    Floats amax = amaxes(matrices, spec.per_matrix), shared = shared_numbers(spec, amax);
    Part out = empty_part(spec, layout.code_bytes(), layout.scales(), amax, shared);
    for (size_t g = 0; g < groups.ends.size(); ++g) {
        Origin origin = part == MXQ_PART_ROWWISE ? Origin{part, layout.start(g), 0} : Origin{part, 0, layout.start(g)};
        float of_group = shared[spec.per_matrix ? g : 0];
        Matrix matrix = quantize_matrix(spec, matrices[g], layout.line_rows(g), layout.line_cols(g), origin, of_group);
        clear_padding(spec, matrix, group_rows(groups.ends, g), part);
        put_matrix(spec, matrix, layout.placement(g), out);
    }
    return marked(layout, std::move(out));
}

// Returns the values (rows, cols) without padding; rows past the last end are 0.
inline Floats dequantize_groups(const Spec& spec, const Part& stored, int64_t rows, int64_t cols, const Groups& groups,
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

inline GroupedPart requantize_groups(const Spec& from, const Part& stored, int32_t from_part, bool from_swizzled,
                                     const Groups& from_groups, const Spec& to, int64_t rows, int64_t cols,
                                     const Groups& to_groups, int32_t to_part, bool to_swizzled) {
    if (from.transforms(from_part))  // the values pass as they are, to a part that is transformed alike
        return requantize_groups(untransformed(from), stored, from_part, from_swizzled, from_groups, untransformed(to), rows,
                                 cols, to_groups, to_part, to_swizzled);
    Floats x = dequantize_groups(from, stored, rows, cols, from_groups, from_part, from_swizzled);
    return quantize_groups(to, x, rows, cols, to_groups, to_part, to_swizzled);
}

// ---- Pad and unpad of quantized parts ----------------------------------------------------------------------------------

// Returns the matrix with another number of rows and columns: cut off, or continued with zeros.
inline Matrix resized(const Spec& spec, const Matrix& matrix, int64_t rows, int64_t cols) {
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

// Sets the codes of padding to 0, and the scales of blocks that lie wholly in it. Columnwise, a Hadamard transform spreads
// the rows of a group over its last 16 codes, which are kept.
inline void clear_input_padding(const Spec& spec, Matrix& matrix, int64_t m, int32_t part) {
    const bool rowwise = part == MXQ_PART_ROWWISE;
    const int64_t kept = rowwise ? m : 16 * ceil_div(m, 16);
    for (int64_t i = 0; i < matrix.rows; ++i)
        for (int64_t j = 0; j < matrix.cols; ++j)
            if ((rowwise ? i : j) >= kept) matrix.codes[static_cast<size_t>(i * matrix.cols + j)] = 0;
    clear_padding(spec, matrix, m, part);
}

// Moves the codes and scales of groups to other alignments. Codes of padding and the scales of blocks of padding are 0.
inline GroupedPart realign_part(const Spec& spec, const Part& stored, int64_t rows, int64_t cols, const Groups& from,
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

// Moves the scales of all groups from one layout to the other.
inline Written move_group_scales(const Spec& spec, const Bytes& scales, int64_t rows, int64_t cols, const Groups& groups,
                                 int32_t part, bool to_swizzled) {
    GroupLayout source(spec, rows, cols, groups, part, !to_swizzled), target(spec, rows, cols, groups, part, to_swizzled);
    if (spec.scaling == MXQ_SCALING_TENSOR) return {scales, target.scales_written()};
    Written out{Bytes(static_cast<size_t>(target.scales() * scale_bytes(spec.format)), 0), target.scales_moved()};
    for (size_t g = 0; g < groups.ends.size() && cols > 0; ++g) {  // lines without codes have no swizzled scales
        if (group_rows(groups.ends, g) == 0) continue;
        Placement from = source.placement(g), to = target.placement(g);
        each_scale(to, target.line_rows(g), target.line_cols(g), [&](int64_t i, int64_t j) {
            if (!from.has_scale(i, j)) return;
            put_scale(spec.format, out.bytes.data(), to.scale(i, j), get_scale(spec.format, scales.data(), from.scale(i, j)));
        });
    }
    return out;
}

// ---- Operands of grouped products, as the library stores them --------------------------------------------------------

// The byte that fills places which must not be read: it is a NaN as a code and as a scale.
inline constexpr uint8_t untouchable = 0xFF;

// Returns the rowwise part of a grouped (rows, cols) matrix: codes without padding; each group starts new tiles of scales.
inline Part quantize_groups_rowwise(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Ends& ends,
                                    bool swizzled) {
    return quantize_groups(spec, x, rows, cols, {ends}, MXQ_PART_ROWWISE, swizzled).on(untouchable);
}

// Returns the columnwise part of a grouped (rows, cols) matrix: (cols, Mc) codes, each group padded to whole blocks with
// zero rows.
inline Part quantize_groups_columnwise(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Ends& ends,
                                       bool swizzled) {
    return quantize_groups(spec, x, rows, cols, {ends}, MXQ_PART_COLUMNWISE, swizzled).on(untouchable);
}

}  // namespace oracle

#endif
