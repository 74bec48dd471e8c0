// Four over six: of two scales for each NVFP4 block the one whose codes err less. Part of kernels.cpp.
//
//     maxima -> two scales -> the errors of both, over the 16 elements of a row in order -> the better one
//
// Blocks are 16 neighbours of a row, 16 rows of a column, or tiles of 16 x 16, whose rows' errors are added as a tree.
#pragma once
#include "cpu/quantize_scales.h"

namespace mxq::cpu {
namespace {

// One of the two scales of a block.
struct Candidate {
    float multiplier, value;
};

MXQ_HD Candidate candidate_of(uint32_t scale, const Nvfp4Global& global) {
    return {nvfp4_multiplier(scale, global), decode<E4M3>(scale)};
}

template <bool squared>
MXQ_HD float candidate_error(float value, const Candidate& candidate, const Nvfp4Global& global) {
    return nvfp4_error<squared>(value, nvfp4_code(value, candidate.multiplier), candidate.value, global);
}

// Of 16 neighbours, in order.
template <bool squared>
MXQ_HD float row_error(const float* values, const Candidate& candidate, const Nvfp4Global& global) {
    alignas(64) float errors[kNvBlock];
    for (int64_t i = 0; i < kNvBlock; i++) errors[i] = candidate_error<squared>(values[i], candidate, global);
    float sum = 0;
    for (int64_t i = 0; i < kNvBlock; i++) sum = add_rn(sum, errors[i]);
    return sum;
}

template <bool squared>
MXQ_HD float tile_error(const float* values, int64_t pitch, const Candidate& candidate, const Nvfp4Global& global) {
    float rows[kNvBlock];
    for (int64_t row = 0; row < kNvBlock; row++) rows[row] = row_error<squared>(values + row * pitch, candidate, global);
    return add_errors_16(rows);
}

MXQ_HD void put_scale(uint32_t scale, const Nvfp4Global& global, int64_t block, BlockScales& scales) {
    scales.bytes[block] = uint8_t(scale);
    scales.multipliers[block] = nvfp4_multiplier(scale, global);
    scales.masks[block] = nvfp4_code_mask(scale);
}

template <bool squared>
void choose_of_rows(const float* values, int64_t, int64_t blocks, const ScaleRule& rule, BlockScales& scales) {
    for (int64_t block = 0; block < blocks; block++) {
        const Nvfp4Candidates both = nvfp4_candidates(bits_float(scales.maxima[block]), rule.nvfp4);
        const float* first = values + block * kNvBlock;
        const float four = row_error<squared>(first, candidate_of(both.four, rule.nvfp4), rule.nvfp4);
        const float six = row_error<squared>(first, candidate_of(both.six, rule.nvfp4), rule.nvfp4);
        put_scale(nvfp4_choice(both, four, six), rule.nvfp4, block, scales);
    }
}

template <bool squared>
void choose_of_columns(const float* values, int64_t pitch, int64_t, const ScaleRule& rule, BlockScales& scales) {
    for (int64_t col = 0; col < pitch; col++) {
        const Nvfp4Candidates both = nvfp4_candidates(bits_float(scales.maxima[col]), rule.nvfp4);
        const Candidate fours = candidate_of(both.four, rule.nvfp4), sixes = candidate_of(both.six, rule.nvfp4);
        float four = 0, six = 0;
        for (int64_t row = 0; row < kNvBlock; row++) {
            four = add_rn(four, candidate_error<squared>(values[row * pitch + col], fours, rule.nvfp4));
            six = add_rn(six, candidate_error<squared>(values[row * pitch + col], sixes, rule.nvfp4));
        }
        put_scale(nvfp4_choice(both, four, six), rule.nvfp4, col, scales);
    }
}

// All 16 columns of a tile have its maximum already.
template <bool squared>
void choose_of_tiles(const float* values, int64_t pitch, int64_t, const ScaleRule& rule, BlockScales& scales) {
    for (int64_t col = 0; col < pitch; col += kNvBlock) {
        const Nvfp4Candidates both = nvfp4_candidates(bits_float(scales.maxima[col]), rule.nvfp4);
        const float four = tile_error<squared>(values + col, pitch, candidate_of(both.four, rule.nvfp4), rule.nvfp4);
        const float six = tile_error<squared>(values + col, pitch, candidate_of(both.six, rule.nvfp4), rule.nvfp4);
        for (int64_t i = 0; i < kNvBlock; i++) put_scale(nvfp4_choice(both, four, six), rule.nvfp4, col + i, scales);
    }
}

// Of a patch `pitch` wide with so many blocks.
using ChooseScales = decltype(&choose_of_rows<true>);

struct ChoiceSteps {
    ChooseScales rows, columns;
};

template <bool squared>
ChoiceSteps choice_steps_of(bool square_tiles) {
    return {choose_of_rows<squared>, square_tiles ? choose_of_tiles<squared> : choose_of_columns<squared>};
}

// Empty where there is no choice.
inline ChoiceSteps choice_steps_of(const QuantizeProblem& problem) {
    switch (problem.four_over_six) {
        case FourOverSix::None: return {};
        case FourOverSix::Mae: return choice_steps_of<false>(problem.square_tiles);
        default: return choice_steps_of<true>(problem.square_tiles);
    }
}

}  // namespace
}  // namespace mxq::cpu
