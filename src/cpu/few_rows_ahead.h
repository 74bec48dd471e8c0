// Products of up to sixteen rows on AVX2: while lines of codes are multiplied, those that come next are decoded. Plain
// numbers beside more rows than have their sums in registers are multiplied in the same steps. Part of
// few_rows_kernels.cpp, whose head fixes the order of each sum.
//
//     step      a unit of two or four lines, as F16 numbers in L1, beside up to kStepRows rows; between its multiply-adds a
//               unit of the lines of the next step is decoded from its codes to L1
//     rows      more than kStepRows are divided among several steps, the first of which decodes
//     runs      sums of products that share a factor, of all lines and rows of a step: in registers
//     sums      in L1
//
// Zen 4 converts F16 numbers from memory beside two multiply-adds a cycle, in pipes that these do not need, and a row's
// numbers are loaded once for all lines of a step. Multiply-adds and the operations that decode must alternate, since a
// processor looks some hundred of them ahead: a unit that was decoded before it was multiplied took a tenth longer, and a
// step that is a function of its own a fifth. docs/performance.md counts the operations.
#pragma once
#include <algorithm>
#include <type_traits>

#include "cpu/few_rows_columns.h"

namespace mxq::cpu {
namespace {

#if !defined(__AVX2__) || defined(__AVX512F__)
constexpr bool kDecodesAhead = false;  // by other kernels
template <class Weights, Products products>
bool multiply_ahead(const FewRowsPass&, const Columns&, float*);
template <class Weights, Products products>
bool multiply_plain(const FewRowsPass&, const Columns&, float*);
#else
constexpr bool kDecodesAhead = true;
constexpr int kStepRows = 4;

// The lines of a step: their units, decoded or plain numbers, and the factors of these.
template <int lines>
struct StepLines {
    const void* units[lines];
    const float* factors[lines];
};

// Units to decode, where to, and how many bytes further the lines begin that follow them.
template <int lines>
struct Undecoded {
    const uint8_t* codes[lines];
    uint16_t* halves;
    int64_t to_next;
};

// Returns a part of vector n of a unit.
template <class Weights>
MXQ_HD Lanes load_weights(const void* unit, int n, int64_t part) {
    if constexpr (has_codes<Weights>)
        return load_halves<typename Weights::Element>(static_cast<const uint16_t*>(unit), n, part);
    else
        return Weights::load(static_cast<const uint8_t*>(unit), n, part);
}

// Multiplies a part of vector n of the lines with the rows. Runs that begin take their first product as it is.
template <class Weights, Products products, int rows, int lines>
MXQ_HD void multiply_vector(const void* const (&units)[lines], const float* numbers, int n, int64_t part, bool begins,
                            Lanes (&runs)[lines][rows]) {
    Lanes weights[lines];
#pragma GCC unroll 4
    for (int c = 0; c < lines; c++) weights[c] = load_weights<Weights>(units[c], n, part);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const Lanes row = in_register(load_lanes(numbers + r * kUnit + n * kLanes + part * kWidth));
#pragma GCC unroll 4
        for (int c = 0; c < lines; c++)
            runs[c][r] =
                begins ? times(row, weights[c]) : multiply_add<products == Products::fused>(row, weights[c], runs[c][r]);
    }
}

// Adds the runs of a line, times their factors, to its sums. Without factors they are the sums.
template <class Weights, Products products, int rows>
MXQ_HD void add_runs([[maybe_unused]] const float* factors, [[maybe_unused]] int section, int64_t part,
                     const Lanes (&runs)[rows], float* sums) {
    [[maybe_unused]] Lanes of_lanes;
    if constexpr (Weights::factors > 0) of_lanes = Weights::factors_of(factors, section, part);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float* const to = sums + r * kLanes + part * kWidth;
        Lanes sum = runs[r];
        if constexpr (Weights::factors > 0) {
            constexpr bool is_exact = products == Products::fused && Weights::has_powers_of_two;
            sum = multiply_add<is_exact>(sum, of_lanes, load_lanes(to));
        }
        store_lanes(sum, to);
    }
}

// Decodes a piece of a unit.
template <class Weights>
MXQ_HD void decode_piece(const uint8_t* unit, int piece, uint16_t* halves, NanSearch<Weights::loses_nan>& search) {
    using E = typename Weights::Element;
    Words stored = load_piece<E>(unit, piece);
    asm("" : "+x"(stored));  // keeps the compiler from loading it for each use
    search.look_at(stored);
    store_halves<E>(stored, piece, halves);
}

