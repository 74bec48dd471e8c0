// Rebasing replaces the scales s of blocks of 32 codes by one scale S for 128 codes, or for 128 rows of 128, and changes
// the codes accordingly. FP8 tensor cores take such scales:
//
//     S      the largest scale of the tile below 255 (0 where there is none), less the type's headroom; at least 1, so that no
//            fp32 scale is subnormal
//     code'  RNE_sat(value(code) * 2^(s - S)); NaN under s = 255
//
// E5M2 stays E5M2, and its Inf stays Inf. All other types become E4M3, which has all of their values. The headroom is the
// power of two by which E4M3's largest value is above theirs; small values use it. A code that stays normal keeps its
// value; the others are off by at most half a step of the subnormals.
//
// Values are multiplied in F16. Products below 2^-24 are rounded there already, but are far below half of the least code, so
// that nothing is rounded twice. E5M2 reaches further down than F16's powers of two, and takes two factors where one is not
// enough.
#pragma once
#include <algorithm>
#include <type_traits>

#include "numerics/e8m0.h"
#include "numerics/element.h"

namespace mxq {

// The type that codes of E are moved to.
template <class E>
using RebasedElement = std::conditional_t<std::is_same_v<E, E5M2>, E5M2, E4M3>;

// Whether that type has all values of E, but for a power of two.
template <class E>
constexpr bool can_rebase = E::mantissa_bits <= RebasedElement<E>::mantissa_bits &&
                            E::bias + E::mantissa_bits <= RebasedElement<E>::bias + RebasedElement<E>::mantissa_bits;

// How codes of E are moved.
template <class E>
struct Rebase {
    static_assert(can_rebase<E>);
    using To = RebasedElement<E>;
    static constexpr bool is_e5m2 = std::is_same_v<To, E5M2>;
    // The bytes that multiply_codes takes are read as To, which is 2^exponent too small.
    static constexpr int exponent = E::bits == 6 ? To::bias - E::bias : 0;
    // Powers of two by which To's largest value is above E's.
    static constexpr uint32_t headroom = [] {
        uint32_t powers = 0;
        while (E::max * float(2 << powers) <= To::max) ++powers;
        return powers;
    }();
};
static_assert(Rebase<E4M3>::headroom == 0 && Rebase<E5M2>::headroom == 0 && Rebase<E2M3>::headroom == 5 &&
              Rebase<E3M2>::headroom == 4 && Rebase<E2M1>::headroom == 6);

// Returns the largest of four bytes.
MXQ_HD uint32_t largest_byte(uint32_t word) {
    const uint32_t even = word & 0x00FF00FFu, odd = word >> 8 & 0x00FF00FFu;
#if defined(__CUDA_ARCH__)
    const uint32_t pairs = __vmaxu2(even, odd);
    return max(pairs & 0xFFFF, pairs >> 16);
#else
    return std::max({even & 0xFFFF, even >> 16, odd & 0xFFFF, odd >> 16});
#endif
}

// Returns the scale of a tile that has these four scale bytes.
template <class E>
MXQ_HD uint32_t rebased_scale(uint32_t word) {
    const uint32_t next = ((word & 0x7F7F7F7Fu) + 0x01010101u) ^ (word & 0x80808080u);  // adds 1 to each byte: 255 becomes 0
    const int rebased = int(largest_byte(next)) - int(Rebase<E>::headroom + 1);
    return rebased > 1 ? uint32_t(rebased) : 1;
}

// What a block's codes are multiplied by: one power of two, or two of them for E5M2, each as F16 in both halves of a word.
struct RebaseFactor {
    uint32_t first;
};
struct TwoRebaseFactors {
    uint32_t first, second;
};
template <class E>
using RebaseFactors = std::conditional_t<Rebase<E>::is_e5m2, TwoRebaseFactors, RebaseFactor>;

// Returns 2^exponent as F16 in both halves of a word; the exponent is from -24 to 15.
MXQ_HD uint32_t f16_power_pair(int exponent) {
#if defined(__CUDA_ARCH__)
    const float power = bits_float(uint32_t(exponent + 127) << 23);
    return __builtin_bit_cast(uint32_t, static_cast<__half2_raw>(__floats2half2_rn(power, power)));  // exact
#else
    const uint32_t bits = exponent < -14 ? 1u << (exponent + 24) : uint32_t(exponent + 15) << 10;
    return bits * 0x00010001u;
#endif
}

// Returns the factors of a block under `scale` in a tile whose scale becomes `of_tile`.
template <class E>
MXQ_HD RebaseFactors<E> rebase_factors(uint32_t scale, uint32_t of_tile) {
    constexpr int least = -24;
    const int exponent = int(scale) - int(of_tile) + Rebase<E>::exponent;
    const int first = exponent > least ? exponent : least, rest = exponent - first;
    const uint32_t factor = scale == kScaleNan ? 0x7FFF7FFFu : f16_power_pair(first);
    if constexpr (Rebase<E>::is_e5m2) return {factor, f16_power_pair(rest > least ? rest : least)};
    else return {factor};
}

// Returns four bytes for the four lowest nibbles of `codes`: each selects one of the eight bytes of `low` and `high` by its
// magnitude, and adds its sign where `signs` is set.
MXQ_HD uint32_t select_e2m1(uint32_t codes, uint32_t low, uint32_t high, uint32_t signs) {
#if defined(__CUDA_ARCH__)
    const uint32_t negative = permute_bytes(0x80808080u, 0x80808080u, codes) << 7;  // a byte is 255 or 128 before the shift
    return permute_bytes(low, high, codes & 0x7777) | (negative & signs);
#else
    const uint64_t magnitudes = uint64_t(high) << 32 | low;
    uint32_t bytes = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t code = codes >> (4 * i) & 0xF;
        bytes |= (uint32_t(magnitudes >> (8 * (code & 7)) & 0xFF) | ((code & 8) << 4 & signs)) << (8 * i);
    }
    return bytes;
#endif
}

