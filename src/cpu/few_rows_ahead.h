// Products of up to sixteen rows on AVX2: while rows of codes are multiplied, those that come next are decoded. Plain
// numbers are multiplied in the same steps. Part of few_rows_kernels.cpp, whose head fixes the order of each sum.
//
//     step      a unit of two or four rows of B, as F16 numbers in L1, with up to kStepRows rows. Between its multiply-adds
//               a unit of the rows of B of the next step is decoded from its codes to L1, two or three operations at a time
//     rows      more than kStepRows are divided among several steps, the first of which decodes
//     runs      sums of products that share a factor, of all rows of A and B of a step: in registers
//     sums      in L1
//     ahead     the four rows of B after the next four are prefetched in the order of memory, one after another. Prefetched
//               side by side, as they are multiplied, those of eight bits took up to a fifth more
//
// Zen 4 converts F16 numbers from memory overlapped with two multiply-adds a cycle, in pipes that these do not need. A row's
// numbers are loaded once for all rows of B of a step. Multiply-adds and the operations that decode must alternate, since a
// processor looks some hundred of them ahead. A unit that was decoded before it was multiplied took a tenth longer. A step
// that was a function of its own took a fifth longer. keep_here() holds the compiler to that order. docs/cpu-few-rows.md
// counts the operations.
#pragma once
#include <utility>

#include "cpu/few_rows_columns.h"

namespace mxq::cpu {
namespace {

#if defined(__AVX512F__)
constexpr bool kDecodesAhead = false;  // by other kernels
#else
constexpr bool kDecodesAhead = true;
constexpr int kStepRows = 4;

// Looks for codes of E4M3 that are NaN: all ones but for the sign. Without `searches` it does nothing.
template <bool searches>
struct NanSearch {
    // Looks at 32 codes. Twice those of NaN are the largest.
    MXQ_HD void look_at([[maybe_unused]] __m256i codes) {
        if constexpr (searches) most = _mm256_max_epu8(most, _mm256_add_epi8(codes, codes));
    }
    bool found() const {
        if constexpr (searches) return _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(char(0xFE)))) != 0;
        return false;
    }

    __m256i most = _mm256_setzero_si256();  // of twice the codes
};

// The rows of B of a step: their units, decoded or plain numbers, and the factors of these.
template <int lines>
struct StepLines {
    const void* units[lines];
    const float* factors[lines];
};

// Units of rows of B to decode, where to, and what is prefetched meanwhile.
struct Undecoded {
    const uint8_t* codes;  // of the first line
    int64_t between;       // bytes from a row of B to the next
    uint16_t* halves;
    const uint8_t* ahead;  // as many bytes as the units have
};

// Returns a part of vector n of a unit.
template <class Weights>
MXQ_HD Lanes load_weights(const void* unit, int n, int64_t part) {
    if constexpr (has_codes<Weights>)
        return load_halves<typename Weights::Element>(static_cast<const uint16_t*>(unit), n, part);
    else
        return Weights::load(static_cast<const uint8_t*>(unit), n, part);
}

// Multiplies a part of vector n of the rows of B with the rows. Runs that begin take their first product as it is. Calls
// decode(line) for each row of B, some multiply-adds apart.
template <class Weights, int rows, int lines, class Decode>
MXQ_HD void multiply_vector(const void* const (&units)[lines], const float* numbers, int n, int64_t part, bool begins,
                            Lanes (&runs)[lines][rows], const Decode& decode) {
    constexpr bool holds_rows = rows < lines;  // or the lines' weights
    Lanes held[holds_rows ? rows : lines];
    const auto row_of = [&](int r) __attribute__((always_inline)) {
        return in_register(load_lanes(numbers + r * kUnit + n * kLanes + part * kWidth));
    };
    const auto weights_of = [&](int c) __attribute__((always_inline)) { return load_weights<Weights>(units[c], n, part); };
    const auto multiply = [&](int c, int r, const Lanes& row, const Lanes& weights) __attribute__((always_inline)) {
        if (!begins) return add_product_here(row, weights, runs[c][r]);
        runs[c][r] = times(row, weights);
        keep_here(runs[c][r]);
    };
    if constexpr (holds_rows) {
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) held[r] = row_of(r);
#pragma GCC unroll 4
        for (int c = 0; c < lines; c++) {
            const Lanes weights = weights_of(c);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) multiply(c, r, held[r], weights);
            decode(c);
        }
    } else {
        static_assert(lines == 2, "both are decoded below");
#pragma GCC unroll 4
        for (int c = 0; c < lines; c++) held[c] = weights_of(c);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const Lanes row = row_of(r);
#pragma GCC unroll 4
            for (int c = 0; c < lines; c++) multiply(c, r, row, held[c]);
            if (r == (rows - 1) / 2) decode(0);
        }
        decode(1);
    }
}

