// Converts plain elements to and from fp32. To 16 bits it rounds to nearest even; what is beyond the range becomes Inf, and NaN
// becomes 0x7FFF.
#pragma once
#include "numerics/bits.h"
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace mxq {

// Storage of one plain element as a C++ type of its own, so that a kernel's input type says what the bits mean.
struct Bf16 {
    uint16_t bits;
};
struct F16 {
    uint16_t bits;
};

MXQ_HD float to_float(float value) { return value; }

MXQ_HD float to_float(Bf16 value) { return bits_float(uint32_t(value.bits) << 16); }

// The device's own conversions, here and in from_float, give the same bits as the host's code.
MXQ_HD float to_float(F16 value) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(value.bits));
#else
    const uint32_t magnitude = value.bits & 0x7FFFu;
    const float normal = bits_float((magnitude << 13) + (112u << 23));
    // A subnormal read as a normal of exponent 0 is 2^-15 (1 + m/1024). Subtracting 2^-15 removes the 1 without an fp32
    // subnormal.
    const float subnormal = multiply_rn(add_rn(normal, -3.0517578125e-05f), 2.0f);
    uint32_t bits = float_bits(magnitude < 0x0400u ? subnormal : normal);
    bits = magnitude >= 0x7C00u ? (magnitude << 13) | kInfinityBits : bits;
    return bits_float(bits | (uint32_t(value.bits & 0x8000u) << 16));
#endif
}

template <class T>
MXQ_HD T from_float(float value);

template <>
MXQ_HD float from_float<float>(float value) {
    return is_nan(value) ? bits_float(kNanBits) : value;
}

template <>
MXQ_HD Bf16 from_float<Bf16>(float value) {
#if defined(__CUDA_ARCH__)
    return Bf16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
    const uint32_t bits = float_bits(value);
    const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    return Bf16{uint16_t(is_nan(value) ? 0x7FFF : rounded)};
#endif
}

template <>
MXQ_HD F16 from_float<F16>(float value) {
#if defined(__CUDA_ARCH__)
    return F16{__half_as_ushort(__float2half_rn(value))};
#else
    const uint32_t bits = float_bits(value);
    const uint32_t magnitude = bits & kMagnitudeMask;
    const uint32_t clamped = magnitude < 0x47800000u ? magnitude : 0x47800000u;  // 65536 has the code of Inf
    const uint32_t code = round_magnitude<10, 15>(clamped) | (bits >> 31 << 15);
    return F16{uint16_t(is_nan(value) ? 0x7FFF : code)};
#endif
}

// Returns the value of a 16-bit number, given by its bits.
template <class T>
MXQ_HD float value_of_bits(uint32_t bits) {
    return to_float(T{uint16_t(bits)});
}

// Multiplies 16-bit numbers in both halves of a word. Each product is rounded once, with subnormals in and out.
template <class T>
MXQ_HD uint32_t multiply_halves(uint32_t a, uint32_t b) {
    return by_halves(
        [](uint32_t x, uint32_t y) { return from_float<T>(multiply_rn(value_of_bits<T>(x), value_of_bits<T>(y))).bits; }, a, b);
}

}  // namespace mxq
