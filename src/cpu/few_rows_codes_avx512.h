// Decodes codes of a unit to BF16 and fp32 numbers with AVX-512. Part of few_rows_kernels.cpp and gemm_kernels.cpp.
//
// Codes pick BF16 numbers from registers that hold all values of an element. Words of four bits do, and without VBMI words
// of six and eight bits. With VBMI, bytes of six and eight bits pick both bytes of such numbers. In blocks without dot
// products, codes of four bits pick BF16 and fp32 numbers to lanes.
#pragma once
#include <bit>

#include "cpu/lanes.h"
#include "numerics/element.h"

namespace mxq::cpu {
namespace {

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

// The BF16 values of all codes, those of less than seven bits again and again; of eight bits those of all magnitudes. As
// words, and as their low and high bytes.
template <class E>
struct Bf16Table {
    alignas(64) uint16_t words[128];
    alignas(64) uint8_t bytes[2][128];

    constexpr Bf16Table() : words(), bytes() {
        for (uint32_t i = 0; i < 128; i++) {
            words[i] = bf16_of_code<E>(E::bits == 8 ? i : i % (1u << E::bits));
            bytes[0][i] = uint8_t(words[i]), bytes[1][i] = uint8_t(words[i] >> 8);
        }
    }
};
template <class E>
constexpr Bf16Table<E> kBf16Table;

using Words = __m512i;
MXQ_HD Words upper_of(Words pairs) { return _mm512_and_si512(pairs, _mm512_set1_epi32(int(0xFFFF0000))); }
MXQ_HD Words lower_of(Words pairs) { return _mm512_maskz_slli_epi32(kAll, pairs, 16); }
MXQ_HD Lanes as_lanes(Words words) { return {_mm512_castsi512_ps(words)}; }
MXQ_HD Words load_words(const uint8_t* from) { return _mm512_loadu_si512(from); }

constexpr __mmask64 kAllBytes = ~__mmask64(0);
constexpr __mmask32 kAllWords = ~__mmask32(0);

// Returns the 64 bytes of a table from byte 64 half on.
MXQ_HD __m512i half_of(const void* table, int half) {
    return _mm512_load_si512(static_cast<const uint8_t*>(table) + 64 * half);
}
MXQ_HD __m512i low_pairs(__m512i low, __m512i high) { return _mm512_maskz_unpacklo_epi8(kAllBytes, low, high); }
MXQ_HD __m512i high_pairs(__m512i low, __m512i high) { return _mm512_maskz_unpackhi_epi8(kAllBytes, low, high); }

// Picks the BF16 values of code s of each word, by its low bits.
template <class E>
MXQ_HD __m512i pick_nibbles(const __m512i& codes, int s) {
    const __m512i first = s == 0 ? codes : _mm512_maskz_srli_epi16(kAllWords, codes, unsigned(4 * s));
    return _mm512_maskz_permutexvar_epi16(kAllWords, first, half_of(kBf16Table<E>.words, 0));
}

// Which byte of a vector goes to each of its bytes.
struct ByteOrder {
    alignas(64) uint8_t byte[64];
};

#if defined(__AVX512VBMI__)
// Loads 64 codes of six bits to bytes, whose upper two bits are not zero.
MXQ_HD __m512i load_six_bits(const uint8_t* codes) {
    // Eight codes are six bytes.
    static constexpr ByteOrder order = [] {
        ByteOrder result{};
        for (int i = 0; i < 64; i++) result.byte[i] = uint8_t(i / 8 * 6 + (i % 8 < 6 ? i % 8 : 0));
        return result;
    }();
    const __m512i bytes = _mm512_maskz_loadu_epi32(0x0FFF, codes);
    const __m512i eights = _mm512_maskz_permutexvar_epi8(kAllBytes, _mm512_load_si512(&order), bytes);
    const __m512i starts = _mm512_set1_epi64(int64_t(0x2A241E18120C0600));
    return _mm512_maskz_multishift_epi64_epi8(kAllBytes, starts, eights);
}

// Picks byte `which` of the BF16 values of 64 codes of eight bits, without their signs, or of six bits, whose upper two bits
// may be anything.
template <class E>
MXQ_HD __m512i pick_bytes(__m512i codes, int which) {
    const uint8_t* const table = kBf16Table<E>.bytes[which];
    if constexpr (E::bits == 8) return _mm512_permutex2var_epi8(half_of(table, 0), codes, half_of(table, 1));
    return _mm512_maskz_permutexvar_epi8(kAllBytes, codes, half_of(table, 0));
}

// Calls use(s, pairs) with the BF16 values of 64 codes that are a byte each.
template <class E, class Use>
MXQ_HD void pick_pairs(__m512i codes, const Use& use) {
    const __m512i low = pick_bytes<E>(codes, 0);
    __m512i high = pick_bytes<E>(codes, 1);
    constexpr int or_of_and = 0xF8;  // a | (b & c)
    if constexpr (E::bits == 8) high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(char(0x80)), or_of_and);
    use(0, low_pairs(low, high));
    use(1, high_pairs(low, high));
}
#else
// Returns the order in which a word has the bytes of one code of six bits: of codes 8 half .. 8 half + 7 of every sixteen.
constexpr ByteOrder six_bit_order(int half) {
    constexpr uint8_t first[] = {0, 1, 0, 1, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 5};
    ByteOrder order{};
    for (int i = 0; i < 64; i++) order.byte[i] = uint8_t(6 * half + first[i % 16]);
    return order;
}

// Moves the bytes of 64 codes of six bits to words that hold one each: sixteen codes to every sixteen bytes, and then
// theirs.
struct SixBitWords {
    MXQ_HD explicit SixBitWords(const uint8_t* codes) {
        const __m512i dwords = _mm512_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0, 6, 7, 8, 0, 9, 10, 11, 0);
        sixteens = _mm512_maskz_permutexvar_epi32(kAll, dwords, _mm512_maskz_loadu_epi32(0x0FFF, codes));
    }