// Decodes what is due after `done` of a step's vectors and parts.
template <class Weights, int lines>
MXQ_HD void decode_next(const Undecoded<lines>& next, int done, NanSearch<Weights::loses_nan>& search) {
    using E = typename Weights::Element;
    constexpr int pieces = lines * kPieces<E>, all = int(kUnitVectors * kParts);
    if (done * pieces % all != 0) return;
    const int number = done * pieces / all - 1, line = number % lines, piece = number / lines;
    if (kSpreadsPrefetches<Weights> && piece == 0) __builtin_prefetch(next.codes[line] + next.to_next, 0, 2);
    decode_piece<Weights>(next.codes[line], piece, next.halves + line * kUnit, search);
}

// Multiplies the lines with so many rows. Calls decode(done) after each part of a vector.
template <class Weights, Products products, int rows, int lines, class Decode>
MXQ_HD void multiply_step(const StepLines<lines>& now, const float* numbers, float* sums, int64_t stride,
                          const Decode& decode) {
    constexpr bool has_factors = Weights::factors > 0;
    constexpr int section = Weights::section;
#pragma GCC unroll 2
    for (int part = 0; part < kParts; part++)
#pragma GCC unroll 2
        for (int s = 0; s < kUnitVectors / section; s++) {
            Lanes runs[lines][rows];
            if (!has_factors)
#pragma GCC unroll 4
                for (int c = 0; c < lines; c++)
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++) runs[c][r] = load_lanes(sums + c * stride + r * kLanes + part * kWidth);
#pragma GCC unroll 8
            for (int v = 0; v < section; v++) {
                const int n = s * section + v;
                multiply_vector<Weights, products>(now.units, numbers, n, part, has_factors && v == 0, runs);
                decode(part * kUnitVectors + n + 1);
            }
#pragma GCC unroll 4
            for (int c = 0; c < lines; c++) add_runs<Weights, products>(now.factors[c], s, part, runs[c], sums + c * stride);
        }
}

// Multiplies two lines with so many rows, and decodes nothing.
template <class Weights, Products products, int rows>
void multiply_more(const void* unit_0, const void* unit_1, const float* factors_0, const float* factors_1,
                   const float* numbers, float* sums, int64_t stride) {
    multiply_step<Weights, products, rows, 2>({{unit_0, unit_1}, {factors_0, factors_1}}, numbers, sums, stride, [](int) {});
}

// Multiplies two lines with two rows or more, which are divided evenly.
template <class Weights, Products products>
MXQ_HD void multiply_rest(const StepLines<2>& now, const float* numbers, float* sums, int64_t stride, int64_t rest) {
    for (int64_t rows; rest > 0; rest -= rows, numbers += rows * kUnit, sums += rows * kLanes) {
        rows = ceil_div(rest, ceil_div(rest, kStepRows));
        const auto multiply = rows == 2   ? multiply_more<Weights, products, 2>
                              : rows == 3 ? multiply_more<Weights, products, 3>
                                          : multiply_more<Weights, products, 4>;
        multiply(now.units[0], now.units[1], now.factors[0], now.factors[1], numbers, sums, stride);
    }
}

// Multiplies the lines with all rows of the pass, `lines` of them and the first `rows` rows at a time. `sums` has the sums:
// those of a line are neighbours. Returns false where there is a NaN that decoding loses.
template <class Weights, Products products, int rows, int lines>
bool multiply_units(const FewRowsPass& pass, const Columns& b, float* sums) {
    using E = typename Weights::Element;
    alignas(64) uint16_t halves[2][lines * kUnit];
    NanSearch<Weights::loses_nan> search;
    const uint8_t* codes[kStripLines];
    for (int c = 0; c < kStripLines; c++) codes[c] = b.units > 0 ? b.codes[c] : b.last[c];
    for (int c = 0; c < lines; c++)
        for (int piece = 0; piece < kPieces<E>; piece++)
            decode_piece<Weights>(codes[c], piece, halves[0] + c * kUnit, search);
    const float* numbers = pass.rows;
    const int64_t stride = pass.row_count * kLanes;
    int turn = 0;
    for (int64_t unit = 0; unit * kUnit < pass.depth; unit++, numbers += pass.row_count * kUnit) {
        const bool ends = (unit + 1) * kUnit >= pass.depth;
        const uint8_t* next[kStripLines];  // the last unit is decoded again
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) {
            for (int64_t at = 0; !kSpreadsPrefetches<Weights> && at < Weights::unit_bytes; at += 64)
                __builtin_prefetch(codes[c] + b.to_next + at, 0, 2);
            next[c] = ends ? codes[c] : unit + 1 < b.units ? codes[c] + Weights::unit_bytes : b.last[c];
        }
#pragma GCC unroll 2
        for (int line = 0; line < kStripLines; line += lines) {
            StepLines<lines> now;
            Undecoded<lines> then;
            const int from = lines < kStripLines ? line / lines : turn;  // a constant where there are two steps
            then.halves = halves[from ^ 1], then.to_next = b.to_next;
#pragma GCC unroll 4
            for (int c = 0; c < lines; c++) {
                now.units[c] = halves[from] + c * kUnit;
                now.factors[c] = b.factors[line + c] + unit * Weights::factor_floats;
                then.codes[c] = line + lines < kStripLines ? codes[line + lines + c] : next[c];
            }
            multiply_step<Weights, products, rows, lines>(
                now, numbers, sums + line * stride,
                stride, [&](int done) __attribute__((always_inline)) { decode_next<Weights>(then, done, search); });
            if constexpr (lines < kStripLines)
                multiply_rest<Weights, products>(now, numbers + rows * kUnit, sums + line * stride + rows * kLanes, stride,
                                                 pass.row_count - rows);
        }
        for (int c = 0; c < kStripLines; c++) codes[c] = next[c];
        turn ^= 1;
    }
    return !search.found();
}

