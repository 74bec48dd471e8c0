#include "sums.h"

#include "../parallel.h"

namespace search {

using oracle::Element;

namespace {

using Doubles = std::vector<double>;

// Columns of a tile: few enough for their sums to stay in registers, and for products of few columns.
constexpr int64_t tile = 8;

// Returns a matrix of (lines, k) numbers as (tiles, k, tile), zeros behind the last line.
template <class Number>
Doubles tiled(int64_t lines, int64_t k, Number number) {
    Doubles out(static_cast<size_t>(oracle::ceil_div(lines, tile) * tile * k));
    for (int64_t i = 0; i < lines; ++i)
        for (int64_t l = 0; l < k; ++l)
            out[static_cast<size_t>((i / tile * k + l) * tile + i % tile)] = number(static_cast<size_t>(i * k + l));
    return out;
}

// Sums up the terms of a bound that depend on one of an element's two lines alone.
struct Line {
    double magnitudes = 0;
    bool infinite = false;
};

std::vector<Line> lines_of(const PieceOperand& operand, int64_t k) {
    std::vector<Line> out(static_cast<size_t>(operand.lines));
    for (size_t i = 0; i < operand.values.size(); ++i) {
        Line& line = out[i / static_cast<size_t>(k)];
        line.magnitudes += std::fabs(static_cast<double>(operand.values[i]));
        line.infinite |= std::isinf(operand.values[i]);
    }
    return out;
}

// Adds x times `from` to `to`, for the columns of a tile.
void add_times(double x, const double* from, double* to) {
    for (int64_t j = 0; j < tile; ++j) to[j] += x * from[j];
}

// Calls body(row, first column, columns) for the tiles of a (rows, cols) matrix, on all cores.
template <class Body>
void for_each_tile(int64_t rows, int64_t cols, int64_t k, const Body& body) {
    testing::parallel_for(rows, cols * k, [&](int64_t i) {
        for (int64_t j = 0; j < cols; j += tile) body(i, j, std::min(tile, cols - j));
    });
}

}  // namespace

std::vector<Element> product(const PieceOperand& a, const PieceOperand& b, int64_t k) {
    const Doubles values = tiled(b.lines, k, [&](size_t at) { return b.values[at]; }),
                  magnitudes = tiled(b.lines, k, [&](size_t at) { return std::fabs(b.values[at]); });
    const std::vector<Line> rows = lines_of(a, k), cols = lines_of(b, k);
    std::vector<Element> out(static_cast<size_t>(a.lines * b.lines));
    for_each_tile(a.lines, b.lines, k, [&](int64_t i, int64_t first, int64_t count) {
        double value[tile] = {}, magnitude[tile] = {};
        for (int64_t l = 0; l < k; ++l) {
            const double x = a.values[static_cast<size_t>(i * k + l)];
            const auto at = static_cast<size_t>(first * k + l * tile);
            add_times(x, &values[at], value);
            add_times(std::fabs(x), &magnitudes[at], magnitude);
        }
        const Line& row = rows[static_cast<size_t>(i)];
        for (int64_t j = 0; j < count; ++j) {
            const Line& col = cols[static_cast<size_t>(first + j)];
            Element& e = out[static_cast<size_t>(i * b.lines + first + j)];
            e.value = value[j];
            e.magnitude = magnitude[j];
            e.operands = row.magnitudes + col.magnitudes;
            if (row.infinite || col.infinite || e.magnitude >= 0x1p128)
                e.promised = false;
            else
                e.nan = std::isnan(e.operands);
        }
    });
    return out;
}

void add_aligned(std::vector<Element>& sums, const PieceOperand& a, const PieceOperand& b, int64_t k) {
    const auto raised = [](float x) { return x == 0 ? 0 : std::max(std::fabs(static_cast<double>(x)), 0x1p-14); };
    const Doubles columns = tiled(b.lines, k, [&](size_t at) { return raised(b.values[at]); });
    for_each_tile(a.lines, b.lines, k, [&](int64_t i, int64_t first, int64_t count) {
        double magnitude[tile] = {};
        for (int64_t l = 0; l < k; ++l)
            add_times(raised(a.values[static_cast<size_t>(i * k + l)]), &columns[static_cast<size_t>(first * k + l * tile)],
                      magnitude);
        for (int64_t j = 0; j < count; ++j) {
            Element& e = sums[static_cast<size_t>(i * b.lines + first + j)];
            e.aligned = magnitude[j] - e.magnitude;
        }
    });
}

void add_rebase_errors(std::vector<Element>& sums, const PieceOperand& a, const oracle::Floats& a_errors,
                       const PieceOperand& b, const oracle::Floats& b_errors, int64_t k) {
    const Doubles errors = tiled(b.lines, k, [&](size_t at) { return b_errors[at]; }),
                  magnitudes = tiled(b.lines, k, [&](size_t at) { return std::fabs(b.values[at]); });
    for_each_tile(a.lines, b.lines, k, [&](int64_t i, int64_t first, int64_t count) {
        double rebased[tile] = {};
        for (int64_t l = 0; l < k; ++l) {
            const auto at = static_cast<size_t>(i * k + l), of_b = static_cast<size_t>(first * k + l * tile);
            add_times(a_errors[at], &magnitudes[of_b], rebased);
            add_times(std::fabs(static_cast<double>(a.values[at])) + a_errors[at], &errors[of_b], rebased);
        }
        for (int64_t j = 0; j < count; ++j) sums[static_cast<size_t>(i * b.lines + first + j)].rebased += rebased[j];
    });
}

}  // namespace search
