// Packs codes of eight, six or four bits as they are stored, and unpacks them to a byte each.
//
//     four codes, one word    c3       c2       c1       c0          a byte each, upper bits zero
//     8 bits                  33333333 22222222 11111111 00000000
//     6 bits                           33333322 22221111 11000000    element i in bits 6i..6i+5
//     4 bits                                    33332222 11110000    the even element in the low nibble
//
// Sixteen codes fill bits / 2 whole words. A row is cut after ceil(count * bits / 8) bytes, its unused bits zero.
#pragma once
#include "numerics/bits.h"

namespace mxq {

// Returns how many bytes `count` codes fill.
MXQ_HD constexpr int64_t packed_bytes(int64_t count, int bits) { return (count * bits + 7) / 8; }

// Packs four codes, a byte each, to the lowest 4 * bits bits of a word whose other bits are zero.
template <int bits>
MXQ_HD uint32_t pack_4(uint32_t codes) {
    static_assert(bits == 8 || bits == 6 || bits == 4);
    if constexpr (bits == 8) return codes;
    constexpr uint32_t first = ((1u << bits) - 1) * 0x00010001u, two = (1u << 2 * bits) - 1;
    const uint32_t pairs = select_bits(first, codes, codes >> (8 - bits));  // a pair in the low bits of each half
    return select_bits(two, pairs, pairs >> (16 - 2 * bits));
}

// Unpacks four codes from the lowest 4 * bits bits of a word to a byte each; the other bits are ignored.
template <int bits>
MXQ_HD uint32_t unpack_4(uint32_t packed) {
    static_assert(bits == 8 || bits == 6 || bits == 4);
    if constexpr (bits == 8) return packed;
    constexpr uint32_t each = ((1u << bits) - 1) * 0x01010101u, two = (1u << 2 * bits) - 1;
    const uint32_t pairs = select_bits(two, packed, packed << (16 - 2 * bits));
    return select_bits(0x00FF00FFu, pairs, pairs << (8 - bits)) & each;
}

// Packs eight codes of four bits to a word: four a byte each in `low`, the next four in `high`.
MXQ_HD uint32_t pack_nibbles(uint32_t low, uint32_t high) {
#if defined(__CUDA_ARCH__)
    return permute_bytes(low * 0x110, high * 0x110, 0x7531);  // bytes 1 and 3 of each product hold a pair
#else
    return pack_4<4>(low) | pack_4<4>(high) << 16;
#endif
}

// Unpacks a word of eight codes of four bits to a byte each: four in `low`, the next four in `high`.
MXQ_HD void unpack_nibbles(uint32_t packed, uint32_t& low, uint32_t& high) {
#if defined(__CUDA_ARCH__)
    const uint32_t even = packed & 0x0F0F0F0Fu, odd = packed >> 4 & 0x0F0F0F0Fu;
    low = permute_bytes(even, odd, 0x5140);
    high = permute_bytes(even, odd, 0x7362);
#else
    low = unpack_4<4>(packed);
    high = unpack_4<4>(packed >> 16);
#endif
}

// Packs sixteen codes, four to a word, to bits / 2 whole words.
template <int bits>
MXQ_HD void pack_16(const uint32_t (&codes)[4], uint32_t (&packed)[bits / 2]) {
    if constexpr (bits == 8) {
        for (int i = 0; i < 4; ++i) packed[i] = codes[i];
    } else if constexpr (bits == 6) {
        const uint32_t second = pack_4<6>(codes[1]), third = pack_4<6>(codes[2]);
        packed[0] = pack_4<6>(codes[0]) | second << 24;
        packed[1] = second >> 8 | third << 16;
        packed[2] = third >> 16 | pack_4<6>(codes[3]) << 8;
    } else {
        for (int i = 0; i < 2; ++i) packed[i] = pack_nibbles(codes[2 * i], codes[2 * i + 1]);
    }
}

// Unpacks bits / 2 words to sixteen codes, four to a word.
template <int bits>
MXQ_HD void unpack_16(const uint32_t (&packed)[bits / 2], uint32_t (&codes)[4]) {
    if constexpr (bits == 8) {
        for (int i = 0; i < 4; ++i) codes[i] = packed[i];
    } else if constexpr (bits == 6) {
        codes[0] = unpack_4<6>(packed[0]);
        codes[1] = unpack_4<6>(packed[0] >> 24 | packed[1] << 8);
        codes[2] = unpack_4<6>(packed[1] >> 16 | packed[2] << 16);
        codes[3] = unpack_4<6>(packed[2] >> 8);
    } else {
        for (int i = 0; i < 2; ++i) unpack_nibbles(packed[i], codes[2 * i], codes[2 * i + 1]);
    }
}

// Returns code `i` of a row. Reads no byte but those that hold it.
template <int bits>
MXQ_HD uint32_t load_code(const uint8_t* row, int64_t i) {
    const int64_t byte = i * bits / 8;
    const int shift = int(i * bits % 8);
    const uint32_t low = uint32_t(row[byte]) >> shift;
    const uint32_t high = shift + bits > 8 ? uint32_t(row[byte + 1]) << (8 - shift) : 0;
    return (low | high) & ((1u << bits) - 1);
}

}  // namespace mxq