// Looks for BF16 numbers whose products may not be exact. Without `searches` it does nothing.
template <bool searches>
struct ExactSearch {
    // Looks at a unit.
    MXQ_HD void look_at([[maybe_unused]] const uint8_t* unit) {
        if constexpr (searches)
#pragma GCC unroll 8
            for (int i = 0; i < kUnitVectors; i++) {
                const Words magnitudes = _mm256_and_si256(load_words(unit + i * 32), _mm256_set1_epi16(0x7FFF));
                smallest = _mm256_min_epu16(smallest, _mm256_add_epi16(magnitudes, _mm256_set1_epi16(-1)));
                largest = _mm256_max_epu16(largest, magnitudes);
            }
    }
    bool found() const {
        alignas(32) uint16_t of_smallest[16], of_largest[16];
        store_words(smallest, of_smallest), store_words(largest, of_largest);
        return *std::min_element(of_smallest, of_smallest + 16) < kLeastExact - 1 ||
               *std::max_element(of_largest, of_largest + 16) >= kBeyondExact;
    }
    Words smallest = _mm256_set1_epi16(-1);  // of the magnitudes less one: zeros are the largest
    Words largest = _mm256_setzero_si256();
};

// Multiplies lines of plain numbers with all rows of the pass. Returns false where products are fused and may not be exact.
template <class Weights, Products products>
bool multiply_plain(const FewRowsPass& pass, const Columns& b, float* sums) {
    constexpr bool is_bf16 = std::is_same_v<Weights, PlainWeights<Bf16> >;
    ExactSearch<is_bf16 && products == Products::fused> search;
    const float* numbers = pass.rows;
    const int64_t stride = pass.row_count * kLanes;
    const uint8_t* codes[kStripLines];
    for (int c = 0; c < kStripLines; c++) codes[c] = b.codes[c];
    for (int64_t unit = 0; unit * kUnit < pass.depth; unit++, numbers += pass.row_count * kUnit) {
        if (unit == b.units)
            for (int c = 0; c < kStripLines; c++) codes[c] = b.last[c];
        for (int line = 0; line < kStripLines; line += 2) {
            for (int c = line; c < line + 2; c++) {
                for (int64_t at = 0; at < Weights::unit_bytes; at += 64) __builtin_prefetch(codes[c] + b.to_next + at, 0, 2);
                search.look_at(codes[c]);
            }
            const StepLines<2> now = {{codes[line], codes[line + 1]}, {}};
            multiply_rest<Weights, products>(now, numbers, sums + line * stride, stride, pass.row_count);
        }
        for (int c = 0; c < kStripLines; c++) codes[c] += Weights::unit_bytes;
    }
    return !search.found();
}

// Multiplies the lines with all rows of the pass.
template <class Weights, Products products>
bool multiply_ahead(const FewRowsPass& pass, const Columns& b, float* sums) {
    const int64_t rows = ceil_div(pass.row_count, ceil_div(pass.row_count, kStepRows));
    const auto multiply = rows == 1   ? multiply_units<Weights, products, 1, 4>
                          : rows == 2 ? multiply_units<Weights, products, 2, 4>
                          : rows == 3 ? multiply_units<Weights, products, 3, 2>
                                      : multiply_units<Weights, products, 4, 2>;
    return multiply(pass, b, sums);
}
#endif

}  // namespace
}  // namespace mxq::cpu
