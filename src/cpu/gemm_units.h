// Decodes whole units of K-major codes, and arranges BF16 numbers, with AVX-512, in the order of code_at(). Part of
// gemm_kernels.cpp.
#pragma once
#include "core/problem.h"
#include "cpu/operand_reader.h"
#if defined(__AVX512F__)
#include "cpu/few_rows_codes_avx512.h"
#endif

namespace mxq::cpu {
namespace {

// Which of the factors of sixteen codes of a unit each lane takes, in the two halves of its vectors, and which number of a
// unit each half of a lane of pairs.
struct Arrangement {
    explicit Arrangement(Order order) {
        for (int64_t l = 0; l < kLanes; l++) {
            for (int64_t s = 0; s < 2; s++) factor[s][l] = int32_t(code_at(order, s * kUnitVectors / 2, l) / 16);
            for (int64_t v = 0; v < kUnitVectors; v++) number[v / 2][2 * l + 1 - v % 2] = uint16_t(code_at(order, v, l));
        }
    }
    alignas(64) int32_t factor[2][kLanes];
    alignas(64) uint16_t number[kUnitVectors / 2][2 * kLanes];
};

// Stores units of codes, `stride` floats apart. `factors`: NULL, or eight for each unit, and some more to load.
using DecodeUnits = void (*)(const uint8_t* codes, int64_t units, const float* factors, const Arrangement& of_lanes,
                             float* to, int64_t stride);

// Values in [2^lowest, 2^beyond), and what was found of values: those that are not zero, and those of them out of a range.
struct Range {
    int lowest, beyond;
};
struct Found {
    bool nonzero, leaving;
};

// Stores units of BF16 numbers in an order, `stride` floats apart.
using ArrangeUnits = Found (*)(const uint8_t* numbers, int64_t units, Range range, const Arrangement& of_lanes, float* to,
                               int64_t stride);

#if defined(__AVX512F__)
MXQ_HD void store_pairs(bool packed, Words pairs, int s, float* to) {
    if (packed) return store_lanes(as_lanes(pairs), to + s * kLanes);
    store_lanes(as_lanes(upper_of(pairs)), to + 2 * s * kLanes);
    store_lanes(as_lanes(lower_of(pairs)), to + (2 * s + 1) * kLanes);
}

template <bool packed>
Found arrange_units(const uint8_t* numbers, int64_t units, Range range, const Arrangement& of_lanes, float* to,
                    int64_t stride) {
    const __m512i first = _mm512_set1_epi16(short(power_of_two(range.lowest) >> 16)), magnitude = _mm512_set1_epi16(0x7FFF);
    const __m512i span = _mm512_sub_epi16(_mm512_set1_epi16(short(power_of_two(range.beyond) >> 16)), first);
    __mmask32 any = 0, leaving = 0;
    for (int64_t u = 0; u < units; u++, numbers += 2 * kUnit, to += stride) {
        Words in[kUnitVectors / 2];
        for (int i = 0; i < kUnitVectors / 2; i++) {
            in[i] = load_words(numbers + i * 64);
            const __m512i above = _mm512_sub_epi16(_mm512_and_si512(in[i], magnitude), first);
            const __mmask32 nonzero = _mm512_test_epi16_mask(in[i], magnitude);
            any |= nonzero, leaving |= nonzero & _mm512_cmpge_epu16_mask(above, span);
        }
        for (int s = 0; s < kUnitVectors / 2; s++) {
            const Words index = _mm512_load_si512(of_lanes.number[s]);
            const Words low = _mm512_permutex2var_epi16(in[0], index, in[1]);
            const Words high = _mm512_permutex2var_epi16(in[2], index, in[3]);
            const __mmask32 is_high = _mm512_test_epi16_mask(index, _mm512_set1_epi16(kUnit / 2));
            store_pairs(packed, _mm512_mask_blend_epi16(is_high, low, high), s, to);
        }
    }
    return {any != 0, leaving != 0};
}

template <class E, bool packed>
void decode_units(const uint8_t* codes, int64_t units, const float* factors, const Arrangement& of_lanes, float* to,
                  int64_t stride) {
    for (int64_t u = 0; u < units; u++, codes += kUnit * E::bits / 8, to += stride) {
        Lanes factor[2];
        for (int s = 0; factors && s < 2; s++) {
            const __m512i index = _mm512_load_si512(of_lanes.factor[s]);
            factor[s] = {_mm512_maskz_permutexvar_ps(kAll, index, load_lanes(factors + 8 * u).all)};
        }
        decode_pairs<E>(
            codes, [&](int s, Words pairs) __attribute__((always_inline)) {
                if (!factors) return store_pairs(packed, pairs, s, to);
                const Lanes high = times(as_lanes(upper_of(pairs)), factor[s / 2]);
                const Lanes low = times(as_lanes(lower_of(pairs)), factor[s / 2]);
                if constexpr (packed) {
                    const __m512i lower = _mm512_maskz_srli_epi32(kAll, _mm512_castps_si512(low.all), 16);
                    store_lanes(as_lanes(_mm512_or_si512(_mm512_castps_si512(high.all), lower)), to + s * kLanes);
                } else {
                    store_lanes(high, to + 2 * s * kLanes), store_lanes(low, to + (2 * s + 1) * kLanes);
                }
            });
    }
}

// Returns what decodes units of a part, or NULL.
DecodeUnits decode_units_of(const GemmOperand& part, [[maybe_unused]] bool packed) {
    if (part.across || part.scale_type == ScaleType::None) return nullptr;
    const auto of = [&]<class E>(E) -> DecodeUnits {
#if defined(__AVX512BF16__)
        if (packed) return decode_units<E, true>;
#endif
        return decode_units<E, false>;
    };
    return with_element(part.element, of);
}

// Returns what arranges units of a part, or NULL.
ArrangeUnits arrange_units_of(const GemmOperand& part, Order order, [[maybe_unused]] bool packed) {
    if (part.across || part.element != Element::Bf16 || order == Order::sixteens) return nullptr;
#if defined(__AVX512BF16__)
    if (packed) return arrange_units<true>;
#endif
    return arrange_units<false>;
}
#else
DecodeUnits decode_units_of(const GemmOperand&, bool) { return nullptr; }
ArrangeUnits arrange_units_of(const GemmOperand&, Order, bool) { return nullptr; }
#endif

// Stores the factors of each lane for `sections` of units, `stride` floats apart, from eight for each unit.
void store_lane_factors(const float* factors, int64_t units, int sections, const Arrangement& of_lanes, float* to,
                        int64_t stride) {
    for (int64_t u = 0; u < units; u++, factors += 8)
        for (int s = 0; s < sections; s++, to += stride) {
#if defined(__AVX512F__)
            const __m512i index = _mm512_load_si512(of_lanes.factor[s]);
            store_lanes({_mm512_maskz_permutexvar_ps(kAll, index, load_lanes(factors).all)}, to);
#else
            for (int64_t l = 0; l < kLanes; l++) to[l] = factors[of_lanes.factor[s][l]];
#endif
        }
}

}  // namespace
}  // namespace mxq::cpu
