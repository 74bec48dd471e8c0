// Products of codes with so few rows that the sums of a unit of one row of B stay in registers, with AVX-512. Part of
// few_rows_kernels.cpp, whose head fixes the order of each sum.
//
//     block     four rows of B and up to block_rows() rows; codes are decoded in registers and go from there to all rows
//     chunk     a unit of codes of four bits, or half a unit of wider ones, which is decoded before it is needed:
//
//                   b0    a b       one after another: while a is multiplied b is decoded, then c, and so on
//                   b1    c d
//                   b2    e f       interleaved (one or two rows of A): two vectors of a, c, e and g, then their other two.
//                   b3    g h       After these each row of B decodes its next chunk
//
//     rows      a unit of them comes from L2 and is read for four rows of B
//     runs      sums of products that share a factor, of one row of B and all rows, or of four interleaved: in registers
//     sums      of four rows of B and all rows: in registers where there are enough, else in L1
//
// The schedulers of Zen 4 hold some 64 operations that wait for operands. Codes of six and eight bits need 20 to 30 cycles
// from memory to numbers, and products that wait for them would fill the schedulers. So chunks are decoded before they are
// needed. With more rows, decoding weighs less than loads of rows do, which strips share among rows of B
// (few_rows_strips.h).
//
//     | MXFP6, a unit of a row of B, two rows  | cycles |
//     |----------------------------------------|--------|
//     | decoded as it is multiplied            | 30     |
//     | decoded before                         | 26     |
//     | its operations alone                   | 22     |
#pragma once
#include <utility>

#include "cpu/few_rows_columns.h"

namespace mxq::cpu {
namespace {

#if defined(__AVX512F__)
// Returns how many rows make a block. With more rows strips are faster.
template <class Weights>
constexpr int block_rows(Products products) {
    if (products == Products::dots) return 4;
    return Weights::order == Order::bytes ? 6 : 5;
}

// Tells whether a pair of vectors of each row of B is interleaved. Products of a row of B are one chain of four or eight
// multiply-adds, and with one or two rows there are too few rows of B in sight whose chains could fill its waits.
template <Products products, int rows>
constexpr bool kTakesLinesInTurns = products == Products::fused&& rows <= 2;

// Returns the chunk of a row of B that comes after one of its unit, which after the last one is at `next`.
template <class Weights>
MXQ_HD const uint8_t* piece_after(const uint8_t* codes, int piece, const uint8_t* next) {
    constexpr int pieces = DecodedPiece<typename Weights::Element>::of_unit;
    return piece < pieces - 1 ? codes + (piece + 1) * Weights::unit_bytes / pieces : next;
}

// A unit of each of four rows of B, their factors, and how many bytes it is to the rows of B that are prefetched meanwhile.
template <class Weights>
struct BlockUnits {
    MXQ_HD void step() {
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) codes[c] += Weights::unit_bytes, factors[c] += Weights::factor_floats;
    }

    const uint8_t* codes[kStripLines];
    const float* factors[kStripLines];
    int64_t to_next;
};

// Prefetches bytes of the row of B that comes next, at a point that the compiler cannot move to before the run is there.
// Left free, GCC gathers the prefetches of a unit, and one row of MXFP8 takes up to a tenth more.
MXQ_HD void prefetch_after(Lanes& run, const uint8_t* codes, int64_t& to_next) {
    asm("" : "+v"(run.all), "+r"(to_next));
    __builtin_prefetch(codes + to_next, 0, 2);
}

// Adds the products of two vectors of a row of B with those of the rows, as row(r, which) has them, to runs. Those that
// begin take their first product as it is.
template <int rows, class Line, class Row>
MXQ_HD void multiply_pair(const Line& line, int step, bool begins, const Row& row, Lanes (&runs)[rows]) {
    const Lanes upper = line.upper(step), lower = line.lower(step);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        runs[r] = begins ? times(row(r, 0), upper) : multiply_add(row(r, 0), upper, runs[r]);
        runs[r] = in_register(multiply_add(row(r, 1), lower, runs[r]));
    }
}

