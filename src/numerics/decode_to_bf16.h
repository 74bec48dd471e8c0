// Decodes codes to BF16 values, four at a time: element times block scale, rounded once to nearest even. A product has at most
// six significant bits, so that only BF16 subnormals are rounded at all.
//
//     four codes        c3 c2 c1 c0
//     EvenOddBf16         even: c2, c0    odd: c3, c1      (high half, low half)
//
// The bits of a code, moved to where BF16 has its sign, exponent and mantissa, are the BF16 number code * 2^(bias - 127),
// subnormals included. Multiplication gives the product:
//
//     8 bits       by 2^(scale - 127) * 2^(127 - bias), which is one factor for all scales for which it is below 2^128
//     6, 4 bits    by most of 2^(127 - bias), then by the rest times 2^(scale - 127): two factors, because scales far above 1
//                  are common where codes are small. An E4M3 scale becomes a BF16 number in the same way.
//
// That serves all codes but Inf and NaN, and all scales but NaN and the largest. decode_to_bf16_exactly serves any.
#pragma once
#include "numerics/convert.h"
#include "numerics/e8m0.h"
#include "numerics/element.h"

namespace mxq {

// The BF16 values of four codes, or what becomes of them.
struct EvenOddBf16 {
    uint32_t even, odd;
};

constexpr uint32_t kOneInBothHalves = 0x00010001u;  // is 1 in both halves of a word
constexpr uint32_t kSignsOfBothHalves = 0x80008000u;       // are the sign bits of both halves

// What decoding needs to know of an element type and its scales, as numbers, so that one kernel serves all types.
struct Bf16DecodeRule {
    uint32_t even_factor;   // moves the codes of even bytes to the left
    uint32_t odd_shift;     // moves the codes of odd bytes to the right
    uint32_t magnitude;     // masks exponent and mantissa in both halves
    uint32_t to_special;    // sets the top bits of Inf and NaN when it is added to the magnitudes of four codes of 8 bits
    uint32_t first_factor;  // is the first of the two factors of codes of 6 and 4 bits, in both halves
    uint32_t scale_bias;    // is added to the exponent of the scale's power of two
    uint32_t scale_mask;    // masks a scale without its sign
    uint32_t scale_limit;   // is the largest masked scale that is not special
    bool e4m3_scale;
};

// Returns 2^exponent as BF16 in both halves of a word.
MXQ_HD constexpr uint32_t bf16_power_pair(int exponent) { return uint32_t(127 + exponent) * (0x80 * kOneInBothHalves); }

// Returns the rule of E under E8M0 scales. Codes without such scales use it with the scale 127.
template <class E>
MXQ_HD constexpr Bf16DecodeRule bf16_decode_rule() {
    static_assert(E::mantissa_bits < 7 && E::exponent_bits < 8 && (E::bits == 8 || E::bits == 6 || E::bits == 4));
    constexpr uint32_t shift = 7 - E::mantissa_bits, missing = 127 - E::bias;
    constexpr uint32_t bias = E::bits == 8 ? missing : 16;
    constexpr uint32_t to_special = E::bits == 8 ? (0x80u - E::first_special) * 0x01010101u : 0;
    return {1u << shift, 8 - shift, (0x7Fu << shift) * kOneInBothHalves, to_special, bf16_power_pair(int(missing - bias)), bias,
            0xFF, 254 - bias, false};
}

// Returns the rule of E2M1 under E4M3 scales.
MXQ_HD constexpr Bf16DecodeRule bf16_decode_rule_nvfp4() {
    Bf16DecodeRule rule = bf16_decode_rule<E2M1>();
    rule.first_factor = bf16_power_pair(127 - E2M1::bias);
    rule.scale_mask = 0x7F;
    rule.scale_limit = E4M3::nan_code - 1;
    rule.e4m3_scale = true;
    return rule;
}

// Multiplies BF16 numbers in both halves. Each product is rounded once, with subnormals in and out.
MXQ_HD uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint32_t product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(product)
        : "r"(a), "r"(b), "r"(kSignsOfBothHalves));  // adding -0 changes nothing
    return product;
#else
    return multiply_halves<Bf16>(a, b);
#endif
}

// Returns the scale's factor under an E8M0 scale, in both halves.
MXQ_HD uint32_t bf16_e8m0_factor(const Bf16DecodeRule& rule, uint32_t scale) {
    return scale * 0x00800080u + rule.scale_bias * 0x00800080u;
}

// Returns the value of an E4M3 scale, in both halves.
MXQ_HD uint32_t bf16_e4m3_factor(uint32_t scale) {
    const uint32_t moved = ((scale & 0x7F) << (7 - E4M3::mantissa_bits) | (scale & 0x80) << 8) * kOneInBothHalves;
    return multiply_bf16_pairs(moved, bf16_power_pair(127 - E4M3::bias));
}

