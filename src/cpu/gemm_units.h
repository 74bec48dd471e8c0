// Decodes whole units of K-major codes to a panel with AVX-512, in the order of code_at(). Part of gemm_kernels.cpp.
#pragma once
#include "core/problem.h"
#include "cpu/few_rows_order.h"
#if defined(__AVX512F__)
#include "cpu/few_rows_codes_avx512.h"
#endif

namespace mxq::cpu {
namespace {

// Which of the factors of sixteen codes of a unit each lane takes, in the two halves of its vectors.
struct FactorOfLanes {
    explicit FactorOfLanes(Order order) {
        for (int64_t s = 0; s < 2; s++)
            for (int64_t l = 0; l < kLanes; l++) index[s][l] = int32_t(code_at(order, s * kUnitVectors / 2, l) / 16);
    }
    alignas(64) int32_t index[2][kLanes];
};

// Stores units of codes, `stride` floats apart. `factors`: NULL, or eight for each unit, and some more to load.
using DecodeUnits = void (*)(const uint8_t* codes, int64_t units, const float* factors, const FactorOfLanes& of_lanes,
                             float* to, int64_t stride);

#if defined(__AVX512F__)
// Plain numbers of BF16, whose bits are pairs as they are.
struct Bf16Pairs {
    static constexpr int bits = 16;
};

// Calls use(s, pairs) for every two vectors of a unit.
template <class E, class Use>
MXQ_HD void pairs_of_unit(const uint8_t* codes, const Use& use) {
    if constexpr (E::bits < 16) return decode_pairs<E>(codes, use);
    for (int s = 0; s < kUnitVectors / 2; s++) use(s, load_words(codes + s * 64));
}

template <class E, bool packed>
void decode_units(const uint8_t* codes, int64_t units, const float* factors, const FactorOfLanes& of_lanes, float* to,
                  int64_t stride) {
    for (int64_t u = 0; u < units; u++, codes += kUnit * E::bits / 8, to += stride) {
        Lanes factor[2];
        for (int s = 0; factors && s < 2; s++) {
            const __m512i index = _mm512_load_si512(of_lanes.index[s]);
            factor[s] = {_mm512_maskz_permutexvar_ps(kAll, index, load_lanes(factors + 8 * u).all)};
        }
        pairs_of_unit<E>(
            codes, [&](int s, Words pairs) __attribute__((always_inline)) {
                if (packed && !factors) return store_lanes(as_lanes(pairs), to + s * kLanes);
                Lanes high = as_lanes(upper_of(pairs)), low = as_lanes(lower_of(pairs));
                if (factors) high = times(high, factor[s / 2]), low = times(low, factor[s / 2]);
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
    if (part.across) return nullptr;
    const auto of = [&]<class E>(E) -> DecodeUnits {
#if defined(__AVX512BF16__)
        if (packed) return decode_units<E, true>;
#endif
        return decode_units<E, false>;
    };
    if (part.scale_type != ScaleType::None) return with_element(part.element, of);
    return part.element == Element::Bf16 ? of(Bf16Pairs{}) : nullptr;
}
#else
DecodeUnits decode_units_of(const GemmOperand&, bool) { return nullptr; }
#endif

// Stores the factors of each lane for `sections` of units, `stride` floats apart, from eight for each unit.
void store_lane_factors(const float* factors, int64_t units, int sections, const FactorOfLanes& of_lanes, float* to,
                        int64_t stride) {
    for (int64_t u = 0; u < units; u++, factors += 8)
        for (int s = 0; s < sections; s++, to += stride) {
#if defined(__AVX512F__)
            const __m512i index = _mm512_load_si512(of_lanes.index[s]);
            store_lanes({_mm512_maskz_permutexvar_ps(kAll, index, load_lanes(factors).all)}, to);
#else
            for (int64_t l = 0; l < kLanes; l++) to[l] = factors[of_lanes.index[s][l]];
#endif
        }
}

}  // namespace
}  // namespace mxq::cpu
