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
// Two digits are enough where the magnitudes of a half of a lane have no more than sixteen bits from the first one of any of
// them to the last: their sums are weighted by a power of two for each half, which costs nothing, since two digits need
// weights anyway.
//
// With AVX2 a group takes 18 operations, as numbers in few_rows_ahead.h 27. Lines lie far apart,
// unlike those of other codes with AVX2. docs/cpu-few-rows.md says what all this gains, and how many groups of which rows
// have which form.
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
constexpr int64_t kMostGroups = kMostDepth / kUnit * kGroupsOfUnit;

// Holds the first two digits of a group of a row in fixed point, in three lines of a cache: L1 has to hold the row beside
// codes that pass by.
struct alignas(64) IntegerGroup {
    uint8_t digits[2][2][kGroupBytes];  // the first has the upper bits; those for lower halves of bytes, and for upper ones
    uint8_t signs[kGroupBytes];         // where codes have them
    int16_t weights[kGroupBytes / 2];   // what sums of the second digit are multiplied by, for 16 bits of codes each
};

// Holds what a group in another form than two digits has beside its IntegerGroup: the third digit, whose weight is one, or
// fp32 numbers in place of all digits.
union alignas(32) RestOfGroup {
    uint8_t digit[2][kGroupBytes];
    float numbers[kUnitVectors][kGroupLanes];  // divided by the last bit of the fixed point, and by 2^24
};

// Holds a row in fixed point: groups 2u and 2u + 1 belong to unit u.
struct IntegerRow {
    int64_t k;   // where it begins in the contraction
    float unit;  // what runs are multiples of: half the last bit of the fixed point, since codes pick twice their values
    GroupForm forms[kMostGroups];
    IntegerGroup groups[kMostGroups + 1];  // signs after the last one are loaded
    RestOfGroup rest[kMostGroups];
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
MXQ_HD void store_numbers(const float* unit, int group, float scale, float (&to)[kUnitVectors][kGroupLanes]) {
    for (int n = 0; n < kUnitVectors; n++) {
        const EightFloats numbers = load_group(unit + n * kLanes, group) * scale;
        memcpy(to[n], &numbers, sizeof numbers);
    }
}

// Magnitudes of a group as integers, one vector after another, and what they have in common.
struct GroupOfIntegers {
    // Reads a group of a unit, whose numbers times per_last are integers.
    MXQ_HD GroupOfIntegers(const float* unit, int group, float per_last) {
        EightBits sum = {}, any = {};  // both wrap only in groups that have bits above the fixed point
        EightInts lost = {};
        for (int n = 0; n < kUnitVectors; n++) {
            const EightBits bits = (EightBits)load_group(unit + n * kLanes, group);
            const EightFloats magnitudes = (EightFloats)(bits & kMagnitudeMask) * per_last;
            numbers[n] = __builtin_convertvector(magnitudes, EightInts);
            lost |= as_floats(numbers[n]) != magnitudes;
            sum += (EightBits)numbers[n], any |= (EightBits)numbers[n];
            if (n < kUnitVectors - 1)
                lost |= as_floats((EightInts)(12 * sum)) > as_floats((EightInts)(any & -any)) * 0x1p24f;
            of_half[code_of_lane(n) / 4] |= numbers[n];
            signs |= bits >> 31 << (4 * code_of_lane(n) + 3);
        }
        is_exact = !has_any(lost | (EightInts)(any >> kPointBits));
    }

    EightInts numbers[kUnitVectors];
    EightInts of_half[2] = {};  // all bits of the numbers of a lane's first four codes, and of its other four
    EightBits signs = {};
    bool is_exact;  // whether runs are
};

// Stores a group in fixed point.
MXQ_HD GroupForm store_integers(const GroupOfIntegers& group, IntegerGroup& to, RestOfGroup& rest) {
    EightInts shift[2], below = {};
    for (int half = 0; half < 2; half++) {
        const EightInts beyond_sixteen = (EightInts)((EightBits)as_floats(group.of_half[half]) >> 23) - (127 + 15);
        shift[half] = beyond_sixteen > 0 ? beyond_sixteen : EightInts{};
        below |= group.of_half[half] & ((all_of(1) << shift[half]) - 1);
    }
    const bool is_long = has_any(below);
    EightInts digits[3][2] = {};
    for (int n = 0; n < kUnitVectors; n++) {
        const int code = code_of_lane(n), half = code % 2, at = code / 2 * 8;
        const EightInts number = is_long ? group.numbers[n] : group.numbers[n] >> shift[code / 4];
        digits[0][half] |= (is_long ? number >> 14 : number >> 8) << at;
        digits[1][half] |= (is_long ? number >> 6 & 255 : number & 255) << at;
        digits[2][half] |= (is_long ? number & 63 : EightInts{}) << at;
    }
    const EightInts weights = is_long ? all_of(1 << 6 | 1 << 22) : all_of(1) << shift[0] | all_of(1 << 16) << shift[1];
    memcpy(to.digits, digits, sizeof to.digits);
    memcpy(to.signs, &group.signs, sizeof to.signs);
    memcpy(to.weights, &weights, sizeof to.weights);
    if (is_long) memcpy(rest.digit, digits[2], sizeof rest.digit);
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
            const int64_t at = unit * kGroupsOfUnit + group;
            GroupForm& form = row.forms[at];
            RestOfGroup& rest = row.rest[at];
            const GroupOfIntegers integers(from, group, per_last);
            form = integers.is_exact ? store_integers(integers, row.groups[at], rest) : GroupForm::numbers;
            if (form == GroupForm::numbers) store_numbers(from, group, per_last * 0x1p-24f, rest.numbers);
            cost += form == GroupForm::numbers ? 11 : form == GroupForm::three_digits ? 2 : 0;
        }
    return cost <= 3 * units * kGroupsOfUnit;
}