// Returns the scale's factor under the rule's kind of scale, in both halves.
MXQ_HD uint32_t bf16_scale_factor(const Bf16DecodeRule& rule, uint32_t scale) {
    return rule.e4m3_scale ? bf16_e4m3_factor(scale) : bf16_e8m0_factor(rule, scale);
}

// Returns whether a scale is NaN or too large for these factors.
MXQ_HD bool is_special_scale(const Bf16DecodeRule& rule, uint32_t scale) {
    return (scale & rule.scale_mask) > rule.scale_limit;
}

// Returns a word that has a bit of kSpecialMarks set where one of four codes of 8 bits is Inf or NaN.
constexpr uint32_t kSpecialMarks = 0x80808080u;
MXQ_HD uint32_t mark_special_codes(const Bf16DecodeRule& rule, uint32_t word) {
    return (word & ~kSpecialMarks) + rule.to_special;
}

// Moves the bits of four codes, each a byte with its sign on top, to where BF16 has them.
MXQ_HD EvenOddBf16 move_codes_to_bf16(const Bf16DecodeRule& rule, uint32_t word) {
    const uint32_t even = ((word << 8) & kSignsOfBothHalves) | ((word * rule.even_factor) & rule.magnitude);
    const uint32_t odd = (word & kSignsOfBothHalves) | ((word >> rule.odd_shift) & rule.magnitude);
    return {even, odd};
}

// Multiplies four BF16 numbers by two factors, one after the other.
MXQ_HD EvenOddBf16 multiply_twice(const EvenOddBf16& pairs, uint32_t first, uint32_t second) {
    return {multiply_bf16_pairs(multiply_bf16_pairs(pairs.even, first), second),
            multiply_bf16_pairs(multiply_bf16_pairs(pairs.odd, first), second)};
}

// Decodes four codes of 8 bits. Neither the codes nor the scale of `multiplier` may be special.
MXQ_HD EvenOddBf16 decode_8_bits_to_bf16(const Bf16DecodeRule& rule, uint32_t word, uint32_t multiplier) {
    const EvenOddBf16 moved = move_codes_to_bf16(rule, word);
    return {multiply_bf16_pairs(moved.even, multiplier), multiply_bf16_pairs(moved.odd, multiplier)};
}

// Decodes four codes of 6 bits, a byte each, whose upper bits are zero.
MXQ_HD EvenOddBf16 decode_6_bits_to_bf16(const Bf16DecodeRule& rule, uint32_t word, uint32_t multiplier) {
    const uint32_t signs_on_top = word + 3 * (word & 0x20202020u);
    return multiply_twice(move_codes_to_bf16(rule, signs_on_top), rule.first_factor, multiplier);
}

// Decodes codes 4 half .. 4 half + 3 of the eight E2M1 codes in a word. The byte of two codes is copied to both bytes of a
// half:
//
//     upper, lower byte     c1 c0 c1 c0
//     even                  sign at 11, magnitude at 10..8
//     odd                   sign at 15, magnitude at  6..4
MXQ_HD EvenOddBf16 decode_4_bits_to_bf16(const Bf16DecodeRule& rule, uint32_t word, int half, uint32_t multiplier) {
#if defined(__CUDA_ARCH__)
    const uint32_t bytes = permute_bytes(word, 0, half == 0 ? 0x1100 : 0x3322);
#else
    const uint32_t two = word >> (16 * half) & 0xFFFF;
    const uint32_t bytes = (two & 0xFF) * 0x0101u | (two >> 8) * 0x01010000u;
#endif
    constexpr uint32_t magnitude = 0x01C0 * kOneInBothHalves;
    const uint32_t even = ((bytes << 4) & kSignsOfBothHalves) | ((bytes >> 2) & magnitude);
    const uint32_t odd = (bytes & kSignsOfBothHalves) | ((bytes << 2) & magnitude);
    return multiply_twice({even, odd}, rule.first_factor, multiplier);
}

// Returns four BF16 numbers, given in order in two words, in the order of EvenOddBf16.
MXQ_HD EvenOddBf16 split_even_odd_bf16(uint32_t first, uint32_t second) {
#if defined(__CUDA_ARCH__)
    return {permute_bytes(first, second, 0x5410), permute_bytes(first, second, 0x7632)};
#else
    return {(first & 0xFFFF) | second << 16, first >> 16 | (second & 0xFFFF0000u)};
#endif
}

// Sets the top bit of each half whose BF16 number is not zero and has a magnitude below `limit`, given in both halves. The
// other bits of the result mean nothing.
MXQ_HD uint32_t mark_tiny_bf16(uint32_t pair, uint32_t limit) {
    const uint32_t magnitudes = pair & ~kSignsOfBothHalves;
    return (magnitudes + 0x7FFF7FFFu) & ~(magnitudes + (0x80008000u - limit));
}

// Returns the BF16 value of any decoded element under any scale's value.
MXQ_HD uint32_t decode_to_bf16_exactly(float element, float scale) {
    return from_float<Bf16>(multiply_rn(element, scale)).bits;
}

}  // namespace mxq
