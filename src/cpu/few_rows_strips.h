// Products of more rows than have their sums in registers: weights are decoded once for all rows of a pass. Part of
// few_rows_kernels.cpp, whose head fixes the order of each sum.
//
//     strip     four rows of B, of which a unit of 128 codes is decoded at a time:
//
//                   b0    v0 v1 v2 v3 | v4 v5 v6 v7      kHeldLines x kHeld of these vectors are held in registers,
//                   b1    v0 v1 v2 v3 | v4 v5 v6 v7      while the loop runs over all rows
//                   ...
//     rows      row 0: v0 to v7 | row 1: v0 to v7 | ... of the same unit; each vector is loaded once for kHeldLines of b
//     sums      b0: row 0 | row 1 | ... sixteen lanes each, in L1
//     runs      sums of products that wait for the second half of their section
//
// The rows of a unit come from L2, once for a strip: 12 to 16 bytes a cycle, overlapped with the multiply-adds.
// Multiply-adds bound a strip: with 16 rows and MXFP4 their pipes are busy 8 cycles in 10 with AVX-512. Decoding takes an
// eighth of the time. Adding runs times factors to sums takes an eighth (MXFP4) to a quarter (MXFP6, MXFP8) of what products
// take. AVX2 takes no strips.
#pragma once
#include <cstring>

#include "cpu/few_rows_ahead.h"
#include "cpu/few_rows_blocks.h"

namespace mxq::cpu {
namespace {

constexpr int kHeldLines = kRegisterLines, kHeld = 4;

// How a strip is multiplied, whatever its codes are.
struct Method {
    Products products;
    bool is_packed;  // whether vectors of weights have pairs of BF16
    int section;     // how many vectors have the same factors, which are applied to sums; 0: there are none

    constexpr int vectors() const { return is_packed ? kUnitVectors / 2 : kUnitVectors; }
    constexpr int sections() const { return section > 0 ? vectors() / section : 0; }
};

template <class Weights, Products products>
constexpr Method method_of() {
    constexpr bool is_packed = products == Products::dots && Weights::has_words;
    if constexpr (Weights::factors == 0) return {products, is_packed, 0};
    return {products, is_packed, is_packed ? Weights::section / 2 : Weights::section};
}

// A unit of the rows of B: a part of the lanes of each vector, and the factors of these lanes.
struct DecodedUnit {
    Lanes values[kStripLines][kUnitVectors];
    Lanes factors[kStripLines][2];
};

template <class Weights, Products products>
MXQ_HD void decode_line(const uint8_t* codes, const float* factors, int64_t part, Lanes* values, Lanes* of_lanes) {
    constexpr Method method = method_of<Weights, products>();
    if constexpr (method.section > 0)
        for (int s = 0; s < method.sections(); s++) of_lanes[s] = Weights::factors_of(factors, s, part);
#if defined(__AVX512BF16__)
    if constexpr (method.is_packed)
        return Weights::decode_words(
            codes, [&](int s, __m512i pairs) __attribute__((always_inline)) { values[s] = as_lanes(pairs); });
#endif
    Weights::decode(
        codes, part, [&](int n, Lanes decoded) __attribute__((always_inline)) {
            values[n] = decoded;
        });
}

// Returns vector v of a row, in the width of the weights.
template <Method method>
MXQ_HD Lanes row_vector(const float* row, int v) {
    if constexpr (method.is_packed) return load_lanes(row + v * kLanes);
    return row_lanes<method.products>(row, v);
}

// Returns sum + row * weights.
template <Method method>
MXQ_HD Lanes add_products(const Lanes& row, const Lanes& weights, const Lanes& sum) {
#if defined(__AVX512BF16__)
    if constexpr (method.is_packed) return {_mm512_dpbf16_ps(sum.all, __m512bh(weights.all), __m512bh(row.all))};
#endif
    return multiply_add(row, weights, sum);
}

// Prefetches a unit of each row of B that comes next, some bytes with each row that passes by, where units are large.
// Prefetched together, those of F32 weights are more than memory takes at once: 8 rows took 10% more, 16 rows 15%. Those of
// BF16 weights are not, and spread they took up to a tenth more with 4 rows.
template <class Weights>
struct SpreadPrefetches {
    static constexpr bool spreads = Weights::unit_bytes > 256;
    static constexpr int64_t count = kStripLines * Weights::unit_bytes / 64;

