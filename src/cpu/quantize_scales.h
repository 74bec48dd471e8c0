// Finds the maxima of blocks and makes scales from them. Part of kernels.cpp.
//
//     values -> maxima, one a block -> scale (stored), multiplier and code mask
//
// A block is `length` neighbours of a row, or a column of `length` rows. Maxima are magnitude bits.
#pragma once
#include "cpu/moves.h"
#include "numerics/e8m0.h"
#include "numerics/fp8_scale.h"
#include "numerics/nvfp4.h"

namespace mxq::cpu {
namespace {

constexpr int64_t kPatchBlocks = kPatch / kNvBlock;  // the most blocks that a patch has

// The options of MX scales as a type, for which loops are compiled.
template <ScaleRounding rounding, Nonfinite policy>
struct MxRule {};

// Returns body(rule), the rule being of the type of the problem's rounding and policy.
template <class Body>
auto with_mx_rule(const QuantizeProblem& problem, const Body& body) {
    const auto with_policy = [&]<Nonfinite policy>(std::integral_constant<Nonfinite, policy>) {
        switch (problem.scale_rounding) {
            case ScaleRounding::Floor: return body(MxRule<ScaleRounding::Floor, policy>{});
            case ScaleRounding::Ceil: return body(MxRule<ScaleRounding::Ceil, policy>{});
            case ScaleRounding::Even: return body(MxRule<ScaleRounding::Even, policy>{});
            case ScaleRounding::Rceil: break;
        }
        return body(MxRule<ScaleRounding::Rceil, policy>{});
    };
    return problem.nonfinite == Nonfinite::Propagate
               ? with_policy(std::integral_constant<Nonfinite, Nonfinite::Propagate>{})
               : with_policy(std::integral_constant<Nonfinite, Nonfinite::Saturate>{});
}

// How many neighbours the steps take as a block, as a type: 16, 32 or 128, and 32 for K-major rows without blocks.
template <int64_t length>
struct BlockLength {};

// Returns body(length), the length being of the type that serves blocks of `length`.
template <class Body>
auto with_block_length(int64_t length, const Body& body) {
    if (length == kNvBlock) return body(BlockLength<kNvBlock>{});
    if (length == kBlock128) return body(BlockLength<kBlock128>{});
    return body(BlockLength<kMxBlock>{});
}

// The parameters of a scale rule, which together with a maximum give a scale.
struct ScaleRule {
    Nvfp4Global nvfp4;
    Fp8Rule fp8;
};

// The maxima and scales of the blocks of a patch. fp32 scales are in `stored`, all others in `bytes`.
struct BlockScales {
    alignas(64) uint32_t maxima[kPatchBlocks];
    alignas(64) float multipliers[kPatchBlocks];
    alignas(64) uint32_t masks[kPatchBlocks];
    alignas(64) float stored[kPatchBlocks];
    alignas(64) uint8_t bytes[kPatchBlocks];
};

// Returns the maximum of a block, by eight elements at once: compilers do not vectorise it.
template <Nonfinite policy, int64_t length>
MXQ_HD uint32_t block_maximum(const float* values) {
    typedef uint32_t Eight __attribute__((vector_size(32)));
    Eight maxima{};
    const auto raise = [&](const Eight& bits) { maxima = maxima < bits ? bits : maxima; };
    for (int64_t i = 0; i < length; i += 8) {
        Eight bits;
        memcpy(&bits, values + i, sizeof bits);
        bits &= kMagnitudeMask;
        raise(policy == Nonfinite::Propagate ? bits : bits & Eight(bits <= kInfinityBits));
    }
    raise(__builtin_shufflevector(maxima, maxima, 4, 5, 6, 7, 0, 1, 2, 3));
    raise(__builtin_shufflevector(maxima, maxima, 2, 3, 0, 1, 6, 7, 4, 5));
    raise(__builtin_shufflevector(maxima, maxima, 1, 0, 3, 2, 5, 4, 7, 6));
    return maxima[0];
}

// Stores the maxima of blocks that lie in rows.
template <Nonfinite policy, int64_t length>
void block_maxima(const float* values, int64_t blocks, uint32_t* maxima) {
    for (int64_t i = 0; i < blocks; i++) maxima[i] = block_maximum<policy, length>(values + i * length);
}

// Raises the maxima of columns to those of `rows` rows more.
template <Nonfinite policy>
void raise_column_maxima(const float* values, int64_t rows, int64_t pitch, uint32_t* maxima) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < pitch; i++) {
            const uint32_t bits = amax_bits<policy>(values[row * pitch + i]);
            maxima[i] = maxima[i] < bits ? bits : maxima[i];
        }
}

