// Loads the factors of a K-major row of B, for all layouts of scales. Part of few_rows_kernels.cpp.
#pragma once
#include <algorithm>
#include <cstring>

#include "cpu/few_rows_columns.h"

namespace mxq::cpu {
namespace {

// Loads fp32 scales of blocks of 128, which are a column_stride apart, as factors. Returns whether all are safe.
bool factors_of_fp32(const QuantizedPart& part, int64_t line, int64_t begin, int64_t count, const SafeFactors& safe,
                     float fold, float* to) {
    constexpr int64_t bytes = sizeof(float);
    const uint8_t* const from = part.scales + part.layout.offset(0, line, begin) * bytes;
    const uint32_t first = float_bits(safe.low), span = float_bits(safe.high) - first;
    uint32_t any = 0;
    for (int64_t i = 0; i < count; i++) {
        float scale;
        memcpy(&scale, from + i * part.layout.column_stride * bytes, bytes);
        any |= uint32_t((float_bits(scale) & kMagnitudeMask) - first > span);
        to[i] = multiply_rn(scale, fold);
    }
    return any == 0;
}

// Repeats scales of blocks of 128 codes and more, in place, so that every 32 codes have one.
void spread_scales(uint8_t* scales, int64_t count, int shift) {
    if (shift > 7) return void(memset(scales, scales[0], size_t(kMostFactors)));
    for (int64_t i = count - 1; i >= 0; i--) memset(scales + 4 * i, scales[i], 4);
}

// Loads the factors of codes [k, k + depth) of a row of B whose scales do not lie in it, and some more: one for every 16
// codes of NVFP4, for every 32 of MX and for every block of 128 of FP8. Returns false if one is not safe.
bool load_safe_factors(const QuantizedPart& part, const SafeFactors& safe, int64_t line, int64_t k, int64_t depth,
                       float fold, bool in_order, float* to) {
    if (has_line_scale(part)) return std::fill_n(to, ceil_div(depth, 128) + kLanes, fold), true;
    const int shift = block_shift(part.layout);
    const int64_t begin = k >> shift, count = ((k + depth - 1) >> shift) + 1 - begin;
    if (part.scale_type == ScaleType::F32) return factors_of_fp32(part, line, begin, count, safe, fold, to);
    alignas(64) uint8_t scales[kMostFactors];
    load_scale_bytes(part, 0, line, begin, count, scales);
    if (part.scale_type == ScaleType::E4M3) return factors_of_e4m3(scales, count, in_order, to);
    const E8m0Factors factors_of_e8m0(safe, fold);
    if (part.layout.block <= kMxBlock) return factors_of_e8m0(scales, count, in_order, to);
    spread_scales(scales, count, shift);
    return factors_of_e8m0(scales, ceil_div(depth, kMxBlock), in_order, to);
}

// Scales of a byte that lie in rows of B, those of codes [k, k + depth). `count` is 0 where they lie elsewhere or stand for
// more codes than kernels know.
struct ScalesInLines {
    ScalesInLines(const OperandLines& b, int64_t k, int64_t depth) {
        const QuantizedPart& part = b.part;
        const bool is_byte = part.scale_type == ScaleType::E8M0 || part.scale_type == ScaleType::E4M3;
        if (!is_byte || part.layout.swizzled || part.layout.block > kMxBlock) return;
        const int shift = block_shift(part.layout);
        const int64_t begin = k >> shift;
        count = ((k + depth - 1) >> shift) + 1 - begin;
        first = expert_scales(part, 0) + part.layout.offset(0, 0, begin);
        lines_shift = log2_of(uint32_t(part.layout.tile_rows)), stride = part.layout.line_stride;
    }

    const uint8_t* of_line(int64_t line) const { return first + (line >> lines_shift) * stride; }

    int64_t count = 0;

private:
    const uint8_t* first = nullptr;
    int lines_shift = 0;  // how many lines share scales
    int64_t stride = 0;
};

}  // namespace
}  // namespace mxq::cpu
