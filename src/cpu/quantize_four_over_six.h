// Four over six: makes two scales for each NVFP4 block and takes the one whose codes have the smaller error. Part of
// kernels.cpp.
//
//     maxima -> two scales -> the errors of both, over 16 elements in order -> the better one
//                          -> estimates of the errors, where they decide (numerics/four_over_six.h): not for square tiles
//
// Thirty-two blocks of 16 elements are judged at once, each in a lane of its own:
//
//     rowwise        a lane is a block, 16 neighbours of a row
//     columnwise     a lane is a block, 16 rows of a column
//     square tiles   a lane is a row of a tile; the errors of a tile's rows are added as a tree
#pragma once
#include "cpu/quantize_scales.h"
#include "cpu/transpose.h"
#include "numerics/four_over_six.h"

namespace mxq::cpu {
namespace {

constexpr int64_t kJudged = 32;

// Thirty-two blocks of 16 elements, a column each.
struct Lines {
    alignas(64) float elements[kNvBlock][kJudged];
};

// The candidates of each lane and their errors.
struct Judged {
    alignas(64) uint32_t four[kJudged], six[kJudged];  // the scales
    alignas(64) float error_of_four[kJudged], error_of_six[kJudged];

    MXQ_HD uint32_t choice(int64_t lane) const {
        return nvfp4_choice({four[lane], six[lane]}, error_of_four[lane], error_of_six[lane]);
    }
};

// How many blocks the loop over elements takes at once: their sums of errors stay in registers.
constexpr int64_t kJudgedAtOnce = 16;

// Returns the quotient that divide_rn gives. `corrects` tells that ErrorDivisor serves the dividend: a product with the
// reciprocal, corrected by its remainder, takes a third of a division's time.
template <bool corrects>
MXQ_HD float divide_error(float product, const ErrorDivisor& by) {
#if defined(__FMA__)
    if constexpr (corrects) {
        const float quotient = multiply_rn(product, by.reciprocal);
        return __builtin_fmaf(__builtin_fmaf(-quotient, by.divisor, product), by.reciprocal, quotient);
    }
#endif
    return divide_rn(product, by.divisor);
}

// Stores the errors of the blocks from `first` on under their scales.
template <bool squared, bool corrects>
void add_errors(const Lines& lines, int64_t first, const uint32_t* scales, const Nvfp4Global& global, float* errors) {
    const ErrorDivisor divisor{global.largest, reciprocal_rn(global.largest)};
    alignas(64) float multipliers[kJudgedAtOnce], values[kJudgedAtOnce], sums[kJudgedAtOnce] = {};
    for (int64_t i = 0; i < kJudgedAtOnce; i++) values[i] = decode<E4M3>(scales[first + i]);
    for (int64_t i = 0; i < kJudgedAtOnce; i++) multipliers[i] = nvfp4_multiplier_of_value(values[i], global);
    for (int64_t element = 0; element < kNvBlock; element++)
        for (int64_t i = 0; i < kJudgedAtOnce; i++) {
            const float magnitude = magnitude_of(lines.elements[element][first + i]);
            const float rounded = round_to_e2m1(multiply_rn(magnitude, multipliers[i]));
            const float decoded = divide_error<corrects>(nvfp4_product(rounded, values[i], global.amax), divisor);
            const float difference = add_rn(decoded, -magnitude);
            sums[i] = add_rn(sums[i], squared ? multiply_rn(difference, difference) : magnitude_of(difference));
        }
    memcpy(errors + first, sums, sizeof sums);
}

#if defined(__FMA__)
// The estimates of the errors of 16 blocks under one candidate, and the factors that they are made with.
struct Estimates {
    alignas(64) float multipliers[kJudgedAtOnce], units[kJudgedAtOnce], sums[2][kJudgedAtOnce] = {};

