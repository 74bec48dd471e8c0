// Encodes pairs of values, in most cases BF16 in the two halves of a word, to codes of less than a byte.
//
// An MX block's scale is a power of two, by which BF16 numbers are multiplied exactly. (What underflows is far below the
// smallest code.) The E2M1 code of a magnitude up to 6 is the minimum of three linear functions. Adding a number whose last
// bit counts 1 rounds each to nearest even:
//
//     code    7                   . - '        2 |v|       up to 2
//             4           . - '                |v| + 2     up to 4
//             0     . '                        |v| / 2 + 4 beyond
//
// Rounding keeps order, so that the minimum of the rounded functions is their minimum, rounded. The constants 2 and 4 are
// even, so that ties go to even codes.
#pragma once
#include "numerics/decode_to_bf16.h"

namespace mxq {

// Returns a * factor + addend in both halves. The product must be exact; the sum is rounded once.
MXQ_HD uint32_t multiply_add_bf16_pairs(uint32_t a, uint32_t factor, uint32_t addend) {
#if defined(__CUDA_ARCH__)
    uint32_t sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(factor), "r"(addend));
    return sum;
#else
    const auto half = [](uint32_t x, uint32_t y, uint32_t z) {
        const float product = multiply_rn(value_of_bits<Bf16>(x), value_of_bits<Bf16>(y));
        return from_float<Bf16>(add_rn(product, value_of_bits<Bf16>(z))).bits;
    };
    return by_halves(half, a, factor, addend);
#endif
}

// Returns the smaller BF16 number in both halves; of a NaN and a number it is the number.
MXQ_HD uint32_t min_bf16_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint32_t least;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
    return least;
#else
    const auto half = [](uint32_t x, uint32_t y) {
        return is_nan(value_of_bits<Bf16>(x)) || value_of_bits<Bf16>(y) < value_of_bits<Bf16>(x) ? y : x;
    };
    return by_halves(half, a, b);
#endif
}

// Returns the magnitudes of both halves.
MXQ_HD uint32_t abs_bf16_pairs(uint32_t a) {
#if defined(__CUDA_ARCH__)
    uint32_t magnitudes;
    asm("abs.bf16x2 %0, %1;" : "=r"(magnitudes) : "r"(a));
    return magnitudes;
#else
    return a & ~kSignsOfBothHalves;
#endif
}

// Returns a number that BF16 has, in both halves.
MXQ_HD constexpr uint32_t bf16_pair_of(float value) { return (__builtin_bit_cast(uint32_t, value) >> 16) * kOneInBothHalves; }

// Returns 132 + code as BF16 in both halves, for magnitudes below 7.
MXQ_HD uint32_t encode_e2m1_above_base(uint32_t magnitudes) {
    constexpr int base = 132;
    const uint32_t first = multiply_add_bf16_pairs(magnitudes, bf16_pair_of(2), bf16_pair_of(base));
    const uint32_t second = multiply_add_bf16_pairs(magnitudes, bf16_pair_of(1), bf16_pair_of(base + 2));
    const uint32_t third = multiply_add_bf16_pairs(magnitudes, bf16_pair_of(0.5f), bf16_pair_of(base + 4));
    return min_bf16_pairs(min_bf16_pairs(first, second), third);
}

// Powers of two by which magnitudes are multiplied on the way to E2M1 codes: a half, a quarter and an eighth of both halves'
// factors. None of them is Inf.
struct E2m1LineFactors {
    uint32_t half, quarter, eighth;
};

MXQ_HD E2m1LineFactors e2m1_line_factors(uint32_t factors) {
    return {multiply_bf16_pairs(factors, bf16_pair_of(0.5f)), multiply_bf16_pairs(factors, bf16_pair_of(0.25f)),
            multiply_bf16_pairs(factors, bf16_pair_of(0.125f))};
}

// Returns the E2M1 codes of products below 7 in the low byte of each half, 0x42 in the high byte. The functions are a
// quarter of those above, where the last place is a quarter, and each includes the multiplication.
MXQ_HD uint32_t encode_e2m1_products(uint32_t magnitudes, const E2m1LineFactors& factors) {
    const uint32_t first = multiply_add_bf16_pairs(magnitudes, factors.half, bf16_pair_of(32));
    const uint32_t second = multiply_add_bf16_pairs(magnitudes, factors.quarter, bf16_pair_of(32.5f));
    const uint32_t third = multiply_add_bf16_pairs(magnitudes, factors.eighth, bf16_pair_of(33));
    return min_bf16_pairs(min_bf16_pairs(first, second), third);
}

