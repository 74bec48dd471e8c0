// Element types: their constants, and the one rounding from fp32 to a code and back.
//
// An element type is a sign, `exponent_bits` and `mantissa_bits`; everything else follows from its bias and largest value.
#pragma once
#include <bit>

#include "numerics/bits.h"
#if defined(__CUDACC__)
#include <cuda_fp8.h>
#endif

namespace mxq {

struct E4M3 {
    static constexpr int bits = 8, exponent_bits = 4, mantissa_bits = 3, bias = 7;
    static constexpr int emax = 8;                     // exponent of the largest value
    static constexpr float max = 448.0f;
    static constexpr uint32_t nan_code = 0x7F;         // all ones; there is no Inf
    static constexpr uint32_t first_special = 0x7F;    // codes from here on (sign aside) are Inf or NaN
};

struct E5M2 {
    static constexpr int bits = 8, exponent_bits = 5, mantissa_bits = 2, bias = 15;
    static constexpr int emax = 15;
    static constexpr float max = 57344.0f;
    static constexpr uint32_t nan_code = 0x7F;
    static constexpr uint32_t first_special = 0x7C;    // 0x7C is Inf
};

// Constants of the fp32 representation of E.
template <class E>
struct ElementBits {
    static constexpr int shift = 23 - E::mantissa_bits;
    static constexpr uint32_t max = std::bit_cast<uint32_t>(E::max);
    // Value of code 0 when its exponent field is read as a normal one.
    static constexpr uint32_t zero_as_normal = uint32_t(127 - E::bias) << 23;
    static constexpr uint32_t sign = 1u << (E::bits - 1);
};

// RNE_sat: nearest code, ties to even, beyond max (Inf too) to +-max, NaN to nan_code without sign.
template <class E>
MXQ_HD uint32_t encode(float value) {
    using B = ElementBits<E>;
    const uint32_t bits = float_bits(value);
    const uint32_t magnitude = bits & kMagnitudeMask;
    const uint32_t clamped = magnitude < B::max ? magnitude : B::max;
    const uint32_t code = round_magnitude<E::mantissa_bits, E::bias>(clamped);
    return is_nan(value) ? E::nan_code : code | ((bits >> 31) * B::sign);
}

// Exact value of a code. Never passes through fp32 subnormals, which some CPUs handle slowly.
template <class E>
MXQ_HD float decode(uint32_t code) {
    using B = ElementBits<E>;
    const uint32_t magnitude = code & (B::sign - 1);
    const float normal = bits_float((magnitude << B::shift) + B::zero_as_normal);
    const float subnormal = multiply_rn(add_rn(normal, -bits_float(B::zero_as_normal)), 2.0f);
    uint32_t bits = float_bits(magnitude < (1u << E::mantissa_bits) ? subnormal : normal);
    if constexpr (E::first_special < B::sign) {
        const uint32_t special = E::first_special == E::nan_code || magnitude != E::first_special ? kNanBits : kInfinityBits;
        bits = magnitude >= E::first_special ? special : bits;
    }
    return bits_float(bits | ((code & B::sign) << (32 - E::bits)));
}

#if defined(__CUDACC__)
// Two codes at once, the first in the low byte: the hardware conversion where there is one gives the same bits.
template <class E>
__device__ __forceinline__ uint32_t encode_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    constexpr __nv_fp8_interpretation_t kind = E::mantissa_bits == 3 ? __NV_E4M3 : __NV_E5M2;
    return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, kind);
#else
    return encode<E>(first) | (encode<E>(second) << 8);
#endif
}

// The values of two codes, the first in the low byte; every one is exact in F16.
template <class E>
__device__ __forceinline__ float2 decode_pair(uint32_t codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    constexpr __nv_fp8_interpretation_t kind = E::mantissa_bits == 3 ? __NV_E4M3 : __NV_E5M2;
    return __half22float2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), kind));
#else
    return make_float2(decode<E>(codes & 0xFF), decode<E>(codes >> 8 & 0xFF));
#endif
}
#endif

}  // namespace mxq
