// Products of one row with rows of codes of four bits, in integers. Part of few_rows_kernels.cpp, whose head fixes the order
// of each sum, which this keeps.
//
//     row       in fixed point, 22 bits: two or three digits of eight bits, and signs
//     codes     take the sign of the row's number by one exclusive or of bytes as they are stored, and then pick twice their
//               value, -12 to 12
//     run       of a lane's eight codes: products of bytes, of which the lower and upper halves of four bytes are added,
//               digit by digit
//
//         a lane of codes   6 7 | 4 5 | 2 3 | 0 1      two in a byte, even ones in its lower half
//         its digits        6     4     2     0        a vector for lower halves,
//                             7     5     3     1      and one for upper ones
//
// With AVX2 a group takes 18 operations, as numbers in few_rows_ahead.h 27. Rows of B lie far apart, unlike those of other
// codes with AVX2. docs/cpu-few-rows.md says what all this gains, and how many groups of which rows have which form.
#pragma once
#include "cpu/few_rows_integer_row.h"

namespace mxq::cpu {
namespace {

// Tells whether a row is multiplied with such weights in integers.
template <class Weights, Products products>
constexpr bool kHasIntegers = false;

#if defined(__AVX512F__)
template <class Weights>
void multiply_integers(const FewRowsPass&, const Columns&);
#else
template <int64_t block>
constexpr bool kHasIntegers<QuantizedWeights<E2M1, block>, Products::fused> = true;

// Bounds the magnitudes of sums that wait and are divided by a row's unit.
constexpr float kMostWaiting = 0x1p100f;

// Units of kStripLines rows of B that lie at equal distances.
struct IntegerLines {
    const uint8_t* codes;
    int64_t between;       // bytes from a row of B to the next
    const float* factors;  // kMostFactors for each line
    const uint8_t* ahead;  // where prefetching begins, in lines that lie at the same distances
};

// Twice the values of codes, by their bits; in both halves of a vector.
alignas(32) constexpr int8_t kDoubles[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12,
                                           0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

MXQ_HD __m256i load_integers(const void* from) { return _mm256_load_si256(static_cast<const __m256i*>(from)); }

// Holds the table of kDoubles and the mask of a byte's lower half, by which codes of four bits pick twice their values.
struct DoublesTable {
    // Keeps both in registers.
    MXQ_HD void keep_here() { asm volatile("" : "+x"(values), "+x"(halves)); }

    __m256i values = load_integers(kDoubles), halves = _mm256_set1_epi8(0x0F);
};

// Keeps a vector in a register, and what computes it in its place among all that are kept so.
MXQ_HD __m256i here(__m256i vector) {
    keep_here(vector);
    return vector;
}

// Prefetches to L2, in its place among vectors that are kept.
MXQ_HD void prefetch_here(const uint8_t* codes) { asm volatile("prefetcht1 %0" : : "m"(*codes)); }

// Indices that move byte n of each lane to its top, and zeros below it.
struct TopOfLane {
    alignas(32) uint8_t index[4][kGroupBytes];
    constexpr TopOfLane() : index() {
        for (int n = 0; n < 4; n++)
            for (int i = 0; i < kGroupBytes; i++) index[n][i] = uint8_t(i % 4 == 3 ? i % 16 - 3 + n : 0x80);
    }
};
constexpr TopOfLane kTopOfLane;

// Multiplies a group of the rows of B with a row's numbers. Doubles are moved to the tops of lanes, which is 2^24 times
// them.
template <class Weights, int group>
__attribute__((noinline)) void multiply_numbers(const float (&row)[kUnitVectors][kGroupLanes], const IntegerLines& lines,
                                                __m256 (&sums)[kStripLines]) {
    const DoublesTable table;
    __m256i doubles[kStripLines][2];
#pragma GCC unroll 4
    for (int c = 0; c < kStripLines; c++) {
        const __m256i codes = load_words(lines.codes + c * lines.between + group * kGroupBytes);
        doubles[c][0] = _mm256_shuffle_epi8(table.values, _mm256_and_si256(codes, table.halves));
        doubles[c][1] = _mm256_shuffle_epi8(table.values, _mm256_and_si256(_mm256_srli_epi16(codes, 4), table.halves));
    }
    __m256 runs[kStripLines];
#pragma GCC unroll 8
    for (int n = 0; n < kUnitVectors; n++) {
        const __m256 numbers = _mm256_load_ps(row[n]);
        const __m256i top = load_integers(kTopOfLane.index[code_of_lane(n) / 2]);
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) {
            const __m256 of_code = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(doubles[c][code_of_lane(n) % 2], top));
            runs[c] = n == 0 ? _mm256_mul_ps(numbers, of_code) : _mm256_fmadd_ps(numbers, of_code, runs[c]);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < kStripLines; c++) {
        const Lanes of_lanes = Weights::factors_in_order(lines.factors + c * kMostFactors, group);
        sums[c] = multiply_add({runs[c]}, of_lanes, {sums[c]}).all;
    }
}

// Multiplies units of rows of B with a row's digits, three rows of B interleaved:
//
//     b0       pick doubles, multiply | weigh digits, convert | times factors, to the sum
//     b1                                pick doubles, multiply | weigh digits, convert    | ..
//     b2                                                         pick doubles, multiply   | ..
//
// Few operations then follow the one that they wait for, and codes are loaded before any waits for them. The last two rows
// of B of a group overlap with the first ones of the next. Sums lie in memory, since registers are few.
template <class Weights>
class LinesInTurn {
public:
    explicit LinesInTurn(__m256 (&sums)[kGroupsOfUnit][kStripLines]) : sums_(sums) {}

