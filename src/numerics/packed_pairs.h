// Decodes packed codes of six and four bits, two at a time, one in each half of a word. Codes are not unpacked to bytes
// first:
//
//     packed codes        as packing.h has them
//     window              two bytes for each half, so that codes i of both halves have the same bit offset
//     moved               sign, exponent and mantissa where BF16 or F16 has them: a number that is the code's value times
//                         2^(the code's bias - theirs), subnormals included
//
// A multiplication gives the value: exact in F16, in BF16 with its scale (decode_to_bf16.h). Codes i are those of two rows,
// or codes i and i + 4 of eight codes of one row.
#pragma once
#include "numerics/decode_to_bf16.h"
#include "numerics/packing.h"
#include "numerics/f16_pairs.h"

namespace mxq {

template <int bits>
constexpr int kWordsOfEight = (8 * bits + 31) / 32;  // that eight codes of a row fill

// Returns the bit offset of codes i in a window's halves; i is below 8 (codes of two rows, four bits) or 4.
template <int bits>
MXQ_HD constexpr int bit_in_window(int i) {
    static_assert(bits == 6 || bits == 4);
    return bits * i - i / 2 * 8;
}

// Returns the window of codes i of two rows, of each of which a word has eight codes of four bits, or four of six.
template <int bits>
MXQ_HD uint32_t window_of_lines(uint32_t first, uint32_t second, int i) {
#if defined(__CUDA_ARCH__)
    const uint32_t byte = uint32_t(i) / 2, next = (byte + 1) % 4;
    return permute_bytes(first, second, byte | next << 4 | (4 + byte) << 8 | (4 + next) << 12);
#else
    const int shift = i / 2 * 8;
    return (first >> shift & 0xFFFF) | (second >> shift & 0xFFFF) << 16;
#endif
}

// Returns the window of codes i and i + 4 of a row, i below 4, from the words of eight codes.
template <int bits>
MXQ_HD uint32_t window_of_line(const uint32_t (&words)[kWordsOfEight<bits>], int i) {
#if defined(__CUDA_ARCH__)
    if constexpr (bits == 6)
        return permute_bytes(words[0], words[1], i < 2 ? 0x4310 : 0x5421);
    else
        return i < 2 ? words[0] : permute_bytes(words[0], 0, 0x4321);
#else
    const uint64_t all = bits == 6 ? uint64_t(words[kWordsOfEight<bits> - 1]) << 32 | words[0] : words[0];
    const int shift = i / 2 * 8;
    return uint32_t(all >> shift & 0xFFFF) | uint32_t(all >> (4 * bits + shift) & 0xFFFF) << 16;
#endif
}

// Moves the codes at `bit` of both halves of a window to sign, exponent and mantissa of numbers with so many mantissa bits.
template <class E, int mantissa_bits>
MXQ_HD uint32_t move_codes(uint32_t window, int bit) {
    constexpr int lowest = mantissa_bits - E::mantissa_bits;  // bit of a moved code
    constexpr uint32_t magnitudes = (((1u << (E::bits - 1)) - 1) << lowest) * kOneInBothHalves;
    const uint32_t moved = bit <= lowest ? window << (lowest - bit) : window >> (bit - lowest);
    return ((window << (16 - E::bits - bit)) & kSignsOfBothHalves) | (moved & magnitudes);
}

// Returns the values under E8M0 scales as BF16; `factors` are bf16_e8m0_factor of the scales, which are not special.
template <class E>
MXQ_HD uint32_t decode_window_to_bf16(uint32_t window, int bit, uint32_t factors) {
    constexpr Bf16DecodeRule rule = bf16_decode_rule<E>();
    return multiply_bf16_pairs(multiply_bf16_pairs(move_codes<E, 7>(window, bit), rule.first_factor), factors);
}

// Returns the codes' values as F16, which has all of them.
template <class E>
MXQ_HD uint32_t decode_window_to_f16(uint32_t window, int bit) {
    constexpr uint32_t power = uint32_t(15 + 15 - E::bias) << 10;  // 2^(15 - bias)
    return multiply_f16_pairs(move_codes<E, 10>(window, bit), power * kOneInBothHalves);
}

// Returns whether F16 has an E8M0 scale: 2^-24 to 2^15.
MXQ_HD bool has_f16(uint32_t scale) { return scale - (127 - 24) < 40; }

// Returns an E8M0 scale that F16 has, in both halves. A code times it is rounded once.
MXQ_HD uint32_t f16_of_e8m0(uint32_t scale) {
    const uint32_t bits = scale > 127 - 15 ? (scale - (127 - 15)) << 10 : 1u << (scale - (127 - 24));
    return bits * kOneInBothHalves;
}

#if defined(__CUDACC__)
// Returns the codes' values, the first in the low half.
template <class E>
__device__ __forceinline__ float2 decode_window(uint32_t window, int bit) {
    return __half22float2(__half2(__builtin_bit_cast(__half2_raw, decode_window_to_f16<E>(window, bit))));
}
#endif

}  // namespace mxq
