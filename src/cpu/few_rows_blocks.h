// Products of codes with so few rows that the sums of a unit of one line stay in registers. Part of few_rows_kernels.cpp,
// whose head fixes the order of each sum.
//
//     block     four lines of B and up to kBlockRows rows; codes are decoded in registers and go from there to all rows
//     rows      a unit of them comes from L2 and is read for four lines
//     runs      sums of products that share a factor, of one line and all rows, or of four lines in turns: in registers
//     sums      of four lines and all rows: in registers where there are enough, else in L1
//
// A line waits for nothing that the line before it computes, and the code of four lines has no branch, so that a processor
// decodes one while it multiplies another. Beside more rows than that decoding weighs less than loads of rows do, which
// strips share among lines (few_rows_strips.h).
#pragma once
#include <utility>

#include "cpu/few_rows_columns.h"

namespace mxq::cpu {
namespace {

// Multiplies a part of a unit of a line with the rows. Products of codes that have the same factors are summed before these
// are applied.
template <class Weights, Products products, int rows>
MXQ_HD void multiply_then_scale(const uint8_t* codes, const float* factors, const float* numbers, int64_t part,
                                Lanes* const (&sums)[rows]) {
    Lanes run[rows];
    const auto multiply = [&](int n, const auto& add) __attribute__((always_inline)) {
        if (n % Weights::section == 0) {
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) run[r] = no_lanes();
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) add(r);
    };
    const auto end = [&](int n) __attribute__((always_inline)) {
        if (n % Weights::section != 0) return;
        const Lanes of_lanes = Weights::factors_of(factors, n / Weights::section - 1, part);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) *sums[r] = multiply_add<false>(run[r], of_lanes, *sums[r]);
    };
#if defined(__AVX512BF16__)
    if constexpr (products == Products::dots)
        return Weights::decode_words(
            codes, [&](int s, __m512i pairs) __attribute__((always_inline)) {
                multiply(
                    2 * s, [&](int r) __attribute__((always_inline)) {
                        const __m512i row = _mm512_loadu_si512(numbers + r * kRowFloats<products> + s * kLanes);
                        run[r].all = _mm512_dpbf16_ps(run[r].all, __m512bh(pairs), __m512bh(row));
                    });
                end(2 * s + 2);
            });
#endif
    Weights::decode(
        codes, part, [&](int n, Lanes values) __attribute__((always_inline)) {
            multiply(
                n, [&](int r) __attribute__((always_inline)) {
                    run[r] = multiply_add<products == Products::exact>(
                        row_lanes<products>(numbers + r * kRowFloats<products>, n), values, run[r]);
                });
            end(n + 1);
        });
}

// Multiplies a part of a unit of a line with the rows. Factors, where there are any, are applied first.
template <class Weights, Products products, int rows>
MXQ_HD void scale_then_multiply(const uint8_t* codes, const float* factors, const float* numbers, int64_t part,
                                Lanes* const (&sums)[rows]) {
#if defined(__AVX512BF16__)
    if constexpr (products == Products::dots && Weights::has_words)
        return Weights::decode_words(
            codes, [&](int s, __m512i pairs) __attribute__((always_inline)) {
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++) {
                    const __m512i row = _mm512_loadu_si512(numbers + r * kRowFloats<products> + s * kLanes);
                    sums[r]->all = _mm512_dpbf16_ps(sums[r]->all, __m512bh(pairs), __m512bh(row));
                }
            });
#endif
    Weights::decode(
        codes, part, [&](int n, Lanes values) __attribute__((always_inline)) {
            if constexpr (Weights::factors > 0)
                values = times(values, Weights::factors_of(factors, n / Weights::section, part));
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                *sums[r] = multiply_add<products == Products::exact>(
                    row_lanes<products>(numbers + r * kRowFloats<products>, n), values, *sums[r]);
        });
}

// Multiplies a part of a unit of a line with the rows.
template <class Weights, Products products, int rows>
MXQ_HD void multiply_line(const uint8_t* codes, const float* factors, const float* numbers, int64_t part,
                          Lanes* const (&sums)[rows]) {
    if constexpr (Weights::factors > 0 && products != Products::scaled)
        multiply_then_scale<Weights, products, rows>(codes, factors, numbers, part, sums);
    else
        scale_then_multiply<Weights, products, rows>(codes, factors, numbers, part, sums);
}

// Tells whether a pair of vectors of each line is multiplied in turns. What waits for its operands takes the places of what
// could work: products of a line are one chain of four or eight multiply-adds after some operations that decode, and no
// processor looks far enough ahead to fill its waits with the lines that follow.
template <class Weights, Products products, int rows>
constexpr bool kTakesLinesInTurns = false;

// Tells whether lines in turns are prefetched so, too. Those whose units have 64 and 96 bytes are faster where all are
// prefetched together, as was measured (docs/cpu-few-rows.md).
template <class Weights>
constexpr bool kPrefetchesInTurns = Weights::unit_bytes > 96;

#if defined(__AVX512F__)
template <class Weights, int rows>
constexpr bool kTakesLinesInTurns<Weights, Products::fused, rows> = rows <= 2 && has_codes<Weights>;