// Returns the codes of encode<E2M1> in the low byte of each half, and 0x43 in the high byte. Only the signs of `signs` are
// read.
MXQ_HD uint32_t encode_e2m1_signed(uint32_t magnitudes, uint32_t signs) {
    const uint32_t rounded = encode_e2m1_above_base(min_bf16_pairs(magnitudes, bf16_pair_of(6)));  // NaN becomes 6
    const uint32_t signed_four = select_bits(kSignsOfBothHalves, signs, bf16_pair_of(4));
    return multiply_add_bf16_pairs(signed_four, bf16_pair_of(-1), rounded);  // makes 128 + code, plus 8 for a sign
}

// Encodes two fp32 values to E2M1, in the low byte of each half; the high byte is 0x43. They are rounded to odd as BF16:
// rounding to five bits or fewer cannot tell the result from the value. A NaN must be one that arithmetic made: the device's
// have no sign.
MXQ_HD uint32_t encode_e2m1_floats(float first, float second) {
#if MXQ_SMALL_FLOATS
    return encode_e2m1_to_halves(first, second) | 0x43004300;
#elif defined(__CUDA_ARCH__)
    const uint32_t kept = permute_bytes(float_bits(first), float_bits(second), 0x7632);
    const uint32_t rest = permute_bytes(float_bits(first), float_bits(second), 0x5410);
    return encode_e2m1_signed((kept | __vminu2(rest, kOneInBothHalves)) & ~kSignsOfBothHalves, kept);
#else
    const auto half = [](uint32_t bits) { return bits >> 16 | ((bits & 0xFFFF) != 0); };
    const uint32_t cut = half(float_bits(first)) | half(float_bits(second)) << 16;
    return encode_e2m1_signed(cut & ~kSignsOfBothHalves, cut);
#endif
}

// Encodes two BF16 values to E2M1, in the low byte of each half; the high byte is 0x43. A NaN must have no sign.
MXQ_HD uint32_t encode_e2m1_bf16(uint32_t values) {
#if MXQ_SMALL_FLOATS
    return encode_e2m1_floats(bits_float(values << 16), bits_float(values & 0xFFFF0000u));
#else
    return encode_e2m1_signed(abs_bf16_pairs(values), values);
#endif
}

// NVFP4 codes of BF16 numbers from products that are cut to F16, in most cases without looking at what is cut off.
//
// Times 2^-14, a magnitude has in F16 the bits of its E2M1 code, followed by nine bits of its position up to the next.
// Magnitudes below 1 are subnormal there. Where all ties go up, the first of the nine bits is added to the code:
//
//     bits of F16    s000cccp pppppppp      c: the code, p: the position between it and the next
//
// The ties between two codes are 1, 3, 5 and 7 times a power of two: 3 and 7 go up, to the even code, 1 and 5 go down. For
// each of the four there is at most one BF16 number whose product is a tie once it is cut, so that the multiplier alone
// decides what serves all numbers:
//
//     no product is 1 or 5 exactly           Up: ties, and what was just above, go up
//     some are, but none is 3 or 7 exactly   Before: the same with the next smaller multiplier; its products are smaller
//     no product is just above 1 or 5        Even: ties go to the even code
//
// Few multipliers fit none of these. Devices whose instructions round to E2M1 cut nothing and use every multiplier as it is.
struct CuttingMultiplier {
    float factor;  // by kCutUnit smaller than what it stands for; is NaN where none serves
    bool up;       // whether all ties go up
};

#if MXQ_SMALL_FLOATS
constexpr float kCutUnit = 1;
#else
constexpr float kCutUnit = 0x1p-14f;
#endif

#if defined(__CUDA_ARCH__) && !MXQ_SMALL_FLOATS
__device__ __forceinline__ uint32_t cut_to_f16(float first, float second) {
    uint32_t halves;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
    return halves;
}

