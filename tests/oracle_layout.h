// The specification of a quantization, and where the codes and scales of a part lie. A part is seen as lines along its
// contraction: the rows of the tensor for the rowwise part, its columns for the columnwise one.
//
//     Spec, Part, Shape, Matrix
//     default_scaling, is_mx, code_bits, row_bytes, scale_bytes, position_width
//     Tile, tile_of, Grid, grid_of
//     get_code, put_code, get_scale, put_scale
//     Placement, placement_of, scale_count        one formula for every layout of scales
//     put_matrix, get_matrix
//     swizzle_position, swizzle_positions, swizzled_bytes, compact_scale_rows, swizzle, unswizzle
//     transposed
#ifndef MXQ_TESTS_ORACLE_LAYOUT_H
#define MXQ_TESTS_ORACLE_LAYOUT_H

#include "oracle_types.h"

namespace oracle {

struct Spec {
    int32_t format = MXQ_FORMAT_MXFP8_E4M3;
    int32_t scaling = MXQ_SCALING_1X32;
    int32_t rounding = MXQ_SCALE_ROUNDING_RCEIL;      // MX
    int32_t nonfinite = MXQ_NONFINITE_PROPAGATE;      // MX
    bool per_matrix = false;                          // an NVFP4 amax or FP8 TENSOR scale for each expert or group
    float nvfp4_t = 448;                              // NVFP4: T, 448 or 256
    int32_t four_over_six = MXQ_FOUR_OVER_SIX_NONE;   // NVFP4
    Floats amax = {};                                 // NVFP4: given for the part; empty: computed
    Floats quantization_scale = {};                   // FP8 TENSOR: given; empty: computed from the amax
    float eps = 0;                                    // FP8
    bool power_of_two = false;                        // FP8
    bool stochastic = false;                          // E2M1
    uint64_t seed = 0, offset = 0;                    // of the random bytes
    int32_t hadamard = 0;                             // E2M1: the sum of the MXQ_PART_* that are transformed
    uint32_t rowwise_mask = 0xD7E8, columnwise_mask = 0xD7E8;

    bool transforms(int32_t part) const { return (hadamard & part) != 0; }
    uint32_t mask(int32_t part) const { return part == MXQ_PART_ROWWISE ? rowwise_mask : columnwise_mask; }
};

struct Part {
    Bytes codes, scales;           // as stored; scales are compact unless a function says otherwise
    Floats amax = {};              // NVFP4 and FP8 TENSOR: one, or one per matrix; other FP8: laid out like the scales
    Floats global_scale = {};      // NVFP4: decoding takes it in place of the amax, unless it is empty
};

struct Shape {
    int64_t experts = 1, rows = 0, cols = 0;
    size_t count() const { return static_cast<size_t>(experts * rows * cols); }
};

// One quantized matrix of lines, before its codes are packed and its scales laid out.
struct Matrix {
    int64_t rows = 0, cols = 0;
    Bytes codes;                   // one code per byte
    std::vector<uint32_t> scales;  // one per tile, row-major: a byte, or the bits of an fp32 number
    Floats amax;                   // FP8: one per tile
};

// ---- Formats ---------------------------------------------------------------------------------------------------------

inline bool is_mx(int32_t format) { return !is_fp8(format) && format != MXQ_FORMAT_NVFP4; }
int32_t default_scaling(int32_t format);
int code_bits(int32_t format);
int64_t row_bytes(int32_t format, int64_t cols);
inline int64_t scale_bytes(int32_t format) { return is_fp8(format) ? 4 : 1; }
inline int64_t position_width(int32_t format) { return is_mx(format) ? 32 : 16; }  // codes under one swizzled scale byte

struct Tile {
    int64_t height, width;
};
inline constexpr int64_t whole = int64_t{1} << 40;

Tile tile_of(int32_t scaling);
// Returns the tile that one stored compact scale covers: 16x16 scales are stored once for each row.
Tile stored_tile(int32_t scaling);

struct Grid {
    int64_t rows, cols;
};
Grid grid_of(Tile tile, int64_t rows, int64_t cols);

// ---- Codes and scales as bytes -----------------------------------------------------------------------------------------

// Returns a code of a row. A row of codes is one string of bits, the low bits of each byte first.
inline uint8_t get_code(const uint8_t* row, int bits, int64_t index) {
    int64_t at = index * bits;
    int shift = static_cast<int>(at % 8);
    uint32_t word = row[at / 8];
    if (shift + bits > 8) word |= static_cast<uint32_t>(row[at / 8 + 1]) << 8;
    return static_cast<uint8_t>(word >> shift & ((1u << bits) - 1));
}
// Stores a code of a row, whose bits must be zero before.
inline void put_code(uint8_t* row, int bits, int64_t index, uint8_t code) {
    int64_t at = index * bits;
    int shift = static_cast<int>(at % 8);
    uint32_t word = static_cast<uint32_t>(code) << shift;
    row[at / 8] = static_cast<uint8_t>(row[at / 8] | word);
    if (shift + bits > 8) row[at / 8 + 1] = static_cast<uint8_t>(row[at / 8 + 1] | word >> 8);
}

inline uint32_t get_scale(int32_t format, const uint8_t* scales, int64_t entry) {
    uint32_t scale = 0;
    std::memcpy(&scale, scales + entry * scale_bytes(format), static_cast<size_t>(scale_bytes(format)));
    return scale;
}
inline void put_scale(int32_t format, uint8_t* scales, int64_t entry, uint32_t scale) {
    std::memcpy(scales + entry * scale_bytes(format), &scale, static_cast<size_t>(scale_bytes(format)));
}

// ---- Where scales lie --------------------------------------------------------------------------------------------------

inline int64_t swizzle_position(int64_t i, int64_t j, int64_t blocks) {
    return ((i / 128) * ceil_div(blocks, 4) + j / 4) * 512 + (i % 32) * 16 + ((i % 128) / 32) * 4 + j % 4;
}

// Where one matrix lies in a part: its first code, and for each code the index of its scale.
struct Placement {
    enum class Kind { row_major, outer_major, swizzled };

