// Four over six: makes two scales for each NVFP4 block and takes the one whose codes have the smaller error. Part of
// kernels.cpp.
//
//     maxima -> two scales -> the errors of both, over 16 elements in order -> the better one
//
// Thirty-two lines of 16 elements are judged at once, each in a lane of its own:
//
//     rowwise        a lane is a block, 16 neighbours of a row
//     columnwise     a lane is a block, 16 rows of a column
//     square tiles   a lane is a row of a tile; the errors of a tile's rows are added as a tree
#pragma once
#include "cpu/quantize_scales.h"

namespace mxq::cpu {
namespace {

constexpr int64_t kJudged = 32;

// Thirty-two lines of 16 elements, a column each.
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

// Stores the error of every line under its scale.
template <bool squared>
void add_errors(const Lines& lines, const uint32_t* scales, const Nvfp4Global& global, float* errors) {
    alignas(64) float multipliers[kJudged], values[kJudged];
    for (int64_t i = 0; i < kJudged; i++) multipliers[i] = nvfp4_multiplier(scales[i], global);
    for (int64_t i = 0; i < kJudged; i++) values[i] = decode<E4M3>(scales[i]);
    for (int64_t i = 0; i < kJudged; i++) errors[i] = 0;
    for (int64_t element = 0; element < kNvBlock; element++)
        for (int64_t i = 0; i < kJudged; i++) {
            const float value = lines.elements[element][i];
            const uint32_t code = nvfp4_code(value, multipliers[i]);
            errors[i] = add_rn(errors[i], nvfp4_error<squared>(value, code, values[i], global));
        }
}

// Makes the candidates of every line from its maximum, and their errors.
template <bool squared>
void judge(const Lines& lines, const uint32_t* maxima, const Nvfp4Global& global, Judged& judged) {
    for (int64_t i = 0; i < kJudged; i++) {
        const Nvfp4Candidates both = nvfp4_candidates(bits_float(maxima[i]), global);
        judged.four[i] = both.four;
        judged.six[i] = both.six;
    }
    add_errors<squared>(lines, judged.four, global, judged.error_of_four);
    add_errors<squared>(lines, judged.six, global, judged.error_of_six);
}

// Stores scale bytes, multipliers and code masks from block `first` on.
void put_scales(const uint32_t* bytes, int64_t count, const Nvfp4Global& global, int64_t first, BlockScales& scales) {
    for (int64_t i = 0; i < count; i++) {
        scales.bytes[first + i] = uint8_t(bytes[i]);
        scales.multipliers[first + i] = nvfp4_multiplier(bytes[i], global);
        scales.masks[first + i] = nvfp4_code_mask(bytes[i]);
    }
}

// Stores the scales that the lanes choose from block `first` on.
void put_choices(const Judged& judged, int64_t count, const Nvfp4Global& global, int64_t first, BlockScales& scales) {
    uint32_t bytes[kJudged];
    for (int64_t i = 0; i < count; i++) bytes[i] = judged.choice(i);
    put_scales(bytes, count, global, first, scales);
}

// Chooses the scales of blocks that are 16 neighbours.
template <bool squared>
void choose_for_rows(const float* values, int64_t, int64_t blocks, const Nvfp4Global& global, BlockScales& scales) {
    Lines lines{};
    Judged judged;
    for (int64_t first = 0; first < blocks; first += kJudged) {
        const int64_t count = least(kJudged, blocks - first);
        const float* const from = values + first * kNvBlock;
        for (int64_t i = 0; i < count * kNvBlock; i++) lines.elements[i % kNvBlock][i / kNvBlock] = from[i];
        uint32_t maxima[kJudged] = {};
        memcpy(maxima, scales.maxima + first, size_t(count) * sizeof *maxima);
        judge<squared>(lines, maxima, global, judged);
        put_choices(judged, count, global, first, scales);
    }
}

// Chooses the scales of blocks that are 16 rows of a column.
template <bool squared>
void choose_for_columns(const float* values, int64_t pitch, int64_t, const Nvfp4Global& global, BlockScales& scales) {
    Lines lines;
    Judged judged;
    for (int64_t first = 0; first < pitch; first += kJudged) {
        for (int64_t row = 0; row < kNvBlock; row++)
            memcpy(lines.elements[row], values + row * pitch + first, sizeof lines.elements[row]);
        judge<squared>(lines, scales.maxima + first, global, judged);
        put_choices(judged, kJudged, global, first, scales);
    }
}

// Replaces the errors of a tile's rows by the error of the tile.
MXQ_HD void add_rows(float* errors) {
    float rows[kNvBlock];
    memcpy(rows, errors, sizeof rows);
    const float sum = add_errors_16(rows);
    for (int64_t i = 0; i < kNvBlock; i++) errors[i] = sum;
}

// Chooses the scales of square tiles, two at a time. The maxima of all columns of a tile are those of the tile already.
template <bool squared>
void choose_for_tiles(const float* values, int64_t pitch, int64_t, const Nvfp4Global& global, BlockScales& scales) {
    Lines lines;
    Judged judged;
    for (int64_t first = 0; first < pitch; first += kJudged) {
        for (int64_t row = 0; row < kNvBlock; row++)
            for (int64_t i = 0; i < kJudged; i++)
                lines.elements[i % kNvBlock][i / kNvBlock * kNvBlock + row] = values[row * pitch + first + i];
        judge<squared>(lines, scales.maxima + first, global, judged);
        for (int64_t tile = 0; tile < kJudged; tile += kNvBlock) {
            add_rows(judged.error_of_four + tile);
            add_rows(judged.error_of_six + tile);
        }
        put_choices(judged, kJudged, global, first, scales);
    }
}

// Chooses the scales of all blocks of a patch: values, pitch, number of blocks, global maximum, scales.
using ChooseScales = decltype(&choose_for_rows<true>);

struct ChoiceSteps {
    ChooseScales rows, columns;
};

// Returns the steps for errors of one kind.
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
