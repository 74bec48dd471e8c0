// Decodes K-major rows of codes to the fp32 values of the contract, for every format and layout of scales. Part of
// kernels.cpp and gemm_kernels.cpp.
//
//     scales of a line    bytes or fp32, from where the layout has them
//     factors             one for every sixteen codes: MX 2^(s - 127), NVFP4 the value of S, FP8 the scale
//     values              code x factor, for NVFP4 x global scale; each product is rounded, and a NaN has any bits
#pragma once
#include "core/group_view.h"
#include "cpu/decode.h"
#include "numerics/e8m0.h"

namespace mxq::cpu {
namespace {

constexpr int64_t kLineCodes = 1024;  // how many are decoded at a time
constexpr int64_t kLineSixteens = kLineCodes / kSixteen;

// Returns where code `first` of a K-major row is stored.
MXQ_HD uint8_t* line_of(const QuantizedPart& part, int64_t matrix, int64_t line, int64_t first) {
    return expert_codes(part, matrix) + line * part.line_bytes + first * part.bits / 8;
}

// Loads `count` bytes of a row of scales, from column `begin` on.
MXQ_HD void load_scale_bytes(const QuantizedPart& part, int64_t matrix, int64_t row, int64_t begin, int64_t count,
                             uint8_t* to) {
    const ScaleLayout& layout = part.layout;
    const uint8_t* const scales = expert_scales(part, matrix);
    const uint8_t* from = scales + layout.offset(0, row, begin);
    if (!layout.swizzled) {
        memcpy(to, from, size_t(count));
        return;
    }
    int64_t i = 0;
    if (begin % kSwizzleColumns == 0)
        for (; i + kSwizzleColumns <= count; i += kSwizzleColumns, from += kSwizzleBytes) memcpy(to + i, from, kSwizzleColumns);
    for (; i < count; i++) to[i] = scales[layout.offset(0, row, begin + i)];
}

// Returns by how many bits a code's position in its K-major row is shifted to get its column of scales.
MXQ_HD int block_shift(const ScaleLayout& layout) {
    return layout.block == MXQ_MAX_DIM ? 62 : __builtin_ctz(uint32_t(layout.block));
}

// Loads the scales of columns [begin, begin + count) of a K-major row as factors, one for each column.
MXQ_HD void load_factors(const QuantizedPart& part, int64_t matrix, int64_t line, int64_t begin, int64_t count, float* to) {
    if (part.scale_type == ScaleType::F32) {
        const uint8_t* const scales = expert_scales(part, matrix);
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i, scales + part.layout.offset(0, line, begin + i) * int64_t(sizeof(float)), sizeof(float));
        return;
    }
    uint8_t bytes[kLineSixteens + 1];
    load_scale_bytes(part, matrix, line, begin, count, bytes);
    if (part.scale_type == ScaleType::E8M0)
        for (int64_t i = 0; i < count; i++) to[i] = scale_value(bytes[i]);
    else
        for (int64_t i = 0; i < count; i++) to[i] = decode<E4M3>(bytes[i]);
}

// Loads the factors of codes [first, first + count) of a K-major row, one for every sixteen codes. `first` is a multiple of
// 16, `count` at most kLineCodes.
MXQ_HD void load_sixteenths(const QuantizedPart& part, int64_t matrix, int64_t line, int64_t first, int64_t count, float* to) {
    const int shift = block_shift(part.layout);
    const int64_t begin = first >> shift, end = (first + count - 1) >> shift;
    if (part.layout.block == kSixteen) return load_factors(part, matrix, line, begin, end + 1 - begin, to);
    float factors[kLineSixteens + 1];
    load_factors(part, matrix, line, begin, end + 1 - begin, factors);
    if (part.layout.block == 2 * kSixteen && first % (2 * kSixteen) == 0)
        for (int64_t i = 0; i <= end - begin; i++) to[2 * i] = to[2 * i + 1] = factors[i];
    else
        for (int64_t i = 0; i * kSixteen < count; i++) to[i] = factors[((first + i * kSixteen) >> shift) - begin];
}

// Returns the values of the first sixteen of `count` stored codes, which share a factor.
template <class E, bool has_global>
MXQ_HD SixteenFloats decode_sixteen(const uint8_t* codes, int64_t count, float factor, float global) {
    uint8_t copy[kSixteen];
    const SixteenFloats elements = decode_stored_16<E>(whole_sixteen<E::bits>(codes, count, copy));
    const SixteenFloats values = times(elements, sixteen_of(factor));
    return has_global ? times(values, sixteen_of(global)) : values;
}

// Stores the values of `count` stored codes, of which every sixteen have a factor. Writes whole sixteens.
template <class E, bool has_global>
void decode_sixteens(const uint8_t* codes, int64_t count, const float* factors, float global, float* out) {
    for (int64_t i = 0; i < count; i += kSixteen) {
        const uint8_t* from = codes + i * E::bits / 8;
        store_sixteen(decode_sixteen<E, has_global>(from, count - i, factors[i / kSixteen], global), out + i);
    }
}

using DecodeSixteens = decltype(&decode_sixteens<E2M1, true>);

inline DecodeSixteens decode_sixteens_of(const QuantizedPart& part) {
    return with_element(part.element, [&]<class E>(E) -> DecodeSixteens {
        if (part.scale_type == ScaleType::E4M3) return decode_sixteens<E, true>;
        return decode_sixteens<E, false>;
    });
}

// Decodes K-major rows of a part. Its matrices are experts; a group is seen as a part of its own (core/group_view.h).
struct LineDecoder {
    const QuantizedPart& part;
    const DecodeSixteens decode;

    explicit LineDecoder(const QuantizedPart& part) : part(part), decode(decode_sixteens_of(part)) {}

    // Stores the values of codes [first, first + count) of a K-major row. `first` is a multiple of 16; `out` has room for
    // whole sixteens.
    void operator()(int64_t matrix, int64_t line, int64_t first, int64_t count, float* out) const {
        const float global = global_scale(part, matrix);
        const uint8_t* codes = line_of(part, matrix, line, first);
        for (int64_t i = 0; i < count; i += kLineCodes) {
            const int64_t some = count - i < kLineCodes ? count - i : kLineCodes;
            float factors[kLineSixteens];
            load_sixteenths(part, matrix, line, first + i, some, factors);
            decode(codes + i * part.bits / 8, some, factors, global, out + i);
        }
    }
};

}  // namespace
}  // namespace mxq::cpu