// Replaces the maxima of each `width` columns by the largest of them.
MXQ_HD void spread_maxima(int64_t pitch, int64_t width, uint32_t* maxima) {
    for (int64_t first = 0; first < pitch; first += width) {
        uint32_t maximum = 0;
        for (int64_t i = first; i < first + width; i++) maximum = maximum < maxima[i] ? maxima[i] : maximum;
        for (int64_t i = first; i < first + width; i++) maxima[i] = maximum;
    }
}

// Make scale bytes, multipliers and code masks from maxima.
template <class E, ScaleRounding rounding, Nonfinite policy>
void make_mx_scales(const ScaleRule&, int64_t count, BlockScales& scales) {
    for (int64_t i = 0; i < count; i++) {
        const uint32_t scale = scale_of<E, rounding, policy>(scales.maxima[i]);
        scales.bytes[i] = uint8_t(scale);
        scales.multipliers[i] = scale_reciprocal(scale);
        scales.masks[i] = code_mask<E>(scale);
    }
}

void make_nvfp4_scales(const ScaleRule& rule, int64_t count, BlockScales& scales) {
    for (int64_t i = 0; i < count; i++) {
        const uint32_t scale = nvfp4_scale(bits_float(scales.maxima[i]), rule.nvfp4);
        scales.bytes[i] = uint8_t(scale);
        scales.multipliers[i] = nvfp4_multiplier(scale, rule.nvfp4);
        scales.masks[i] = nvfp4_code_mask(scale);
    }
}

void make_fp8_scales(const ScaleRule& rule, int64_t count, BlockScales& scales) {
    for (int64_t i = 0; i < count; i++) {
        scales.multipliers[i] = fp8_quantization_scale(bits_float(scales.maxima[i]), rule.fp8);
        scales.stored[i] = fp8_stored_scale(scales.multipliers[i]);
    }
}

using MakeScales = decltype(&make_nvfp4_scales);

struct ScaleSteps {
    decltype(&block_maxima<Nonfinite::Propagate, 32>) block_maxima;
    decltype(&raise_column_maxima<Nonfinite::Propagate>) raise_column_maxima;
    MakeScales make;
};

template <Nonfinite policy>
ScaleSteps maxima_steps_of(int64_t length) {
    return {with_block_length(length, []<int64_t block>(BlockLength<block>) { return &block_maxima<policy, block>; }),
            raise_column_maxima<policy>, nullptr};
}
inline ScaleSteps maxima_steps_of(const QuantizeProblem& problem, int64_t length) {
    const bool propagates = problem.format->scale == ScaleType::E8M0 && problem.nonfinite == Nonfinite::Propagate;
    return propagates ? maxima_steps_of<Nonfinite::Propagate>(length) : maxima_steps_of<Nonfinite::Saturate>(length);
}

inline MakeScales scales_of(const QuantizeProblem& problem) {
    if (problem.format->scale == ScaleType::E4M3) return make_nvfp4_scales;
    if (problem.format->scale == ScaleType::F32) return make_fp8_scales;
    return with_element(problem.format->element, [&]<class E>(E) {
        return with_mx_rule(problem, []<ScaleRounding rounding, Nonfinite policy>(MxRule<rounding, policy>) -> MakeScales {
            return make_mx_scales<E, rounding, policy>;
        });
    });
}

inline ScaleSteps scale_steps_of(const QuantizeProblem& problem) {
    ScaleSteps steps = maxima_steps_of(problem, problem.tile.length);
    steps.make = scales_of(problem);
    return steps;
}

}  // namespace
}  // namespace mxq::cpu
