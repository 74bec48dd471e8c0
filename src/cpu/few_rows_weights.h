// The weights of a product of few rows, one type for each kind of them, and their factors. Part of few_rows_kernels.cpp.
//
//     unit              how many codes or numbers are decoded together
//     order             which of them lie in which lane of which vector (few_rows_order.h)
//     factors           how many a unit has: NVFP4 one for 16 codes, MX for 32, FP8 one, or none for whole lines
//     factor_floats     how many floats of memory they take: AVX-512 keeps those of NVFP4 and MX as BF16
//     section           how many vectors have the same factors
//     fold              a power of two that factors are multiplied by beforehand, since values come out that much smaller
//     scale             the same, but sums are multiplied by it
//     decode            calls use(n, values) for each vector n of a unit, in order, but for the factors
//     decode_words      calls use(s, pairs) for every two vectors: 2 s is in the upper halves of pairs of BF16
#pragma once
#include "cpu/decode_lines.h"
#if defined(__AVX512F__)
#include "cpu/few_rows_codes_avx512.h"
#else
#include "cpu/few_rows_codes_avx2.h"
#endif
#include "cpu/operand_reader.h"

namespace mxq::cpu {
namespace {

// ---- Factors ---------------------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
// Which of so many factors each lane takes, in the upper half of its index.
template <int64_t count>
struct FactorOfLane {
    alignas(64) int32_t index[kLanes];

    constexpr FactorOfLane() : index() {
        for (int64_t i = 0; i < kLanes; i++) index[i] = int32_t(i * count / kLanes) << 16;
    }
};
template <int64_t count>
constexpr FactorOfLane<count> kFactorOfLane;

// Stores E4M3 scales as BF16 numbers, and zeros up to a multiple of 32. Returns true: NaN stays NaN.
MXQ_HD bool factors_of_e4m3(const uint8_t* scales, int64_t count, bool, float* to) {
    const __m512i neighbours = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    for (int64_t i = 0; i < count; i += 64, to += 2 * kLanes) {
        const __mmask64 some = count - i < 64 ? (uint64_t(1) << (count - i)) - 1 : kAllBytes;
        const __m512i codes = _mm512_maskz_permutexvar_epi64(0xFF, neighbours, _mm512_maskz_loadu_epi8(some, scales + i));
        pick_pairs<E4M3>(
            codes, [&](int s, __m512i words) __attribute__((always_inline)) {
                if (32 * s < count - i) _mm512_storeu_si512(to + kLanes * s, words);
            });
    }
    return true;
}
constexpr int64_t floats_of_factors(int64_t count) { return count / 2; }
constexpr int kFoldOfScales = 0;
#else
typedef uint8_t SixteenBytes __attribute__((vector_size(16)));

// Loads sixteen bytes, or the `count` that there are: the others repeat the first one.
MXQ_HD SixteenBytes load_some(const uint8_t* from, int64_t count) {
    SixteenBytes bytes;
    if (count >= kSixteen) {
        memcpy(&bytes, from, sizeof bytes);
        return bytes;
    }
    memset(&bytes, *from, sizeof bytes);
    memcpy(&bytes, from, size_t(count));
    return bytes;
}

// Stores E4M3 scales, and some more up to a multiple of 16, as F16 numbers of 2^-8 times their values, each twice, since two
// lanes take it, and interleaved as lanes are, or `in_order`. Returns false where there is a NaN, which becomes a number.
MXQ_HD bool factors_of_e4m3(const uint8_t* scales, int64_t count, bool in_order, float* to) {
    const __m256i interleaved = _mm256_setr_epi8(-1, 0, -1, 4, -1, 0, -1, 4, -1, 1, -1, 5, -1, 1, -1, 5,  //
                                                 -1, 2, -1, 6, -1, 2, -1, 6, -1, 3, -1, 7, -1, 3, -1, 7);
    const __m256i ordered = _mm256_setr_epi8(-1, 0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3,  //
                                             -1, 4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7);
    const __m256i of_first = in_order ? ordered : interleaved;
    const __m256i of_second = _mm256_or_si256(_mm256_add_epi8(of_first, _mm256_set1_epi8(8)), _mm256_set1_epi16(0x00FF));
    __m256i most = _mm256_setzero_si256();  // of twice the scales: those of NaN are the largest
    for (int64_t i = 0; i < count; i += kSixteen, to += kSixteen) {
        const __m256i bytes = _mm256_broadcastsi128_si256(__m128i(load_some(scales + i, count - i)));
        most = _mm256_max_epu8(most, _mm256_add_epi8(bytes, bytes));
        __m256i* const pairs = reinterpret_cast<__m256i*>(to);
        _mm256_storeu_si256(pairs, halves_of_numbers<E4M3>(_mm256_shuffle_epi8(bytes, of_first)));
        _mm256_storeu_si256(pairs + 1, halves_of_numbers<E4M3>(_mm256_shuffle_epi8(bytes, of_second)));
    }
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(char(0xFE)))) == 0;
}
constexpr int kFoldOfScales = 8;
constexpr int64_t floats_of_factors(int64_t count) { return count; }