    // Returns codes 8 half .. 8 half + 7 of every sixteen.
    MXQ_HD __m512i words(int half) const {
        static constexpr ByteOrder orders[] = {six_bit_order(0), six_bit_order(1)};
        return _mm512_shuffle_epi8(sixteens, _mm512_load_si512(&orders[half]));
    }

    __m512i sixteens;
};

// Calls use(s, pairs) with the BF16 values of 64 codes of six bits. Words pick them by their low bits.
template <class E, class Use>
MXQ_HD void pick_six_bits(const uint8_t* stored, const Use& use) {
    const SixBitWords codes(stored);
    const __m512i starts = _mm512_set1_epi64(0x0002000400060000);
    const uint16_t* const table = kBf16Table<E>.words;
    for (int half = 0; half < 2; half++) {
        const __m512i words = _mm512_maskz_srlv_epi16(kAllWords, codes.words(half), starts);
        use(half, _mm512_permutex2var_epi16(half_of(table, 0), words, half_of(table, 1)));
    }
}

// Returns the BF16 values of 32 codes of eight bits, each of which is in both bytes of its word.
template <class E>
MXQ_HD __m512i pick_words(__m512i codes) {
    const uint16_t* const table = kBf16Table<E>.words;
    const __m512i low = _mm512_permutex2var_epi16(half_of(table, 0), codes, half_of(table, 1));
    const __m512i high = _mm512_permutex2var_epi16(half_of(table, 2), codes, half_of(table, 3));
    const __m512i picked = _mm512_mask_blend_epi16(_mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40)), low, high);
    constexpr int or_of_and = 0xF8;  // a | (b & c)
    return _mm512_ternarylogic_epi32(picked, codes, _mm512_set1_epi16(short(0x8000)), or_of_and);
}

// Calls use(s, pairs) with the BF16 values of 64 codes of eight bits.
template <class E, class Use>
MXQ_HD void pick_pairs(__m512i codes, const Use& use) {
    use(0, pick_words<E>(low_pairs(codes, codes)));
    use(1, pick_words<E>(high_pairs(codes, codes)));
}
#endif