// Adds the runs of a section of a row of B, times its factors, to the sums.
template <class Weights, int rows>
MXQ_HD void add_section(const float* factors, int section, const Lanes (&runs)[rows], Lanes (&sums)[rows]) {
    const Lanes of_lanes = Weights::factors_of(factors, section, 0);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) sums[r] = multiply_add(runs[r], of_lanes, sums[r]);
}

// Multiplies a unit of four rows of codes with the rows: two vectors of each row of B, interleaved. Without factors runs are
// the sums. `pieces` has the first chunk of each row of B, and gets that of the unit that follows, where one does.
template <class Weights, int rows>
MXQ_HD void multiply_in_turns(const BlockUnits<Weights>& b, bool has_following, const float* numbers,
                              DecodedPiece<typename Weights::Element> (&pieces)[kStripLines],
                              Lanes (&sums)[kStripLines][rows]) {
    constexpr bool has_factors = Weights::factors > 0;
    constexpr int steps = DecodedPiece<typename Weights::Element>::steps;
    constexpr int count = DecodedPiece<typename Weights::Element>::of_unit;
    Lanes runs[kStripLines][rows];
    int64_t to_next = b.to_next;
#pragma GCC unroll 4
    for (int n = 0; n < kUnitVectors; n += 2) {
        Lanes row[rows][2];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) row[r][i] = in_register(load_lanes(numbers + r * kUnit + (n + i) * kLanes));
        const bool begins = has_factors && n % Weights::section == 0;
        const int step = n / 2 % steps, piece = n / 2 / steps;
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) {
            const auto row_of = [&](int r, int i) __attribute__((always_inline)) { return row[r][i]; };
            Lanes(&to)[rows] = has_factors ? runs[c] : sums[c];
            multiply_pair(pieces[c], step, begins, row_of, to);
            const int turn = step * kStripLines + c;
            if (turn % steps == 0) prefetch_after(to[0], b.codes[turn / steps] + piece * 64, to_next);
            if (step == steps - 1 && (piece < count - 1 || has_following))
                pieces[c].take(piece_after<Weights>(b.codes[c], piece, b.codes[c] + Weights::unit_bytes));
        }
        if constexpr (has_factors)
            if ((n + 2) % Weights::section == 0)
#pragma GCC unroll 4
                for (int c = 0; c < kStripLines; c++)
                    add_section<Weights>(b.factors[c], n / Weights::section, runs[c], sums[c]);
    }
}

// Multiplies units of four rows of codes with the rows, the rows of B interleaved.
template <class Weights, int rows>
MXQ_HD void multiply_units_in_turns(BlockUnits<Weights> b, int64_t count, const float* numbers,
                                    Lanes (&sums)[kStripLines][rows]) {
    DecodedPiece<typename Weights::Element> pieces[kStripLines];
    for (int c = 0; c < kStripLines; c++) pieces[c].take(b.codes[c]);
    for (int64_t left = count; left > 0; left--, numbers += rows * kUnit, b.step())
        multiply_in_turns(b, left > 1, numbers, pieces, sums);
}

// Adds the dot products of a pair of vectors of a row of B and of the rows to runs.
template <int rows, class Line>
MXQ_HD void multiply_dots(const Line& line, int step, bool begins, const float* numbers, Lanes (&runs)[rows]) {
    const Lanes pairs = as_lanes(line.pairs(step));
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        runs[r] = add_dots(load_lanes(numbers + r * kRowFloats<Products::dots>), pairs, begins ? no_lanes() : runs[r]);
}

// A unit of a row of codes and its factors, the unit that is multiplied next, and how far away the row of B is that is
// prefetched meanwhile.
struct LineUnit {
    const uint8_t *codes, *next;
    const float* factors;
    int64_t to_next;
};

