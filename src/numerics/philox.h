// Random bytes for stochastic rounding, and the rounding. Philox4x32-10 is a function of a key and a counter alone, so that
// every thread makes its own bytes and all implementations make the same.
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

// Splits the product of two words into its upper and its lower half.
MXQ_HD void multiply_wide(uint32_t a, uint32_t b, uint32_t& high, uint32_t& low) {
#if defined(__CUDA_ARCH__)
    asm("{ .reg .b64 p; mul.wide.u32 p, %2, %3; mov.b64 {%0, %1}, p; }" : "=r"(low), "=r"(high) : "r"(a), "r"(b));
#else
    const uint64_t product = uint64_t(a) * b;
    high = uint32_t(product >> 32);
    low = uint32_t(product);
#endif
}

// The keys of all rounds, made once for many counters: two words a round.
struct PhiloxKeys {
    static constexpr int rounds = 10;
    uint32_t words[2 * rounds];

    // Returns word i, `key` being word i % 2 of the PhiloxKey.
    MXQ_HD static uint32_t word(uint32_t key, int i) {
        return key + (i % 2 == 0 ? 0x9E3779B9u : 0xBB67AE85u) * uint32_t(i / 2);
    }
};

// Returns the four random words of a counter, key_of(i) being word i of the keys of all rounds.
template <class KeyOf>
MXQ_HD PhiloxWords philox_by(const KeyOf& key_of, const PhiloxCounter& counter) {
    uint32_t c0 = counter.words[0], c1 = counter.words[1], c2 = counter.words[2], c3 = counter.words[3];
    for (int round = 0; round < PhiloxKeys::rounds; ++round) {
        uint32_t first_high, first_low, second_high, second_low;
        multiply_wide(c0, 0xD2511F53u, first_high, first_low);
        multiply_wide(c2, 0xCD9E8D57u, second_high, second_low);
        c0 = second_high ^ c1 ^ key_of(2 * round);
        c1 = second_low;
        c2 = first_high ^ c3 ^ key_of(2 * round + 1);
        c3 = first_low;
    }
    return {{c0, c1, c2, c3}};
}

// Returns them where the keys are known.
MXQ_HD PhiloxWords philox(const PhiloxKeys& keys, const PhiloxCounter& counter) {
    return philox_by([&](int i) { return keys.words[i]; }, counter);
}

// Returns them where keys are computed in every round: only so do the host's loops over counters become vectors.
MXQ_HD PhiloxWords philox(const PhiloxKey& key, const PhiloxCounter& counter) {
    return philox_by([&](int i) { return PhiloxKeys::word(key.words[i % 2], i); }, counter);
}

// Returns the key of a seed.
MXQ_HD PhiloxKey philox_key(uint64_t seed) { return {{uint32_t(seed), uint32_t(seed >> 32)}}; }

// Returns the counter of 16 elements: `row` is a row of the operand as stored, and `chunk` counts 16 elements in it.
MXQ_HD PhiloxCounter philox_counter(uint32_t chunk, uint32_t row, bool columnwise, uint64_t offset) {
    return {{chunk, row | uint32_t(columnwise) << 31, uint32_t(offset), uint32_t(offset >> 32)}};
}

// Returns the random byte of element `i` of a chunk.
MXQ_HD uint32_t philox_byte(const PhiloxWords& random, int i) { return random.words[i / 4] >> i % 4 * 8 & 0xFF; }

