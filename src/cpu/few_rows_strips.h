// Products of rows whose weights are decoded once for all rows of a pass. Part of few_rows_kernels.cpp, whose head fixes the
// order of each sum.
//
//     strip     four rows of B, of which a unit of 128 codes is decoded at a time:
//
//                   b0    v0 v1 v2 v3 | v4 v5 v6 v7      kHeld of these vectors of each row are held in registers, while
//                   b1    v0 v1 v2 v3 | v4 v5 v6 v7      the loop runs over all rows
//                   ...
//     rows      row 0: v0 to v7 | row 1: v0 to v7 | ... of the same unit; each vector is loaded once for all rows of b
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

#if defined(__AVX512F__)
constexpr int kHeld = 4;

// How a strip is multiplied, whatever its codes are.
struct Method {
    bool packed;  // whether vectors are pairs of BF16
    int section;  // how many vectors have the same factors, which are applied to sums; 0: there are none

    constexpr int vectors() const { return packed ? kUnitVectors / 2 : kUnitVectors; }
    constexpr int sections() const { return section > 0 ? vectors() / section : 0; }
};

template <class Weights, Products products>
constexpr Method method_of() {
    constexpr bool packed = products == Products::dots;
    return {packed, Weights::factors == 0 ? 0 : packed ? Weights::section / 2 : Weights::section};
}

// A unit of the rows of B, and the factors of its lanes.
struct DecodedUnit {
    Lanes values[kStripLines][kUnitVectors];
    Lanes factors[kStripLines][2];
};

template <class Weights, Method method>
MXQ_HD void decode_line(const uint8_t* codes, const float* factors, Lanes* values, Lanes* of_lanes) {
    if constexpr (method.section > 0)
        for (int s = 0; s < method.sections(); s++) of_lanes[s] = Weights::factors_of(factors, s, 0);
    if constexpr (method.packed)
        Weights::decode_words(codes, [&](int s, Words pairs) __attribute__((always_inline)) { values[s] = as_lanes(pairs); });
    else
        Weights::decode(codes, [&](int n, Lanes decoded) __attribute__((always_inline)) { values[n] = decoded; });
}

// Prefetches a unit of each row of B that comes next, some bytes with each row that passes by, where units are large.
// Prefetched together, those of F32 weights are more than memory takes at once: 8 rows took 15% more. Those of BF16 weights
// are not, and spread they took up to a tenth more with 4 rows.
template <class Weights>
struct SpreadPrefetches {
    static constexpr int64_t count = Weights::unit_bytes > 256 ? kStripLines * Weights::unit_bytes / 64 : 0;

    MXQ_HD void operator()() {
        for (int64_t i = 0; i < with_row && done < count; i++, done++)
            __builtin_prefetch(lines[done % kStripLines] + to_next + done / kStripLines * 64, 0, 2);
    }

    const uint8_t* const* lines;
    int64_t to_next, with_row;
    int64_t done = 0;
};

