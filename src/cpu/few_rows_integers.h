// Products of one row with lines of codes of four bits, in integers. Part of few_rows_kernels.cpp, whose head fixes the
// order of each sum, which this keeps.
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
// A run of integers is exact until it is rounded to fp32. That of fp32 numbers, which is rounded after each addition, is the
// same where all its sums but the last are exact, as they are where twelve times the sum of a lane's magnitudes so far is at
// most 2^24 times the last bit that one of them has. Groups of eight lanes that are not so, or have bits outside of the
// row's fixed point, are multiplied as numbers.
//
// Two digits are enough for lanes whose magnitudes have no more than sixteen bits from the first one of any of them to the
// last: their sums are weighted by a power of two for each lane, which costs nothing, since two digits need weights anyway.
//
// With AVX2 a group takes 18 operations, as numbers in few_rows_ahead.h 27. docs/performance.md says what that gains, and
// how many groups of which rows have which form.
#pragma once
#include "cpu/few_rows_columns.h"
#include "cpu/operand_reader.h"

namespace mxq::cpu {
namespace {

// Tells whether a row is multiplied with such weights in integers.
template <class Weights, Products products>
constexpr bool kHasIntegers = false;

#if !defined(__AVX2__) || defined(__AVX512F__)
template <class Weights>
void multiply_integers(const FewRowsPass&, const Columns&);
#else
template <int64_t block>
constexpr bool kHasIntegers<QuantizedWeights<E2M1, block>, Products::fused> = true;

// Rows are made integers for tasks of so many lines and more, since fewer do not win back what that takes.
constexpr int64_t kLinesForIntegers = 128;

// How a group is multiplied: eight lanes of a unit, or 64 of its numbers.
enum class GroupForm : uint8_t { two_digits, three_digits, numbers };

constexpr int kGroupLanes = 8, kGroupsOfUnit = int(kLanes) / kGroupLanes, kPointBits = 22;
constexpr int64_t kGroupBytes = 32;  // of codes

// A group of a row in fixed point.
struct IntegerGroup {
    uint8_t digits[3][2][kGroupBytes];  // the first has the upper bits; those for lower halves of bytes, and for upper ones
    uint8_t signs[kGroupBytes];         // where codes have them
    int16_t weights[2][kGroupBytes / 2];  // what sums of the first two digits are multiplied by
};

// A group as numbers, one vector after another: divided by what runs are multiples of, and by 2^24.
struct NumberGroup {
    float numbers[kUnitVectors][kGroupLanes];
};

union alignas(32) RowGroup {
    IntegerGroup integers;
    NumberGroup numbers;
};

// A row in fixed point: the first groups of all units, and the second ones.
struct IntegerRow {
    int64_t k;   // where it begins in the contraction
    float unit;  // what runs are multiples of: half the last bit of the fixed point, since codes pick twice their values
    GroupForm forms[kGroupsOfUnit][kMostDepth / kUnit];
    RowGroup groups[kGroupsOfUnit][kMostDepth / kUnit];
};

// Eight lanes, in GCC's vectors, which have operators.
typedef uint32_t EightBits __attribute__((vector_size(32)));
typedef int32_t EightInts __attribute__((vector_size(32)));
typedef float EightFloats __attribute__((vector_size(32)));

MXQ_HD EightFloats load_eight(const float* from) {
    EightFloats eight;
    memcpy(&eight, from, sizeof eight);
    return eight;
}
MXQ_HD EightInts all_of(int32_t number) { return EightInts{} + number; }
MXQ_HD EightFloats as_floats(const EightInts& numbers) { return __builtin_convertvector(numbers, EightFloats); }
MXQ_HD bool has_any(const EightInts& lanes) { return _mm256_testz_si256((__m256i)lanes, (__m256i)lanes) == 0; }

// Loads a group of a vector of sixteen that lies interleaved (interleave_lanes()).
MXQ_HD EightFloats load_group(const float* lanes, int group) {
    const EightFloats a = load_eight(lanes), b = load_eight(lanes + kGroupLanes);
    return group == 0 ? __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
                      : __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}

// Returns which of a lane's eight codes vector n has.
constexpr int code_of_lane(int n) { return int(code_at(Order::nibbles, n, 0)); }

// Bounds the magnitudes of sums that wait and are divided by a row's unit.
constexpr float kMostWaiting = 0x1p100f;

// Finds the first bit of the fixed point in which most groups of a row fit.
class PointSearch {
public:
    // Counts a group, whose numbers have so many bits at most.
    void add(const float* unit, int group, int bits) {
        EightBits largest = {}, smallest = ~EightBits{};  // the first of all but zeros, less one
        for (int n = 0; n < kUnitVectors; n++) {
            const EightBits magnitudes = (EightBits)load_group(unit + n * kLanes, group) & kMagnitudeMask;
            const EightBits less_one = magnitudes - 1;
            largest = magnitudes > largest ? magnitudes : largest;
            smallest = less_one < smallest ? less_one : smallest;
        }
        uint32_t most = 0, least_less_one = ~0u;
        for (int l = 0; l < kGroupLanes; l++) {
            most = largest[l] > most ? largest[l] : most;
            least_less_one = smallest[l] < least_less_one ? smallest[l] : least_less_one;
        }
        if (most == 0) return;
        const int first = int(most >> 23), least = int((least_less_one + 1) >> 23), last = least - bits + kPointBits;
        most_ = first > most_ ? first : most_;
        least_ = least < least_ ? least : least_;
        begins_[first]++;
        ends_[last < first ? first : last > 255 ? 255 : last]++;
    }