    Estimates(const uint32_t* scales, const Nvfp4Global& global) {
        const float unit = error_unit(global);
        for (int64_t i = 0; i < kJudgedAtOnce; i++) units[i] = decode<E4M3>(scales[i]);
        for (int64_t i = 0; i < kJudgedAtOnce; i++) multipliers[i] = nvfp4_multiplier_of_value(units[i], global);
        for (int64_t i = 0; i < kJudgedAtOnce; i++) {
            multipliers[i] = multiply_rn(multipliers[i], ErrorScale::one);
            units[i] = multiply_rn(units[i], multiply_rn(unit, 1 / ErrorScale::one));
        }
    }
    MXQ_HD ErrorScale of(int64_t i) const { return {multipliers[i], units[i]}; }
    // Adds the errors of an element of each block. Even and odd elements have sums of their own, as in error_estimate_16.
    template <bool squared>
    MXQ_HD void add(const float* elements, int64_t element) {
        for (int64_t i = 0; i < kJudgedAtOnce; i++) add_error<squared>(elements[i], of(i), false, sums[element % 2][i]);
    }
};

// Stores estimates as the errors of the blocks from `first` on. Returns false where one of them needs the errors themselves.
template <bool squared>
bool estimate_errors(const Lines& lines, int64_t first, const uint32_t* maxima, const Nvfp4Global& global, Judged& judged) {
    Estimates four(judged.four + first, global), six(judged.six + first, global);
    for (int64_t element = 0; element < kNvBlock; element += 2)
        for (int64_t i = 0; i < 2; i++) {
            four.add<squared>(lines.elements[element + i] + first, i);
            six.add<squared>(lines.elements[element + i] + first, i);
        }
    uint32_t undecided = 0;
    for (int64_t i = 0; i < kJudgedAtOnce; i++) {
        const float of_four = add_rn(four.sums[0][i], four.sums[1][i]), of_six = add_rn(six.sums[0][i], six.sums[1][i]);
        const float amax = bits_float(maxima[first + i]);
        judged.error_of_four[first + i] = of_four;
        judged.error_of_six[first + i] = of_six;
        const bool decided = (amax == 0) | estimates_decide<squared>(of_four, of_six, amax, 1);
        undecided |= uint32_t(!(decided & can_estimate(amax, four.of(i), six.of(i))));
    }
    return undecided == 0;
}
#else
// Without fused multiply-add an estimate would take longer than the errors.
template <bool squared>
bool estimate_errors(const Lines&, int64_t, const uint32_t*, const Nvfp4Global&, Judged&) {
    return false;
}
#endif

void make_candidates(const uint32_t* maxima, const Nvfp4Global& global, Judged& judged) {
    for (int64_t i = 0; i < kJudged; i++) {
        const Nvfp4Candidates both = nvfp4_candidates(bits_float(maxima[i]), global);
        judged.four[i] = both.four;
        judged.six[i] = both.six;
    }
}

// Stores the errors of the blocks from `first` on.
template <bool squared>
void add_errors(const Lines& lines, int64_t first, const Nvfp4Global& global, Judged& judged) {
    const auto add = ErrorDivisor::serves(global.amax) ? &add_errors<squared, true> : &add_errors<squared, false>;
    add(lines, first, judged.four, global, judged.error_of_four);
    add(lines, first, judged.six, global, judged.error_of_six);
}

// Makes the candidates of every block and their errors. Blocks that choose `alone` have estimates where these decide.
template <bool squared>
void judge(const Lines& lines, const uint32_t* maxima, bool alone, const Nvfp4Global& global, Judged& judged) {
    make_candidates(maxima, global, judged);
    const bool estimates = alone && can_estimate(global);
    for (int64_t first = 0; first < kJudged; first += kJudgedAtOnce)
        if (!estimates || !estimate_errors<squared>(lines, first, maxima, global, judged))
            add_errors<squared>(lines, first, global, judged);
}

// Transposes 16 blocks of 16 elements, which are `pitch` apart, to lanes from `lane` on.
MXQ_HD void transpose_lines(const float* from, int64_t pitch, int64_t lane, Lines& lines) {
    for (int64_t line = 0; line < kNvBlock; line += 4)
        for (int64_t element = 0; element < kNvBlock; element += 4)
            transpose(from + line * pitch + element, pitch, &lines.elements[element][lane + line], kJudged);
}

// Stores the scales that the lanes choose, their multipliers and code masks from block `first` on.
void put_choices(const Judged& judged, int64_t count, const Nvfp4Global& global, int64_t first, BlockScales& scales) {
    uint32_t bytes[kJudged];
    for (int64_t i = 0; i < count; i++) bytes[i] = judged.choice(i);
    for (int64_t i = 0; i < count; i++) {
        scales.bytes[first + i] = uint8_t(bytes[i]);
        scales.multipliers[first + i] = nvfp4_multiplier(bytes[i], global);
        scales.masks[first + i] = nvfp4_code_mask(bytes[i]);
    }
}

// Replaces the errors of a tile's rows by the error of the tile.
MXQ_HD void add_rows(float* errors) {
    float rows[kNvBlock];
    memcpy(rows, errors, sizeof rows);
    const float sum = add_errors_16(rows);
    for (int64_t i = 0; i < kNvBlock; i++) errors[i] = sum;
}

// Chooses the scales of `count` blocks, of which fill(first, some, lines) makes lanes of some from the first on. Rows of a
// tile choose together.
template <bool squared, bool by_tiles, class Fill>
MXQ_HD void choose(int64_t count, const Nvfp4Global& global, BlockScales& scales, const Fill& fill) {
    Lines lines{};
    Judged judged;
    for (int64_t first = 0; first < count; first += kJudged) {
        const int64_t some = least(kJudged, count - first);
        uint32_t maxima[kJudged] = {};
        memcpy(maxima, scales.maxima + first, size_t(some) * sizeof *maxima);
        fill(first, some, lines);
        judge<squared>(lines, maxima, !by_tiles, global, judged);
        for (int64_t tile = 0; by_tiles && tile < kJudged; tile += kNvBlock) {
            add_rows(judged.error_of_four + tile);
            add_rows(judged.error_of_six + tile);
        }
        put_choices(judged, some, global, first, scales);
    }
}

// Chooses the scales of blocks that are 16 neighbours.
template <bool squared>
void choose_for_rows(const float* values, int64_t, int64_t blocks, const Nvfp4Global& global, BlockScales& scales) {
    choose<squared, false>(blocks, global, scales, [&](int64_t first, int64_t some, Lines& lines) {
        for (int64_t i = 0; i < some; i += kNvBlock) transpose_lines(values + (first + i) * kNvBlock, kNvBlock, i, lines);
    });
}

// Chooses the scales of blocks that are 16 rows of a column.
template <bool squared>
void choose_for_columns(const float* values, int64_t pitch, int64_t, const Nvfp4Global& global, BlockScales& scales) {
    choose<squared, false>(pitch, global, scales, [&](int64_t first, int64_t, Lines& lines) {
        for (int64_t row = 0; row < kNvBlock; row++)
            memcpy(lines.elements[row], values + row * pitch + first, sizeof lines.elements[row]);
    });
}

// Chooses the scales of square tiles. The maxima of all columns of a tile are those of the tile already.
template <bool squared>
void choose_for_tiles(const float* values, int64_t pitch, int64_t, const Nvfp4Global& global, BlockScales& scales) {
    choose<squared, true>(pitch, global, scales, [&](int64_t first, int64_t some, Lines& lines) {
        for (int64_t i = 0; i < some; i += kNvBlock) transpose_lines(values + first + i, pitch, i, lines);
    });
}

// Chooses the scales of all blocks of a patch: values, pitch, number of blocks, global maximum, scales.
using ChooseScales = decltype(&choose_for_rows<true>);

struct ChoiceSteps {
    ChooseScales rows, columns;
};

template <bool squared>
ChoiceSteps choice_steps_of(bool square_tiles) {
    return {choose_for_rows<squared>, square_tiles ? choose_for_tiles<squared> : choose_for_columns<squared>};
}

// Returns the steps of a problem, which are NULL where there is no choice.
inline ChoiceSteps choice_steps_of(const QuantizeProblem& problem) {
    switch (problem.four_over_six) {
        case FourOverSix::None: break;
        case FourOverSix::Mae: return choice_steps_of<false>(problem.square_tiles);
        case FourOverSix::Mse: return choice_steps_of<true>(problem.square_tiles);
    }
    return {};
}

}  // namespace
}  // namespace mxq::cpu