    // Begins with a group of codes of the first row of B.
    MXQ_HD void begin(const uint8_t* codes, const IntegerGroup& row) {
        codes_ = signed_codes(codes, load_integers(row.signs));
        weighed_[0] = weighed_[1] = _mm256_setzero_si256(), run_ = {_mm256_setzero_ps()};
    }

    // Multiplies a group of each row of B. The codes and the row's group that come next are at `next` and after this one.
    // `before` has the factors of the group before it.
    template <int group>
    MXQ_HD void multiply(GroupForm form, const IntegerGroup* row, const RestOfGroup* rest, const IntegerLines& lines,
                         const uint8_t* next, const float* before) {
        if (__builtin_expect(form == GroupForm::two_digits, 1)) {
            multiply_digits<group, 2>(row, rest->digit, lines, next, before);
        } else if (form == GroupForm::three_digits) {
            multiply_digits<group, 3>(row, rest->digit, lines, next, before);
        } else {
            finish<1 - group>(before);
            for (int c = group; c < kStripLines; c += 2) prefetch_here(lines.ahead + c * lines.between);
            multiply_numbers<Weights, group>(rest->numbers, {lines.codes, lines.between, lines.factors, nullptr},
                                             sums_[group]);
            begin(next, row[1]);
        }
    }

    // Ends the runs of the last two rows of B of a group.
    template <int group>
    MXQ_HD void finish(const float* factors) {
        add_run<group>(kStripLines - 2, factors);
        run_.all = _mm256_cvtepi32_ps(_mm256_add_epi32(weighed_[0], weighed_[1]));
        add_run<group>(kStripLines - 1, factors);
    }