// Stochastic rounding takes the upper of the two E2M1 values around a magnitude v if 256 p > r + 0.5. p is v's position
// between them, from 0 to 1, and r the random byte. Magnitudes beyond 6, and NaN, have the code that encode<E2M1> gives.
//
// The bits of 2 v, for v from 1 on, count codes in steps of 2^22, from code 2 at v = 1 on; the 22 bits below are p. The bits
// of 1 + v, for v below 1, do so from code 0 on. Both are the bits of v + max(v, 1). What this sum cuts off matters to the
// comparison only by being there, so the sum is rounded up. Adding 255 - r then carries into the code where p is large enough:
//
//     bits of the sum, shifted by two     ccc pppppppp pppppppp pppppp00
//     what is added                           7..r...0 01111111 11111111       and 2 at the top, which removes the bits of 1.0
//
// Returns the code of an element times its multiplier, `r` being the random byte.
MXQ_HOST uint32_t stochastic_e2m1(float scaled, uint32_t r) {
    const uint32_t bits = float_bits(scaled) & kMagnitudeMask;
    const float magnitude = bits_float(bits < ElementBits<E2M1>::max ? bits : ElementBits<E2M1>::max);
    const float addend = magnitude > 1 ? magnitude : 1, sum = add_rn(magnitude, addend);
    const uint32_t place = float_bits(sum) + (add_rn(sum, -addend) < magnitude);
    const uint32_t code = (place << 2) + (0x02007FFFu | (255 - r) << 16);
    return (code >> 24 & 7) | (is_nan(scaled) ? 0 : float_bits(scaled) >> 31 << 3);
}

#if defined(__CUDACC__)
// Two elements of a word go through F16. Nine bits of p are enough for the comparison 512 p > 2 r + 1, if they tell whether
// anything was cut off. They do: a number is above the odd value 2 r + 1 where the next smaller number in fp32 reaches that
// value, cut or not. Times 2^-14 its F16 bits are those of a code and p, also below 1, where F16 is subnormal:
//
//     bits of F16              s000cccp pppppppp
//     and 511 - 2 r is added   -------7 ..r....1      carries into the code where p is large enough
//
// Returns the F16 bits of two scaled elements, signs among them. A NaN must be one that arithmetic made.
__device__ __forceinline__ uint32_t stochastic_places(float first, float second) {
    constexpr float before = 0x1.fffffep-15f;  // 2^-14, less its last place
    uint32_t places;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(places) : "f"(__fmul_rz(second, before)), "f"(__fmul_rz(first, before)));
    return places;
}

// Returns the code and p of magnitudes up to 6, which NaN counts as.
__device__ __forceinline__ uint32_t clamped_places(uint32_t places) {
    uint32_t least;
    asm("{ .reg .b32 m; abs.f16x2 m, %1; min.f16x2 %0, m, %2; }" : "=r"(least) : "r"(places), "r"(0x0E000E00));
    return least;
}

// Returns codes of four elements in bits 9 to 11 and 13 to 15 of both halves. `low` and `high` have code and p of elements
// 0 and 2, 1 and 3.
__device__ __forceinline__ uint32_t stochastic_four(uint32_t low, uint32_t high, uint32_t random) {
    constexpr uint32_t keys = 0x01FF01FF;
    const uint32_t even = random & 0x00FF00FFu, odd = permute_bytes(random, 0, 0x4341);
    const uint32_t lows = clamped_places(low) + keys - even * 2;
    const uint32_t highs = clamped_places(high) * 16 + keys * 16 - odd * 32;
    return select_bits(0xF000F000u, highs, lows);
}

// Returns the codes of eight elements times their multiplier, packed, under the bytes of two random words.
__device__ __forceinline__ uint32_t stochastic_e2m1_codes(const float* values, float multiplier, const uint32_t* random) {
    uint32_t low[2], high[2], fours[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float scaled[4];
#pragma unroll
        for (int j = 0; j < 4; j++) scaled[j] = multiply_rn(values[4 * i + j], multiplier);
        low[i] = stochastic_places(scaled[0], scaled[2]);
        high[i] = stochastic_places(scaled[1], scaled[3]);
        fours[i] = stochastic_four(low[i], high[i], random[i]);
    }
    const uint32_t codes = permute_bytes(fours[0], fours[1], 0x7531) >> 1;
    const uint32_t signs = select_bits(0x80808080u, permute_bytes(high[0], high[1], 0xFDB9), permute_bytes(low[0], low[1], 0xFDB9));
    return select_bits(0x77777777u, codes, signs);
}
#endif

}  // namespace mxq