// Returns the codes of cut products in the low bytes of both halves, 0x0C in the high bytes. They are the minimum of three
// functions as in encode_e2m1_above_base, scaled by 2^-22. `up` makes cut products odd, so that no tie is left.
__device__ __forceinline__ uint32_t round_cut_to_even(uint32_t cut, uint32_t up) {
    uint32_t first, second, third;
    cut = (cut & ~kSignsOfBothHalves) | up;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(first) : "r"(cut), "r"(0x20002000), "r"(0x0C000C00));   // 2 v + 1024
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(second) : "r"(cut), "r"(0x1C001C00), "r"(0x0C020C02));  // v + 1026
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(third) : "r"(cut), "r"(0x18001800), "r"(0x0C040C04));   // v / 2 + 1028
    asm("min.f16x2 %0, %0, %1;" : "+r"(first) : "r"(second));
    asm("min.f16x2 %0, %0, %1;" : "+r"(first) : "r"(third));
    return first;
}

// Packs the rounded magnitudes of eight cut products: elements 0 and 2 of four in the halves of `low`, 1 and 3 in those of
// `high`. Where all ties go up, a code's nibble takes the first bit behind the code with it, which is then added.
template <bool to_even>
__device__ __forceinline__ uint32_t pack_cut(const uint32_t (&low)[2], const uint32_t (&high)[2], uint32_t up) {
    uint32_t fours[2];
    for (int i = 0; i < 2; ++i)
        fours[i] = to_even ? round_cut_to_even(low[i], up) + round_cut_to_even(high[i], up) * 16
                           : select_bits(0xF000F000u, high[i] * 16, low[i]);
    if (to_even) return permute_bytes(fours[0], fours[1], 0x6420);
    return (permute_bytes(fours[0], fours[1], 0x7531) + 0x11111111u) >> 1;
}
#endif

// Packs the codes of eight products below 7 kCutUnit, signs among them. They have one multiplier: by `to_even` all ties go
// up only if `up` is kOneInBothHalves, not 0; else they always do.
template <bool to_even>
MXQ_HD uint32_t encode_e2m1_cut(const float (&products)[8], uint32_t up) {
#if MXQ_SMALL_FLOATS
    uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) codes |= encode_e2m1_nibbles(products[2 * i], products[2 * i + 1]) << (8 * i);
    return codes;
#elif defined(__CUDA_ARCH__)
    uint32_t low[2], high[2];
    for (int i = 0; i < 2; ++i) {
        low[i] = cut_to_f16(products[4 * i], products[4 * i + 2]);
        high[i] = cut_to_f16(products[4 * i + 1], products[4 * i + 3]);
    }
    const uint32_t signs =
        select_bits(0x80808080u, permute_bytes(high[0], high[1], 0xFDB9), permute_bytes(low[0], low[1], 0xFDB9));
    return select_bits(0x77777777u, pack_cut<to_even>(low, high, up), signs);
#else
    uint32_t codes = 0;
    for (int i = 0; i < 8; ++i) {
        const uint32_t bits = float_bits(products[i]);
        const float magnitude = bits_float(bits & kMagnitudeMask);
        const uint32_t near = from_float<F16>(magnitude).bits, cut = near - (to_float(F16{uint16_t(near)}) > magnitude);
        const uint32_t half = to_even ? 255 + ((cut >> 9 | up) & 1) : 256;
        codes |= ((cut + half) >> 9 & 7 | bits >> 31 << 3) << (4 * i);
    }
    return codes;
#endif
}

// Returns whether encode_e2m1_cut puts a value on the same side of the tie `halfway` as encode does. `product` is its
// product with the multiplier, `cut` that with the multiplier's replacement.
MXQ_HD bool is_on_side(float product, float cut, float halfway, bool even_above, bool up) {
    const bool above = product > halfway || (product == halfway && even_above);
    // The last place of 5 in F16, and of 1 where it stands for 1/4, which is subnormal.
    const float just_above = halfway + 0x1p-8f;
    return above == (up || even_above ? cut >= halfway : cut >= just_above);
}

// What serves instead of a multiplier, as told above.
enum class Cut : uint32_t { Up, Before, Even, None };

