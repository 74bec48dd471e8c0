// MX elements by way of F16, whose exponent field becomes that of the code: 16-bit operations serve twice the elements.
//
// To codes: all inputs shortened to BF16, scaled, converted to F16, rounded as integers.
//
// Shortening rounds to odd: what is cut off is or-ed into the last place. A word so made lies on the same side of every
// value of up to six significant bits as the number it came from, so that scales and codes come out the same.
//
// Then F16 holds 2^(bias - 15) times the value, so that its exponent field is that of the code, subnormal codes being
// subnormal halves. The eight bits of a word are exact there, or smaller than 2^-10 of half a place but for one case:
// a word that is above the tie of 0 and the smallest code by half a place of F16. Multiplying by 1 + 2^-20 sends it up.
//
// This holds where no product with anything but zero codes leaves fp32's normal range: is_odd_bf16_scale, or a block of zeros.
#pragma once
#include "numerics/convert.h"
#include "numerics/e8m0.h"
#include "numerics/element.h"

namespace mxq {

MXQ_HD uint32_t to_odd_bf16(float value) {
    const uint32_t bits = float_bits(value);
    return (bits | ((bits & 0xFFFF) + 0xFFFF)) >> 16;
}

// Neither of a nonfinite block nor near the ends of fp32.
MXQ_HD bool is_odd_bf16_scale(uint32_t scale) { return scale - 24 <= 230 - 24; }

// What elements are multiplied by before F16.
template <class E>
MXQ_HD float half_factor(uint32_t scale) {
    return bits_float(((254 - 15 + E::bias - scale) << 23) + (1u << 3));
}

// The rounding of such a half: its magnitude to the code's, in 16 bits without overflow.
template <class E>
struct HalfRounding {
    static constexpr int shift = 10 - E::mantissa_bits;
    static constexpr uint16_t below_half = (1u << (shift - 1)) - 1;  // plus the last place kept: ties to even
    static constexpr uint16_t max_code = E::first_special - 1;
};

// The code of one word.
template <class E>
MXQ_HD uint32_t quantize_odd_bf16(uint32_t word, float factor) {
    using R = HalfRounding<E>;
    const uint32_t half = from_float<F16>(multiply_rn(to_float(Bf16{uint16_t(word)}), factor)).bits;
    const uint32_t magnitude = half & 0x7FFF;
    const uint32_t code = (magnitude + R::below_half + ((magnitude >> R::shift) & 1)) >> R::shift;
    return (code < R::max_code ? code : R::max_code) | ((half >> (16 - E::bits)) & ElementBits<E>::sign);
}

// From codes: a code that is neither Inf nor NaN, moved up, is the half 2^(bias - 15) times its value. Under a plain scale
// its product is a normal number of every output type but F16, or zero: exact in fp32, its upper 16 bits are the BF16 value.
MXQ_HD bool is_plain_scale(uint32_t scale) { return scale - 32 <= 224 - 32; }

template <class E>
MXQ_HD float half_scale(uint32_t scale) {
    return bits_float((scale + 15 - E::bias) << 23);
}

}  // namespace mxq
