// Decodes sixteen codes at a time to fp32, from codes as they are stored or from a byte each. With F16C it goes by way of
// F16, in intrinsics, because GCC's vectoriser does not find that conversion; without F16C it calls decode().
//
//     stored     8 bits: 16 bytes      6 bits: 12 bytes      4 bits: 8 bytes
//     lanes      sixteen words of 16 bits, each with its code at the top
//     F16        each word with sign and magnitude moved to where F16 has them: 2^(bias - 15) times the value
//     floats     the exact values; a NaN has any bits
#pragma once
#include <cstring>

#include "core/layout.h"
#include "numerics/element.h"
#include "numerics/packing.h"
#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

namespace mxq::cpu {
namespace {

// The fewest codes that share a scale in any format.
constexpr int64_t kSixteen = kNvBlock;

#if defined(__F16C__) && defined(__AVX2__)
struct SixteenFloats {
    __m256 low, high;
};

MXQ_HD SixteenFloats load_sixteen(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
MXQ_HD void store_sixteen(const SixteenFloats& floats, float* to) {
    _mm256_storeu_ps(to, floats.low);
    _mm256_storeu_ps(to + 8, floats.high);
}
MXQ_HD SixteenFloats times(const SixteenFloats& a, const SixteenFloats& b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
MXQ_HD SixteenFloats sixteen_of(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }

// Returns bytes picked from the same 16 bytes for both halves of 128 bits: for each lane the pair of bytes that holds its
// code.
MXQ_HD __m256i shuffle_twice(__m128i bytes, __m256i order) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), order);
}

// Returns the lanes of sixteen codes as they are stored.
template <int bits>
MXQ_HD __m256i lanes_of_stored(const uint8_t* from) {
    if constexpr (bits == 8) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        return _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
    } else if constexpr (bits == 6) {
        uint32_t last;
        memcpy(&last, from + 8, sizeof last);
        const __m128i bytes = _mm_insert_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)), int(last), 2);
        const __m256i order = _mm256_setr_epi8(0, 1, 0, 1, 1, 2, 1, 2, 3, 4, 3, 4, 4, 5, 4, 5,  //
                                               6, 7, 6, 7, 7, 8, 7, 8, 9, 10, 9, 10, 10, 11, 10, 11);
        const __m256i to_top = _mm256_set1_epi64x(int64_t(0x0001004000100400));  // codes start at bits 0, 6, 4 and 10
        return _mm256_mullo_epi16(shuffle_twice(bytes, order), to_top);
    } else {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
        const __m256i order = _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1,  //
                                               4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1);
        const __m256i to_top = _mm256_set1_epi32(0x01001000);  // codes start at bits 0 and 4
        return _mm256_mullo_epi16(shuffle_twice(bytes, order), to_top);
    }
}

// Returns the lanes of sixteen codes that are a byte each.
template <int bits>
MXQ_HD __m256i lanes_of_bytes(const uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 16 - bits);
}

// The bits of a code's magnitude where F16 has them.
template <class E>
constexpr int kMagnitudeOfHalf = 0x7FFF & ((0x7FFF >> (16 - E::bits)) << (10 - E::mantissa_bits));

// Returns sixteen codes as F16 numbers of 2^(bias - 15) times their values. E fits into F16 but for the bias, and NaN of an
// E without infinities becomes a number.
template <class E>
MXQ_HD __m256i halves_of_numbers(__m256i lanes) {
    const __m256i moved = _mm256_srai_epi16(lanes, 5 - E::exponent_bits);
    return _mm256_and_si256(moved, _mm256_set1_epi16(short(0x8000 | kMagnitudeOfHalf<E>)));
}

