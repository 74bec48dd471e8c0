// Element types: their constants, the one rounding from fp32 to a code and back, and the way from an Element, which is known at
// run time, to its type.
//
// An element type is a sign, `exponent_bits` and `mantissa_bits`; everything else follows from its bias and largest value.
#pragma once
#include <bit>
#include <type_traits>

#include "numerics/bits.h"
#if defined(__CUDACC__)
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#endif

namespace mxq {

// What one number is stored as: a plain type, or codes of one of the types below.
enum class Element : int32_t { F32, F16, Bf16, E4M3, E5M2, E2M3, E3M2, E2M1 };

struct E4M3 {
    static constexpr int bits = 8, exponent_bits = 4, mantissa_bits = 3, bias = 7;
    static constexpr int emax = 8;                     // exponent of the largest value
    static constexpr float max = 448.0f;
    static constexpr uint32_t nan_code = 0x7F;         // all ones; there is no Inf
    static constexpr uint32_t first_special = 0x7F;    // magnitudes from this code on are Inf or NaN
};

struct E5M2 {
    static constexpr int bits = 8, exponent_bits = 5, mantissa_bits = 2, bias = 15;
    static constexpr int emax = 15;
    static constexpr float max = 57344.0f;
    static constexpr uint32_t nan_code = 0x7F;
    static constexpr uint32_t first_special = 0x7C;    // is Inf
};

// Types of less than a byte have neither Inf nor NaN: NaN becomes their largest value. Each code is a byte here, its upper bits
// zero; numerics/packing.h packs codes as they are stored.
struct E3M2 {
    static constexpr int bits = 6, exponent_bits = 3, mantissa_bits = 2, bias = 3;
    static constexpr int emax = 4;
    static constexpr float max = 28.0f;
    static constexpr uint32_t nan_code = 0x1F;
    static constexpr uint32_t first_special = 0x20;    // is past all codes, so that none is special
};

struct E2M3 {
    static constexpr int bits = 6, exponent_bits = 2, mantissa_bits = 3, bias = 1;
    static constexpr int emax = 2;
    static constexpr float max = 7.5f;
    static constexpr uint32_t nan_code = 0x1F;
    static constexpr uint32_t first_special = 0x20;
};

struct E2M1 {
    static constexpr int bits = 4, exponent_bits = 2, mantissa_bits = 1, bias = 1;
    static constexpr int emax = 2;
    static constexpr float max = 6.0f;
    static constexpr uint32_t nan_code = 0x7;
    static constexpr uint32_t first_special = 0x8;
};

// The elements that have codes.
constexpr Element kElements[] = {Element::E4M3, Element::E5M2, Element::E2M3, Element::E3M2, Element::E2M1};
constexpr int kElementCount = sizeof kElements / sizeof kElements[0];

// Returns body(value), the value being of the element's type. Without a call it returns an empty result for plain elements,
// which have no codes. There is no other way from an Element to its type.
template <class Body>
MXQ_HOST auto with_element(Element element, const Body& body) {
    switch (element) {
        case Element::F32:
        case Element::F16:
        case Element::Bf16: break;
        case Element::E4M3: return body(E4M3{});
        case Element::E5M2: return body(E5M2{});
        case Element::E2M3: return body(E2M3{});
        case Element::E3M2: return body(E3M2{});
        case Element::E2M1: return body(E2M1{});
    }
    return decltype(body(E4M3{}))();
}

// What follows from an element type: bits of its codes, and of its values as fp32.
template <class E>
struct ElementBits {
    static_assert(E::bits == 1 + E::exponent_bits + E::mantissa_bits);
    static_assert(E::bias == (1 << (E::exponent_bits - 1)) - 1);
    static_assert(float(1 << E::emax) <= E::max && E::max < float(2 << E::emax));
    static constexpr int shift = 23 - E::mantissa_bits;
    static constexpr uint32_t max = std::bit_cast<uint32_t>(E::max);
    // The fp32 number that code 0 would be if its exponent field were that of a normal number.
    static constexpr uint32_t zero_as_normal = uint32_t(127 - E::bias) << 23;
    static constexpr uint32_t sign = 1u << (E::bits - 1);
};

// Whether E has NaN.
template <class E>
constexpr bool has_nan = E::first_special < ElementBits<E>::sign;

// Returns the nearest code, ties to even: RNE_sat of docs/numerics.md. Values beyond max, Inf too, become +-max, and NaN
// becomes nan_code without a sign.
template <class E>
MXQ_HD uint32_t encode(float value) {
    using B = ElementBits<E>;
    const uint32_t bits = float_bits(value);
    const uint32_t magnitude = bits & kMagnitudeMask;
    const uint32_t clamped = magnitude < B::max ? magnitude : B::max;
    const uint32_t code = round_magnitude<E::mantissa_bits, E::bias>(clamped);
    return is_nan(value) ? E::nan_code : code | ((bits >> 31) * B::sign);
}

// Returns the exact value of a code. No fp32 subnormal occurs on the way, because some CPUs handle those slowly.
template <class E>
MXQ_HD float decode(uint32_t code) {
    using B = ElementBits<E>;
    const uint32_t magnitude = code & (B::sign - 1);
    const float normal = bits_float((magnitude << B::shift) + B::zero_as_normal);
    const float subnormal = multiply_rn(add_rn(normal, -bits_float(B::zero_as_normal)), 2.0f);
    uint32_t bits = float_bits(magnitude < (1u << E::mantissa_bits) ? subnormal : normal);
    if constexpr (has_nan<E>) {
        const uint32_t special = E::first_special == E::nan_code || magnitude != E::first_special ? kNanBits : kInfinityBits;
        bits = magnitude >= E::first_special ? special : bits;
    }
    return bits_float(bits | ((code & B::sign) << (32 - E::bits)));
}

#if defined(__CUDACC__)
// Converts E by the device's conversion of an 8-bit type: E itself, or a type with as many mantissa bits and more exponent
// bits. The same magnitude bits are 2^(bias of E - bias of Wide) times as large there, subnormals too, and round alike.
template <class E, class Wide>
struct ConversionBy {
    static_assert(std::is_same_v<Wide, E4M3> || std::is_same_v<Wide, E5M2>, "the device converts these types alone");
    static_assert(E::mantissa_bits == Wide::mantissa_bits && E::exponent_bits <= Wide::exponent_bits);
    static_assert(std::is_same_v<E, Wide> || !has_nan<E>, "another type's codes would be taken for NaN");
    static constexpr bool exists = true;
    static constexpr __nv_fp8_interpretation_t kind = std::is_same_v<Wide, E4M3> ? __NV_E4M3 : __NV_E5M2;
    static constexpr int exponent = Wide::bias - E::bias;
    static constexpr float to_wide = 1.0f / float(1 << exponent);
    static constexpr uint32_t from_wide = uint32_t(15 + exponent) << 10 | uint32_t(15 + exponent) << 26;  // in both halves
};

// An element that has no entry here is converted by encode and decode.
template <class E>
struct Conversion {
    static constexpr bool exists = false;
};
template <>
struct Conversion<E4M3> : ConversionBy<E4M3, E4M3> {};
template <>
struct Conversion<E5M2> : ConversionBy<E5M2, E5M2> {};
template <>
struct Conversion<E2M3> : ConversionBy<E2M3, E4M3> {
    static constexpr __nv_fp6_interpretation_t six_bits = __NV_E2M3;
};
template <>
struct Conversion<E3M2> : ConversionBy<E3M2, E5M2> {
    static constexpr __nv_fp6_interpretation_t six_bits = __NV_E3M2;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
// Returns a word as two F16 numbers.
__device__ __forceinline__ __half2 as_half2(uint32_t bits) { return __half2(__builtin_bit_cast(__half2_raw, bits)); }

#if MXQ_SMALL_FLOATS
// The instructions round as encode does, to nearest even. Values beyond the largest, Inf too, become the largest; NaN
// becomes the largest without a sign. All other signs are kept, also of zeros. The values of codes are exact in F16.

// Returns two codes of six bits, the first in the low byte.
template <class E>
__device__ __forceinline__ uint32_t encode_six_bit_pair(float first, float second) {
    return __nv_cvt_float2_to_fp6x2(make_float2(first, second), Conversion<E>::six_bits, cudaRoundNearest);
}

// Returns the values of two codes of six bits, the first in the low byte.
template <class E>
__device__ __forceinline__ float2 decode_six_bit_pair(uint32_t codes) {
    const auto pair = static_cast<__nv_fp6x2_storage_t>(codes);
    return __half22float2(__half2(__nv_cvt_fp6x2_to_halfraw2(pair, Conversion<E>::six_bits)));
}

// Returns two E2M1 codes in one byte, the first in the low nibble.
__device__ __forceinline__ uint32_t encode_e2m1_nibbles(float first, float second) {
    return __nv_cvt_float2_to_fp4x2(make_float2(first, second), __NV_E2M1, cudaRoundNearest);
}

// Returns two E2M1 codes, the first in the low byte.
__device__ __forceinline__ uint32_t encode_e2m1_pair(float first, float second) {
    const uint32_t nibbles = encode_e2m1_nibbles(first, second);
    return (nibbles | nibbles << 4) & 0x0F0F;
}

// Returns two E2M1 codes, the first in the low half of the word.
__device__ __forceinline__ uint32_t encode_e2m1_to_halves(float first, float second) {
    return (encode_e2m1_nibbles(first, second) * 0x1001) & 0x000F000F;
}

// Returns the values of two E2M1 codes, the first in the low byte.
__device__ __forceinline__ float2 decode_e2m1_pair(uint32_t codes) {
    const auto nibbles = static_cast<__nv_fp4x2_storage_t>(codes | codes >> 4);
    return __half22float2(__half2(__nv_cvt_fp4x2_to_halfraw2(nibbles, __NV_E2M1)));
}
#else
// Returns two codes of six bits, the first in the low byte, by way of the 8-bit type.
template <class E>
__device__ __forceinline__ uint32_t encode_six_bit_pair(float first, float second) {
    using W = Conversion<E>;
    const auto wide = [](float value) { return multiply_rn(fmaxf(fminf(value, E::max), -E::max), W::to_wide); };  // NaN: max
    const uint32_t codes = __nv_cvt_float2_to_fp8x2(make_float2(wide(first), wide(second)), __NV_SATFINITE, W::kind);
    return (codes & 0x1F1F) | ((codes >> 2) & 0x2020);
}

// Returns the values of two codes of six bits, the first in the low byte, by way of the 8-bit type.
template <class E>
__device__ __forceinline__ float2 decode_six_bit_pair(uint32_t codes) {
    using W = Conversion<E>;
    const uint32_t wide = codes + 3 * (codes & 0x2020);  // moves the sign up by two bits
    const __half2 shrunk(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(wide), W::kind));
    return __half22float2(__hmul2(shrunk, as_half2(W::from_wide)));  // exact
}

// Returns the code without a sign plus 0x2A in the lowest byte, and 1 in the next. The sum is that of round_magnitude: it
// holds the significand in its lowest bits and, from bit 22 on, twice its exponent field, which is at least 149.
__device__ __forceinline__ uint32_t round_e2m1(float value) {
    constexpr uint32_t one = 127u << 23, shift = 22u << 23;
    const float magnitude = fminf(fabsf(value), E2M1::max);  // NaN: max
    const uint32_t magic = __viaddmax_u32(float_bits(magnitude), shift, one + shift) & kInfinityBits;
    const uint32_t sum = float_bits(add_rn(magnitude, bits_float(magic)));
    return sum + (sum >> 22);
}

// Returns two E2M1 codes, the first in the low byte.
__device__ __forceinline__ uint32_t encode_e2m1_pair(float first, float second) {
    const uint32_t magnitudes = permute_bytes(round_e2m1(first), round_e2m1(second), 0x1140) - 0x01012A2Au;
    const uint32_t signs = permute_bytes(float_bits(first), float_bits(second), 0x00FB);  // copies each sign to eight bits
    return magnitudes | (signs & 0x0808);
}

// Returns the values of two E2M1 codes, the first in the low byte. The constants are the upper bytes of the eight magnitudes
// as F16; the lower bytes are zero.
__device__ __forceinline__ float2 decode_e2m1_pair(uint32_t codes) {
    const uint32_t magnitudes = permute_bytes(0x3E3C3800u, 0x46444240u, (codes << 4) & 0x7070);
    return __half22float2(as_half2(magnitudes | ((codes * 0x00101000u) & 0x80008000u)));
}
#endif
#endif

// Returns two codes, the first in the low byte, the second in the next: the bits of encode<E>. A NaN must be one that
// arithmetic made: those of the device have no sign.
template <class E>
__device__ __forceinline__ uint32_t encode_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if constexpr (std::is_same_v<E, E2M1>)
        return encode_e2m1_pair(first, second);
    else if constexpr (Conversion<E>::exists && E::bits == 6)
        return encode_six_bit_pair<E>(first, second);
    else if constexpr (Conversion<E>::exists)
        return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, Conversion<E>::kind);
    else
#endif
        return encode<E>(first) | (encode<E>(second) << 8);
}

// Returns the values of two codes, the first in the low byte, the second in the next. Each is exact in F16.
template <class E>
__device__ __forceinline__ float2 decode_pair(uint32_t codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if constexpr (std::is_same_v<E, E2M1>)
        return decode_e2m1_pair(codes);
    else if constexpr (Conversion<E>::exists && E::bits == 6)
        return decode_six_bit_pair<E>(codes);
    else if constexpr (Conversion<E>::exists)
        return __half22float2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), Conversion<E>::kind));
    else
#endif
        return make_float2(decode<E>(codes & 0xFF), decode<E>(codes >> 8 & 0xFF));
}
#endif

}  // namespace mxq