// The eight magnitudes of E2M1 as E4M3 codes.
constexpr uint32_t kE2m1Low = 0x3C383000u, kE2m1High = 0x4C484440u;

// Returns the four lowest nibbles of a word, E2M1 codes, as E4M3 codes.
MXQ_HD uint32_t e2m1_to_e4m3(uint32_t codes) { return select_e2m1(codes, kE2m1Low, kE2m1High, 0x80808080u); }

// Returns four codes of six bits, a byte each, with E4M3's mantissa and with signs on top: the E4M3 codes of
// 2^-Rebase::exponent times the values.
template <class E>
MXQ_HD uint32_t six_bits_to_e4m3(uint32_t codes) {
    static_assert(std::is_same_v<E, E2M3> || std::is_same_v<E, E3M2>);
    if constexpr (E::mantissa_bits == 3) return codes + 3 * (codes & 0x20202020u);
    else return 2 * (codes + (codes & 0x20202020u));
}

// Returns a mask of the bytes that hold Inf among four E5M2 codes.
MXQ_HD uint32_t infinities_e5m2(uint32_t codes) {
    const uint32_t differs = (codes & 0x7F7F7F7Fu) ^ (E5M2::first_special * 0x01010101u);  // 0 in the bytes of Inf
    return ((0x80808080u - differs) >> 7 & 0x01010101u) * 0xFF;
}

// Multiplies four codes of Rebase<E>::To, by both factors if `twice`.
template <class E, bool twice>
MXQ_HD uint32_t multiply_codes(uint32_t codes, const RebaseFactors<E>& factors) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    constexpr auto kind = Conversion<typename Rebase<E>::To>::kind;
    const auto two = [&](uint32_t pair) {
        __half2 values(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), kind));
        values = __hmul2(values, as_half2(factors.first));
        if constexpr (twice) values = __hmul2(values, as_half2(factors.second));
        return uint32_t(__nv_cvt_halfraw2_to_fp8x2(values, __NV_SATFINITE, kind));
    };
    uint16_t low, high;  // halves of a register, which a shift would need another for
    asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(codes));
    return two(low) | two(high) << 16;
