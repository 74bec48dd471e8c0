// One block or tile: the elements that share a scale, and their codes.
#ifndef MXQ_TESTS_ORACLE_BLOCK_H
#define MXQ_TESTS_ORACLE_BLOCK_H

#include "oracle_random.h"

namespace oracle {

// A block of height x width elements of a matrix of lines, and the place of their codes, one per byte.
struct Block {
    const float* x;
    uint8_t* codes;
    const uint8_t* random;  // the bytes of stochastic rounding; NULL: round to nearest
    int64_t stride, height, width;

    int64_t count() const { return height * width; }
    // Returns the index of element i, counted row by row.
    int64_t at(int64_t i) const { return height == 1 ? i : i / width * stride + i % width; }
    float value(int64_t i) const { return x[at(i)]; }

    // Returns the largest magnitude. NaNs are ignored.
    float amax() const {
        float a = 0;
        for (int64_t i = 0; i < count(); ++i) {
            float magnitude = std::fabs(value(i));
            if (magnitude > a) a = magnitude;
        }
        return a;
    }
    // Stores RNE_sat of a scaled value, or its stochastic rounding, as the code of element i.
    void put(const Type& type, int64_t i, float scaled) const {
        codes[at(i)] = random ? stochastic_code(scaled, random[at(i)]) : encode(type, scaled);
    }
};

}  // namespace oracle

#endif