// Multiplies vectors [first, first + kHeld) of the rows of B with all rows, of which each calls prefetch(). Sums of a row of
// B are `stride` floats from those of the next.
template <Method method, int first, class Prefetch>
MXQ_HD void multiply_held(const DecodedUnit& unit, const float* row, int64_t row_count, float* runs, float* sums,
                          Prefetch& prefetch) {
    constexpr bool has_factors = method.section > 0;
    constexpr bool begins = has_factors && first % method.section == 0;
    constexpr bool ends = !has_factors || (first + kHeld) % method.section == 0;
    Lanes held[kStripLines][kHeld], factors[kStripLines][2];
#pragma GCC unroll 4
    for (int c = 0; c < kStripLines; c++) {
#pragma GCC unroll 4
        for (int v = 0; v < kHeld; v++) held[c][v] = unit.values[c][first + v];
        for (int s = 0; s < method.sections(); s++) factors[c][s] = unit.factors[c][s];
    }
    const int64_t stride = row_count * kLanes;
    for (int64_t r = 0; r < row_count;
         r++, row += method.vectors() * kLanes, sums += kLanes, runs += kStripLines * kLanes) {
        Lanes run[kStripLines], sum[kStripLines];
        prefetch();
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) {
            if (ends) sum[c] = load_lanes(sums + c * stride);
            if (has_factors) run[c] = begins ? no_lanes() : load_lanes(runs + c * kLanes);
        }
#pragma GCC unroll 4
        for (int v = 0; v < kHeld; v++) {
            const Lanes numbers = in_register(load_lanes(row + (first + v) * kLanes));
#pragma GCC unroll 4
            for (int c = 0; c < kStripLines; c++) {
                Lanes& to = has_factors ? run[c] : sum[c];
                to = method.packed ? add_dots(numbers, held[c][v], to) : multiply_add(numbers, held[c][v], to);
                if constexpr (has_factors)
                    if ((first + v + 1) % method.section == 0) {
                        sum[c] = multiply_add(run[c], factors[c][(first + v) / method.section], sum[c]);
                        run[c] = no_lanes();
                    }
            }
        }
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++)
            ends ? store_lanes(sum[c], sums + c * stride) : store_lanes(run[c], runs + c * kLanes);
    }
}

// Multiplies the rows of B with all rows. `sums` has kStripLines x row_count x kLanes numbers.
template <class Weights, Products products>
MXQ_HD void multiply_strip(const FewRowsPass& pass, const Columns& b, float* sums) {
    constexpr Method method = method_of<Weights, products>();
    using Prefetches = SpreadPrefetches<Weights>;
    const bool spreads = Prefetches::count > 0 && pass.row_count > 2;
    const int64_t with_row = spreads ? ceil_div(Prefetches::count, pass.row_count * (method.vectors() / kHeld)) : 0;
    alignas(64) float runs[kPassRows * kStripLines * kLanes];
    DecodedUnit decoded;
    const uint8_t* codes[kStripLines];
    for (int c = 0; c < kStripLines; c++) codes[c] = b.codes[c];
    const float* rows = pass.rows;
    for (int64_t unit = 0; unit * kUnit < pass.depth; unit++, rows += pass.row_count * kRowFloats<products>) {
        if (unit == b.units)
            for (int c = 0; c < kStripLines; c++) codes[c] = b.last[c];
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) {
            for (int64_t at = 0; !spreads && at < Weights::unit_bytes; at += 64)
                __builtin_prefetch(codes[c] + b.to_next + at, 0, 2);
            decode_line<Weights, method>(codes[c], b.factors[c] + unit * Weights::factor_floats, decoded.values[c],
                                           decoded.factors[c]);
        }
        Prefetches prefetch{codes, b.to_next, with_row};
        multiply_held<method, 0>(decoded, rows, pass.row_count, runs, sums, prefetch);
        if constexpr (method.vectors() > kHeld)
            multiply_held<method, kHeld>(decoded, rows, pass.row_count, runs, sums, prefetch);
        for (int c = 0; c < kStripLines; c++) codes[c] += Weights::unit_bytes;
    }
}
#endif

// Multiplies a strip with all rows; few rows of codes are a block, or are decoded ahead. Returns false where there is a NaN
// that decoding loses.
template <class Weights, Products products>
bool multiply_rows(const FewRowsPass& pass, const Columns& b) {
#if defined(__AVX512F__)
    constexpr int most = has_codes<Weights> ? block_rows<Weights>(products) : 0;
    if constexpr (most > 0)
        if (pass.row_count <= most) {
            const auto multiply = block_of<Weights, products>(pass.row_count, std::make_integer_sequence<int, most>());
            return multiply(pass, b, pass.strip), true;
        }
    return multiply_strip<Weights, products>(pass, b, pass.strip), true;
#else
    if constexpr (has_codes<Weights>) return multiply_ahead<Weights>(pass, b, pass.strip);
    return multiply_plain<Weights>(pass, b, pass.strip), true;
#endif
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
