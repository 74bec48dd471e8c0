// Pairs of BF16 values to codes of less than a byte: two at a time, in the two halves of a word.
//
// A block's scale is a power of two, by which BF16 numbers are multiplied exactly (what underflows is far below the smallest
// code). Of magnitudes up to 6, E2M1 is the lowest of three lines, each rounded to nearest even by the addition of a number
// whose last place is 1:
//
//     code    7                   . - '        2 |v|       up to 2
//             4           . - '                |v| + 2     up to 4
//             0     . '                        |v| / 2 + 4 beyond
//
// Rounding keeps order, so that the lowest of the rounded is the lowest one rounded; what the lines add is even.
#pragma once
#include "numerics/bf16_pairs.h"

namespace mxq {

// a * factor + addend in both halves, where the product is exact: one rounding, of the sum.
MXQ_HD uint32_t add_bf16_pairs(uint32_t a, uint32_t factor, uint32_t addend) {
#if defined(__CUDA_ARCH__)
    uint32_t sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(factor), "r"(addend));
    return sum;
#else
    const auto half = [](uint32_t x, uint32_t y, uint32_t z) {
        const float product = multiply_rn(to_float(Bf16{uint16_t(x)}), to_float(Bf16{uint16_t(y)}));
        return uint32_t(from_float<Bf16>(add_rn(product, to_float(Bf16{uint16_t(z)}))).bits);
    };
    return half(a, factor, addend) | half(a >> 16, factor >> 16, addend >> 16) << 16;
#endif
}

// The lesser in both halves; of a NaN and a number the number.
MXQ_HD uint32_t min_bf16_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint32_t least;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
    return least;
#else
    const auto half = [](uint32_t x, uint32_t y) {
        return is_nan(to_float(Bf16{uint16_t(x)})) || to_float(Bf16{uint16_t(y)}) < to_float(Bf16{uint16_t(x)}) ? y & 0xFFFF
                                                                                                             : x & 0xFFFF;
    };
    return half(a, b) | half(a >> 16, b >> 16) << 16;
#endif
}

MXQ_HD uint32_t abs_bf16_pairs(uint32_t a) {
#if defined(__CUDA_ARCH__)
    uint32_t magnitudes;
    asm("abs.bf16x2 %0, %1;" : "=r"(magnitudes) : "r"(a));
    return magnitudes;
#else
    return a & ~kSigns;
#endif
}

MXQ_HD constexpr uint32_t bf16_twice(float value) { return (__builtin_bit_cast(uint32_t, value) >> 16) * kBothHalves; }

// The codes of encode<E2M1> in the low byte of each half, 0x43 in the high one, of magnitudes and signs apart.
MXQ_HD uint32_t encode_e2m1_halves(uint32_t magnitudes, uint32_t signs) {
    const uint32_t clamped = min_bf16_pairs(magnitudes, bf16_twice(6));  // NaN: 6
    const uint32_t first = add_bf16_pairs(clamped, bf16_twice(2), bf16_twice(132));
    const uint32_t second = add_bf16_pairs(clamped, bf16_twice(1), bf16_twice(134));
    const uint32_t third = add_bf16_pairs(clamped, bf16_twice(0.5f), bf16_twice(136));
    const uint32_t rounded = min_bf16_pairs(min_bf16_pairs(first, second), third);  // 132 + code
    const uint32_t signed_four = select_bits(kSigns, signs, bf16_twice(4));
    return add_bf16_pairs(signed_four, bf16_twice(-1), rounded);  // 128 + code, and 8 of a sign
}

// Of BF16 values. A NaN must be one that arithmetic made (the device's have no sign).
MXQ_HD uint32_t encode_e2m1_bf16(uint32_t values) { return encode_e2m1_halves(abs_bf16_pairs(values), values); }

// Of fp32 values: cut to BF16, the last bit set where anything was cut off, which rounding to five bits or less cannot tell
// from the values.
MXQ_HD uint32_t encode_e2m1_floats(float first, float second) {
#if defined(__CUDA_ARCH__)
    const uint32_t kept = permute_bytes(float_bits(first), float_bits(second), 0x7632);
    const uint32_t rest = permute_bytes(float_bits(first), float_bits(second), 0x5410);
    return encode_e2m1_halves((kept | __vminu2(rest, kBothHalves)) & ~kSigns, kept);
#else
    const auto half = [](uint32_t bits) { return bits >> 16 | ((bits & 0xFFFF) != 0); };
    const uint32_t cut = half(float_bits(first)) | half(float_bits(second)) << 16;
    return encode_e2m1_halves(cut & ~kSigns, cut);
#endif
}

// Eight codes to a word, from four pairs of neighbours: elements 2i and 2i + 1 in pairs[i].
MXQ_HD uint32_t pack_nibble_pairs(const uint32_t (&pairs)[4]) {
#if defined(__CUDA_ARCH__)
    uint32_t low = permute_bytes(pairs[0], pairs[1], 0x6240), high = permute_bytes(pairs[2], pairs[3], 0x6240);
    low += low >> 12;  // bytes 0, 2, 1, 3: the upper two meet the lower two's free nibbles
    high += high >> 12;
    return permute_bytes(low, high, 0x5410);
#else
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= (pairs[i] & 15) << (8 * i) | (pairs[i] >> 16 & 15) << (8 * i + 4);
    return word;
#endif
}

// Four codes to each half, from four pairs of which each half belongs to a line of its own.
MXQ_HD uint32_t pack_nibble_lines(const uint32_t (&pairs)[4]) {
#if defined(__CUDA_ARCH__)
    return permute_bytes(pairs[0], pairs[2], 0x6240) + permute_bytes(pairs[1], pairs[3], 0x6240) * 16;
#else
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= (pairs[i] & 0x000F000Fu) << (4 * i);
    return word;
#endif
}

#if defined(__CUDACC__)
// Six bits go through the 8-bit type of the same mantissa, where there is one. The values of both halves as it takes them,
// clamped to E's range.
template <class E>
__device__ __forceinline__ uint32_t prepare_six_bit_pair(uint32_t values) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint32_t clamped;  // NaN: max
    asm("min.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(clamped) : "r"(values), "r"(bf16_twice(E::max)));
    return multiply_bf16_pairs(clamped, bf16_twice(WideType<E>::to_wide));
#else
    return values;
#endif
}

// The codes of four such values, a byte each.
template <class E>
__device__ __forceinline__ uint32_t encode_six_bits(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    constexpr auto kind = WideType<E>::kind;
    const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kind);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, kind);
    const uint32_t codes = low | high << 16;
    return (codes & 0x1F1F1F1Fu) | ((codes >> 2) & 0x20202020u);
#else
    return encode_pair<E>(a, b) | encode_pair<E>(c, d) << 16;
#endif
}
#endif

}  // namespace mxq
