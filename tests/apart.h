// Parts whose lines and experts lie apart: the strides that say so, and the bytes that they lead to.
#ifndef MXQ_TESTS_APART_H
#define MXQ_TESTS_APART_H

#include "formats.h"

namespace testing {

// Matrices of lines of bytes: the codes or the scales of a part. Swizzled and TENSOR scales are one line for each matrix.
struct Lines {
    int64_t matrices, lines, width;
    int64_t dense() const { return lines * width; }  // bytes of a matrix without gaps
};

inline Lines code_lines(const oracle::Spec& spec, const oracle::Shape& shape, int32_t part) {
    const auto [matrices, lines, length] = oracle::line_shape(shape, part);
    return {matrices, lines, oracle::row_bytes(spec.format, length)};
}

inline Lines scale_lines(const oracle::Spec& spec, const oracle::Shape& shape, int32_t part, bool swizzled) {
    const auto [matrices, lines, length] = oracle::line_shape(shape, part);
    const int64_t bytes = oracle::scale_count(spec, lines, length, swizzled) * oracle::scale_bytes(spec.format);
    if (swizzled || spec.scaling == MXQ_SCALING_TENSOR) return {matrices, 1, bytes};
    const int64_t rows = oracle::grid_of(oracle::stored_tile(spec.scaling), lines, length).rows;
    return {matrices, rows, rows == 0 ? 0 : bytes / rows};
}

// Bytes from a line to the next and from a matrix to the next; 0: no gap.
struct Distances {
    int64_t line = 0, matrix = 0;
    int64_t line_of(const Lines& of) const { return line ? line : of.width; }
    int64_t matrix_of(const Lines& of) const { return matrix ? matrix : of.lines * line_of(of); }
};

// Returns the bytes from the first line to the end of the last.
inline int64_t span_of(const Lines& of, Distances apart) {
    if (of.matrices == 0 || of.lines == 0 || of.width == 0) return 0;
    return (of.matrices - 1) * apart.matrix_of(of) + (of.lines - 1) * apart.line_of(of) + of.width;
}

// Returns dense lines at these distances, with `fill` between them.
inline Bytes move_apart(const Bytes& dense, const Lines& of, Distances apart, uint8_t fill) {
    Bytes out(static_cast<size_t>(span_of(of, apart)), fill);
    if (out.empty()) return out;
    for (int64_t m = 0; m < of.matrices; ++m)
        for (int64_t i = 0; i < of.lines; ++i)
            std::copy_n(dense.begin() + m * of.dense() + i * of.width, of.width,
                        out.begin() + m * apart.matrix_of(of) + i * apart.line_of(of));
    return out;
}

}  // namespace testing

#endif
