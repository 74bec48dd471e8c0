// The register tile of the CPU product. Part of gemm_kernels.cpp.
//
//     rows of A     up to kTileRows:    unit 0 of row 0 | of row 1 | .. | unit 1 of row 0 | ..
//     rows of B     kTileColumns:       the same
//     a unit        eight vectors of sixteen fp32 numbers, or four of pairs of BF16, in the order of code_at()
//     factors       sixteen for each section of a unit of each row of B
//     sums          sixteen lanes for each row of A and of B
//
// Sums of a section's products begin at zero, are multiplied by its factors and added to the lanes. These are in L1, or in
// registers where the processor has dot products. Without sections products are added to lanes in registers. AVX-512 loads
// ten vectors for 24 multiply-adds, others seven for twelve.
#pragma once
#include <utility>

#include "cpu/gemm_kernels.h"
#include "cpu/lanes.h"

namespace mxq::cpu {
namespace {

// Rows of A and of B of a register tile. AVX-512 has registers for 24 sums of sections, or for 12 and the lanes that they
// are added to. Dot products are faster than loads and stores of lanes. GFLOP/s of a thread with them, MXFP4, 256 rows, Zen 4,
// 2026-11-30: lanes in L1 146, in registers 175.
#if defined(__AVX512F__)
constexpr int64_t kTileRows = kHasDots ? 4 : 6, kTileColumns = kHasDots ? 3 : 4;
#else
constexpr int64_t kTileRows = 4, kTileColumns = 3;
#endif
constexpr bool kHoldsLanes = kHasDots;
static_assert(kGroupRows % kTileRows == 0 && kPanelColumns % kTileColumns == 0 && kTileRows * kTileColumns % 4 == 0);

// How the products of a tile are made.
struct Method {
    bool packed;       // numbers are pairs of BF16
    bool exact;        // products are exact, and normal numbers
    int sections;      // of a unit; 0: none
    bool has_factors;  // of the sections' sums
};

// Returns sum + a * b.
template <Method method>
MXQ_HD Lanes add_products(const Lanes& a, const Lanes& b, const Lanes& sum) {
    if constexpr (method.packed) return add_dots(a, b, sum);
    if constexpr (method.exact) return add_exact(a, b, sum);
    return multiply_add(a, b, sum);
}

template <Method method>
constexpr int kVectorsOfUnit = method.packed ? kUnitVectors / 2 : kUnitVectors;

// Whether a vector of A is loaded once for all rows of B: AVX2 loads three vectors a cycle, and lacks a register without
// sections.
template <Method method>
constexpr bool kLoadsOnce = kParts == 1 || (kParts == 2 && method.sections > 0);

// Adds the products of a section, or of a unit without sections, to sums.
template <Method method, int rows>
MXQ_HD void multiply_section(const float* a, const float* b, Lanes (&sums)[rows][kTileColumns]) {
    constexpr int vectors = kVectorsOfUnit<method>, count = vectors / (method.sections > 0 ? method.sections : 1);
#pragma GCC unroll 8
    for (int v = 0; v < count; v++) {
        Lanes held[kTileColumns];
#pragma GCC unroll 8
        for (int c = 0; c < kTileColumns; c++) {
            held[c] = load_lanes(b + (c * vectors + v) * kLanes);
            if constexpr (kHoldsLanes) held[c] = in_register(held[c]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            Lanes row = load_lanes(a + (r * vectors + v) * kLanes);
            if constexpr (kLoadsOnce<method>) row = in_register(row);
#pragma GCC unroll 8
            for (int c = 0; c < kTileColumns; c++) sums[r][c] = add_products<method>(row, held[c], sums[r][c]);
        }
    }
}

// Adds sums of a section, times their factors, to lanes.
template <Method method>
MXQ_HD Lanes add_section(const Lanes& sum, const float* factors, const Lanes& lanes) {
    if constexpr (method.has_factors) return multiply_add(sum, load_lanes(factors), lanes);
    return plus(lanes, sum);
}

// Calls use(r, c, offset of its lanes) for each sum of a tile, whose lanes are neighbours row by row of A.
template <int rows, class Use>
MXQ_HD void for_sums(const Use& use) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int c = 0; c < kTileColumns; c++) use(r, c, (r * kTileColumns + c) * kLanes);
}

// Multiplies units of rows of A with those of kTileColumns rows of B, and adds to `lanes`, or sets them: those of a row of A
// are neighbours.
template <Method method, int rows>
void multiply_tile(const float* a, const float* b, const float* factors, int64_t units, bool sets, float* lanes) {
    constexpr int unit = kVectorsOfUnit<method> * int(kLanes), sections = method.sections;
    constexpr bool holds = sections == 0 || kHoldsLanes;
    for (int64_t part = 0; part < kParts; part++, a += kWidth, b += kWidth, factors += kWidth, lanes += kWidth) {
        Lanes sums[rows][kTileColumns];
        for_sums<rows>([&](int r, int c, int64_t at) __attribute__((always_inline)) {
            if constexpr (holds) sums[r][c] = sets ? no_lanes() : load_lanes(lanes + at);
            if (!holds && sets) store_lanes(no_lanes(), lanes + at);
        });
        const float* of_section = factors;
        float* stored = lanes;
        for (int64_t u = 0; sections == 0 && u < units; u++)
            multiply_section<method>(a + u * rows * unit, b + u * kTileColumns * unit, sums);
        // GCC keeps lanes on the stack where two sections are one loop.
        constexpr int at_once = holds ? 1 : sections, of_unit = sections > 0 ? sections : 1;
        for (int64_t step = 0; step < units * sections / at_once; step++)
#pragma GCC unroll 2
            for (int i = 0; i < at_once; i++, of_section += kTileColumns * kLanes) {
                const int64_t u = step * at_once / of_unit, in_unit = (step * at_once % of_unit + i) * unit / of_unit;
                Lanes runs[rows][kTileColumns];
                for_sums<rows>([&](int r, int c, int64_t) __attribute__((always_inline)) { runs[r][c] = no_lanes(); });
                if constexpr (!holds) reload(stored);
                multiply_section<method>(a + u * rows * unit + in_unit, b + u * kTileColumns * unit + in_unit, runs);
                for_sums<rows>([&](int r, int c, int64_t at) __attribute__((always_inline)) {
                    const float* const factor = of_section + c * kLanes;
                    if constexpr (holds)
                        sums[r][c] = add_section<method>(runs[r][c], factor, sums[r][c]);
                    else
                        store_lanes(add_section<method>(runs[r][c], factor, load_lanes(stored + at)), stored + at);
                });
            }
        if constexpr (holds)
            for_sums<rows>([&](int r, int c, int64_t at) __attribute__((always_inline)) {
                store_lanes(sums[r][c], lanes + at);
            });
    }
}

// Sets the sums of the lanes of four neighbours, each as sum_of_lanes() adds them.
MXQ_HD void sum_lanes(const float* lanes, float* sums) {
#if defined(__AVX512F__)
    __m512 two[2];
    for (int i = 0; i < 2; i++) {
        const __m512 a = load_lanes(lanes + 2 * i * kLanes).all, b = load_lanes(lanes + (2 * i + 1) * kLanes).all;
        two[i] = _mm512_add_ps(_mm512_maskz_shuffle_f32x4(kAll, a, b, 0x44), _mm512_maskz_shuffle_f32x4(kAll, a, b, 0xEE));
    }
    __m512 four = _mm512_add_ps(_mm512_maskz_shuffle_f32x4(kAll, two[0], two[1], 0x88),
                                _mm512_maskz_shuffle_f32x4(kAll, two[0], two[1], 0xDD));
    four = _mm512_add_ps(four, _mm512_maskz_permute_ps(kAll, four, 0x4E));
    four = _mm512_add_ps(four, _mm512_maskz_permute_ps(kAll, four, 0xB1));
    store_four(__builtin_shufflevector(four, four, 0, 4, 8, 12), sums);
#else
    for (int64_t i = 0; i < 4; i++, lanes += kLanes) {
        Lanes parts[kParts];
        for (int64_t part = 0; part < kParts; part++) parts[part] = load_lanes(lanes + part * kWidth);
        sums[i] = sum_of_lanes(parts);
    }
#endif
}

using MultiplyTile = decltype(&multiply_tile<Method{}, 1>);

template <Method method, int... index>
MultiplyTile tile_of_rows(int64_t rows, std::integer_sequence<int, index...>) {
    static constexpr MultiplyTile of_rows[] = {multiply_tile<method, index + 1>...};
    return of_rows[rows - 1];
}

template <Method method>
MultiplyTile tile_of_rows(int64_t rows) {
    return tile_of_rows<method>(rows, std::make_integer_sequence<int, kTileRows>());
}

template <bool packed, bool exact>
MultiplyTile tile_of_sections(const Method& method, int64_t rows) {
    if (method.sections == 0) return tile_of_rows<Method{packed, exact, 0, false}>(rows);
    if (method.sections == 1)
        return method.has_factors ? tile_of_rows<Method{packed, exact, 1, true}>(rows)
                                  : tile_of_rows<Method{packed, exact, 1, false}>(rows);
    return method.has_factors ? tile_of_rows<Method{packed, exact, 2, true}>(rows)
                              : tile_of_rows<Method{packed, exact, 2, false}>(rows);
}

// Returns the tile of so many rows of A. A product with one rounding serves exact ones as well.
MultiplyTile tile_of(const Method& method, int64_t rows) {
    if constexpr (kHasDots)
        if (method.packed) return tile_of_sections<true, false>(method, rows);
    if constexpr (!MXQ_HOST_FUSES)
        if (method.exact) return tile_of_sections<false, true>(method, rows);
    return tile_of_sections<false, false>(method, rows);
}

}  // namespace
}  // namespace mxq::cpu