// Calls use(s, pairs) with the BF16 values of 64 codes of six or eight bits. With VBMI bytes pick those of six bits, too: on
// Intel's processors a pick of words from two registers is three operations, and products take 3 to 16% less time by bytes.
template <class E, class Use>
MXQ_HD void decode_bytes(const uint8_t* stored, const Use& use) {
    if constexpr (E::bits == 8) return pick_pairs<E>(_mm512_loadu_si512(stored), use);
#if defined(__AVX512VBMI__)
    if constexpr (E::bits == 6) pick_pairs<E>(load_six_bits(stored), use);
#else
    if constexpr (E::bits == 6) pick_six_bits<E>(stored, use);
#endif
}

template <class E, class Use>
MXQ_HD void decode_pairs(const uint8_t* codes, const Use& use) {
    if constexpr (E::bits == 4) {
        const __m512i stored = load_words(codes);
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++) use(s, pick_nibbles<E>(stored, s));
    } else
        for (int half = 0; half < 2; half++)
            decode_bytes<E>(
                codes + half * 8 * E::bits, [&](int s, __m512i pairs)
                                                __attribute__((always_inline)) { use(2 * half + s, pairs); });
}

// The fp32 values of all codes of four bits.
template <class E>
struct NibbleTable {
    alignas(64) float values[16];

    constexpr NibbleTable() : values() {
        static_assert(E::bits == 4);
        for (uint32_t i = 0; i < 16; i++) values[i] = std::bit_cast<float>(uint32_t(bf16_of_code<E>(i)) << 16);
    }
};
template <class E>
constexpr NibbleTable<E> kNibbleTable;

// A chunk of a row of codes, of which a step is two vectors: those that upper_of() and lower_of() make of a pair. It is a
// unit of codes of four bits, which are picked in their steps, or half a unit of six or eight bits, which become pairs when
// it is taken: they take so long to become numbers that they are best taken before the chunk before them is used up.
template <class E>
struct DecodedPiece {
    static constexpr int steps = E::bits == 4 ? 4 : 2, of_unit = kUnitVectors / 2 / steps;

    MXQ_HD void take(const uint8_t* codes) {
        if constexpr (E::bits == 4)
            codes_ = codes;
        else
            decode_bytes<E>(
                codes, [&](int s, const Words& pairs) __attribute__((always_inline)) { pairs_[s] = pairs; });
    }

    MXQ_HD Words pairs(int step) const {
        if constexpr (E::bits == 4)
            return pick_nibbles<E>(load_words(codes_), step);
        else
            return pairs_[step];
    }

    static constexpr __mmask32 kUpperHalves = 0xAAAAAAAA;

    // A code of four bits picks a BF16 number to the upper half of each lane and zeros to the lower one, or an fp32 number,
    // by the same bits: two operations, where picking a pair and taking it apart are three.
    MXQ_HD Lanes upper(int step) const {
        if constexpr (E::bits == 4)
            return as_lanes(_mm512_maskz_permutexvar_epi16(kUpperHalves, index(step), half_of(kBf16Table<E>.words, 0)));
        else
            return as_lanes(upper_of(pairs_[step]));
    }
    MXQ_HD Lanes lower(int step) const {
        if constexpr (E::bits == 4)
            return {_mm512_maskz_permutexvar_ps(kAll, index(step), load_lanes(kNibbleTable<E>.values).all)};
        else
            return as_lanes(lower_of(pairs_[step]));
    }

private:
    MXQ_HD Words index(int step) const {
        const Words codes = load_words(codes_);
        return step == 0 ? codes : _mm512_maskz_srli_epi16(kAllWords, codes, unsigned(4 * step));
    }

    const uint8_t* codes_;  // of four bits
    Words pairs_[2];        // of six and eight
};

// Decodes units of codes of E to fp32 numbers or to pairs of BF16.
template <class E>
struct UnitDecoder {
    using Element = E;

    template <class Use>
    MXQ_HD static void decode(const uint8_t* codes, const Use& use) {
        decode_pairs<E>(
            codes, [&](int s, Words pairs) __attribute__((always_inline)) {
                use(2 * s, as_lanes(upper_of(pairs)));
                use(2 * s + 1, as_lanes(lower_of(pairs)));
            });
    }
    template <class Use>
    MXQ_HD static void decode_words(const uint8_t* codes, const Use& use) {
        decode_pairs<E>(codes, use);
    }
};
template <class E>
constexpr int kFold = 0;
template <class E>
constexpr bool kLosesNan = false;

}  // namespace
}  // namespace mxq::cpu
