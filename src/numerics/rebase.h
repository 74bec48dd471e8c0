// Codes under one scale for each 32 of them, moved to one for 128 or for 128 lines of 128, as FP8 tensor cores want them:
//
//     S      the largest scale of the tile below 255 (0 where there is none), less the type's headroom; at least 1, so that no
//            fp32 scale is subnormal
//     code'  RNE_sat(value(code) * 2^(s - S)); NaN under s = 255
//
// E5M2 stays E5M2, and its Inf stays Inf; all others become E4M3, which has all of their values and, above MXFP6's and MXFP4's,
// room for several times them: that much is left for small values below. A code that stays normal keeps its value; the others
// are off by at most half a step of the subnormals.
//
// The way goes through F16. What is rounded there already, below 2^-24, is far below half of the least code: nothing is
// rounded twice. E5M2 needs powers of two that F16 does not have, and takes two factors.
#pragma once
#include <type_traits>

#include "numerics/e8m0.h"
#include "numerics/element.h"

namespace mxq {

template <class E>
struct Rebase {
    static constexpr bool is_e5m2 = std::is_same_v<E, E5M2>;
    using To = std::conditional_t<is_e5m2, E5M2, E4M3>;
    // A byte of rebase_codes is read as To, which is 2^exponent too small.
    static constexpr int exponent = E::bits == 6 ? To::bias - E::bias : 0;
    // Powers of two by which To's largest value is above E's.
    static constexpr uint32_t headroom = is_e5m2 || E::bits == 8 ? 0 : E::bits == 4 ? 6 : E::mantissa_bits == 3 ? 5 : 4;
    static_assert(E::max * (1 << headroom) <= To::max && E::max * (2 << headroom) > To::max);
};

// Of four scale bytes, as a tile's scale.
template <class E>
MXQ_HD uint32_t rebased_scale(uint32_t word) {
    uint32_t largest = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t scale = word >> (8 * i) & 0xFF;
        largest = scale != kScaleNan && scale > largest ? scale : largest;
    }
    return largest > Rebase<E>::headroom ? largest - Rebase<E>::headroom : 1;
}

// Powers of two in both halves of a word, as F16.
struct RebaseFactors {
    uint32_t first, second;
};

MXQ_HD uint32_t half_powers(int exponent) {
    const uint32_t bits = exponent < -14 ? 1u << (exponent + 24) : uint32_t(exponent + 15) << 10;
    return bits * 0x00010001u;
}

// Of a block under `scale` in a tile whose scale becomes `of_tile`.
template <class E>
MXQ_HD RebaseFactors rebase_factors(uint32_t scale, uint32_t of_tile) {
    constexpr int least = Rebase<E>::is_e5m2 ? -16 : -24;
    const int exponent = int(scale) - int(of_tile) + Rebase<E>::exponent;
    const int first = exponent > least ? exponent : least, rest = exponent - first;
    const uint32_t nan = 0x7FFF7FFFu;
    return {scale == kScaleNan ? nan : half_powers(first), half_powers(rest > -24 ? rest : -24)};
}

// Four codes of four bits, the lowest, as E4M3: a magnitude selects one of eight bytes.
MXQ_HD uint32_t e2m1_to_e4m3(uint32_t codes) {
#if defined(__CUDA_ARCH__)
    const uint32_t twice = (codes & 0xFFFF) | codes << 8;
    const uint32_t signs = ((twice << 4) & 0x00800080u) | ((twice << 8) & 0x80008000u);
    return __byte_perm(0x3C383000u, 0x4C484440u, codes & 0x7777) | signs;
#else
    constexpr uint64_t magnitudes = 0x4C4844403C383000u;
    uint32_t bytes = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t code = codes >> (4 * i) & 0xF;
        bytes |= (uint32_t(magnitudes >> (8 * (code & 7)) & 0xFF) | (code & 8) << 4) << (8 * i);
    }
    return bytes;
#endif
}

// Four codes of six bits, a byte each: signs on top, mantissas of three bits.
template <class E>
MXQ_HD uint32_t six_bits_to_e4m3(uint32_t codes) {
    if constexpr (E::mantissa_bits == 3) return codes + 3 * (codes & 0x20202020u);
    else return 2 * (codes + (codes & 0x20202020u));
}

// The bytes of the Inf among four E5M2 codes, as a mask.
MXQ_HD uint32_t infinities_e5m2(uint32_t codes) {
    uint32_t mask = 0;
    for (int i = 0; i < 4; i++)
        if ((codes >> (8 * i) & 0x7F) == E5M2::first_special) mask |= 0xFFu << (8 * i);
    return mask;
}

// Four codes that are read as Rebase<E>::To.
template <class E>
MXQ_HD uint32_t multiply_codes(uint32_t codes, const RebaseFactors& factors) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    constexpr auto kind = WideType<typename Rebase<E>::To>::kind;
    const auto two = [&](uint32_t pair) {
        __half2 values(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), kind));
        values = __hmul2(values, halves(factors.first));
        if constexpr (Rebase<E>::is_e5m2) values = __hmul2(values, halves(factors.second));
        return uint32_t(__nv_cvt_halfraw2_to_fp8x2(values, __NV_SATFINITE, kind));
    };
    return two(codes & 0xFFFF) | two(codes >> 16) << 16;
#else
    const auto one = [&](uint32_t code) {
        const auto times = [](float value, uint32_t factor) {
            return to_float(from_float<F16>(multiply_rn(value, to_float(F16{uint16_t(factor)}))));
        };
        float value = times(decode<typename Rebase<E>::To>(code), factors.first);
        if constexpr (Rebase<E>::is_e5m2) value = times(value, factors.second);
        return encode<typename Rebase<E>::To>(value);
    };
    uint32_t moved = 0;
    for (int i = 0; i < 4; i++) moved |= one(codes >> (8 * i) & 0xFF) << (8 * i);
    return moved;
#endif
}

// Four codes: MXFP8's as they are, the others as the two functions above give them.
template <class E>
MXQ_HD uint32_t rebase_codes(uint32_t codes, const RebaseFactors& factors) {
    const uint32_t moved = multiply_codes<E>(codes, factors);
    if constexpr (!Rebase<E>::is_e5m2) return moved;
    constexpr uint32_t to_special = (0x80u - E5M2::first_special) * 0x01010101u;
    const bool special = ((codes & 0x7F7F7F7Fu) + to_special) & 0x80808080u;
    if (!special || factors.first == 0x7FFF7FFFu) return moved;
    return select_bits(infinities_e5m2(codes), codes, moved);
}

}  // namespace mxq
