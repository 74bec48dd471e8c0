// MX elements to codes and back by way of F16, of which 16-bit operations serve twice the elements that 32-bit ones do.
//
//     to codes      BF16 -> times 2^k -> F16, of which the exponent field is the code's -> code
//     from codes    code -> its bits as an F16 -> times 2^k -> value
//
// The F16 holds 2^(bias - 15) times the value, so that subnormal codes are subnormal F16 numbers. It has the eight
// significant bits of a BF16 exactly, or the number is smaller than 2^-11 ulp of the code. One BF16 is the exception: the
// one that is above the tie of 0 and the smallest code by half an ulp of F16. Multiplying by 1 + 2^-20 rounds it up. A type
// of four mantissa bits would have a BF16 a quarter of an ulp above that tie, which is lost.
//
// All of it holds where no product with an element that gets a code other than 0 leaves fp32's normal range: under the scales
// that can_encode_via_f16 names, and in blocks of zeros.
#pragma once
#include "numerics/convert.h"
#include "numerics/e8m0.h"
#include "numerics/element.h"

namespace mxq {

// Whether codes of E are made by way of F16.
template <class E>
constexpr bool encodes_via_f16 = E::mantissa_bits <= 3 && E::exponent_bits <= 5;

// Returns whether blocks under this scale may be encoded by way of F16: not those with NaN or Inf, nor near the ends of fp32.
MXQ_HD bool can_encode_via_f16(uint32_t scale) { return scale - 24 <= 230 - 24; }

// Returns what elements are multiplied by before they become F16.
template <class E>
MXQ_HD float encode_via_f16_factor(uint32_t scale) {
    return bits_float(((254 - 15 + E::bias - scale) << 23) + (1u << 3));
}

// The rounding from an F16 magnitude to the code's, in 16 bits without overflow.
template <class E>
struct F16ToCode {
    static_assert(encodes_via_f16<E>);
    static constexpr int shift = 10 - E::mantissa_bits;
    static constexpr uint16_t below_half = (1u << (shift - 1)) - 1;  // the last place kept is added too, for ties to even
    static constexpr uint16_t max_code = E::first_special - 1;
};

// Returns whether codes under this scale may be decoded by way of F16. Products then are zero or normal numbers of every output
// type but F16: exact in fp32, and their upper 16 bits are the BF16 value. Codes must be neither Inf nor NaN.
MXQ_HD bool can_decode_via_f16(uint32_t scale) { return scale - 32 <= 224 - 32; }

// Returns what the F16 with a code's bits is multiplied by: it is 2^(bias - 15) times the code's value.
template <class E>
MXQ_HD float decode_via_f16_factor(uint32_t scale) {
    return bits_float((scale + 15 - E::bias) << 23);
}

}  // namespace mxq
