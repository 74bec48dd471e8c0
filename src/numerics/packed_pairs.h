// Decodes packed E2M1 codes of two rows, two at a time, one in each half of a word. Codes are not unpacked to bytes first:
//
//     packed codes        as packing.h has them, eight of each row in a word
//     window              two bytes for each half, so that codes i of both halves have the same bit offset
//     moved               sign, exponent and mantissa where F16 has them: 2^-14 times the code's value, subnormals included
#pragma once
#include "numerics/decode_to_bf16.h"

namespace mxq {

// Returns the window of codes i of two rows.
MXQ_HD uint32_t window_of_lines(uint32_t first, uint32_t second, int i) {
#if defined(__CUDA_ARCH__)
    const uint32_t byte = uint32_t(i) / 2, next = (byte + 1) % 4;
    return permute_bytes(first, second, byte | next << 4 | (4 + byte) << 8 | (4 + next) << 12);
#else
    const int shift = i / 2 * 8;
    return (first >> shift & 0xFFFF) | (second >> shift & 0xFFFF) << 16;
#endif
}

// Returns codes i of two rows as F16 numbers of 2^-14 times their values, that of the first row in the low half.
MXQ_HD uint32_t move_e2m1_to_f16(uint32_t first, uint32_t second, int i) {
    constexpr int lowest = 9;  // bit of a moved code
    constexpr uint32_t magnitudes = 0x0E000E00;
    const uint32_t window = window_of_lines(first, second, i);
    const int bit = i % 2 * 4;
    return ((window << (12 - bit)) & kSignsOfBothHalves) | ((window << (lowest - bit)) & magnitudes);
}

}  // namespace mxq