#else
    const auto one = [&](uint32_t code) {
        const auto times = [](float value, uint32_t factor) {
            return to_float(from_float<F16>(multiply_rn(value, to_float(F16{uint16_t(factor)}))));
        };
        float value = times(decode<typename Rebase<E>::To>(code), factors.first);
        if constexpr (twice) value = times(value, factors.second);
        return encode<typename Rebase<E>::To>(value);
    };
    uint32_t moved = 0;
    for (int i = 0; i < 4; i++) moved |= one(codes >> (8 * i) & 0xFF) << (8 * i);
    return moved;
#endif
}

// Rebases four codes, a byte each. Codes of six and four bits must have been made E4M3's by six_bits_to_e4m3 or e2m1_to_e4m3.
template <class E>
MXQ_HD uint32_t rebase_codes(uint32_t codes, const RebaseFactors<E>& factors) {
    const uint32_t moved = multiply_codes<E, Rebase<E>::is_e5m2>(codes, factors);
    if constexpr (!Rebase<E>::is_e5m2) return moved;
    return select_bits(factors.first == 0x7FFF7FFFu ? 0 : infinities_e5m2(codes), codes, moved);
}

// Returns the top bit of each byte set where four E5M2 codes are Inf or NaN.
MXQ_HD uint32_t mark_special_e5m2(uint32_t codes) {
    constexpr uint32_t to_special = (0x80u - E5M2::first_special) * 0x01010101u;
    return ((codes & 0x7F7F7F7Fu) + to_special) & 0x80808080u;
}

// What the eight magnitudes of E2M1 become in a block, a byte each.
struct RebaseMagnitudes {
    uint32_t low, high;
};

// Returns the magnitudes under a block's factors. Under a NaN scale all of them are NaN.
MXQ_HD RebaseMagnitudes rebase_magnitudes(const RebaseFactors<E2M1>& factors) {
    return {rebase_codes<E2M1>(kE2m1Low, factors), rebase_codes<E2M1>(kE2m1High, factors)};
}

// Rebases sixteen E2M1 codes, eight to a word, to E4M3 codes, four to a word. NaN has no sign.
MXQ_HD void rebase_e2m1(const uint32_t (&packed)[2], const RebaseMagnitudes& magnitudes, uint32_t (&codes)[4]) {
    const uint32_t signs = magnitudes.low == E4M3::nan_code * 0x01010101u ? 0 : 0x80808080u;
    for (int i = 0; i < 4; i++)
        codes[i] = select_e2m1(packed[i / 2] >> (i % 2 * 16), magnitudes.low, magnitudes.high, signs);
}

// What rebases the codes of a block: factors, or E2M1's magnitudes.
template <class E>
using RebaseBlock = std::conditional_t<E::bits == 4, RebaseMagnitudes, RebaseFactors<E>>;

// Returns what rebases the codes of a block under `scale` in a tile whose scale becomes `of_tile`.
template <class E>
MXQ_HD RebaseBlock<E> rebase_block(uint32_t scale, uint32_t of_tile) {
    const RebaseFactors<E> factors = rebase_factors<E>(scale, of_tile);
    if constexpr (E::bits == 4) return rebase_magnitudes(factors);
    else return factors;
}

// Rebases sixteen codes of a block in place, each word as rebase_codes does. E5M2 seldom needs more than one multiplication.
template <class E>
MXQ_HD void rebase_16(uint32_t (&codes)[4], const RebaseFactors<E>& factors) {
    constexpr uint32_t one = 0x3C003C00u;
    bool simple = true;
    if constexpr (Rebase<E>::is_e5m2)
        simple = factors.second == one && (mark_special_e5m2(codes[0]) | mark_special_e5m2(codes[1]) |
                                           mark_special_e5m2(codes[2]) | mark_special_e5m2(codes[3])) == 0;
    if (simple)
        for (uint32_t& word : codes) word = multiply_codes<E, false>(word, factors);
    else
        for (uint32_t& word : codes) word = rebase_codes<E>(word, factors);
}

}  // namespace mxq
