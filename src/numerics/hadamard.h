// The random Hadamard transform of 16 elements: signs flipped by a mask, four stages of butterflies, a quarter.
//
//     stage of distance d     v[i]     <- v[i] + v[i + d]
//                             v[i + d] <- v[i] - v[i + d]        d = 1, 2, 4, 8
#pragma once
#include "numerics/bits.h"

namespace mxq {

// Element `i` before the stages.
MXQ_HD float hadamard_sign(float value, uint32_t mask, int i) {
    return bits_float(float_bits(value) ^ (mask >> i & 1) << 31);
}

// Element after the stages.
MXQ_HD float hadamard_scale(float value) { return multiply_rn(value, 0.25f); }

// What flips the sign of each element.
struct HadamardSigns {
    uint32_t bits[16];
};

MXQ_HD HadamardSigns hadamard_signs(uint32_t mask) {
    HadamardSigns signs{};
    for (int i = 0; i < 16; ++i) signs.bits[i] = (mask >> i & 1) << 31;
    return signs;
}

MXQ_HD void hadamard_16(float (&values)[16], const HadamardSigns& signs) {
    for (int i = 0; i < 16; ++i) values[i] = bits_float(float_bits(values[i]) ^ signs.bits[i]);
    for (int distance = 1; distance < 16; distance *= 2)
        for (int pair = 0; pair < 8; ++pair) {
            const int i = pair / distance * 2 * distance + pair % distance;
            const float low = values[i], high = values[i + distance];
            values[i] = add_rn(low, high);
            values[i + distance] = add_rn(low, -high);
        }
    for (float& value : values) value = hadamard_scale(value);
}

MXQ_HD void hadamard_16(float (&values)[16], uint32_t mask) { hadamard_16(values, hadamard_signs(mask)); }

}  // namespace mxq