    int64_t first_byte = 0, row_bytes = 0, first_code = 0;  // code (i, j) is code first_code + j of stored row i
    Kind kind = Kind::row_major;
    Tile tile{1, 1};                                        // the codes that one stored scale covers
    int64_t first_scale = 0, stride = 0;                    // if swizzled, stride is the matrix's columns of scales
    int64_t rows_with_scale = whole, cols_with_scale = whole;

    bool has_scale(int64_t i, int64_t j) const { return i < rows_with_scale && j < cols_with_scale; }
    int64_t scale(int64_t i, int64_t j) const {
        int64_t row = i / tile.height, col = j / tile.width;
        if (kind == Kind::swizzled) return first_scale + swizzle_position(row, col, stride);
        return first_scale + (kind == Kind::row_major ? row * stride + col : col * stride + row);
    }
};

// Returns the kind, tile and stride of the scales of a single (rows, cols) matrix.
Placement scale_placement(const Spec& spec, int64_t rows, int64_t cols, bool swizzled);

// Returns the number of scales of a single (rows, cols) matrix, padding included.
int64_t scale_count(const Spec& spec, int64_t rows, int64_t cols, bool swizzled);

// Returns the placement of expert e in a part whose lines are (experts, rows, cols).
Placement placement_of(const Spec& spec, int64_t e, int64_t rows, int64_t cols, bool swizzled);

// Calls visit(i, j) once for each stored scale of the matrix, with the first code that it scales.
template <class Visit>
void each_scale(const Placement& placement, int64_t rows, int64_t cols, Visit visit) {
    Grid grid = grid_of(placement.tile, rows, cols);
    for (int64_t r = 0; r < grid.rows; ++r)
        for (int64_t c = 0; c < grid.cols; ++c) {
            int64_t i = placement.tile.height == whole ? 0 : r * placement.tile.height;
            int64_t j = placement.tile.width == whole ? 0 : c * placement.tile.width;
            if (placement.has_scale(i, j)) visit(i, j);
        }
}

// Returns the number of the tile of `matrix` that code (i, j) belongs to.
size_t tile_number(const Spec& spec, const Matrix& matrix, int64_t i, int64_t j);

// Stores a matrix in a part, whose codes and scales must be zero there.
void put_matrix(const Spec& spec, const Matrix& matrix, const Placement& placement, Part& part);

// Returns the codes and scales of the (rows, cols) matrix at this placement.
Matrix get_matrix(const Spec& spec, const Part& part, const Placement& placement, int64_t rows, int64_t cols);

// ---- Swizzled and back, one matrix -------------------------------------------------------------------------------------

// Returns the rows of compact scales of an MX matrix with the scaling 1x32 or 32x32.
int64_t compact_scale_rows(int32_t scaling, int64_t rows);

// Returns the size of the swizzled 1x32 scales of a (rows, cols) matrix of codes.
int64_t swizzled_bytes(int64_t rows, int64_t cols);

// Returns a (rows, blocks) matrix of scale bytes in 128x4 tiles. Padding is zero.
Bytes swizzle_positions(const uint8_t* scales, int64_t rows, int64_t blocks);

// Moves the scales of a (rows, cols) matrix of codes from one layout to the other. In the swizzled layout a scale is repeated
// at each position that it covers.
Bytes move_scales(const Spec& spec, const uint8_t* scales, int64_t rows, int64_t cols, bool to_swizzled);
Bytes swizzle(const Spec& spec, const Bytes& compact, int64_t rows, int64_t cols);
Bytes unswizzle(const Spec& spec, const Bytes& swizzled, int64_t rows, int64_t cols);
Bytes swizzle(const Bytes& compact, int32_t scaling, int64_t rows, int64_t cols);

template <class T>
std::vector<T> transposed(const T* x, int64_t rows, int64_t cols) {
    std::vector<T> out(static_cast<size_t>(rows * cols));
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) out[static_cast<size_t>(j * rows + i)] = x[i * cols + j];
    return out;
}

}  // namespace oracle

#endif