// Multiplies a unit of a row of codes with the rows. Without factors runs are the sums. Of two chunks `now` is the first of
// the unit. While one is multiplied the other is decoded.
template <class Weights, Products products, int rows>
MXQ_HD void multiply_by_pieces(LineUnit line, int now, const float* numbers,
                               DecodedPiece<typename Weights::Element> (&pieces)[2], Lanes (&sums)[rows]) {
    constexpr bool has_factors = Weights::factors > 0;
    constexpr int steps = DecodedPiece<typename Weights::Element>::steps;
    Lanes own_runs[rows];
    Lanes(&runs)[rows] = has_factors ? own_runs : sums;
#pragma GCC unroll 4
    for (int n = 0; n < kUnitVectors; n += 2) {
        const int step = n / 2 % steps, piece = n / 2 / steps;
        const bool begins = has_factors && n % Weights::section == 0;
        DecodedPiece<typename Weights::Element>& some = pieces[(now + piece) % 2];
        if (step == 0) pieces[(now + piece + 1) % 2].take(piece_after<Weights>(line.codes, piece, line.next));
        if constexpr (products == Products::dots) {
            multiply_dots(some, step, begins, numbers + n / 2 * kLanes, runs);
        } else {
            const auto row_of = [&](int r, int i) __attribute__((always_inline)) {
                return load_lanes(numbers + r * kUnit + (n + i) * kLanes);
            };
            multiply_pair(some, step, begins, row_of, runs);
        }
        if (step == 0) prefetch_after(runs[0], line.codes + piece * 64, line.to_next);
        if constexpr (has_factors)
            if ((n + 2) % Weights::section == 0) add_section<Weights>(line.factors, n / Weights::section, runs, sums);
    }
}

// Multiplies units of four rows of codes with the rows, a row of B after another.
template <class Weights, Products products, int rows>
MXQ_HD void multiply_units(BlockUnits<Weights> b, int64_t count, const float* numbers, Lanes (&sums)[kStripLines][rows]) {
    constexpr int of_unit = DecodedPiece<typename Weights::Element>::of_unit;
    DecodedPiece<typename Weights::Element> pieces[2];
    pieces[0].take(b.codes[0]);
    for (int64_t left = count; left > 0; left--, numbers += rows * kRowFloats<products>, b.step()) {
        const uint8_t* const following = b.codes[0] + (left > 1 ? Weights::unit_bytes : 0);  // the last one once more
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) {
            const uint8_t* const next = c + 1 < kStripLines ? b.codes[c + 1] : following;
            multiply_by_pieces<Weights, products>({b.codes[c], next, b.factors[c], b.to_next}, c * of_unit % 2, numbers,
                                                  pieces, sums[c]);
        }
    }
}

// Multiplies the rows of B with all rows of the pass. `strip` has the sums: those of a row of B are neighbours.
template <class Weights, Products products, int rows>
void multiply_block(const FewRowsPass& pass, const Columns& b, float* strip) {
    static_assert(!Weights::loses_nan);
    Lanes sums[kStripLines][rows];
    const auto for_sums = [&](const auto& use) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int64_t c = 0; c < kStripLines; c++)
#pragma GCC unroll 8
            for (int64_t r = 0; r < rows; r++) use(sums[c][r], strip + (c * rows + r) * kLanes);
    };
    for_sums([](Lanes & sum, const float* from) __attribute__((always_inline)) { sum = load_lanes(from); });
    for (int64_t unit = 0, count; unit * kUnit < pass.depth; unit += count) {  // whole units, and then the last one
        const bool is_whole = unit < b.units;
        BlockUnits<Weights> units;
        for (int c = 0; c < kStripLines; c++) {
            units.codes[c] = is_whole ? b.codes[c] : b.last[c];
            units.factors[c] = b.factors[c] + unit * Weights::factor_floats;
        }
        units.to_next = b.to_next, count = is_whole ? b.units : 1;
        const float* const numbers = pass.rows + unit * rows * kRowFloats<products>;
        if constexpr (kTakesLinesInTurns<products, rows>)
            multiply_units_in_turns(units, count, numbers, sums);
        else
            multiply_units<Weights, products>(units, count, numbers, sums);
    }
    for_sums([](const Lanes& sum, float* to) __attribute__((always_inline)) { store_lanes(sum, to); });
}

using MultiplyBlock = void (*)(const FewRowsPass&, const Columns&, float* strip);

// Returns the function for a block of so many rows.
template <class Weights, Products products, int... index>
MultiplyBlock block_of(int64_t rows, std::integer_sequence<int, index...>) {
    static constexpr MultiplyBlock of_rows[] = {multiply_block<Weights, products, index + 1>...};
    return of_rows[rows - 1];
}
#endif

}  // namespace
}  // namespace mxq::cpu
