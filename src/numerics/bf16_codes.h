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

// Of magnitudes below 7, `base` + code in both halves, `base` being even, from 128 to 246.
template <int base>
MXQ_HD uint32_t round_e2m1_halves(uint32_t magnitudes) {
    const uint32_t first = add_bf16_pairs(magnitudes, bf16_twice(2), bf16_twice(base));
    const uint32_t second = add_bf16_pairs(magnitudes, bf16_twice(1), bf16_twice(base + 2));
    const uint32_t third = add_bf16_pairs(magnitudes, bf16_twice(0.5f), bf16_twice(base + 4));
    return min_bf16_pairs(min_bf16_pairs(first, second), third);
}

// The codes of encode<E2M1> in the low byte of each half, 0x43 in the high one, of magnitudes and signs apart.
MXQ_HD uint32_t encode_e2m1_halves(uint32_t magnitudes, uint32_t signs) {
    const uint32_t rounded = round_e2m1_halves<132>(min_bf16_pairs(magnitudes, bf16_twice(6)));  // NaN: 6
    const uint32_t signed_four = select_bits(kSigns, signs, bf16_twice(4));
    return add_bf16_pairs(signed_four, bf16_twice(-1), rounded);  // 128 + code, and 8 of a sign
}

// Of fp32 values: cut to BF16, the last bit set where anything was cut off, which rounding to five bits or less cannot tell
// from the values. A NaN must be one that arithmetic made (the device's have no sign).
MXQ_HD uint32_t encode_e2m1_floats(float first, float second) {
#if MXQ_SMALL_FLOATS
    return encode_e2m1_to_halves(first, second) | 0x43004300;
#elif defined(__CUDA_ARCH__)
    const uint32_t kept = permute_bytes(float_bits(first), float_bits(second), 0x7632);
    const uint32_t rest = permute_bytes(float_bits(first), float_bits(second), 0x5410);
    return encode_e2m1_halves((kept | __vminu2(rest, kBothHalves)) & ~kSigns, kept);
#else
    const auto half = [](uint32_t bits) { return bits >> 16 | ((bits & 0xFFFF) != 0); };
    const uint32_t cut = half(float_bits(first)) | half(float_bits(second)) << 16;
    return encode_e2m1_halves(cut & ~kSigns, cut);
#endif
}

// Of BF16 values, NaN as before.
MXQ_HD uint32_t encode_e2m1_bf16(uint32_t values) {
#if MXQ_SMALL_FLOATS
    return encode_e2m1_floats(bits_float(values << 16), bits_float(values & 0xFFFF0000u));
#else
    return encode_e2m1_halves(abs_bf16_pairs(values), values);
#endif
}

// NVFP4's codes of BF16 numbers, mostly without looking at all of what is cut off of their products.
//
// A product is cut to F16. What lies halfway between two codes is 1, 3, 5 or 7 times a power of two; there 3 and 7 go up, to
// the even code, and 1 and 5 down. A product that is halfway once it is cut is that of one BF16 number for each of the four, so
// that a multiplier tells all about them:
//
//     no 1 or 5 exactly      cut products are made odd: all that are halfway, or were just above, go up
//     exact ones, no 3 or 7  the same with the multiplier before, whose products are all less
//     no 1 or 5 just above   cut products stay as they are: those that were halfway go to the even code
//
// Few multipliers fit none of these. Where instructions round to E2M1, nothing is cut, and every multiplier serves as it is.
struct CutMultiplier {
    float factor;  // NaN: none
    bool odd;
};

// Positive products below 7: codes in the low bytes of both halves. `odd` is kBothHalves or 0.
MXQ_HD uint32_t round_e2m1_floats(float first, float second, uint32_t odd) {
#if MXQ_SMALL_FLOATS
    return encode_e2m1_to_halves(first, second);
#elif defined(__CUDA_ARCH__)
    uint32_t cut, line, above, code;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(cut) : "f"(second), "f"(first));
    cut |= odd;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(code) : "r"(cut), "r"(0x40004000), "r"(0x64006400));   // 2 v + 1024
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(line) : "r"(cut), "r"(0x3C003C00), "r"(0x64026402));   // v + 1026
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(above) : "r"(cut), "r"(0x38003800), "r"(0x64046404));  // v / 2 + 1028
    asm("min.f16x2 %0, %0, %1;" : "+r"(code) : "r"(line));
    asm("min.f16x2 %0, %0, %1;" : "+r"(code) : "r"(above));
    return code;
#else
    const auto half = [&](float product) {
        uint32_t cut = from_float<F16>(product).bits;
        cut = (cut - (to_float(F16{uint16_t(cut)}) > product)) | (odd & 1);
        return encode<E2M1>(to_float(F16{uint16_t(cut)}));
    };
    return half(first) | half(second) << 16;
#endif
}

