// Random bytes for stochastic rounding: Philox4x32-10, a function of a key and a counter alone, so that every thread makes
// its own and all implementations make the same.
//
//     counter  chunk | row, columnwise | offset low | offset high        one per 16 elements, as stored
//     words    w0: elements 0..3   w1: 4..7   w2: 8..11   w3: 12..15     a byte each, the low byte first
#pragma once
#include "numerics/bits.h"
#include "numerics/element.h"

namespace mxq {

struct PhiloxKey {
    uint32_t words[2];
};
struct PhiloxCounter {
    uint32_t words[4];
};
struct PhiloxWords {
    uint32_t words[4];
};

// The halves of a product.
MXQ_HD void multiply_wide(uint32_t a, uint32_t b, uint32_t& high, uint32_t& low) {
#if defined(__CUDA_ARCH__)
    asm("{ .reg .b64 p; mul.wide.u32 p, %2, %3; mov.b64 {%0, %1}, p; }" : "=r"(low), "=r"(high) : "r"(a), "r"(b));
#else
    const uint64_t product = uint64_t(a) * b;
    high = uint32_t(product >> 32);
    low = uint32_t(product);
#endif
}

// The keys of all rounds: what can be made once for many counters.
struct PhiloxKeys {
    static constexpr int rounds = 10;
    uint32_t words[2 * rounds];

    // Word i for the key that word i % 2 of which is `key`.
    MXQ_HD static uint32_t word(uint32_t key, int i) {
        return key + (i % 2 == 0 ? 0x9E3779B9u : 0xBB67AE85u) * uint32_t(i / 2);
    }
};

MXQ_HD PhiloxWords philox(const PhiloxKeys& keys, PhiloxCounter counter) {
    uint32_t c0 = counter.words[0], c1 = counter.words[1], c2 = counter.words[2], c3 = counter.words[3];
    for (int round = 0; round < PhiloxKeys::rounds; ++round) {
        uint32_t first_high, first_low, second_high, second_low;
        multiply_wide(c0, 0xD2511F53u, first_high, first_low);
        multiply_wide(c2, 0xCD9E8D57u, second_high, second_low);
        c0 = second_high ^ c1 ^ keys.words[2 * round];
        c1 = second_low;
        c2 = first_high ^ c3 ^ keys.words[2 * round + 1];
        c3 = first_low;
    }
    return {{c0, c1, c2, c3}};
}

MXQ_HD PhiloxWords philox(PhiloxKey key, PhiloxCounter counter) {
    uint32_t c0 = counter.words[0], c1 = counter.words[1], c2 = counter.words[2], c3 = counter.words[3];
    for (int round = 0; round < PhiloxKeys::rounds; ++round) {  // without the keys in memory: host loops become vectors
        uint32_t first_high, first_low, second_high, second_low;
        multiply_wide(c0, 0xD2511F53u, first_high, first_low);
        multiply_wide(c2, 0xCD9E8D57u, second_high, second_low);
        c0 = second_high ^ c1 ^ PhiloxKeys::word(key.words[0], 2 * round);
        c1 = second_low;
        c2 = first_high ^ c3 ^ PhiloxKeys::word(key.words[1], 2 * round + 1);
        c3 = first_low;
    }
    return {{c0, c1, c2, c3}};
}

MXQ_HD PhiloxKey philox_key(uint64_t seed) { return {{uint32_t(seed), uint32_t(seed >> 32)}}; }

// Row of the operand as stored, chunk of 16 elements in it.
MXQ_HD PhiloxCounter philox_counter(uint32_t chunk, uint32_t row, bool columnwise, uint64_t offset) {
    return {{chunk, row | uint32_t(columnwise) << 31, uint32_t(offset), uint32_t(offset >> 32)}};
}

// The byte of element `i` of the chunk.
MXQ_HD uint32_t philox_byte(const PhiloxWords& random, int i) { return random.words[i / 4] >> i % 4 * 8 & 0xFF; }

// Stochastic rounding: of the two E2M1 values around a magnitude v the upper one if 256 p > r + 0.5, where p is v's place
// between them. Beyond 6 and NaN as in encode<E2M1>.
//
// From 1 up, the bits of 2 v count codes, 2^22 each, from code 2 at 1 on, and what is below is p; below 1 so do those of 1 + v,
// from code 0 on: together those of v + max(v, 1). What this sum cuts off can only matter to the comparison by being there,
// so it is rounded up. Then one addition of what r lacks to 255 carries where p is large enough:
//
//     bits of the sum, two places up     ccc pppppppp pppppppp pppppp00
//     key                                    7..r...0 01111111 11111111       and 2, which takes away those of 1.0
MXQ_HD uint32_t e2m1_place(float magnitude) {
    const float addend = magnitude > 1 ? magnitude : 1;
#if defined(__CUDA_ARCH__)
    return float_bits(__fadd_ru(magnitude, addend));
#else
    const float sum = add_rn(magnitude, addend);
    return float_bits(sum) + (add_rn(sum, -addend) < magnitude);
#endif
}

// Of byte `i` of a word of which every bit is flipped.
MXQ_HD uint32_t stochastic_key(uint32_t flipped, int i) {
#if defined(__CUDA_ARCH__)
    uint32_t rest = 0x02007FFF;
    asm("" : "+r"(rest));  // in a register, or each of the permutations would be
    return permute_bytes(flipped, rest, 0x7054 | i << 8);
#else
    constexpr uint32_t rest = 0x02007FFF;
    return rest | (flipped >> i % 4 * 8 & 0xFF) << 16;
#endif
}

// The code's magnitude in the low bits of the upper byte, its sign in the highest. (On the device a NaN must be one that
// arithmetic made.)
MXQ_HD uint32_t stochastic_e2m1_byte(float scaled, uint32_t key) {
    constexpr uint32_t sign = 1u << 31;
#if defined(__CUDA_ARCH__)
    const float clamped = fminf(fabsf(scaled), E2M1::max);
    return ((e2m1_place(clamped) << 2) + key) | (float_bits(scaled) & sign);
#else
    const uint32_t bits = float_bits(scaled) & kMagnitudeMask;
    const uint32_t clamped = bits < ElementBits<E2M1>::max ? bits : ElementBits<E2M1>::max;
    return ((e2m1_place(bits_float(clamped)) << 2) + key) | (is_nan(scaled) ? 0 : float_bits(scaled) & sign);
#endif
}

// The code of an element times its multiplier.
MXQ_HD uint32_t stochastic_e2m1(float scaled, uint32_t r) {
    const uint32_t code = stochastic_e2m1_byte(scaled, stochastic_key(255 - r, 0));
    return (code >> 24 & 7) | code >> 31 << 3;
}

}  // namespace mxq
