// The weights of a product of few rows: how 32 neighbours of a line become fp32 numbers in registers, one type for each kind
// of weights. Part of few_rows_kernels.cpp.
//
//     unit_bytes   bytes of 32 codes or numbers
//     factors      how many factors 32 codes have: NVFP4 one for every sixteen, other codes one, plain numbers none
//     fold         a power of two that factors are multiplied by beforehand, which saves decode() a multiplication
//     order        which of the 32 lie in which lane
//     decode       their values in that order, each the product of an element and its factor, rounded
//
// The order decides which products a lane sums, so it is the same for all instruction sets: of 32 numbers the even and the
// odd ones, which come apart without shuffles where two share a word; but codes of four bits, F16 and F32 as they come,
// sixteen by sixteen.
//
//     AVX-512      codes pick from registers that hold all values of an element, of four bits as fp32, of others as BF16
//     AVX2         codes move to where F16 has their bits, and one instruction converts F16
//     scalar       decode() of each
#pragma once
#include "cpu/decode_lines.h"
#include "cpu/lanes.h"
#include "numerics/convert.h"

namespace mxq::cpu {
namespace {

constexpr int kUnitShift = 5;
constexpr int64_t kUnit = 1 << kUnitShift;

// 32 neighbours in an order.
using LanePair = Lanes[2];

// `alternating` is `sixteens` with lanes 0, 8, 1, 9, ... next to each other, which only sum_of_lanes may not see.
enum class Order { pairs, sixteens, alternating };

#if defined(__AVX512F__)
MXQ_HD Lanes even_numbers(const Lanes& low, const Lanes& high) {
    return {__builtin_shufflevector(low.all, high.all, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)};
}
MXQ_HD Lanes odd_numbers(const Lanes& low, const Lanes& high) {
    return {__builtin_shufflevector(low.all, high.all, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)};
}
#elif defined(__AVX2__)
MXQ_HD Lanes even_numbers(const Lanes& low, const Lanes& high) {
    return {__builtin_shufflevector(low.low, low.high, 0, 2, 4, 6, 8, 10, 12, 14),
            __builtin_shufflevector(high.low, high.high, 0, 2, 4, 6, 8, 10, 12, 14)};
}
MXQ_HD Lanes odd_numbers(const Lanes& low, const Lanes& high) {
    return {__builtin_shufflevector(low.low, low.high, 1, 3, 5, 7, 9, 11, 13, 15),
            __builtin_shufflevector(high.low, high.high, 1, 3, 5, 7, 9, 11, 13, 15)};
}
#else
MXQ_HD Lanes every_second(const Lanes& low, const Lanes& high, int64_t first) {
    Lanes lanes;
    for (int64_t i = 0; i < kLanes / 2; i++) {
        lanes.values[i] = low.values[2 * i + first];
        lanes.values[i + kLanes / 2] = high.values[2 * i + first];
    }
    return lanes;
}
MXQ_HD Lanes even_numbers(const Lanes& low, const Lanes& high) { return every_second(low, high, 0); }
MXQ_HD Lanes odd_numbers(const Lanes& low, const Lanes& high) { return every_second(low, high, 1); }
#endif

#if defined(__AVX512F__)
constexpr Order kOrderOfE2M1 = Order::alternating;

MXQ_HD Lanes alternate(const Lanes& lanes) {
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    return {_mm512_maskz_permutexvar_ps(kAll, order, lanes.all)};
}
// Undoes alternate().
MXQ_HD Lanes in_order(const Lanes& lanes) {
    const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return {_mm512_maskz_permutexvar_ps(kAll, order, lanes.all)};
}
#else
constexpr Order kOrderOfE2M1 = Order::sixteens;
MXQ_HD Lanes alternate(const Lanes& lanes) { return lanes; }
MXQ_HD Lanes in_order(const Lanes& lanes) { return lanes; }
#endif

// Arranges 32 numbers, of which these are the first and the last sixteen.
MXQ_HD void arrange(Order order, const Lanes& low, const Lanes& high, LanePair& pair) {
    pair[0] = order == Order::pairs ? even_numbers(low, high) : order == Order::sixteens ? low : alternate(low);
    pair[1] = order == Order::pairs ? odd_numbers(low, high) : order == Order::sixteens ? high : alternate(high);
}

// ---- Factors
// ---------------------------------------------------------------------------------------------------------------

// Multiplies 32 values by the factor of their block, or each sixteen by theirs.
template <int64_t factors>
MXQ_HD void multiply_factors(const float* factor, LanePair& values) {
    for (int i = 0; i < 2; i++) values[i] = times(values[i], factor[i * (factors - 1)]);
}

// ---- Codes
// -----------------------------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
// Returns the BF16 bits of a code's value, which has them all.
template <class E>
constexpr uint16_t bf16_of_code(uint32_t code) {
    constexpr uint32_t magnitudes = ElementBits<E>::sign - 1, ones = (1u << E::mantissa_bits) - 1;
    const uint32_t magnitude = code & magnitudes, exponent = magnitude >> E::mantissa_bits;
    float value = float((magnitude & ones) + (exponent > 0 ? ones + 1 : 0));
    for (int i = exponent > 0 ? int(exponent) : 1; i > E::bias + E::mantissa_bits; i--) value *= 2;
    for (int i = exponent > 0 ? int(exponent) : 1; i < E::bias + E::mantissa_bits; i++) value /= 2;
    uint32_t bits = std::bit_cast<uint32_t>(value) >> 16;
    if (has_nan<E> && magnitude >= E::first_special)
        bits = E::first_special == E::nan_code || magnitude > E::first_special ? 0x7FFF : 0x7F80;
    return uint16_t(bits | (code & ElementBits<E>::sign ? 0x8000 : 0));
}

// The values of the first 128 codes: of all magnitudes of eight bits, or of all codes of six bits, twice.
template <class E>
struct Bf16Table {
    alignas(64) uint16_t bits[128];