// Adds the runs of a section of four lines, times their factors, to the sums.
template <class Weights, int rows>
MXQ_HD void add_section(const float* const (&factors)[kStripLines], int section, const Lanes (&runs)[kStripLines][rows],
                        Lanes (&sums)[kStripLines][rows]) {
#pragma GCC unroll 4
    for (int c = 0; c < kStripLines; c++) {
        const Lanes of_lanes = Weights::factors_of(factors[c], section, 0);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) sums[c][r] = multiply_add<false>(runs[c][r], of_lanes, sums[c][r]);
    }
}

// Multiplies a unit of four lines of codes with the rows: two vectors of each line in turns. Without factors runs are the
// sums.
template <class Weights, int rows>
MXQ_HD void multiply_in_turns(const uint8_t* const (&codes)[kStripLines], int64_t to_next,
                              [[maybe_unused]] const float* const (&factors)[kStripLines], const float* numbers,
                              Lanes (&sums)[kStripLines][rows]) {
    constexpr bool has_factors = Weights::factors > 0;
    PairDecoder<typename Weights::Element> decoders[kStripLines];
    Lanes runs[kStripLines][rows];
#pragma GCC unroll 4
    for (int n = 0; n < kUnitVectors; n += 2) {
        Lanes upper[rows], lower[rows];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) {
            upper[r] = in_register(row_lanes<Products::fused>(numbers + r * kUnit, n));
            lower[r] = in_register(row_lanes<Products::fused>(numbers + r * kUnit, n + 1));
        }
        const bool begins = has_factors && n % Weights::section == 0;
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) {
            if (kPrefetchesInTurns<Weights> && n / 2 % 2 == c / 2) __builtin_prefetch(codes[c] + to_next + n / 4 * 64, 0, 2);
            decoders[c](codes[c], n / 2);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                Lanes& to = has_factors ? runs[c][r] : sums[c][r];
                to = begins ? times(upper[r], decoders[c].upper) : multiply_add<false>(upper[r], decoders[c].upper, to);
                to = in_register(multiply_add<false>(lower[r], decoders[c].lower, to));
            }
        }
        if constexpr (has_factors)
            if ((n + 2) % Weights::section == 0) add_section<Weights>(factors, n / Weights::section, runs, sums);
    }
}
#endif

// Multiplies the lines with all rows of the pass. `strip` has the sums: those of a line are neighbours. Returns false where
// there is a NaN that decoding loses.
template <class Weights, Products products, int rows>
bool multiply_block(const FewRowsPass& pass, const Columns& b, float* strip) {
    Lanes sums[kParts][kStripLines][rows];
    const auto for_sums = [&](const auto& use) __attribute__((always_inline)) {
        for (int64_t p = 0; p < kParts; p++)
            for (int64_t c = 0; c < kStripLines; c++)
                for (int64_t r = 0; r < rows; r++) use(sums[p][c][r], strip + (c * rows + r) * kLanes + p * kWidth);
    };
    for_sums([](Lanes & sum, const float* from) __attribute__((always_inline)) { sum = load_lanes(from); });
    const uint8_t* codes[kStripLines];
    for (int c = 0; c < kStripLines; c++) codes[c] = b.codes[c];
    NanSearch<Weights::loses_nan> search;
    const float* numbers = pass.rows;
    for (int64_t unit = 0; unit * kUnit < pass.depth; unit++, numbers += rows * kRowFloats<products>) {
        if (unit == b.units)
            for (int c = 0; c < kStripLines; c++) codes[c] = b.last[c];
        if constexpr (!kTakesLinesInTurns<Weights, products, rows> || !kPrefetchesInTurns<Weights>)
#pragma GCC unroll 4
            for (int c = 0; c < kStripLines; c++)
#pragma GCC unroll 2
                for (int64_t at = 0; at < Weights::unit_bytes; at += 64) __builtin_prefetch(codes[c] + b.to_next + at, 0, 2);
        search.look_at(codes);
        const auto multiply = [&](int64_t part) __attribute__((always_inline)) {
            if constexpr (kTakesLinesInTurns<Weights, products, rows>) {
                const float* factors[kStripLines];
                for (int c = 0; c < kStripLines; c++) factors[c] = b.factors[c] + unit * Weights::factor_floats;
                multiply_in_turns<Weights>(codes, b.to_next, factors, numbers, sums[part]);
            } else {
#pragma GCC unroll 4
                for (int c = 0; c < kStripLines; c++) {
                    Lanes* of_line[rows];
                    for (int r = 0; r < rows; r++) of_line[r] = &sums[part][c][r];
                    multiply_line<Weights, products, rows>(codes[c], b.factors[c] + unit * Weights::factor_floats,
                                                           numbers + part * kWidth, part, of_line);
                }
            }
        };
        if constexpr (rows == 1)
#pragma GCC unroll 2
            for (int64_t part = 0; part < kParts; part++) multiply(part);
        else
#pragma GCC unroll 1
            for (int64_t part = 0; part < kParts; part++) multiply(part);
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) codes[c] += Weights::unit_bytes;
    }
    for_sums([](const Lanes& sum, float* to) __attribute__((always_inline)) { store_lanes(sum, to); });
    return !search.found();
}

using MultiplyBlock = bool (*)(const FewRowsPass&, const Columns&, float* strip);

// Returns the function for a block of so many rows.
template <class Weights, Products products, int... index>
MultiplyBlock block_of(int64_t rows, std::integer_sequence<int, index...>) {
    static constexpr MultiplyBlock of_rows[] = {multiply_block<Weights, products, index + 1>...};
    return of_rows[rows - 1];
}

}  // namespace
}  // namespace mxq::cpu