    // Returns the exponent of that bit.
    int best() const {
        int best = 127, most = 0, now = 0;
        for (int at = 0; at < 256; at++) {
            now += begins_[at];
            if (now > most) most = now, best = at;
            now -= ends_[at];
        }
        return best - 127;
    }

    // Returns whether sums that are divided by the row's unit have the bits of others, where 2^last is its last bit. No sum
    // of numbers so near it, times factors of 2^-73 to 2^60, overflows or loses bits at the other end of fp32's range,
    // beside those that wait and are below kMostWaiting. From 2^36 on, sums may overflow that do not when divided.
    bool keeps_bits(int last) const {
        constexpr int near = 40, most = 36;
        return most_ - 127 < least(last + near, most) && least_ - 127 >= last - near;
    }

private:
    int begins_[256] = {}, ends_[256] = {};  // how many groups fit from there on, and up to there
    int most_ = 0, least_ = 255;             // exponents of all numbers but zeros
};

// Stores the numbers of a group of a unit times `scale`.
MXQ_HD void store_numbers(const float* unit, int group, float scale, NumberGroup& to) {
    for (int n = 0; n < kUnitVectors; n++) {
        const EightFloats numbers = load_group(unit + n * kLanes, group) * scale;
        memcpy(to.numbers[n], &numbers, sizeof numbers);
    }
}

// Magnitudes of a group as integers, one vector after another, and what they have in common.
struct GroupOfIntegers {
    // Reads a group of a unit, whose numbers times per_last are integers.
    MXQ_HD GroupOfIntegers(const float* unit, int group, float per_last) {
        EightInts sum = {}, lost = {};
        for (int n = 0; n < kUnitVectors; n++) {
            const EightBits bits = (EightBits)load_group(unit + n * kLanes, group);
            const EightFloats magnitudes = (EightFloats)(bits & kMagnitudeMask) * per_last;
            numbers[n] = __builtin_convertvector(magnitudes, EightInts);
            lost |= as_floats(numbers[n]) != magnitudes;
            sum += numbers[n], any |= numbers[n];
            if (n < kUnitVectors - 1) lost |= as_floats(12 * sum) > as_floats(any & -any) * 0x1p24f;
            signs |= bits >> 31 << (4 * code_of_lane(n) + 3);
        }
        is_exact = !has_any(lost | any >> kPointBits);
    }

