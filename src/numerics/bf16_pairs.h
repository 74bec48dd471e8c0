// MXFP8 codes to BF16 values, four codes at a time: element times scale, rounded once to nearest even. A product has at
// most four significant bits, so that only BF16 subnormals are rounded at all.
//
//     word of codes     c3 c2 c1 c0
//     Bf16Pairs         even: c2, c0    odd: c3, c1      (high half, low half)
//
// The bits of a code, moved to where BF16 has its sign, exponent and mantissa, are the BF16 number code * 2^(bias - 127),
// subnormals included. One multiplication by 2^(scale - 127) * 2^(127 - bias) gives the product. That serves all codes but
// Inf and NaN, and all scales for which this power is below 2^128; to_bf16_pairs_exactly serves the rest as well.
#pragma once
#include "numerics/convert.h"
#include "numerics/e8m0.h"
#include "numerics/element.h"

namespace mxq {

struct Bf16Pairs {
    uint32_t even, odd;
};

// What conversion needs to know of an element type, as numbers, so that one kernel serves all of them.
struct Bf16Rule {
    uint32_t even_factor;  // moves them to the left
    uint32_t odd_shift;    // moves them to the right
    uint32_t magnitude;    // exponent and mantissa of both halves
    uint32_t to_special;   // added to the magnitudes of four codes, sets the top bit of Inf and NaN
    uint32_t scale_bias;   // 127 - bias
};

template <class E>
MXQ_HD constexpr Bf16Rule bf16_rule() {
    constexpr uint32_t shift = 7 - E::mantissa_bits;
    return {1u << shift, 8 - shift, (0x7Fu << shift) * 0x00010001u, (0x80u - E::first_special) * 0x01010101u,
            127u - E::bias};
}

// Both halves; each product rounded once, subnormals in and out.
MXQ_HD uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint32_t product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));  // + -0 changes nothing
    return product;
#else
    const auto half = [](uint32_t x, uint32_t y) {
        return uint32_t(from_float<Bf16>(multiply_rn(to_float(Bf16{uint16_t(x)}), to_float(Bf16{uint16_t(y)}))).bits);
    };
    return half(a, b) | half(a >> 16, b >> 16) << 16;
#endif
}

// What the moved bits are multiplied by, in both halves.
MXQ_HD uint32_t bf16_multiplier(const Bf16Rule& rule, uint32_t scale) {
    return scale * 0x00800080u + rule.scale_bias * 0x00800080u;
}

MXQ_HD bool is_special_scale(const Bf16Rule& rule, uint32_t scale) { return scale > 254 - rule.scale_bias; }

// Any of kSpecialCodes set: the word holds Inf or NaN.
constexpr uint32_t kSpecialCodes = 0x80808080u;
MXQ_HD uint32_t special_codes(const Bf16Rule& rule, uint32_t word) { return (word & ~kSpecialCodes) + rule.to_special; }

// Neither a special code nor a special scale.
MXQ_HD Bf16Pairs to_bf16_pairs(const Bf16Rule& rule, uint32_t word, uint32_t multiplier) {
    constexpr uint32_t signs = 0x80008000u;
    const uint32_t even = ((word << 8) & signs) | ((word * rule.even_factor) & rule.magnitude);
    const uint32_t odd = (word & signs) | ((word >> rule.odd_shift) & rule.magnitude);
    return {multiply_bf16_pairs(even, multiplier), multiply_bf16_pairs(odd, multiplier)};
}

// Any code, any scale.
template <class E>
MXQ_HD Bf16Pairs to_bf16_pairs_exactly(uint32_t word, uint32_t scale) {
    const auto value = [=](int i) {
        const uint32_t code = (word >> (8 * i)) & 0xFF;
        return uint32_t(from_float<Bf16>(dequantize_element<E>(code, scale_value(scale))).bits);
    };
    return {value(0) | value(2) << 16, value(1) | value(3) << 16};
}

}  // namespace mxq