// Returns what serves instead of a multiplier, which depends on its significand alone.
MXQ_HD Cut cut_for(float multiplier) {
#if MXQ_SMALL_FLOATS
    return Cut::Up;
#else
    const float significand = bits_float((float_bits(multiplier) & 0x7FFFFF) | 127u << 23);
    const float inverse = reciprocal_rn(significand);
    for (uint32_t i = 0; i < 3; ++i) {
        const Cut way = Cut(i);
        const float factor = bits_float(float_bits(significand) - (way == Cut::Before));
        const auto serves = [&](float halfway, bool even_above) {
            const float value = to_float(from_float<Bf16>(multiply_rn(halfway, inverse)));
            return is_on_side(multiply_rn(value, significand), multiply_rn(value, factor), halfway, even_above,
                              way != Cut::Even);
        };
        if (serves(1, false) && serves(3, true) && serves(5, false) && serves(7, true)) return way;
    }
    return Cut::None;
#endif
}

// Returns the replacement of a multiplier whose cut_for is known. Whatever is so small that products could be subnormal has
// none.
MXQ_HD CuttingMultiplier cutting_multiplier(float multiplier, Cut way) {
    const uint32_t bits = float_bits(multiplier), field = bits & kInfinityBits;
    if (multiplier == 0) return {0, true};
    if (way == Cut::None || field < 16u << 23 || field == kInfinityBits) return {bits_float(kNanBits), false};
    return {multiply_rn(bits_float(bits - (way == Cut::Before)), kCutUnit), way != Cut::Even};
}

// Packs eight codes to a word, from four pairs of neighbours: elements 2i and 2i + 1 are the low bytes of the halves of
// pairs[i]. The eight belong to one block and have one factor. A block of NaN leaves bytes of 16 or more, which spoil the
// whole word; the caller then clears it.
MXQ_HD uint32_t pack_nibble_pairs(const uint32_t (&pairs)[4]) {
#if defined(__CUDA_ARCH__)
    uint32_t low = permute_bytes(pairs[0], pairs[1], 0x6240), high = permute_bytes(pairs[2], pairs[3], 0x6240);
    low += low >> 12;  // the bytes are elements 0, 2, 1, 3: the upper two move to the free nibbles of the lower two
    high += high >> 12;
    return permute_bytes(low, high, 0x5410);
#else
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= (pairs[i] & 15) << (8 * i) | (pairs[i] >> 16 & 15) << (8 * i + 4);
    return word;
#endif
}

// Puts the low nibbles of the bytes of `high` above those of `low`. The other bits are dropped: a row of NaN leaves more
// than a nibble, which would carry into the next row.
MXQ_HD uint32_t join_nibbles(uint32_t low, uint32_t high) { return select_bits(0x0F0F0F0Fu, low, high << 4); }

// Packs four codes to each half, from four pairs of which the low halves belong to one row and the high halves to another.
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
// Returns the signs of four 16-bit numbers in order, each copied to all bits of a byte.
__device__ __forceinline__ uint32_t spread_signs(uint32_t first, uint32_t second) {
    uint32_t bytes;  // __byte_perm does not take these selectors
    asm("prmt.b32 %0, %1, %2, 0xFBD9;" : "=r"(bytes) : "r"(first), "r"(second));
    return bytes;
}

// Packs eight codes to a word: the bytes of `low` are elements 0, 2, 1, 3, those of `high` are 4, 6, 5, 7.
__device__ __forceinline__ uint32_t pack_nibble_bytes(uint32_t low, uint32_t high) {
    return __byte_perm(low + (low >> 12), high + (high >> 12), 0x5410);
}

// Packs eight codes without signs to a word, as the function of the same name does, with the signs of the eight 16-bit
// numbers in `signs`.
__device__ __forceinline__ uint32_t pack_nibble_pairs(const uint32_t (&pairs)[4], const uint32_t* signs) {
    return pack_nibble_bytes(__byte_perm(pairs[0], pairs[1], 0x6240) | (spread_signs(signs[0], signs[1]) & 0x08080808u),
                             __byte_perm(pairs[2], pairs[3], 0x6240) | (spread_signs(signs[2], signs[3]) & 0x08080808u));
}

// Packs four codes without signs to each half, as the function of the same name does, with the signs of the 16-bit numbers in
// `signs`.
__device__ __forceinline__ uint32_t pack_nibble_lines(const uint32_t (&pairs)[4], const uint32_t* signs) {
    const uint32_t even = spread_signs(signs[0], signs[2]), odd = spread_signs(signs[1], signs[3]);
    return pack_nibble_lines(pairs) | (select_bits(0x80808080u, odd, even) & 0x88888888u);
}
#endif

}  // namespace mxq