    EightInts numbers[kUnitVectors], any = {};
    EightBits signs = {};
    bool is_exact;  // whether runs are
};

// Stores a group in fixed point.
MXQ_HD GroupForm store_integers(const GroupOfIntegers& group, IntegerGroup& to) {
    const EightInts beyond_sixteen = (EightInts)((EightBits)as_floats(group.any) >> 23) - (127 + 15);
    const EightInts shift = beyond_sixteen > 0 ? beyond_sixteen : EightInts{};
    const bool is_long = has_any(group.any & ((all_of(1) << shift) - 1));
    EightInts digits[3][2] = {};
    for (int n = 0; n < kUnitVectors; n++) {
        const int code = code_of_lane(n), half = code % 2, at = code / 2 * 8;
        const EightInts number = is_long ? group.numbers[n] : group.numbers[n] >> shift;
        digits[0][half] |= (is_long ? number >> 14 : number >> 8) << at;
        digits[1][half] |= (is_long ? number >> 6 & 255 : number & 255) << at;
        digits[2][half] |= (is_long ? number & 63 : EightInts{}) << at;
    }
    const EightInts of_second = is_long ? all_of(1 << 6) : all_of(1) << shift;
    const EightInts of_first = is_long ? all_of(1 << 14) : of_second << 8;
    const EightInts weights[] = {of_first | of_first << 16, of_second | of_second << 16};
    memcpy(to.digits, digits, sizeof digits);
    memcpy(to.signs, &group.signs, sizeof group.signs);
    memcpy(to.weights, weights, sizeof weights);
    return is_long ? GroupForm::three_digits : GroupForm::two_digits;
}

// Makes integers of a prepared row whose numbers have so many bits at most. Returns false where they are too far apart, or
// so many groups have more than two digits that all are faster in few_rows_ahead.h.
bool make_integers(const FewRowsPass& pass, int bits, IntegerRow& row) {
    const int64_t units = ceil_div(pass.depth, kUnit);
    PointSearch search;
    for (int64_t unit = 0; unit < units; unit++)
        for (int group = 0; group < kGroupsOfUnit; group++) search.add(pass.rows + unit * kUnit, group, bits);
    const int last = search.best() - kPointBits + 1;
    if (!search.keeps_bits(last)) return false;
    const float per_last = bits_float(power_of_two(-last));
    row.k = pass.k;
    row.unit = bits_float(power_of_two(last - 1));
    int64_t cost = 0;  // beyond that of two digits, in halves of what a third digit takes
    for (int64_t unit = 0; unit < units; unit++)
        for (int group = 0; group < kGroupsOfUnit; group++) {
            const float* const from = pass.rows + unit * kUnit;
            GroupForm& form = row.forms[group][unit];
            RowGroup& to = row.groups[group][unit];
            const GroupOfIntegers integers(from, group, per_last);
            form = integers.is_exact ? store_integers(integers, to.integers) : GroupForm::numbers;
            if (form == GroupForm::numbers) store_numbers(from, group, per_last * 0x1p-24f, to.numbers);
            cost += form == GroupForm::numbers ? 11 : form == GroupForm::three_digits ? 2 : 0;
        }
    return 2 * cost <= 3 * units * kGroupsOfUnit;
}

// Units of kStripLines lines that lie at equal distances.
struct IntegerLines {
    const uint8_t* codes;
    int64_t between;       // bytes from a line to the one beside it
    const float* factors;  // kMostFactors for each line
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

// Twice the values of a group of codes, negative where one of the code and `signs` is: those in lower and in upper halves of
// bytes.
struct Doubles {
    MXQ_HD Doubles(const uint8_t* codes, const __m256i& signs, const DoublesTable& table) {
        const __m256i bytes = _mm256_xor_si256(load_words(codes), signs);
        lower = _mm256_shuffle_epi8(table.values, _mm256_and_si256(bytes, table.halves));
        upper = _mm256_shuffle_epi8(table.values, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), table.halves));
    }
    __m256i lower, upper;
};

// Adds the run of a group of a line, times its factors, to the sums.
template <class Weights, int group>
MXQ_HD void add_run(const __m256& run, const float* factors, __m256& sums) {
    const Lanes of_lanes = Weights::factors_in_order(factors, group);
    sums = multiply_add<Weights::has_powers_of_two>({run}, of_lanes, {sums}).all;
    asm volatile("" : "+x"(sums));
}

// Multiplies a group of the lines with a row's digits.
template <class Weights, int group, int count>
MXQ_HD void multiply_digits(const IntegerGroup& row, const IntegerLines& lines, const DoublesTable& table,
                            __m256 (&sums)[kStripLines]) {
    __m256i digits[count][2], signs = load_integers(row.signs);
#pragma GCC unroll 3
    for (int d = 0; d < count; d++)
        for (int half = 0; half < 2; half++) {
            digits[d][half] = load_integers(row.digits[d][half]);
            if (count == 2) keep_here(digits[d][half]);
        }
#pragma GCC unroll 4
    for (int c = 0; c < kStripLines; c++) {
        const Doubles doubles(lines.codes + c * lines.between + group * kGroupBytes, signs, table);
        __m256i run;
#pragma GCC unroll 3
        for (int d = 0; d < count; d++) {
            const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(digits[d][0], doubles.lower),
                                                   _mm256_maddubs_epi16(digits[d][1], doubles.upper));
            const __m256i weights = d < 2 ? load_integers(row.weights[d]) : _mm256_set1_epi16(1);
            const __m256i fours = _mm256_madd_epi16(pairs, weights);
            run = d == 0 ? fours : _mm256_add_epi32(run, fours);
        }
        add_run<Weights, group>(_mm256_cvtepi32_ps(run), lines.factors + c * kMostFactors, sums[c]);
    }
}

