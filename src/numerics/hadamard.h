// The random Hadamard transform of 16 elements: signs flipped by a mask, four stages of butterflies, a factor of 1/4.
//
//     stage of distance d     v[i]     <- v[i] + v[i + d]
//                             v[i + d] <- v[i] - v[i + d]        d = 1, 2, 4, 8
#pragma once
#include "numerics/bits.h"

namespace mxq {

// A word for each element, which flips its sign by exclusive or.
struct HadamardSigns {
    uint32_t bits[16];
};

// Returns the signs of a mask, of which bit i is set where element i changes its sign.
MXQ_HD HadamardSigns hadamard_signs(uint32_t mask) {
    HadamardSigns signs{};
    for (int i = 0; i < 16; ++i) signs.bits[i] = (mask >> i & 1) << 31;
    return signs;
}

MXQ_HD void flip_signs(float (&values)[16], const HadamardSigns& signs) {
    for (int i = 0; i < 16; ++i) values[i] = bits_float(float_bits(values[i]) ^ signs.bits[i]);
}

// Does the butterflies alone, which leaves four times the transformed values.
MXQ_HD void hadamard_sums(float (&values)[16]) {
    for (int distance = 1; distance < 16; distance *= 2)
        for (int pair = 0; pair < 8; ++pair) {
            const int i = pair / distance * 2 * distance + pair % distance;
            const float low = values[i], high = values[i + distance];
            values[i] = add_rn(low, high);
            values[i + distance] = add_rn(low, -high);
        }
}

// Multiplies 16 elements in place by the matrix, which is symmetric and its own inverse.
MXQ_HD void hadamard_butterflies(float (&values)[16]) {
    hadamard_sums(values);
    for (float& value : values) value = multiply_rn(value, 0.25f);
}

// Transforms 16 elements in place.
MXQ_HD void hadamard_16(float (&values)[16], const HadamardSigns& signs) {
    flip_signs(values, signs);
    hadamard_butterflies(values);
}

MXQ_HD void hadamard_16(float (&values)[16], uint32_t mask) { hadamard_16(values, hadamard_signs(mask)); }

// Undoes the transform of 16 elements in place.
MXQ_HD void undo_hadamard_16(float (&values)[16], uint32_t mask) {
    hadamard_butterflies(values);
    flip_signs(values, hadamard_signs(mask));
}

}  // namespace mxq