    MXQ_HD void operator()() {
        for (int64_t i = 0; spreads && i < with_row && done < count; i++, done++)
            __builtin_prefetch(lines[done % kStripLines] + to_next + done / kStripLines * 64, 0, 2);
    }

    const uint8_t* const* lines;
    int64_t to_next, with_row;
    int64_t done = 0;
};

// Multiplies vectors [first, first + kHeld) of kHeldLines rows of B with a part of all rows, of which each calls prefetch().
// Sums of a row of B are `stride` floats from those of the next.
template <Method method, int first, class Prefetch>
MXQ_HD void multiply_held(const DecodedUnit& unit, int line, const float* row, int64_t row_count, float* runs, float* sums,
                          Prefetch& prefetch) {
    constexpr bool has_factors = method.section > 0;
    constexpr bool begins = has_factors && first % method.section == 0;
    constexpr bool ends = !has_factors || (first + kHeld) % method.section == 0;
    Lanes held[kHeldLines][kHeld], factors[kHeldLines][2];
#pragma GCC unroll 4
    for (int c = 0; c < kHeldLines; c++) {
#pragma GCC unroll 4
        for (int v = 0; v < kHeld; v++) held[c][v] = unit.values[line + c][first + v];
        for (int s = 0; s < method.sections(); s++) factors[c][s] = unit.factors[line + c][s];
    }
    const int64_t stride = row_count * kLanes;
    sums += line * stride;
    for (int64_t r = 0; r < row_count;
         r++, row += kRowFloats<method.products>, sums += kLanes, runs += kHeldLines * kWidth) {
        Lanes run[kHeldLines], sum[kHeldLines];
        prefetch();
#pragma GCC unroll 4
        for (int c = 0; c < kHeldLines; c++) {
            if (ends) sum[c] = load_lanes(sums + c * stride);
            if (has_factors) run[c] = begins ? no_lanes() : load_lanes(runs + c * kWidth);
        }
#pragma GCC unroll 4
        for (int v = 0; v < kHeld; v++) {
            const Lanes numbers = in_register(row_vector<method>(row, first + v));
#pragma GCC unroll 4
            for (int c = 0; c < kHeldLines; c++) {
                Lanes& to = has_factors ? run[c] : sum[c];
                to = add_products<method>(numbers, held[c][v], to);
                if constexpr (has_factors)
                    if ((first + v + 1) % method.section == 0) {
                        sum[c] = multiply_add(run[c], factors[c][(first + v) / method.section], sum[c]);
                        run[c] = no_lanes();
                    }
            }
        }
#pragma GCC unroll 4
        for (int c = 0; c < kHeldLines; c++)
            ends ? store_lanes(sum[c], sums + c * stride) : store_lanes(run[c], runs + c * kWidth);
    }
}

// Multiplies a part of a decoded unit with all rows.
template <Method method, class Prefetch>
MXQ_HD void multiply_decoded(const DecodedUnit& unit, const float* rows, int64_t row_count, float* runs, float* sums,
                             Prefetch prefetch) {
#pragma GCC unroll 2
    for (int line = 0; line < kStripLines; line += kHeldLines) {
        multiply_held<method, 0>(unit, line, rows, row_count, runs, sums, prefetch);
        if constexpr (method.vectors() > kHeld)
            multiply_held<method, kHeld>(unit, line, rows, row_count, runs, sums, prefetch);
    }
}

// Multiplies the rows of B with all rows. `sums` has kStripLines x row_count x kLanes numbers. Returns false where there is
// a NaN that decoding loses.
template <class Weights, Products products>
MXQ_HD bool multiply_strip(const FewRowsPass& pass, const Columns& b, float* sums) {
    constexpr Method method = method_of<Weights, products>();
    using Prefetches = SpreadPrefetches<Weights>;
    const int64_t turns = pass.row_count * (kStripLines / kHeldLines) * (method.vectors() / kHeld);
    const int64_t with_row = ceil_div(Prefetches::count, turns);
    alignas(64) float runs[kPassRows * kHeldLines * kWidth];
    DecodedUnit decoded;
    const uint8_t* codes[kStripLines];
    for (int c = 0; c < kStripLines; c++) codes[c] = b.codes[c];
    NanSearch<Weights::loses_nan> search;
    const float* rows = pass.rows;
    for (int64_t unit = 0; unit * kUnit < pass.depth; unit++, rows += pass.row_count * kRowFloats<products>) {
        if (unit == b.units)
            for (int c = 0; c < kStripLines; c++) codes[c] = b.last[c];
        search.look_at(codes);
        for (int64_t part = 0; part < kParts; part++) {
#pragma GCC unroll 4
            for (int c = 0; c < kStripLines; c++)
                decode_line<Weights, products>(codes[c], b.factors[c] + unit * Weights::factor_floats, part,
                                               decoded.values[c], decoded.factors[c]);
            multiply_decoded<method>(decoded, rows + part * kWidth, pass.row_count, runs, sums + part * kWidth,
                                     Prefetches{codes, b.to_next, part == 0 ? with_row : 0});
        }
        for (int c = 0; c < kStripLines; c++) {
            for (int64_t at = 0; !Prefetches::spreads && at < Weights::unit_bytes; at += 64)
                __builtin_prefetch(codes[c] + b.to_next + at, 0, 2);
            codes[c] += Weights::unit_bytes;
        }
    }
    return !search.found();
}

// Multiplies a strip with all rows; few rows of codes are a block, or are decoded ahead. Returns false where there is a NaN
// that decoding loses.
template <class Weights, Products products>
bool multiply_rows(const FewRowsPass& pass, const Columns& b) {
    if constexpr (kDecodesAhead && has_codes<Weights>) {
        return multiply_ahead<Weights>(pass, b, pass.strip);
    } else if constexpr (kDecodesAhead && is_plain<Weights>) {
        return multiply_plain<Weights>(pass, b, pass.strip), true;
    } else {
#if defined(__AVX512F__)
        constexpr int most = has_codes<Weights> ? block_rows<Weights>(products) : 0;
        if constexpr (most > 0)
            if (pass.row_count <= most) {
                const auto multiply = block_of<Weights, products>(pass.row_count, std::make_integer_sequence<int, most>());
                return multiply(pass, b, pass.strip), true;
            }
#endif
        return multiply_strip<Weights, products>(pass, b, pass.strip);
    }
}

// Copies sums times a power of two.
MXQ_HD void copy_times(float scale, const float* from, int64_t count, float* to) {
    if (scale == 1)
        memcpy(to, from, size_t(count) * sizeof(float));
    else
        for (int64_t i = 0; i < count; i++) to[i] = multiply_rn(from[i], scale);
}

// Multiplies rows of B with the rows of a pass. Returns false, and leaves their sums as they were, where there is a NaN that
// decoding loses.
template <class Weights, Products products>
bool multiply_strips(const FewRowsPass& pass, const Columns& b) {
    constexpr float scale = Weights::scale;
    const int64_t of_line = pass.row_count * kLanes;
    const auto waiting = [&](int64_t c) { return pass.lanes + (b.first + c * b.apart) * of_line; };
    memset(pass.strip, 0, size_t(kStripLines * of_line) * sizeof(float));
    for (int64_t c = 0; !pass.first && c < b.count; c++)
        copy_times(1 / scale, waiting(c), of_line, pass.strip + c * of_line);
    if (!multiply_rows<Weights, products>(pass, b)) return false;
    for (int64_t c = 0; !pass.last && c < b.count; c++) copy_times(scale, pass.strip + c * of_line, of_line, waiting(c));
    if (!pass.last) return true;
    for (int64_t c = 0; c < b.count; c++)
        for (int64_t r = 0; r < pass.row_count; r++) {
            Lanes lanes[kParts];
            for (int64_t part = 0; part < kParts; part++)
                lanes[part] = load_lanes(pass.strip + c * of_line + r * kLanes + part * kWidth);
            finish_sum(pass, b, r, c, lanes, Weights::order, scale);
        }
    return true;
}

}  // namespace
}  // namespace mxq::cpu