    MXQ_HD void keep_table() { table_.keep_here(); }

private:
    // Multiplies a group of each row of B with so many digits, if three with the third one of `rest`.
    template <int group, int count>
    MXQ_HD void multiply_digits(const IntegerGroup* row, const uint8_t (*rest)[kGroupBytes], const IntegerLines& lines,
                                const uint8_t* next, const float* before) {
        const __m256i signs = load_integers(row->signs), weights = load_integers(row->weights);
        const __m256i of_first = here(_mm256_slli_epi16(weights, 8));
        __m256i digits[2][2], products[count][2], pairs[count];
        for (int d = 0; d < 2; d++)
            for (int half = 0; half < 2; half++) digits[d][half] = here(load_integers(row->digits[d][half]));
        const auto weigh = [&]() __attribute__((always_inline)) {
            weighed_[0] = here(_mm256_madd_epi16(pairs[0], of_first));
            weighed_[1] = here(_mm256_madd_epi16(pairs[1], load_integers(row->weights)));
            if (count == 3)
                weighed_[1] = here(_mm256_add_epi32(weighed_[1], _mm256_madd_epi16(pairs[count - 1], _mm256_set1_epi16(1))));
        };
        const auto multiply_half = [&](int half, const __m256i& doubles) __attribute__((always_inline)) {
#pragma GCC unroll 3
            for (int d = 0; d < count; d++)
                products[d][half] = here(_mm256_maddubs_epi16(d < 2 ? digits[d][half] : load_integers(rest[half]), doubles));
        };
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) {
            const __m256i lower = here(_mm256_and_si256(codes_, table_.halves)), upper = here(_mm256_srli_epi16(codes_, 4));
            codes_ = c + 1 < kStripLines ? signed_codes(lines.codes + (c + 1) * lines.between + group * kGroupBytes, signs)
                                         : signed_codes(next, load_integers(row[1].signs));
            if (c % 2 == group) prefetch_here(lines.ahead + c * lines.between);
            if (c > 0) weigh();
            const __m256i lower_doubles = here(_mm256_shuffle_epi8(table_.values, lower));
            if (c < 2)
                add_run<1 - group>(c + 2, before);
            else
                add_run<group>(c - 2, lines.factors);
            const __m256i upper_codes = here(_mm256_and_si256(upper, table_.halves));
            const __m256i run = here(_mm256_add_epi32(weighed_[0], weighed_[1]));
            multiply_half(0, lower_doubles);
            multiply_half(1, here(_mm256_shuffle_epi8(table_.values, upper_codes)));
            run_.all = _mm256_cvtepi32_ps(run), keep_here(run_);
#pragma GCC unroll 3
            for (int d = 0; d < count; d++) pairs[d] = here(_mm256_add_epi16(products[d][0], products[d][1]));
        }
        weigh();
    }

    // Loads the codes of a group with the signs of their products.
    static MXQ_HD __m256i signed_codes(const uint8_t* codes, const __m256i& signs) {
        return here(_mm256_xor_si256(load_words(codes), signs));
    }

    // Adds the run of row c of B, times its factors, to its sum.
    template <int group>
    MXQ_HD void add_run(int c, const float* factors) {
        Lanes of_lanes = Weights::factors_in_order(factors + c * kMostFactors, group);
        keep_here(of_lanes);
        run_ = multiply_add(run_, of_lanes, {sums_[group][c]});
        asm volatile("vmovaps %1, %0" : "=m"(sums_[group][c]) : "x"(run_.all));
    }