// Stores 2^(s - 127 + exponent) for sixteen E8M0 scales; AVX2 those of every four in the order 0 2 1 3, in which lanes of
// codes of four bits take two neighbours, or `in_order`.
MXQ_HD void store_powers(const SixteenBytes& scales, uint32_t exponent, bool in_order, float* to) {
    const __m256i bytes = _mm256_broadcastsi128_si256(__m128i(scales));
    for (int i = 0; i < kSixteen; i += 8) {
        const __m256i interleaved = _mm256_setr_epi32(0, 2, 1, 3, 4, 6, 5, 7),
                      ordered = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256i order = _mm256_add_epi32(in_order ? ordered : interleaved, _mm256_set1_epi32(i - 256));
        const __m256i sums = _mm256_add_epi32(_mm256_shuffle_epi8(bytes, order), _mm256_set1_epi32(int(exponent)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_slli_epi32(sums, 23));
    }
}
#endif

// The E8M0 scales that are safe factors, [first, first + span], and the exponent of what all are multiplied by.
struct E8m0Factors {
    E8m0Factors(const SafeFactors& safe, float fold)
        : exponent((float_bits(fold) >> 23) - 127),
          first(uint8_t(float_bits(safe.low) >> 23)),
          span(uint8_t((float_bits(safe.high) >> 23) - first)) {}

#if defined(__AVX512F__)
    // Stores 2^(s - 127) as BF16 numbers for each scale, and zeros up to a multiple of 32. Returns whether all are safe.
    // Values come out of their codes as large as they are, so the exponent is zero.
    MXQ_HD bool operator()(const uint8_t* scales, int64_t count, bool, float* to) const {
        __m256i most = _mm256_setzero_si256();  // of what scales are beyond the first
        for (int64_t i = 0; i < count; i += 32, to += kLanes) {
            const __mmask32 some = count - i < 32 ? (1u << (count - i)) - 1 : kAllWords;
            const __m256i bytes = _mm256_maskz_loadu_epi8(some, scales + i);
            most = _mm256_mask_max_epu8(most, some, most, _mm256_sub_epi8(bytes, _mm256_set1_epi8(char(first))));
            const __m512i words = _mm512_maskz_cvtepu8_epi16(kAllWords, bytes);
            _mm512_storeu_si512(to, _mm512_maskz_slli_epi16(kAllWords, words, 7));
        }
        return _mm256_cmpgt_epu8_mask(most, _mm256_set1_epi8(char(span))) == 0;
    }
#else
    // Stores 2^(s - 127 + exponent) for each scale, and some more up to a multiple of 16. Returns whether all are safe.
    MXQ_HD bool operator()(const uint8_t* scales, int64_t count, bool in_order, float* to) const {
        SixteenBytes most = {};  // of what scales are beyond the first
        for (int64_t i = 0; i < count; i += kSixteen) {
            const SixteenBytes bytes = load_some(scales + i, count - i), beyond_first = bytes - first;
            most = beyond_first > most ? beyond_first : most;
            store_powers(bytes, exponent, in_order, to + i);
        }
        int64_t beyond[2];
        const auto is_beyond = most > span;
        memcpy(beyond, &is_beyond, sizeof beyond);
        return (beyond[0] | beyond[1]) == 0;
    }
#endif

    const uint32_t exponent;
    const uint8_t first, span;
};

// Loads kWidth numbers as fp32.
MXQ_HD Lanes load_numbers(const uint8_t* from, float) { return load_lanes(reinterpret_cast<const float*>(from)); }
#if defined(__AVX512F__)
MXQ_HD Lanes load_numbers(const uint8_t* from, F16) {
    return {_mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
#else
MXQ_HD Lanes load_numbers(const uint8_t* from, F16) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
#endif

// Codes of E, of which every `block` have a factor. Those of half a unit and more share it among all lanes of a vector.
template <class E, int64_t block>
struct QuantizedWeights : UnitDecoder<E> {
    static constexpr Order order = E::bits == 4 ? Order::nibbles : Order::bytes;
    static constexpr int64_t unit_bytes = kUnit * E::bits / 8, factors = kUnit / block;
    static constexpr int64_t factor_floats = block <= kMxBlock ? floats_of_factors(factors) : factors;
    static constexpr int64_t sections = block == kMxBlock && E::bits > 4 ? 2 : 1;
    static constexpr int64_t section = kUnitVectors / sections;
    static_assert(block != kNvBlock || kFold<E> == 0, "scales of NVFP4 are factors as they are");
    static constexpr float fold = float(1 << kFold<E>), scale = block == kNvBlock ? 1 << kFoldOfScales : 1;
    static constexpr bool loses_nan = kLosesNan<E>;

#if !defined(__AVX512F__)
    // Returns the factors of a group of 64 codes, where those of a unit are stored in order.
    MXQ_HD static Lanes factors_in_order(const float* of_unit, int group) {
        if constexpr (block == kNvBlock) return load_numbers(reinterpret_cast<const uint8_t*>(of_unit + group * 4), F16{});
        alignas(32) static constexpr int32_t which[2][8] = {{0, 0, 0, 0, 1, 1, 1, 1}, {2, 2, 2, 2, 3, 3, 3, 3}};
        const __m256 four = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(of_unit));
        return {_mm256_permutevar_ps(four, _mm256_load_si256(reinterpret_cast<const __m256i*>(which[group])))};
    }
#endif

    // Returns the factors of a part's lanes for vectors of a section, from those of a unit: divided by `scale`.
    MXQ_HD static Lanes factors_of(const float* of_unit, [[maybe_unused]] int64_t number, [[maybe_unused]] int64_t part) {
#if !defined(__AVX512F__)
        if constexpr (block == kNvBlock) return load_numbers(reinterpret_cast<const uint8_t*>(of_unit + part * 4), F16{});
        if constexpr (block != kMxBlock) return same_lanes(of_unit);
        const float* const of_part = of_unit + part * 2;  // in the order of store_powers()
        return order == Order::nibbles ? same_pairs(of_part) : same_lanes(of_part + number);
#else
        constexpr int64_t of_section = factors / sections;
        if constexpr (block > kMxBlock) return same_lanes(of_unit);
        __m128i some = _mm_setzero_si128();
        memcpy(&some, reinterpret_cast<const uint16_t*>(of_unit) + number * of_section, of_section * sizeof(uint16_t));
        const __m512i index = _mm512_load_si512(kFactorOfLane<of_section>.index);
        return as_lanes(_mm512_maskz_permutexvar_epi16(0xAAAAAAAA, index, _mm512_castsi128_si512(some)));
#endif
    }
};

// Codes of E without factors: one scale multiplies the sums of a row of B.
template <class E>
struct LineWeights : UnitDecoder<E> {
    static constexpr Order order = Order::bytes;
    static constexpr int64_t unit_bytes = kUnit * E::bits / 8, factors = 0, factor_floats = 0;
    static constexpr int64_t section = kUnitVectors;
    static constexpr float fold = 1, scale = float(1 << kFold<E>);
    static constexpr bool loses_nan = kLosesNan<E>;
};

// ---- Plain numbers -----------------------------------------------------------------------------------------------------

// F16 or F32.
template <class T>
struct PlainWeights {
    static constexpr Order order = Order::sixteens;
    static constexpr int64_t unit_bytes = kUnit * int64_t(sizeof(T));
    static constexpr int64_t factors = 0, factor_floats = 0, section = kUnitVectors;
    static constexpr float fold = 1, scale = 1;
    static constexpr bool loses_nan = false;

    // Returns a part of vector n of a unit.
    MXQ_HD static Lanes load(const uint8_t* unit, int n, int64_t part) {
        return load_numbers(unit + (n * kLanes + part * kWidth) * int64_t(sizeof(T)), T{});
    }
    template <class Use>
    MXQ_HD static void decode(const uint8_t* numbers, const Use& use) {
#pragma GCC unroll 8
        for (int n = 0; n < kUnitVectors; n++) use(n, load(numbers, n, 0));
    }
};

template <>
struct PlainWeights<Bf16> {
    static constexpr Order order = Order::pairs;
    static constexpr int64_t unit_bytes = kUnit * int64_t(sizeof(Bf16));
    static constexpr int64_t factors = 0, factor_floats = 0, section = kUnitVectors;
    static constexpr float fold = 1, scale = 1;
    static constexpr bool loses_nan = false;

    // Returns a part of vector n of a unit.
    MXQ_HD static Lanes load(const uint8_t* unit, int n, int64_t part) {
        const Words pairs = load_words(unit + (n / 2 * 2 * kLanes + part * kWidth * 2) * int64_t(sizeof(Bf16)));
        return as_lanes(n % 2 ? lower_of(pairs) : upper_of(pairs));
    }

    template <class Use>
    MXQ_HD static void decode(const uint8_t* numbers, const Use& use) {
        decode_words(numbers, [&](int s, Words pairs) __attribute__((always_inline)) {
            use(2 * s, as_lanes(upper_of(pairs)));
            use(2 * s + 1, as_lanes(lower_of(pairs)));
        });
    }
    template <class Use>
    MXQ_HD static void decode_words(const uint8_t* numbers, const Use& use) {
#pragma GCC unroll 4
        for (int s = 0; s < kUnitVectors / 2; s++) use(s, load_words(numbers + s * kLanes * int64_t(sizeof(float))));
    }
};

}  // namespace
}  // namespace mxq::cpu