    constexpr Bf16Table() : bits() {
        for (uint32_t i = 0; i < 128; i++) bits[i] = bf16_of_code<E>(E::bits == 8 ? i : i % 64);
    }
    MXQ_HD __m512i words(int quarter) const { return _mm512_load_si512(bits + 32 * quarter); }
};
template <class E>
constexpr Bf16Table<E> kBf16Table;

// Splits 32 BF16 numbers.
MXQ_HD void split_bf16(__m512i numbers, LanePair& pair) {
    pair[0].all = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, numbers, 16));
    pair[1].all = _mm512_castsi512_ps(_mm512_and_si512(numbers, _mm512_set1_epi32(int(0xFFFF0000))));
}

// Loads 32 codes of six bits to the low bits of words, whose other bits are not zero.
MXQ_HD __m512i words_of_six_bits(const uint8_t* codes) {
    const __m512i bytes = _mm512_maskz_loadu_epi32(0x3F, codes);
    const __m512i dwords = _mm512_setr_epi32(0, 1, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 4, 5, 0, 0);
    const __m512i spread = _mm512_maskz_permutexvar_epi32(kAll, dwords, bytes);
    const __m128i first = _mm_setr_epi8(0, 1, 0, 1, 1, 2, 1, 2, 3, 4, 3, 4, 4, 5, 4, 5);
    const __m128i second = _mm_add_epi8(first, _mm_set1_epi8(2));
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    const __m512i order = _mm512_maskz_broadcast_i64x4(0xFF, both);
    const __m512i starts = _mm512_set1_epi64(int64_t(0x000A000400060000));
    return _mm512_maskz_srlv_epi16(~__mmask32(0), _mm512_shuffle_epi8(spread, order), starts);
}

