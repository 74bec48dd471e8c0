// One row of A in fixed point, for few_rows_integers.h. Part of few_rows_kernels.cpp, with AVX2.
//
// A run of integers is exact until it is rounded to fp32. A run of fp32 numbers is rounded after each addition. Both have
// the same bits where all sums of the run but the last are exact. That holds where twelve times the sum of a lane's
// magnitudes so far is at most 2^24 times the last bit of any of them. Other groups of eight lanes are multiplied as
// numbers, and so are those with bits outside of the fixed point.
//
// Two digits are enough where the magnitudes of half a lane span at most sixteen bits. Their sums are weighted by a power of
// two for each half. That costs nothing, since two digits need weights anyway.
#pragma once
#include "cpu/few_rows_columns.h"
#include "cpu/operand_reader.h"

namespace mxq::cpu {
namespace {

#if !defined(__AVX512F__)
// Rows are made integers for tasks of so many rows of B and more, since fewer do not win back what that takes.
constexpr int64_t kLinesForIntegers = 128;

// How a group is multiplied: eight lanes of a unit, or 64 of its numbers.
enum class GroupForm : uint8_t { two_digits, three_digits, numbers };

constexpr int kGroupLanes = 8, kGroupsOfUnit = int(kLanes) / kGroupLanes, kPointBits = 22;
constexpr int64_t kGroupBytes = 32;  // of codes
constexpr int64_t kMostGroups = kMostDepth / kUnit * kGroupsOfUnit;

// Holds the first two digits of a group of a row in fixed point, in three cache lines: L1 has to hold the row and the codes
// that are read.
struct alignas(64) IntegerGroup {
    uint8_t digits[2][2][kGroupBytes];  // the first has the upper bits; those for lower halves of bytes, and for upper ones
    uint8_t signs[kGroupBytes];         // where codes have them
    int16_t weights[kGroupBytes / 2];   // what sums of the second digit are multiplied by, for 16 bits of codes each
};

// Holds what a group in another form than two digits has in addition to its IntegerGroup: the third digit, whose weight is
// one, or fp32 numbers in place of all digits.
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
    // of numbers so near it, times factors of 2^-73 to 2^60, overflows or loses bits at the other end of fp32's range, and
    // so do those that wait and are below kMostWaiting. From 2^36 on, sums may overflow that do not when divided.
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
#endif

}  // namespace
}  // namespace mxq::cpu
