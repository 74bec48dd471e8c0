// One element of an MX block at a time, host and device: the plain form of the rules, with which faster forms are compared.
#ifndef MXQ_TESTS_NUMERICS_ONE_ELEMENT_H
#define MXQ_TESTS_NUMERICS_ONE_ELEMENT_H

#include "numerics/e8m0.h"

// Returns the code of a value under its scale's reciprocal.
template <class E>
MXQ_HD uint32_t quantize_element(float value, float reciprocal) {
    const uint32_t code = mxq::encode<E>(mxq::multiply_rn(value, reciprocal));
    return !mxq::has_nan<E> && mxq::is_nan(reciprocal) ? 0 : code;
}

// Returns the fp32 value of a code under its scale's value, NaN with the library's bits.
template <class E>
MXQ_HD float dequantize_element(uint32_t code, float scale) {
    return mxq::from_float<float>(mxq::multiply_rn(mxq::decode<E>(code), scale));
}

#endif