// Sets the values of 32 codes of eight or six bits, but for their factor.
template <class E>
MXQ_HD void decode_elements(const uint8_t* codes, LanePair& pair) {
    const Bf16Table<E>& table = kBf16Table<E>;
    if constexpr (E::bits == 6)
        return split_bf16(_mm512_permutex2var_epi16(table.words(0), words_of_six_bits(codes), table.words(1)), pair);
    const __m512i words =
        _mm512_maskz_cvtepi8_epi16(~__mmask32(0), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
    const __m512i low = _mm512_permutex2var_epi16(table.words(0), words, table.words(1));
    const __m512i high = _mm512_permutex2var_epi16(table.words(2), words, table.words(3));
    const __m512i picked = _mm512_mask_blend_epi16(_mm512_test_epi16_mask(words, _mm512_set1_epi16(0x40)), low, high);
    constexpr int or_of_and = 0xF8;  // a | (b & c)
    split_bf16(_mm512_ternarylogic_epi32(picked, words, _mm512_set1_epi16(short(0x8000)), or_of_and), pair);
}
#elif defined(__AVX2__)
// Returns sixteen F16 numbers as fp32.
MXQ_HD Lanes lanes_of_halves(__m256i halves) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}

// Sets words with the codes of 32 at their top, in their order; other bits are not zero.
template <int bits>
MXQ_HD void arrange_codes(const uint8_t* codes, __m256i (&words)[2]) {
    const auto load = [&](int64_t at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + at)); };
    if constexpr (bits == 8) {
        words[1] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
        words[0] = _mm256_slli_epi16(words[1], 8);
    } else if constexpr (bits == 6) {
        const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(load(0)), load(8), 1);
        const __m256i even = _mm256_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11,  //
                                              4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11, 12, 13, 14, 14, 15);
        const __m256i picked = _mm256_shuffle_epi8(bytes, even);  // even codes start at bits 0 and 4, odd ones at 6 and 10
        words[0] = _mm256_mullo_epi16(picked, _mm256_set1_epi32(0x00400400));
        words[1] = _mm256_mullo_epi16(picked, _mm256_set1_epi32(0x00010010));
    } else {
        for (int i = 0; i < 2; i++) words[i] = lanes_of_stored<bits>(codes + i * kSixteen * bits / 8);
    }
}

template <class E>
MXQ_HD void decode_elements(const uint8_t* codes, LanePair& pair) {
    __m256i words[2];
    arrange_codes<E::bits>(codes, words);
    for (int i = 0; i < 2; i++) pair[i] = lanes_of_halves(halves_of_lanes<E>(words[i]));
}
#else
template <class E>
MXQ_HD void decode_elements(const uint8_t* codes, LanePair& pair) {
    const auto sixteen = [&](int64_t at) { return load_lanes(decode_stored_16<E>(codes + at * E::bits / 8).values); };
    arrange(E::bits == 4 ? kOrderOfE2M1 : Order::pairs, sixteen(0), sixteen(kLanes), pair);
}
#endif

// Codes of E, of which every `block` have a factor: 16 or, with a factor for 32 or more, 32.
template <class E, int64_t block>
struct QuantizedWeights {
    static constexpr int64_t unit_bytes = kUnit * E::bits / 8;
    static constexpr int64_t factors = kUnit / block;
    static constexpr Order order = E::bits == 4 ? kOrderOfE2M1 : Order::pairs;
#if defined(__AVX2__) && !defined(__AVX512F__)
    static constexpr float fold = 1 << (15 - E::bias);  // from F16
#else
    static constexpr float fold = 1;
#endif

    static void MXQ_HD decode(const uint8_t* codes, const float* factor, LanePair& values) {
        decode_elements<E>(codes, values);
        multiply_factors<factors>(factor, values);
    }
};

#if defined(__AVX512F__)
template <int64_t block>
struct QuantizedWeights<E2M1, block> {
    static constexpr int64_t unit_bytes = kUnit / 2;
    static constexpr int64_t factors = kUnit / block;
    static constexpr Order order = kOrderOfE2M1;
    static constexpr float fold = 1;

