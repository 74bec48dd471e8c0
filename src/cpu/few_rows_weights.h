// The weights of a product of few rows: how 32 neighbours of a line become fp32 numbers in registers, one type for each kind
// of weights. Part of few_rows_kernels.cpp.
//
//     unit_bytes     bytes of 32 codes or numbers
//     factors        how many factors 32 codes have: NVFP4 one for every sixteen, other codes one, plain numbers none
//     fold           what factors are multiplied by beforehand, a power of two that decode() then saves itself
//     interleaved    whether the two halves of sixteen numbers alternate in the lanes, code 0, 8, 1, 9, ...
//     decode         the values of sixteen codes
#pragma once
#include "cpu/decode_lines.h"
#include "cpu/lanes.h"
#include "numerics/convert.h"

namespace mxq::cpu {
namespace {

constexpr int kUnitShift = 5;
constexpr int64_t kUnit = 1 << kUnitShift;

#if defined(__AVX2__)
// Returns sixteen F16 numbers as fp32.
MXQ_HD Lanes lanes_of_halves(__m256i halves) {
#if defined(__AVX512F__)
    return {_mm512_maskz_cvtph_ps(kAll, halves)};
#else
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
#endif
}
#endif

#if defined(__AVX512F__)
constexpr bool kInterleavesE2M1 = true;

// Returns numbers 0, 8, 1, 9, ... of sixteen.
MXQ_HD Lanes alternating(const Lanes& lanes) {
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    return {_mm512_maskz_permutexvar_ps(kAll, order, lanes.all)};
}
// Undoes alternating().
MXQ_HD Lanes in_order(const Lanes& lanes) {
    const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return {_mm512_maskz_permutexvar_ps(kAll, order, lanes.all)};
}
#else
constexpr bool kInterleavesE2M1 = false;
MXQ_HD Lanes alternating(const Lanes& lanes) { return lanes; }
MXQ_HD Lanes in_order(const Lanes& lanes) { return lanes; }
#endif

// Decodes sixteen codes but for their factor.
template <class E>
struct Codes {
#if defined(__AVX2__)
    static constexpr float fold = 1 << (15 - E::bias);
    static Lanes MXQ_HD decode(const uint8_t* codes) {
        return lanes_of_halves(halves_of_lanes<E>(lanes_of_stored<E::bits>(codes)));
    }
#else
    static constexpr float fold = 1;
    static Lanes MXQ_HD decode(const uint8_t* codes) { return load_lanes(decode_stored_16<E>(codes).values); }
#endif
};

// Codes of E; with has_global, NVFP4's.
template <class E, bool has_global>
struct QuantizedWeights {
    static constexpr int64_t unit_bytes = kUnit * E::bits / 8;
    static constexpr int64_t factors = has_global ? 2 : 1;
    static constexpr float fold = Codes<E>::fold;
    static constexpr bool interleaved = false;

    float global;

    MXQ_HD void decode(const uint8_t* codes, const float* factor, Lanes (&values)[2]) const {
        for (int i = 0; i < 2; i++) {
            values[i] = times(Codes<E>::decode(codes + i * unit_bytes / 2), factor[has_global ? i : 0]);
            if constexpr (has_global) values[i] = times(values[i], global);
        }
    }
};

#if defined(__AVX512F__)
// E2M1 has sixteen values, which are one register: a code picks from those that its block has.
template <bool has_global>
struct QuantizedWeights<E2M1, has_global> {
    static constexpr int64_t unit_bytes = kUnit / 2;
    static constexpr int64_t factors = has_global ? 2 : 1;
    static constexpr float fold = 1;
    static constexpr bool interleaved = kInterleavesE2M1;

    float global;

    MXQ_HD void decode(const uint8_t* codes, const float* factor, Lanes (&values)[2]) const {
        const __m512 elements = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
        const __m512i shifts = _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28);
        Lanes scaled = {elements};
        for (int i = 0; i < 2; i++) {
            if (i == 0 || has_global) scaled = times({elements}, factor[i]);
            if constexpr (has_global) scaled = times(scaled, global);
            int64_t eight_bytes;
            memcpy(&eight_bytes, codes + i * unit_bytes / 2, sizeof eight_bytes);
            values[i].all = _mm512_maskz_permutexvar_ps(
                kAll, _mm512_maskz_srlv_epi64(0xFF, _mm512_set1_epi64(eight_bytes), shifts), scaled.all);
        }
    }
};
#endif

// Plain numbers; with `alternate`, fp32 ones that the kernel puts in the order of interleaved codes.
template <class T, bool alternate = false>
struct PlainWeights {
    static constexpr int64_t unit_bytes = kUnit * int64_t(sizeof(T));
    static constexpr int64_t factors = 0;
    static constexpr float fold = 1;
    static constexpr bool interleaved = alternate;

    float global;

    MXQ_HD void decode(const uint8_t* numbers, const float*, Lanes (&values)[2]) const {
        for (int i = 0; i < 2; i++) {
            values[i] = load(numbers + i * unit_bytes / 2);
            if constexpr (alternate) values[i] = alternating(values[i]);
        }
    }

private:
    static Lanes MXQ_HD load(const uint8_t* from) {
#if defined(__AVX2__)
        if constexpr (sizeof(T) == 4) return load_lanes(reinterpret_cast<const float*>(from));
        const __m256i sixteen = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        if constexpr (std::is_same_v<T, F16>) return lanes_of_halves(sixteen);
        return lanes_of_bf16(sixteen);
#else
        float values[kLanes];
        for (int64_t i = 0; i < kLanes; i++) {
            T number;
            memcpy(&number, from + i * int64_t(sizeof number), sizeof number);
            values[i] = to_float(number);
        }
        return load_lanes(values);
#endif
    }
#if defined(__AVX2__)
    static Lanes MXQ_HD lanes_of_bf16(__m256i sixteen) {
#if defined(__AVX512F__)
        return {_mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, sixteen), 16))};
#else
        const __m256i low = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(sixteen));
        const __m256i high = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(sixteen, 1));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
#endif
    }
#endif
};

}  // namespace
}  // namespace mxq::cpu