    DoublesTable table_;
    __m256i codes_;       // of the line that comes next, with signs
    __m256i weighed_[2];  // of the line before it
    Lanes run_;           // of the line before that
    __m256 (&sums_)[kGroupsOfUnit][kStripLines];
};

// Adds the products of `count` units of rows of B, and then of one of the last ones if there are any, with those of the row
// from `first` on to the sums.
template <class Weights>
__attribute__((noinline, aligned(64))) void multiply_in_units(const IntegerRow& row, int64_t first, int64_t count,
                                                              IntegerLines lines, const IntegerLines* last,
                                                              __m256 (&sums)[kGroupsOfUnit][kStripLines]) {
    const GroupForm *form = row.forms + first * kGroupsOfUnit, *const end_of_count = form + count * kGroupsOfUnit;
    const GroupForm* const end = end_of_count + (last ? kGroupsOfUnit : 0);
    const IntegerLines& after = last ? *last : lines;  // without last ones the first codes are loaded once more
    const IntegerGroup* group = row.groups + first * kGroupsOfUnit;
    const RestOfGroup* rest = row.rest + first * kGroupsOfUnit;
    const float* before = lines.factors;
    LinesInTurn<Weights> turns(sums);
    turns.begin(lines.codes, *group);
    while (form < end) {
        turns.keep_table();
        turns.template multiply<0>(form[0], group, rest, lines, lines.codes + kGroupBytes, before);
        const bool ends = form + kGroupsOfUnit == end_of_count;
        const uint8_t* const next = ends ? after.codes : lines.codes + Weights::unit_bytes;
        turns.template multiply<1>(form[1], group + 1, rest + 1, lines, next, lines.factors);
        before = lines.factors;
        form += kGroupsOfUnit, group += kGroupsOfUnit, rest += kGroupsOfUnit;
        lines.codes = next, lines.factors += Weights::factor_floats, lines.ahead += Weights::unit_bytes;
        if (ends) lines.between = after.between;
    }
    turns.template finish<1>(before);
}

// Adds the products of units to sums that are not in fixed point.
template <class Weights, int group>
void multiply_as_numbers(const float* row, int64_t count, IntegerLines lines, __m256 (&sums)[kStripLines]) {
    for (int64_t i = 0; i < count; i++) {
        alignas(32) float numbers[kUnitVectors][kGroupLanes];
        store_numbers(row + i * kUnit, group, 0x1p-25f, numbers);
        multiply_numbers<Weights, group>(numbers, lines, sums);
        lines.codes += Weights::unit_bytes, lines.factors += Weights::factor_floats;
    }
}

// Loads a row of B's sums that wait, times a power of two. Returns whether they keep their bits, and are below kMostWaiting.
MXQ_HD bool load_waiting(const float* from, float scale, __m256 (&sums)[kGroupsOfUnit][kStripLines], int64_t line) {
    EightInts lost = {};
    for (int group = 0; group < kGroupsOfUnit; group++) {
        const EightFloats sum = load_group(from, group), scaled = sum * scale;
        lost |= (scaled * (1 / scale) != sum) | ~((scaled < kMostWaiting) & (scaled > -kMostWaiting));
        sums[group][line] = (__m256)scaled;
    }
    return !has_any(lost);
}

// Multiplies rows of B with the row of the pass. Sums are divided by the row's unit meanwhile; those that wait and are too
// large or too small for that stay as they are, and products are added to them as numbers.
template <class Weights>
void multiply_integers(const FewRowsPass& pass, const Columns& b) {
    const IntegerRow& row = *static_cast<const IntegerRow*>(pass.integers);
    const auto waiting = [&](int64_t c) { return pass.lanes + (b.first + c * b.apart) * kLanes; };
    __m256 sums[kGroupsOfUnit][kStripLines];
    for (auto& of_group : sums)
        for (__m256& sum : of_group) sum = _mm256_setzero_ps();
    bool in_units = true;
    for (int64_t c = 0; !pass.first && c < b.count; c++)
        in_units &= load_waiting(waiting(c), 1 / (row.unit * Weights::scale), sums, c);
    const float scale = Weights::scale * (in_units ? row.unit : 1);
    for (int64_t c = 0; !in_units && c < b.count; c++) load_waiting(waiting(c), 1 / scale, sums, c);

    const int64_t first = (pass.k - row.k) / kUnit;
    const bool has_last = b.units * kUnit < pass.depth;
    const IntegerLines lines = {b.codes[0], b.codes[1] - b.codes[0], b.factors[0], b.codes[0] + b.to_next};
    const IntegerLines last = {b.last[0], b.last[1] - b.last[0], b.factors[0] + b.units * Weights::factor_floats, b.last[0]};
    for (int c = 0; has_last && c < kStripLines; c++) prefetch_here(b.codes[c] + b.to_next + b.units * Weights::unit_bytes);
    const auto multiply_numbers_of = [&](int64_t at, int64_t count, const IntegerLines& of) {
        multiply_as_numbers<Weights, 0>(pass.rows + at * kUnit, count, of, sums[0]);
        multiply_as_numbers<Weights, 1>(pass.rows + at * kUnit, count, of, sums[1]);
    };
    if (!in_units) {
        multiply_numbers_of(0, b.units, lines);
        multiply_numbers_of(b.units, has_last, last);
    } else if (b.units > 0)
        multiply_in_units<Weights>(row, first, b.units, lines, has_last ? &last : nullptr, sums);
    else
        multiply_in_units<Weights>(row, first, 1, last, nullptr, sums);
    for (int64_t c = 0; c < b.count; c++) {
        const Lanes lanes[] = {{sums[0][c]}, {sums[1][c]}};
        if (pass.last) finish_sum(pass, b, 0, c, lanes, Order::bytes, scale);
        for (int l = 0; !pass.last && l < kLanes; l++) waiting(c)[l] = sums[l % 2][c][l / 2] * scale;
    }
}
#endif

}  // namespace
}  // namespace mxq::cpu