    static void MXQ_HD decode(const uint8_t* codes, const float* factor, LanePair& values) {
        const Lanes elements = {_mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6)};
        const __m512i shifts = _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28);
        for (int i = 0; i < 2; i++) {
            int64_t eight_bytes;
            memcpy(&eight_bytes, codes + i * unit_bytes / 2, sizeof eight_bytes);
            const __m512i picks = _mm512_maskz_srlv_epi64(0xFF, _mm512_set1_epi64(eight_bytes), shifts);
            const Lanes scaled = times(elements, factor[i * (factors - 1)]);
            values[i].all = _mm512_maskz_permutexvar_ps(kAll, picks, scaled.all);
        }
    }
};
#endif

// ---- Plain numbers
// ---------------------------------------------------------------------------------------------------------

// Returns sixteen numbers as fp32.
MXQ_HD Lanes load_numbers_16(const uint8_t* from, float) { return load_lanes(reinterpret_cast<const float*>(from)); }
#if defined(__AVX2__)
MXQ_HD Lanes load_numbers_16(const uint8_t* from, F16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
#if defined(__AVX512F__)
    return {_mm512_maskz_cvtph_ps(kAll, halves)};
#else
    return lanes_of_halves(halves);
#endif
}
#else
template <class T>
MXQ_HD Lanes load_numbers_16(const uint8_t* from, T) {
    Lanes lanes;
    for (int64_t i = 0; i < kLanes; i++) {
        T number;
        memcpy(&number, from + i * int64_t(sizeof number), sizeof number);
        lanes.values[i] = to_float(number);
    }
    return lanes;
}
#endif

// Loads 32 numbers in their order: BF16 in pairs, others sixteen by sixteen.
template <class T>
MXQ_HD void load_unit(const uint8_t* from, T type, LanePair& pair) {
    for (int i = 0; i < 2; i++) pair[i] = load_numbers_16(from + i * kLanes * int64_t(sizeof(T)), type);
}
#if defined(__AVX512F__)
MXQ_HD void load_unit(const uint8_t* from, Bf16, LanePair& pair) { split_bf16(_mm512_loadu_si512(from), pair); }
#elif defined(__AVX2__)
MXQ_HD void load_unit(const uint8_t* from, Bf16, LanePair& pair) {
    const __m256i words[] = {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
                             _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32))};
    const __m256i odd = _mm256_set1_epi32(int(0xFFFF0000));
    pair[0] = {_mm256_castsi256_ps(_mm256_slli_epi32(words[0], 16)), _mm256_castsi256_ps(_mm256_slli_epi32(words[1], 16))};
    pair[1] = {_mm256_castsi256_ps(_mm256_and_si256(words[0], odd)), _mm256_castsi256_ps(_mm256_and_si256(words[1], odd))};
}
#else
MXQ_HD void load_unit(const uint8_t* from, Bf16 type, LanePair& pair) {
    arrange(Order::pairs, load_numbers_16(from, type), load_numbers_16(from + kLanes * int64_t(sizeof type), type), pair);
}
#endif

template <class T>
struct PlainWeights {
    static constexpr int64_t unit_bytes = kUnit * int64_t(sizeof(T));
    static constexpr int64_t factors = 0;
    static constexpr Order order = std::is_same_v<T, Bf16> ? Order::pairs : Order::sixteens;
    static constexpr float fold = 1;

    static void MXQ_HD decode(const uint8_t* numbers, const float*, LanePair& values) { load_unit(numbers, T{}, values); }
};

// Decoded values, in the order of their codes.
template <Order of_codes>
struct DecodedWeights {
    static constexpr int64_t unit_bytes = kUnit * int64_t(sizeof(float));
    static constexpr int64_t factors = 0;
    static constexpr Order order = of_codes;
    static constexpr float fold = 1;

    static void MXQ_HD decode(const uint8_t* numbers, const float*, LanePair& values) {
        const float* const from = reinterpret_cast<const float*>(numbers);
        arrange(order, load_lanes(from), load_lanes(from + kLanes), values);
    }
};

}  // namespace
}  // namespace mxq::cpu