// Multiplies a group of the lines with a row's numbers. Doubles are moved to the tops of lanes, which is 2^24 times them.
template <class Weights, int group>
__attribute__((noinline)) void multiply_numbers(const NumberGroup& row, const IntegerLines& lines,
                                                __m256 (&sums)[kStripLines]) {
    const DoublesTable table;
    EightInts halves[kStripLines][2];
#pragma GCC unroll 4
    for (int c = 0; c < kStripLines; c++) {
        const Doubles doubles(lines.codes + c * lines.between + group * kGroupBytes, _mm256_setzero_si256(), table);
        halves[c][0] = (EightInts)doubles.lower, halves[c][1] = (EightInts)doubles.upper;
    }
    __m256 runs[kStripLines];
#pragma GCC unroll 8
    for (int n = 0; n < kUnitVectors; n++) {
        const __m256 numbers = _mm256_load_ps(row.numbers[n]);
        const int code = code_of_lane(n);
#pragma GCC unroll 4
        for (int c = 0; c < kStripLines; c++) {
            const EightInts moved = halves[c][code % 2] << (24 - code / 2 * 8) & all_of(int32_t(0xFF000000));
            const __m256 doubles = (__m256)as_floats(moved);
            runs[c] = n == 0 ? _mm256_mul_ps(numbers, doubles) : _mm256_fmadd_ps(numbers, doubles, runs[c]);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < kStripLines; c++) add_run<Weights, group>(runs[c], lines.factors + c * kMostFactors, sums[c]);
}

// Names units of the row [first, first + count), and the same units of four lines. Other lines are prefetched from `ahead`
// on while the second groups of these units are multiplied, since codes of second groups are in L1 by then.
struct IntegerUnits {
    int64_t first, count;
    IntegerLines lines;
    const uint8_t* ahead;
};

// Adds the products of a group of each unit to the sums. Digits go by in a loop of their own, which keeps sums in registers.
template <class Weights, int group>
__attribute__((noinline, aligned(64))) void multiply_groups(const IntegerRow& row, const IntegerUnits& units,
                                                            __m256 (&sums)[kStripLines][kGroupsOfUnit]) {
    const RowGroup* const groups = row.groups[group] + units.first;
    const GroupForm* const forms = row.forms[group] + units.first;
    const uint8_t* const ahead = units.ahead;
    const int64_t count = units.count;
    const auto prefetch = [&](int64_t i) __attribute__((always_inline)) {
        for (int c = 0; group > 0 && c < kStripLines; c++)
            __builtin_prefetch(ahead + i * 64 + c * units.lines.between, 0, 2);
    };
    DoublesTable table;
    __m256 waiting[kStripLines];
    for (int c = 0; c < kStripLines; c++) waiting[c] = sums[c][group];
    for (int64_t i = 0; i < count; i++) {
        __m256 now[kStripLines];
        for (int c = 0; c < kStripLines; c++) now[c] = waiting[c];
        IntegerLines lines = units.lines;
        lines.codes += i * Weights::unit_bytes, lines.factors += i * Weights::factor_floats;
        for (; i < count && forms[i] != GroupForm::numbers; i++) {
            table.keep_here();
            prefetch(i);
            if (__builtin_expect(forms[i] == GroupForm::two_digits, 1))
                multiply_digits<Weights, group, 2>(groups[i].integers, lines, table, now);
            else
                multiply_digits<Weights, group, 3>(groups[i].integers, lines, table, now);
            lines.codes += Weights::unit_bytes, lines.factors += Weights::factor_floats;
        }
        for (int c = 0; c < kStripLines; c++) waiting[c] = now[c];
        if (i == count) break;
        prefetch(i);
        multiply_numbers<Weights, group>(groups[i].numbers, lines, waiting);
    }
    for (int c = 0; c < kStripLines; c++) sums[c][group] = waiting[c];
}

// Adds the products of a group of each unit to sums that are not in fixed point.
template <class Weights, int group>
void multiply_as_numbers(const float* row, const IntegerUnits& units, __m256 (&sums)[kStripLines][kGroupsOfUnit]) {
    IntegerLines lines = units.lines;
    __m256 now[kStripLines];
    for (int c = 0; c < kStripLines; c++) now[c] = sums[c][group];
    for (int64_t i = 0; i < units.count; i++) {
        alignas(32) NumberGroup numbers;
        store_numbers(row + i * kUnit, group, 0x1p-25f, numbers);
        multiply_numbers<Weights, group>(numbers, lines, now);
        lines.codes += Weights::unit_bytes, lines.factors += Weights::factor_floats;
    }
    for (int c = 0; c < kStripLines; c++) sums[c][group] = now[c];
}

// Loads a line's sums that wait, times a power of two. Returns whether they keep their bits, and are below kMostWaiting.
MXQ_HD bool load_waiting(const float* from, float scale, __m256 (&sums)[kGroupsOfUnit]) {
    EightInts lost = {};
    for (int group = 0; group < kGroupsOfUnit; group++) {
        const EightFloats sum = load_group(from, group), scaled = sum * scale;
        lost |= (scaled * (1 / scale) != sum) | ~((scaled < kMostWaiting) & (scaled > -kMostWaiting));
        sums[group] = (__m256)scaled;
    }
    return !has_any(lost);
}

// Multiplies lines with the row of the pass. Sums are divided by the row's unit meanwhile; those that wait and are too large
// or too small for that stay as they are, and products are added to them as numbers.
template <class Weights>
void multiply_integers(const FewRowsPass& pass, const Columns& b) {
    constexpr int64_t in_l1 = 32;  // units of which codes, row and factors stay there for their second groups
    const IntegerRow& row = *static_cast<const IntegerRow*>(pass.integers);
    const auto waiting = [&](int64_t c) { return pass.lanes + (b.first + c * b.apart) * kLanes; };
    __m256 sums[kStripLines][kGroupsOfUnit];
    for (auto& of_line : sums) of_line[0] = of_line[1] = _mm256_setzero_ps();
    bool in_units = true;
    for (int64_t c = 0; !pass.first && c < b.count; c++)
        in_units &= load_waiting(waiting(c), 1 / (row.unit * Weights::scale), sums[c]);
    const float scale = Weights::scale * (in_units ? row.unit : 1);
    for (int64_t c = 0; !in_units && c < b.count; c++) load_waiting(waiting(c), 1 / scale, sums[c]);

    IntegerUnits units = {0, 0, {b.codes[0], b.codes[1] - b.codes[0], b.factors[0]}, b.codes[0] + 2 * b.to_next};
    for (int64_t at = 0; at * kUnit < pass.depth; at += units.count) {
        units.first = (pass.k - row.k) / kUnit + at;
        units.count = least(in_l1, b.units - at);
        if (at == b.units) units.count = 1, units.lines.codes = b.last[0], units.lines.between = b.last[1] - b.last[0];
        if (in_units) {
            multiply_groups<Weights, 0>(row, units, sums);
            multiply_groups<Weights, 1>(row, units, sums);
        } else {
            multiply_as_numbers<Weights, 0>(pass.rows + at * kUnit, units, sums);
            multiply_as_numbers<Weights, 1>(pass.rows + at * kUnit, units, sums);
        }
        units.lines.codes += units.count * Weights::unit_bytes, units.ahead += units.count * Weights::unit_bytes;
        units.lines.factors += units.count * Weights::factor_floats;
    }
    for (int64_t c = 0; c < b.count; c++) {
        const Lanes lanes[] = {{sums[c][0]}, {sums[c][1]}};
        if (pass.last) finish_sum(pass, b, 0, c, lanes, Order::bytes, scale);
        for (int l = 0; !pass.last && l < kLanes; l++) waiting(c)[l] = sums[c][l % 2][l / 2] * scale;
    }
}
#endif

}  // namespace
}  // namespace mxq::cpu