// Adds the runs of a row of B, times their factors, to its sums. Without factors they are the sums.
template <class Weights, int rows>
MXQ_HD void add_runs([[maybe_unused]] const float* factors, [[maybe_unused]] int section, int64_t part,
                     const Lanes (&runs)[rows], float* sums) {
    [[maybe_unused]] Lanes of_lanes;
    if constexpr (Weights::factors > 0) of_lanes = Weights::factors_of(factors, section, part);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float* const to = sums + r * kLanes + part * kWidth;
        Lanes sum = runs[r];
        if constexpr (Weights::factors > 0) sum = multiply_add(sum, of_lanes, load_lanes(to));
        store_lanes(sum, to);
    }
}

// Decodes a chunk of a unit.
template <class Weights>
MXQ_HD void decode_piece(const uint8_t* unit, int piece, uint16_t* halves, NanSearch<Weights::loses_nan>& search) {
    PieceDecoder<typename Weights::Element> decode;
#pragma GCC unroll 8
    for (int step = 0; step < decode.steps; step++)
        decode(
            step, unit, piece, halves, [&](const Words& codes) __attribute__((always_inline)) { search.look_at(codes); });
}

// Decodes units to F16 numbers, a step at a time: row by row the first chunk, then the next.
template <class Weights, int lines>
struct DecodeAhead {
    using E = typename Weights::Element;
    static_assert(kUnitVectors * kParts == kPieces<E> * PieceDecoder<E>::steps);

    MXQ_HD void operator()(int step) {
        constexpr int steps = PieceDecoder<E>::steps, all = kUnitVectors * kParts * lines;
        constexpr int prefetches = lines * Weights::unit_bytes / 64;
        const int line = step / steps % lines, piece = step / steps / lines;
        if (step * prefetches % all < prefetches) __builtin_prefetch(next.ahead + step * prefetches / all * 64, 0, 2);
        decode(
            step % steps, next.codes + line * next.between, piece,
            next.halves + line * kUnit, [&](const Words& codes) __attribute__((always_inline)) { search.look_at(codes); });
    }

    const Undecoded next;
    NanSearch<Weights::loses_nan>& search;
    PieceDecoder<E> decode = {};
};

// Multiplies the rows of B with so many rows. Calls decode(step) for each row of B of each part of a vector.
template <class Weights, int rows, int lines, class Decode>
MXQ_HD void multiply_step(const StepLines<lines>& now, const float* numbers, float* sums, int64_t stride, Decode&& decode) {
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
                multiply_vector<Weights>(
                    now.units, numbers, n, part, has_factors && v == 0, runs, [&](int line) __attribute__((always_inline)) {
                        decode((part * kUnitVectors + n) * lines + line);
                    });
            }
#pragma GCC unroll 4
            for (int c = 0; c < lines; c++) add_runs<Weights>(now.factors[c], s, part, runs[c], sums + c * stride);
            if (rows > 1) reload(sums);
        }
}

// Multiplies two rows of B with so many rows, and decodes nothing.
template <class Weights, int rows>
void multiply_more(const void* unit_0, const void* unit_1, const float* factors_0, const float* factors_1,
                   const float* numbers, float* sums, int64_t stride) {
    multiply_step<Weights, rows, 2>({{unit_0, unit_1}, {factors_0, factors_1}}, numbers, sums, stride, [](int) {});
}

// Multiplies two rows of B with some rows, which are divided evenly.
template <class Weights>
MXQ_HD void multiply_rest(const StepLines<2>& now, const float* numbers, float* sums, int64_t stride, int64_t rest) {
    for (int64_t rows; rest > 0; rest -= rows, numbers += rows * kUnit, sums += rows * kLanes) {
        rows = ceil_div(rest, ceil_div(rest, kStepRows));
        const auto multiply = rows == 1   ? multiply_more<Weights, 1>
                              : rows == 2 ? multiply_more<Weights, 2>
                              : rows == 3 ? multiply_more<Weights, 3>
                                          : multiply_more<Weights, 4>;
        multiply(now.units[0], now.units[1], now.factors[0], now.factors[1], numbers, sums, stride);
    }
}

// Units of kStripLines rows of B that lie at equal distances.
struct Units {
    const uint8_t* codes;
    int64_t between;       // bytes from a row of B to the next
    const float* factors;  // kMostFactors for each line
    int64_t count, to_next;
};

