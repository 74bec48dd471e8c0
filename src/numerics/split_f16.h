// An F16 number as two BF16 numbers whose sum it is, so that BF16 tensor cores multiply it without rounding:
//
//     F16     1.mmmmmmmmmm     11 significant bits; subnormals have fewer
//     high    1.mmmmmmm        the first 8 of them
//     low     0.0000000mmm     the others
//
// Both parts have the number's sign, so that |high| + |low| is its magnitude and the bound of a sum stays what it is; low
// is less than 2^-7 of it. No part but 0 is below 2^-24, F16's smallest subnormal, which is a normal number in BF16. Inf
// and NaN are high parts with a low part of 0, which adds nothing to them.
#pragma once
#include "numerics/convert.h"

namespace mxq {

MXQ_HD Bf16 high_part(F16 number) {
    const float value = to_float(number);
    return {uint16_t(is_nan(value) ? 0x7FFF : float_bits(value) >> 16)};
}

MXQ_HD Bf16 low_part(F16 number) {
    constexpr uint32_t infinity = 0x7C00;
    if ((number.bits & 0x7FFFu) >= infinity) return {0};
    const float value = to_float(number);
    return {uint16_t(float_bits(add_rn(value, -to_float(high_part(number)))) >> 16)};
}

// Returns the high or the low parts of the F16 numbers in both halves of a word.
MXQ_HD uint32_t parts_of_pair(uint32_t pair, bool high) {
    const F16 first{uint16_t(pair)}, second{uint16_t(pair >> 16)};
    const uint32_t low_half = high ? high_part(first).bits : low_part(first).bits;
    const uint32_t high_half = high ? high_part(second).bits : low_part(second).bits;
    return low_half | high_half << 16;
}

}  // namespace mxq
