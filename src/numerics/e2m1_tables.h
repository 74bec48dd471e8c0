// Decodes eight E2M1 codes of a word by tables: one instruction looks up a byte of the numbers of four codes.
//
//     word            c7 c6 c5 c4 c3 c2 c1 c0
//     upper bytes     of the numbers of c3 .. c0 and of c7 .. c4, a byte each, then with the codes' signs on top
//     pairs           c1 c0    c3 c2    c5 c4    c7 c6: F16 numbers, the first in the low half
//
// The lower bytes of the numbers are zero.
#pragma once
#include "numerics/decode_to_bf16.h"

namespace mxq {

// Returns four of the eight bytes of `low` and `high`. Digit i of the selector says which becomes byte i. With the top bit
// of the digit set, the byte's top bit is copied to all of its bits.
MXQ_HD uint32_t select_bytes(uint32_t low, uint32_t high, uint32_t selector) {
#if defined(__CUDA_ARCH__)
    return permute_bytes(low, high, selector);
#else
    const uint64_t bytes = uint64_t(high) << 32 | low;
    uint32_t selected = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t digit = selector >> (4 * i), byte = uint32_t(bytes >> (digit % 8 * 8)) & 0xFF;
        selected |= (digit & 8 ? byte / 0x80 * 0xFF : byte) << (8 * i);
    }
    return selected;
#endif
}

// Holds a byte of a table for each of eight E2M1 codes: first those of codes 0 to 3, then of 4 to 7.
struct BytesOfEight {
    uint32_t bytes[2];

    // Looks up the bytes of magnitudes 0 to 3 in `low`, of 4 to 7 in `high`.
    MXQ_HD BytesOfEight(uint32_t word, uint32_t low, uint32_t high) {
        const uint32_t magnitudes = word & 0x77777777u;
        bytes[0] = select_bytes(low, high, magnitudes);
        bytes[1] = select_bytes(low, high, magnitudes >> 16);
    }
    // Puts the signs of the codes on top.
    MXQ_HD void add_signs(uint32_t word) {
        const uint32_t even = word << 4;  // has the signs of codes 0, 2, 4, 6 on top of its bytes, word those of 1, 3, 5, 7
        bytes[0] |= select_bytes(even, word, 0xD9C8) & 0x80808080u;
        bytes[1] |= select_bytes(even, word, 0xFBEA) & 0x80808080u;
    }
};

// Decodes eight codes to F16.
MXQ_HD void decode_e2m1_to_f16(uint32_t word, uint32_t (&pairs)[4]) {
    BytesOfEight upper(word, 0x3E3C3800, 0x46444240);
    upper.add_signs(word);
    for (int half = 0; half < 2; half++) {
        pairs[2 * half] = select_bytes(upper.bytes[half], 0, 0x1404);
        pairs[2 * half + 1] = select_bytes(upper.bytes[half], 0, 0x3424);
    }
}

}  // namespace mxq
