// Requantizes NVFP4 in F16, where the scale above the blocks' lets that be.
//
// A code times its block scale is exact in F16, (8 .. 15) * (2 or 3) times a power of two. The scale above, g, has 24 bits,
// and
//
//     code'  =  RNE_sat(fl(code * scale * g) * 2^-e)
//
// differs from RNE_sat(code * scale * h * 2^-e), h being a F16 number next to g, only where one of 16 products lies on the
// other side of a number at which codes change, or on it. Powers of two move these with the products. So h serves for all
// blocks or for none: the nearest, or one of its neighbours, does for E2M1 under nearly all g, for E4M3 under 99 of 100.
#pragma once
#include "numerics/element.h"
#include "numerics/requantize_via_f16.h"

namespace mxq {

constexpr int kNvfp4Products = 16;  // of a code and a block scale, over powers of two

MXQ_HD float nvfp4_product(int index) { return float((8 + index / 2) * (2 + index % 2)); }

// Returns whether two numbers become the same code of E, and do so over any power of two. Codes change at multiples of half
// a step of the mantissa; on such a number the even one is taken.
template <class E>
MXQ_HD bool lie_alike(float a, float b) {
    constexpr uint32_t shift = 23 - (E::mantissa_bits + 1), below = (1u << shift) - 1;
    const uint32_t x = float_bits(a), y = float_bits(b);
    return x >> shift == y >> shift && ((x & below) == 0) == ((y & below) == 0);
}

// Which F16 number stands for a scale above: the nearest, or the one so many steps from it.
enum F16Step : int { kBelowNearest = -1, kNearest = 0, kAboveNearest = 1, kNoF16 = 2 };

// Returns the F16 numbers that stand for two factors, which are not 0.
MXQ_HD uint32_t step_f16_pairs(uint32_t nearest, int step) { return nearest + uint32_t(step) * 0x00010001u; }

// Returns whether product `index` becomes the same code of E under the F16 number as under g, which is a normal number.
// Products with factors are rounded to F16 before they become codes of 8 bits, and are exact before they become E2M1's.
template <class E>
MXQ_HD bool nvfp4_product_serves_in_f16(float g, int index, int step) {
    const float above = bits_float((float_bits(g) & 0x007FFFFFu) | float_bits(1.0f));  // over a power of two
    const uint32_t half = step_f16_pairs(f16_pair_of(above), step) & 0xFFFF;
    const float product = nvfp4_product(index), in_half = multiply_rn(product, to_float(F16{uint16_t(half)}));
    return lie_alike<E>(multiply_rn(product, above), E::bits == 8 ? to_float(from_float<F16>(in_half)) : in_half);
}

// Returns whether F16 has the factor with all of its bits, and twice and half of it, as E2M1 needs.
template <class E>
MXQ_HD bool is_nvfp4_factor_in_f16(float factor) {
    return E::bits == 8 ? factor >= 0x1p-14f && factor <= 0x1p15f : factor >= 0x1p-13f && factor <= 0x1p14f;
}

}  // namespace mxq