// Returns sixteen codes as halves_of_numbers() does, and NaN as NaN.
template <class E>
MXQ_HD __m256i halves_of_lanes(__m256i lanes) {
    constexpr int magnitude = kMagnitudeOfHalf<E>;
    const __m256i halves = halves_of_numbers<E>(lanes);
    if constexpr (E::first_special == E::nan_code && has_nan<E>) {  // all ones is E's NaN, but would be a number as F16
        const __m256i specials = _mm256_set1_epi16(short(magnitude));
        return _mm256_or_si256(halves, _mm256_cmpeq_epi16(_mm256_and_si256(halves, specials), specials));
    }
    return halves;
}

// Returns the values of sixteen codes. The conversion from F16 to fp32 is one instruction, which is fast for subnormals too.
template <class E>
MXQ_HD SixteenFloats floats_of_lanes(__m256i lanes) {
    const __m256i halves = halves_of_lanes<E>(lanes);
    const SixteenFloats floats = {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                                  _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
    return E::bias == 15 ? floats : times(floats, sixteen_of(float(1 << (15 - E::bias))));
}

// Decodes sixteen codes as they are stored.
template <class E>
MXQ_HD SixteenFloats decode_stored_16(const uint8_t* from) {
    return floats_of_lanes<E>(lanes_of_stored<E::bits>(from));
}
// Decodes sixteen codes that are a byte each.
template <class E>
MXQ_HD SixteenFloats decode_bytes_16(const uint8_t* from) {
    return floats_of_lanes<E>(lanes_of_bytes<E::bits>(from));
}

// Unpacks sixteen codes as they are stored to a byte each.
template <int bits>
MXQ_HD void unpack_stored_16(const uint8_t* from, uint8_t* to) {
    const __m256i words = _mm256_srli_epi16(lanes_of_stored<bits>(from), 16 - bits);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}
#else
struct SixteenFloats {
    float values[kSixteen];
};

MXQ_HD SixteenFloats load_sixteen(const float* from) {
    SixteenFloats floats;
    memcpy(floats.values, from, sizeof floats.values);
    return floats;
}
MXQ_HD void store_sixteen(const SixteenFloats& floats, float* to) { memcpy(to, floats.values, sizeof floats.values); }
MXQ_HD SixteenFloats times(const SixteenFloats& a, const SixteenFloats& b) {
    SixteenFloats product;
    for (int i = 0; i < kSixteen; i++) product.values[i] = multiply_rn(a.values[i], b.values[i]);
    return product;
}
MXQ_HD SixteenFloats sixteen_of(float value) {
    SixteenFloats floats;
    for (float& each : floats.values) each = value;
    return floats;
}

// Unpacks sixteen codes as they are stored to a byte each.
template <int bits>
MXQ_HD void unpack_stored_16(const uint8_t* from, uint8_t* to) {
    uint32_t packed[bits / 2], codes[4];
    memcpy(packed, from, sizeof packed);
    unpack_16<bits>(packed, codes);
    memcpy(to, codes, sizeof codes);
}

// Decodes sixteen codes that are a byte each.
template <class E>
MXQ_HD SixteenFloats decode_bytes_16(const uint8_t* from) {
    SixteenFloats floats;
    uint32_t words[kSixteen];
    for (int i = 0; i < kSixteen; i++) words[i] = from[i];
    for (int i = 0; i < kSixteen; i++) floats.values[i] = decode<E>(words[i]);
    return floats;
}
// Decodes sixteen codes as they are stored.
template <class E>
MXQ_HD SixteenFloats decode_stored_16(const uint8_t* from) {
    uint8_t bytes[kSixteen];
    unpack_stored_16<E::bits>(from, bytes);
    return decode_bytes_16<E>(bytes);
}
#endif

// Returns where sixteen stored codes may be read that begin with `count` codes of `from`: `from` itself, or a copy of the
// codes that is filled up with codes 0.
template <int bits>
MXQ_HD const uint8_t* whole_sixteen(const uint8_t* from, int64_t count, uint8_t (&copy)[kSixteen]) {
    if (count >= kSixteen) return from;
    memset(copy, 0, sizeof copy);
    memcpy(copy, from, size_t(packed_bytes(count, bits)));
    return copy;
}

}  // namespace
}  // namespace mxq::cpu
