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

MXQ_HD PhiloxWords philox(PhiloxKey key, PhiloxCounter counter) {
    uint32_t k0 = key.words[0], k1 = key.words[1];
    uint32_t c0 = counter.words[0], c1 = counter.words[1], c2 = counter.words[2], c3 = counter.words[3];
    for (int round = 0; round < 10; ++round) {
        const uint64_t first = uint64_t(c0) * 0xD2511F53u, second = uint64_t(c2) * 0xCD9E8D57u;
        c0 = uint32_t(second >> 32) ^ c1 ^ k0;
        c1 = uint32_t(second);
        c2 = uint32_t(first >> 32) ^ c3 ^ k1;
        c3 = uint32_t(first);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
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

// The E2M1 code of an element times its multiplier: of the two values around it the upper one if 256 p > r + 0.5, where p is
// its place between them. Beyond 6 and NaN as in encode<E2M1>.
MXQ_HD uint32_t stochastic_e2m1(float scaled, uint32_t r) {
    constexpr uint32_t one = 127u << 23, code_of_one = 2u << 22;
    const uint32_t sign = is_nan(scaled) ? 0 : float_bits(scaled) >> 31;
    const uint32_t bits = float_bits(scaled) & kMagnitudeMask;
    const uint32_t clamped = bits < ElementBits<E2M1>::max ? bits : ElementBits<E2M1>::max;
    // From 1 up a value's bits past 22 count codes, and those below are p. So are those of 1 + v, for v below 1: what the
    // sum cuts off can only matter to the comparison by being there, so it is rounded up.
    const float value = bits_float(clamped);
    const float sum = add_rn(value, 1.0f);
    const uint32_t rounded_up = float_bits(sum) + (add_rn(sum, -1.0f) < value);
    const uint32_t place = clamped < one ? rounded_up - one : clamped - one + code_of_one;
    const uint32_t threshold = (r << 14) + (1u << 13);
    const uint32_t code = (place + ((1u << 22) - 1 - threshold)) >> 22;
    return code | sign * ElementBits<E2M1>::sign;
}

}  // namespace mxq
