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
std::vector<int64_t> padded_starts(const Ends& ends, int64_t alignment);

// Returns where the rows of D that a product writes of a group end: with its padding, which what adds to D leaves.
int64_t written_end(const Ends& ends, const std::vector<int64_t>& starts, size_t g, bool accumulate);

// Returns which of `rows` rows of D a product of these groups writes.
std::vector<bool> written_rows(const Ends& ends, const std::vector<int64_t>& starts, int64_t rows, bool accumulate);

// Returns the most that P[G] can be for any ends.
int64_t padded_bound(int64_t rows, int64_t groups, int64_t alignment);

// ---- Rows of plain tensors ---------------------------------------------------------------------------------------------

// Moves the rows of x to where their padded groups stand in a matrix of `capacity` rows, which is zero elsewhere.
Floats pad_groups(const Floats& x, int64_t cols, const Ends& ends, int64_t alignment, int64_t capacity);

struct Written {
    Bytes bytes, written;  // written: 1 for each byte that is written, else 0
};

// Moves rows of row_bytes bytes into a matrix of padded_bound rows with zeros in the padding; unpad_rows moves them back.
Written pad_rows(const Bytes& rows_of_x, int64_t row_bytes, int64_t rows, const Ends& ends, int64_t alignment);
Written unpad_rows(const Bytes& padded, int64_t row_bytes, int64_t rows, const Ends& ends, int64_t alignment);

// Returns the bytes that a buffer must hold if it was filled with `background` before.
Bytes on_background(const Bytes& bytes, const Bytes& written, uint8_t background);

// ---- Scale bytes alone -------------------------------------------------------------------------------------------------

// Swizzles (rows, blocks) scale bytes whose rows are grouped: every group starts a new 128-row tile.
Bytes swizzle_row_groups(const Bytes& scales, int64_t blocks, const Ends& ends);

// Swizzles (rows, blocks) scale bytes whose columns are grouped, with ends counted in blocks: every group starts a new
// 4-column tile. Blocks past the last end belong to no group.
Bytes swizzle_contraction_groups(const uint8_t* scales, int64_t rows, int64_t blocks, const Ends& block_ends);

// ---- Where groups lie in a part ----------------------------------------------------------------------------------------

// Returns the default alignment of the columnwise part.
int64_t columnwise_alignment(const Spec& spec);

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
    GroupLayout(const Spec& spec, int64_t rows, int64_t cols, const Groups& groups, int32_t part, bool swizzled);

    int64_t start(size_t g) const { return starts_[g]; }                            // P[g]
    int64_t padded(size_t g) const { return starts_[g + 1] - starts_[g]; }          // rows of a group with its padding
    int64_t capacity() const { return padded_bound(rows_, groups_.count(), alignment_); }  // Mr or Mc
    int64_t line_rows(size_t g) const { return columnwise_ ? cols_ : padded(g); }
    int64_t line_cols(size_t g) const { return columnwise_ ? padded(g) : cols_; }

    int64_t code_bytes() const;
    // Returns the number of scales that a buffer must hold, whatever the ends are.
    int64_t scales() const;

    Placement placement(size_t g) const;

    // Return 1 for each byte of the codes, or of the scales, that is written, else 0.
    Bytes codes_written() const;
    Bytes scales_written() const;

    // Returns 1 for each byte of scales that swizzle and unswizzle write: those of groups that have rows, and the zeros of other
    // groups where each of their columns has one compact scale. Else 0.
    Bytes scales_moved() const;

private:
    void mark_scales(size_t g, Bytes& scales) const;
    bool is_swizzled_bytes() const { return swizzled_ && !is_fp8(spec_.format); }
    int64_t tiles(size_t g) const;
    int64_t tile_start(size_t g) const;
    int64_t tile_capacity() const;
    int64_t columnwise_stride() const;
    // Returns the first byte of the swizzled scales of group g, or the end of all scales for g = G.
    int64_t swizzled_start(size_t g) const;
    static void mark(Bytes& written, int64_t first, int64_t count);

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

    Part on(uint8_t background) const;
};

GroupedPart marked(const GroupLayout& layout, Part stored);

// Returns for each group the lines of the part: its rows, followed by padding rows of +0 up to the end of the last block that
// has a row. Codes and scales of blocks behind it are 0.
std::vector<Floats> group_lines(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Groups& groups,
                                int32_t part);

Floats group_amax(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Groups& groups, int32_t part);

// Sets the codes and scales to 0 in blocks that lie wholly in the padding, at or past row m of the group.
void clear_padding(const Spec& spec, Matrix& matrix, int64_t m, int32_t part);

GroupedPart quantize_groups(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Groups& groups,
                            int32_t part, bool swizzled);

// Returns the values (rows, cols) without padding; rows past the last end are 0.
Floats dequantize_groups(const Spec& spec, const Part& stored, int64_t rows, int64_t cols, const Groups& groups,
                         int32_t part, bool swizzled);

GroupedPart requantize_groups(const Spec& from, const Part& stored, int32_t from_part, bool from_swizzled,
                              const Groups& from_groups, const Spec& to, int64_t rows, int64_t cols,
                              const Groups& to_groups, int32_t to_part, bool to_swizzled);

// ---- Pad and unpad of quantized parts ----------------------------------------------------------------------------------

// Returns the matrix with another number of rows and columns: cut off, or continued with zeros.
Matrix resized(const Spec& spec, const Matrix& matrix, int64_t rows, int64_t cols);

// Sets the codes of padding to 0, and the scales of blocks that lie wholly in it. Columnwise, a Hadamard transform spreads
// the rows of a group over its last 16 codes, which are kept.
void clear_input_padding(const Spec& spec, Matrix& matrix, int64_t m, int32_t part);

// Moves the codes and scales of groups to other alignments. Codes of padding and the scales of blocks of padding are 0.
GroupedPart realign_part(const Spec& spec, const Part& stored, int64_t rows, int64_t cols, const Groups& from,
                         const Groups& to, int32_t part, bool swizzled);

// Moves the scales of all groups from one layout to the other.
Written move_group_scales(const Spec& spec, const Bytes& scales, int64_t rows, int64_t cols, const Groups& groups,
                          int32_t part, bool to_swizzled);

// ---- Operands of grouped products, as the library stores them --------------------------------------------------------

// The byte that fills places which must not be read: it is a NaN as a code and as a scale.
inline constexpr uint8_t untouchable = 0xFF;

// Returns the rowwise part of a grouped (rows, cols) matrix: codes without padding; each group starts new tiles of scales.
Part quantize_groups_rowwise(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Ends& ends, bool swizzled);

// Returns the columnwise part of a grouped (rows, cols) matrix: (cols, Mc) codes, each group padded to whole blocks with
// zero rows.
Part quantize_groups_columnwise(const Spec& spec, const Floats& x, int64_t rows, int64_t cols, const Ends& ends,
                                bool swizzled);

}  // namespace oracle

#endif
