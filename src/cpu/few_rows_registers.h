// Products with sums in registers: of plain numbers with up to two or three rows, and of 4-bit codes with two rows in dot
// products. Part of few_rows_kernels.cpp, whose head fixes the order of each sum.
#pragma once
#include <utility>

#include "cpu/few_rows_blocks.h"
#include "cpu/few_rows_columns.h"

namespace mxq::cpu {
namespace {

// Tells whether plain numbers are multiplied 64 bytes of each row of B after another.
template <class Weights, Products products, int rows>
constexpr bool kTakesTurns = is_plain<Weights>&& products != Products::dots&& rows <= kTurnRows;

// Multiplies a part of one unit of rows of plain numbers with the rows, of which a vector is loaded once for all rows of B.
// Only the first part prefetches what comes next. AVX-512 finds a vector by a constant, which takes 7% less with two rows of
// BF16; AVX2, in two parts, took a tenth more so.
template <class Weights, Products products, int rows, int columns>
MXQ_HD void multiply_turns(const uint8_t* const (&lines)[columns], const Columns& b, const float* numbers, int64_t part,
                           Lanes (&sums)[columns][rows]) {
    constexpr int64_t vector_bytes = Weights::unit_bytes / kUnitVectors;
    constexpr int vectors = int(64 / vector_bytes);
#pragma GCC unroll 1
    for (int first = 0; first < kUnitVectors; first += vectors) {
        const int from = kParts == 1 ? first : 0;
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            if (part == 0) __builtin_prefetch(lines[c] + b.to_next + first * vector_bytes, 0, 2);
#pragma GCC unroll 2
        for (int n = first; n < first + vectors; n++) {
            Lanes row[rows];
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                row[r] = in_register(row_lanes<products>(numbers + from * kLanes + r * kRowFloats<products>, n - from));
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++) {
                const Lanes weights = Weights::load(lines[c] + from * vector_bytes, n - from, part);
#pragma GCC unroll 2
                for (int r = 0; r < rows; r++) sums[c][r] = multiply_add(row[r], weights, sums[c][r]);
            }
        }
    }
}

// Multiplies a part of a unit of a row of plain numbers, or of decoded ones, with the rows.
template <class Weights, Products products, int rows>
MXQ_HD void multiply_plain_line(const uint8_t* line, const float* numbers, int64_t part, Lanes (&sums)[rows]) {
#if defined(__AVX512BF16__)
    if constexpr (products == Products::dots && Weights::has_words)
        return Weights::decode_words(
            line, [&](int s, __m512i pairs) __attribute__((always_inline)) {
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++) {
                    const __m512i row = _mm512_loadu_si512(numbers + r * kRowFloats<products> + s * kLanes);
                    sums[r].all = _mm512_dpbf16_ps(sums[r].all, __m512bh(pairs), __m512bh(row));
                }
            });
#endif
    Weights::decode(
        line, part, [&](int n, Lanes values) __attribute__((always_inline)) {
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                sums[r] = multiply_add(row_lanes<products>(numbers + r * kRowFloats<products>, n), values, sums[r]);
        });
}

// Multiplies a part of one unit of the rows of B with the rows.
template <class Weights, Products products, int rows, int columns>
MXQ_HD void multiply_unit(const uint8_t* const (&codes)[columns], const Columns& b, [[maybe_unused]] int64_t unit,
                          const float* numbers, int64_t part, Lanes (&sums)[columns][rows]) {
    if constexpr (kTakesTurns<Weights, products, rows>)
        return multiply_turns<Weights, products>(codes, b, numbers, part, sums);
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
        if constexpr (!has_codes<Weights>) {
            multiply_plain_line<Weights, products>(codes[c], numbers, part, sums[c]);
        } else {
#if defined(__AVX512F__)
            static_assert(DecodedPiece<typename Weights::Element>::of_unit == 1, "no other piece is decoded meanwhile");
            DecodedPiece<typename Weights::Element> pieces[2];
            pieces[0].take(codes[c]);
            const float* const factors = b.factors[c] + unit * Weights::factor_floats;
            multiply_by_pieces<Weights, products>({codes[c], codes[c], factors, b.to_next}, 0, numbers, pieces, sums[c]);
#else
            static_assert(!has_codes<Weights>, "codes have sums in registers with AVX-512 alone");
#endif
        }
}

// Multiplies parts of all units, from part `first` on. Only those with the first one prefetch what comes next.
template <class Weights, Products products, int parts, int rows, int columns>
MXQ_HD void multiply_parts(const FewRowsPass& pass, const Columns& b, int64_t first, Lanes (&sums)[parts][columns][rows]) {
    const uint8_t* codes[columns];
    for (int c = 0; c < columns; c++) codes[c] = b.codes[c];
    const float* numbers = pass.rows + first * kWidth;
    const auto multiply = [&](int64_t unit) __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (int p = 0; p < parts; p++)
            multiply_unit<Weights, products>(codes, b, unit, numbers + p * kWidth, first + p, sums[p]);
    };
    for (int64_t unit = 0; unit < b.units; unit++, numbers += rows * kRowFloats<products>) {
        if (!has_codes<Weights> && !kTakesTurns<Weights, products, rows> && first == 0)
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++)
#pragma GCC unroll 8
                for (int64_t at = 0; at < Weights::unit_bytes; at += 64) __builtin_prefetch(codes[c] + b.to_next + at, 0, 2);
        multiply(unit);
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) codes[c] += Weights::unit_bytes;
    }
    if (b.units * kUnit < pass.depth) {
        for (int c = 0; c < columns; c++) codes[c] = b.last[c];
        multiply(b.units);
    }
}

template <class Weights, Products products, int rows>
bool multiply_columns(const FewRowsPass& pass, const Columns& b) {
    constexpr int columns = kRegisterLines, parts = rows == 1 ? kParts : 1;  // so many whose sums registers hold
    const auto lanes_of = [&](int64_t part, int r, int c) {
        return pass.lanes + ((b.first + c * b.apart) * rows + r) * kLanes + part * kWidth;
    };
    Lanes all[kParts][columns][rows];
#pragma GCC unroll 2
    for (int64_t first = 0; first < kParts; first += parts) {
        Lanes sums[parts][columns][rows];
#pragma GCC unroll 2
        for (int p = 0; p < parts; p++)
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
                for (int c = 0; c < columns; c++)
                    sums[p][c][r] = pass.first || c >= b.count ? no_lanes() : load_lanes(lanes_of(first + p, r, c));
        multiply_parts<Weights, products>(pass, b, first, sums);
#pragma GCC unroll 2
        for (int p = 0; p < parts; p++)
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
                for (int c = 0; c < columns; c++) {
                    all[first + p][c][r] = sums[p][c][r];
                    if (!pass.last && c < b.count) store_lanes(sums[p][c][r], lanes_of(first + p, r, c));
                }
    }
    if (!pass.last) return true;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < b.count; c++) {
            Lanes of_sum[kParts];
            for (int64_t part = 0; part < kParts; part++) of_sum[part] = all[part][c][r];
            finish_sum(pass, b, r, c, of_sum, Weights::order, Weights::scale);
        }
    return true;
}

}  // namespace
}  // namespace mxq::cpu