// Units of kStripLines lines that lie at equal distances.
struct IntegerLines {
    const uint8_t* codes;
    int64_t between;       // bytes from a line to the one beside it
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

// Multiplies a group of the lines with a row's numbers. Doubles are moved to the tops of lanes, which is 2^24 times them.
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
        sums[c] = multiply_add<false>({runs[c]}, of_lanes, {sums[c]}).all;
    }
}

// Multiplies units of lines with a row's digits, three lines in turn:
//
//     line 0   pick doubles, multiply | weigh digits, convert | times factors, to the sum
//     line 1                            pick doubles, multiply | weigh digits, convert    | ..
//     line 2                                                     pick doubles, multiply   | ..
//
// Few operations then follow the one that they wait for, and codes are loaded before any waits for them. The last two lines
// of a group go on beside the first ones of the next. Sums lie in memory, since registers are few.
template <class Weights>
class LinesInTurn {
public:
    explicit LinesInTurn(__m256 (&sums)[kGroupsOfUnit][kStripLines]) : sums_(sums) {}

    // Begins with a group of codes of the first line.
    MXQ_HD void begin(const uint8_t* codes, const IntegerGroup& row) {
        codes_ = signed_codes(codes, load_integers(row.signs));
        weighed_[0] = weighed_[1] = _mm256_setzero_si256(), run_ = {_mm256_setzero_ps()};
    }

    // Multiplies a group of each line. The codes and the row's group that come next are at `next` and after this one.
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

    // Ends the runs of the last two lines of a group.
    template <int group>
    MXQ_HD void finish(const float* factors) {
        add_run<group>(kStripLines - 2, factors);
        run_.all = _mm256_cvtepi32_ps(_mm256_add_epi32(weighed_[0], weighed_[1]));
        add_run<group>(kStripLines - 1, factors);
    }

    MXQ_HD void keep_table() { table_.keep_here(); }

private:
    // Multiplies a group of each line with so many digits, if three with the third one of `rest`.
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

    // Adds the run of line c, times its factors, to its sum.
    template <int group>
    MXQ_HD void add_run(int c, const float* factors) {
        Lanes of_lanes = Weights::factors_in_order(factors + c * kMostFactors, group);
        keep_here(of_lanes);
        run_ = multiply_add<false>(run_, of_lanes, {sums_[group][c]});
        asm volatile("vmovaps %1, %0" : "=m"(sums_[group][c]) : "x"(run_.all));
    }

    DoublesTable table_;
    __m256i codes_;       // of the line that comes next, with signs
    __m256i weighed_[2];  // of the line before it
    Lanes run_;           // of the line before that
    __m256 (&sums_)[kGroupsOfUnit][kStripLines];
};

// Adds the products of `count` units of lines, and then of one of the last ones if there are any, with those of the row from
// `first` on to the sums.
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

// Loads a line's sums that wait, times a power of two. Returns whether they keep their bits, and are below kMostWaiting.
MXQ_HD bool load_waiting(const float* from, float scale, __m256 (&sums)[kGroupsOfUnit][kStripLines], int64_t line) {
    EightInts lost = {};
    for (int group = 0; group < kGroupsOfUnit; group++) {
        const EightFloats sum = load_group(from, group), scaled = sum * scale;
        lost |= (scaled * (1 / scale) != sum) | ~((scaled < kMostWaiting) & (scaled > -kMostWaiting));
        sums[group][line] = (__m256)scaled;
    }
    return !has_any(lost);
}

// Multiplies lines with the row of the pass. Sums are divided by the row's unit meanwhile; those that wait and are too large
// or too small for that stay as they are, and products are added to them as numbers.
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