// Multiplies the rows of B with all rows, `lines` of them and the first `rows` rows at a time. `sums` has the sums: those of
// a row of B are neighbours. Returns false where there is a NaN that decoding loses. It begins at a cache line: its loop
// took 7% more with four rows of MXFP8 where it began 48 bytes after one.
template <class Weights, int rows, int lines>
__attribute__((noinline, aligned(64))) bool multiply_units(const Units& b, const float* numbers, int64_t all_rows,
                                                           float* sums) {
    using E = typename Weights::Element;
    constexpr bool has_rest = lines < kStripLines;
    alignas(64) uint16_t halves[2][lines * kUnit];
    NanSearch<Weights::loses_nan> search;
    const int64_t row_count = has_rest ? all_rows : rows, stride = row_count * kLanes;
    for (int c = 0; c < lines; c++)
        for (int piece = 0; piece < kPieces<E>; piece++)
            decode_piece<Weights>(b.codes + c * b.between, piece, halves[0] + c * kUnit, search);
    const uint8_t *codes = b.codes, *ahead = b.codes + 2 * b.to_next, *end_of_line = ahead + b.count * Weights::unit_bytes;
    const float* factors = b.factors;
    uint16_t *decoded = halves[0], *to_decode = halves[1];
    for (int64_t left = b.count; left > 0; left--, numbers += row_count * kUnit, factors += Weights::factor_floats) {
        const uint8_t* const next = left > 1 ? codes + Weights::unit_bytes : codes;  // the last unit is decoded again
#pragma GCC unroll 2
        for (int line = 0; line < kStripLines; line += lines) {
            StepLines<lines> now;
#pragma GCC unroll 4
            for (int c = 0; c < lines; c++) {
                now.units[c] = decoded + c * kUnit;
                now.factors[c] = factors + (line + c) * kMostFactors;
            }
            const uint8_t* const then = line + lines < kStripLines ? codes + (line + lines) * b.between : next;
            multiply_step<Weights, rows, lines>(now, numbers, sums + line * stride, stride,
                                                DecodeAhead<Weights, lines>{{then, b.between, to_decode, ahead}, search});
            ahead += lines * Weights::unit_bytes;
            std::swap(decoded, to_decode);
            if constexpr (has_rest)
                multiply_rest<Weights>(now, numbers + rows * kUnit, sums + line * stride + rows * kLanes, stride,
                                       row_count - rows);
        }
        codes = next;
        // A pass over part of a long contraction multiplies part of each row of B, whose end is looked for once in four
        // units: up to three units behind it are then prefetched in place of the next row of B's first.
        if (ahead >= end_of_line) ahead += b.between - b.count * Weights::unit_bytes, end_of_line += b.between;
    }
    return !search.found();
}

// Multiplies rows of plain numbers with all rows of the pass.
template <class Weights>
void multiply_plain(const FewRowsPass& pass, const Columns& b, float* sums) {
    const float* numbers = pass.rows;
    const int64_t stride = pass.row_count * kLanes;
    const uint8_t* codes[kStripLines];
    for (int c = 0; c < kStripLines; c++) codes[c] = b.codes[c];
    for (int64_t unit = 0; unit * kUnit < pass.depth; unit++, numbers += pass.row_count * kUnit) {
        if (unit == b.units)
            for (int c = 0; c < kStripLines; c++) codes[c] = b.last[c];
        for (int line = 0; line < kStripLines; line += 2) {
            for (int c = line; c < line + 2; c++)
                for (int64_t at = 0; at < Weights::unit_bytes; at += 64) __builtin_prefetch(codes[c] + b.to_next + at, 0, 2);
            const StepLines<2> now = {{codes[line], codes[line + 1]}, {}};
            multiply_rest<Weights>(now, numbers, sums + line * stride, stride, pass.row_count);
        }
        for (int c = 0; c < kStripLines; c++) codes[c] += Weights::unit_bytes;
    }
}

// Multiplies the rows of B with all rows of the pass: whole units, and then the last one, where it is none.
template <class Weights>
bool multiply_ahead(const FewRowsPass& pass, const Columns& b, float* sums) {
    const int64_t rows = ceil_div(pass.row_count, ceil_div(pass.row_count, kStepRows));
    const auto multiply = rows == 1   ? multiply_units<Weights, 1, 4>
                          : rows == 2 ? multiply_units<Weights, 2, 4>
                          : rows == 3 ? multiply_units<Weights, 3, 2>
                                      : multiply_units<Weights, 4, 2>;
    bool is_done = true;
    if (b.units > 0)
        is_done = multiply({b.codes[0], b.codes[1] - b.codes[0], b.factors[0], b.units, b.to_next}, pass.rows,
                           pass.row_count, sums);
    if (b.units * kUnit < pass.depth)
        is_done &= multiply({b.last[0], b.last[1] - b.last[0], b.factors[0] + b.units * Weights::factor_floats, 1, 0},
                            pass.rows + b.units * kUnit * pass.row_count, pass.row_count, sums);
    return is_done;
}
#endif

}  // namespace
}  // namespace mxq::cpu