// Whether the product that `value` gives is on the same side of `halfway` for round_e2m1_floats as for encode: `product` by the
// multiplier, `cut` by its replacement.
MXQ_HD bool is_on_side(float product, float cut, float halfway, bool even_above, bool odd) {
    const bool above = product > halfway || (product == halfway && even_above);
    constexpr float place = 0x1p-8f;  // the last of 5 in F16, and more than that of 1
    const float just_above = halfway == 1 ? 1 + 0x1p-10f : halfway + place;
    return above == (odd || even_above ? cut >= halfway : cut >= just_above);
}

// What serves instead of a multiplier depends on its significand alone.
enum class CutWay : uint32_t { Odd, Before, Even, None };

MXQ_HD CutWay cut_way(float multiplier) {
#if MXQ_SMALL_FLOATS
    return CutWay::Even;
#else
    const float significand = bits_float((float_bits(multiplier) & 0x7FFFFF) | 127u << 23);
    const float inverse = reciprocal_rn(significand);
    for (uint32_t i = 0; i < 3; ++i) {
        const CutWay way = CutWay(i);
        const float factor = bits_float(float_bits(significand) - (way == CutWay::Before));
        const auto serves = [&](float halfway, bool even_above) {
            const float value = to_float(from_float<Bf16>(multiply_rn(halfway, inverse)));
            return is_on_side(multiply_rn(value, significand), multiply_rn(value, factor), halfway, even_above,
                              way != CutWay::Even);
        };
        if (serves(1, false) && serves(3, true) && serves(5, false) && serves(7, true)) return way;
    }
    return CutWay::None;
#endif
}

MXQ_HD CutMultiplier cut_multiplier(float multiplier, CutWay way) {
    const uint32_t bits = float_bits(multiplier), field = bits & kInfinityBits;
    if (multiplier == 0) return {0, true};
    if (way == CutWay::None || field < 2u << 23 || field == kInfinityBits) return {bits_float(kNanBits), false};
    return {bits_float(bits - (way == CutWay::Before)), way != CutWay::Even};
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

// Puts the low nibbles of the bytes of `high` above those of `low`. What else the bytes hold is dropped: a line of NaN leaves
// more than a nibble, and would carry into the line beside it.
MXQ_HD uint32_t join_nibbles(uint32_t low, uint32_t high) { return select_bits(0x0F0F0F0Fu, low, high << 4); }

// Four codes to each half, from four pairs of which each half belongs to a line of its own.
MXQ_HD uint32_t pack_nibble_lines(const uint32_t (&pairs)[4]) {
#if defined(__CUDA_ARCH__)
    return join_nibbles(permute_bytes(pairs[0], pairs[2], 0x6240), permute_bytes(pairs[1], pairs[3], 0x6240));
#else
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= (pairs[i] & 0x000F000Fu) << (4 * i);
    return word;
#endif
}

#if defined(__CUDACC__)
// The same of codes without signs: those of the words that they were made of, each copied to all bits of a byte.
__device__ __forceinline__ uint32_t sign_bytes(uint32_t first, uint32_t second) {
    uint32_t bytes;  // __byte_perm has no such selectors
    asm("prmt.b32 %0, %1, %2, 0xFBD9;" : "=r"(bytes) : "r"(first), "r"(second));
    return bytes;
}

// Codes of elements 0, 2, 1, 3 in the bytes of `low`, 4, 6, 5, 7 in `high`.
__device__ __forceinline__ uint32_t pack_nibble_bytes(uint32_t low, uint32_t high) {
    return __byte_perm(low + (low >> 12), high + (high >> 12), 0x5410);
}

__device__ __forceinline__ uint32_t pack_nibble_pairs(const uint32_t (&pairs)[4], const uint32_t* signs) {
    return pack_nibble_bytes(__byte_perm(pairs[0], pairs[1], 0x6240) | (sign_bytes(signs[0], signs[1]) & 0x08080808u),
                             __byte_perm(pairs[2], pairs[3], 0x6240) | (sign_bytes(signs[2], signs[3]) & 0x08080808u));
}

__device__ __forceinline__ uint32_t pack_nibble_lines(const uint32_t (&pairs)[4], const uint32_t* signs) {
    const uint32_t even = sign_bytes(signs[0], signs[2]), odd = sign_bytes(signs[1], signs[3]);
    return pack_nibble_lines(pairs) | (select_bits(0x80808080u, odd, even) & 0x88888888u);
}

// Six bits go through the 8-bit type of the same mantissa, where there is one and no instruction of their own. The values of
// both halves as it takes them, clamped to E's range.
template <class E>
__device__ __forceinline__ uint32_t prepare_six_bit_pair(uint32_t values) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 && !MXQ_SMALL_FLOATS
    uint32_t clamped;  // NaN: max
    asm("min.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(clamped) : "r"(values), "r"(bf16_twice(E::max)));
    return multiply_bf16_pairs(clamped, bf16_twice(Conversion<E>::to_wide));
#else
    return values;
#endif
}

// The codes of four such values, a byte each.
template <class E>
__device__ __forceinline__ uint32_t encode_six_bits(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 && !MXQ_SMALL_FLOATS
    constexpr auto kind = Conversion<E>::kind;
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
