// How the codes of a unit of a line become fp32 numbers in registers, in products of few rows. Part of few_rows_kernels.cpp.
//
// The order decides which products a lane sums, so it is the same for all instruction sets. It is the one in which codes
// come out of their bytes with the fewest shuffles, where the numbers of a lane are neighbours and share a factor:
//
//     AVX-512      codes pick BF16 numbers from registers that hold all values of an element: words of four bits do, of six
//                  and eight without VBMI, and with it bytes of six and eight bits pick both bytes of such numbers. In
//                  blocks without dot products four bits pick BF16 and fp32 numbers to lanes
//     AVX2         codes of four bits pick bytes of F16 numbers; those of six and eight bits move to where F16 has their
//     bits scalar       decode() of each
#pragma once
#include <bit>
#include <type_traits>

#include "cpu/decode_lines.h"
#include "cpu/lanes.h"
#include "numerics/convert.h"

namespace mxq::cpu {
namespace {

// nibbles, bytes    of codes of four bits, and of six and eight: see code_at()
// pairs, sixteens   of plain numbers: 2 l + 1 and 2 l in lane l, or l and l + 16
enum class Order { nibbles, bytes, pairs, sixteens };

// How many codes or numbers are decoded together, and to how many vectors of sixteen.
constexpr int64_t kUnit = 128;
constexpr int kUnitVectors = int(kUnit / kLanes);

// MX codes have a factor for so many of them: those of larger blocks have copies.
constexpr int64_t kMxBlock = 32;

// Returns which number of a unit lies in a lane of a vector. Of codes of four bits a lane has the eight of its four bytes:
// the fifth, the first, the sixth, the second and so on. Of wider ones, those of sixteen bytes lie in four lanes: lane d of
// them has bytes 2 d, 2 d + 1, 8 + 2 d and 9 + 2 d, each odd one before its even one.
constexpr int64_t code_at(Order order, int64_t vector, int64_t lane) {
    if (order == Order::pairs) return vector / 2 * 32 + 2 * lane + 1 - vector % 2;
    if (order == Order::sixteens) return kLanes * vector + lane;
    const int64_t group = lane / 4, odd = 1 - vector % 2, pair = vector / 2;
    if (order == Order::bytes) return 64 * (pair / 2) + 16 * group + 8 * (pair % 2) + 2 * (lane % 4) + odd;
    return 8 * lane + 4 * odd + pair;
}

typedef float Four __attribute__((vector_size(16)));

MXQ_HD Four load_four(const float* from) {
    Four four;
    memcpy(&four, from, sizeof four);
    return four;
}
MXQ_HD void store_four(Four four, float* to) { memcpy(to, &four, sizeof four); }

// Arranges every second four of 32 neighbours, which belong to four lanes: a transpose of 4 x 4.
MXQ_HD void arrange_nibbles(const float* codes, float* to) {
    const Four a = load_four(codes), b = load_four(codes + 8), c = load_four(codes + 16), d = load_four(codes + 24);
    const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store_four(__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), to);
    store_four(__builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7), to + 2 * kLanes);
    store_four(__builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), to + 4 * kLanes);
    store_four(__builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7), to + 6 * kLanes);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
// Tells whether lanes of codes of four bits lie in the order of interleave_lanes(), else as they come.
constexpr bool kInterleavesNibbles = true;
#else
constexpr bool kInterleavesNibbles = false;
#endif

// Interleaves the lanes of a vector of sixteen: 0 8 1 9 2 10 3 11 in the first part, 4 12 5 13 and so on in the second.
MXQ_HD void interleave_lanes(float* lanes) {
    const Four a = load_four(lanes), b = load_four(lanes + 4), c = load_four(lanes + 8), d = load_four(lanes + 12);
    store_four(__builtin_shufflevector(a, c, 0, 4, 1, 5), lanes);
    store_four(__builtin_shufflevector(a, c, 2, 6, 3, 7), lanes + 4);
    store_four(__builtin_shufflevector(b, d, 0, 4, 1, 5), lanes + 8);
    store_four(__builtin_shufflevector(b, d, 2, 6, 3, 7), lanes + 12);
}

// Arranges eight neighbours: the odd ones before the even ones.
MXQ_HD void arrange_bytes(const float* codes, float* to) {
    const Four a = load_four(codes), b = load_four(codes + 4);
    store_four(__builtin_shufflevector(a, b, 1, 3, 5, 7), to);
    store_four(__builtin_shufflevector(a, b, 0, 2, 4, 6), to + kLanes);
}

// Arranges the numbers of a unit, one vector after another.
template <Order order>
MXQ_HD void arrange_as(const float* unit, float* to) {
    if constexpr (order == Order::nibbles) {
        for (int64_t i = 0; i < kUnit; i += 32) {
            arrange_nibbles(unit + i + 4, to + i / 8);
            arrange_nibbles(unit + i, to + kLanes + i / 8);
        }
        for (int64_t i = 0; kInterleavesNibbles && i < kUnit; i += kLanes) interleave_lanes(to + i);
    } else if constexpr (order == Order::bytes) {
        for (int64_t i = 0; i < kUnit; i += 8)
            arrange_bytes(unit + i, to + (i / 64 * 4 + i % 16 / 8 * 2) * kLanes + i % 64 / 16 * 4);
    } else if constexpr (order == Order::pairs) {
        for (int64_t i = 0; i < kUnit; i += 2 * kLanes)
            for (int64_t l = 0; l < kLanes; l++) to[i + l] = unit[i + 2 * l + 1], to[i + kLanes + l] = unit[i + 2 * l];
    } else {
        memcpy(to, unit, size_t(kUnit) * sizeof(float));
    }
}
inline void arrange(Order order, const float* unit, float* to) {
    order == Order::nibbles ? arrange_as<Order::nibbles>(unit, to)
    : order == Order::bytes ? arrange_as<Order::bytes>(unit, to)
    : order == Order::pairs ? arrange_as<Order::pairs>(unit, to)
                            : arrange_as<Order::sixteens>(unit, to);
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Which of so many factors each lane takes, in the bits of its index from bit `shift` on.
template <int64_t count, int shift>
struct FactorOfLane {
    alignas(64) int32_t index[kLanes];

    constexpr FactorOfLane() : index() {
        for (int64_t i = 0; i < kLanes; i++) index[i] = int32_t(i * count / kLanes) << shift;
    }
};
template <class Index>
constexpr Index kFactorOfLane;

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
#endif

#if defined(__AVX512F__)
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

template <class E, class Use>
MXQ_HD void decode_nibbles(const uint8_t* stored, const Use& use) {
    const __m512i codes = _mm512_loadu_si512(stored);
#pragma GCC unroll 4
    for (int s = 0; s < 4; s++) use(s, pick_nibbles<E>(codes, s));
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
    if constexpr (E::bits == 4)
        decode_nibbles<E>(codes, use);
    else
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

// A piece of a line of codes, of which a step is two vectors: those that upper_of() and lower_of() make of a pair. It is a
// unit of codes of four bits, which are picked in their steps, or half a unit of six or eight bits, which become pairs when
// it is taken: their way to numbers is so long that they are best taken before the piece before them is used up.
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

    // A code of four bits picks a BF16 number to the upper half of each lane and zeros to the lower one, or an fp32 number,
    // by the same bits: two operations, where picking a pair and taking it apart are three.
    MXQ_HD Lanes upper(int step) const {
        constexpr __mmask32 uppers = 0xAAAAAAAA;
        if constexpr (E::bits == 4)
            return as_lanes(_mm512_maskz_permutexvar_epi16(uppers, index(step), half_of(kBf16Table<E>.words, 0)));
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

template <class E, class Use>
MXQ_HD void decode_unit(const uint8_t* codes, int64_t, const Use& use) {
    decode_pairs<E>(
        codes, [&](int s, __m512i pairs) __attribute__((always_inline)) {
            use(2 * s, as_lanes(upper_of(pairs)));
            use(2 * s + 1, as_lanes(lower_of(pairs)));
        });
}
template <class E>
constexpr int kFold = 0;
template <class E>
constexpr bool kLosesNan = false;
#elif defined(__AVX2__)
using Words = __m256i;
MXQ_HD Words upper_of(Words pairs) { return _mm256_and_si256(pairs, _mm256_set1_epi32(int(0xFFFF0000))); }
MXQ_HD Words lower_of(Words pairs) { return _mm256_slli_epi32(pairs, 16); }
MXQ_HD Lanes as_lanes(Words words) { return {_mm256_castsi256_ps(words)}; }
MXQ_HD Words load_words(const uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

// The upper bytes of the F16 values of all codes of four bits, twice; the lower ones are zero.
template <class E>
struct HalfTable {
    alignas(32) uint8_t upper[32];

    constexpr HalfTable() : upper() {
        static_assert(E::bits == 4 && E::mantissa_bits == 1 && E::bias == 1);
        constexpr uint8_t of_half = 0x38;  // the one subnormal number
        for (uint32_t i = 0; i < 32; i++) {
            const uint32_t magnitude = i % 8, sign = i % 16 / 8 << 7;
            upper[i] = uint8_t(sign | (magnitude > 1 ? (magnitude << 1) + ((15 - E::bias) << 2) : magnitude * of_half));
        }
    }
};
template <class E>
constexpr HalfTable<E> kHalfTable;

MXQ_HD void store_words(__m256i words, uint16_t* to) { _mm256_store_si256(reinterpret_cast<__m256i*>(to), words); }

// How many pieces a unit is decoded in, and the bytes of one.
template <class E>
constexpr int kPieces = E::bits == 4 ? 2 : 4;
template <class E>
constexpr int64_t kPieceBytes = kUnit * E::bits / 8 / kPieces<E>;

// Keeps words in a register, and the compiler from computing them before or after any other that is kept so.
MXQ_HD void keep_here(Words& words) { asm volatile("" : "+x"(words)); }
MXQ_HD void keep_here(Lanes& lanes) { asm volatile("" : "+x"(lanes.all)); }

// Adds a * b to a sum with one rounding, and is kept in order as by keep_here(). Of an intrinsic GCC 12 makes the form that
// overwrites a factor, and moves the sum back to its register: four rows took up to a twentieth more.
MXQ_HD void add_product_here(const Lanes& a, const Lanes& b, Lanes& sum) {
    asm volatile("vfmadd231ps %2, %1, %0" : "+x"(sum.all) : "x"(a.all), "x"(b.all));
}

// Decodes a piece of a unit of codes of six or eight bits to F16 numbers, and stores them where load_halves() finds them.
// Stores F16 and not fp32 numbers, since conversions of numbers in memory take none of the pipes that multiply-adds and
// shuffles need. Works in steps of two or three operations, which go between multiply-adds.
template <class E>
struct WidePiece {
    static constexpr int steps = 4;

    // Takes a step. The first calls look(codes).
    template <class Look>
    MXQ_HD void operator()(int step, const uint8_t* unit, int piece, uint16_t* to, const Look& look) {
        to += piece * (kUnit / kPieces<E>);
        if (step == 0) {
            odd_ = load(unit, piece);
            keep_here(odd_);
            look(odd_);
        } else if (step == 1) {
            if constexpr (E::bits == 6) odd_ = pairs_at_top(odd_);
            keep_here(odd_);
        } else if (step == 2) {
            even_ = even_halves();
            keep_here(even_);
            store_words(halves_of_numbers<E>(odd_), to);
        } else {
            store_words(even_, to + 16);
        }
    }

private:
    // Returns the F16 numbers of the even codes. One product moves a code of E4M3 to where F16 has its bits, and repeats its
    // sign, as two shifts do.
    MXQ_HD Words even_halves() const {
        if constexpr (E::bits == 8 && E::exponent_bits == 4) {
            const __m256i products = _mm256_maddubs_epi16(_mm256_set1_epi16(0x0080), odd_);
            return _mm256_and_si256(products, _mm256_set1_epi16(short(0x8000 | kMagnitudeOfHalf<E>)));
        }
        return halves_of_numbers<E>(_mm256_slli_epi16(odd_, E::bits));
    }

    // Loads the codes of a piece: eights 0 and 2 to the lower half, 1 and 3 to the upper one. Those of six bits come with
    // eight bytes more, those before them in the second half of a unit, else those after them, and begin at the third byte.
    MXQ_HD static Words load(const uint8_t* unit, int piece) {
        const uint8_t* const from = unit + piece * kPieceBytes<E>;
        if constexpr (E::bits == 8) return _mm256_permute4x64_epi64(load_words(from), 0xD8);
        const __m256i from_start = _mm256_setr_epi32(0, 1, 3, 4, 1, 2, 4, 5),
                      from_before = _mm256_setr_epi32(2, 3, 5, 6, 3, 4, 6, 7);
        const bool is_end = piece >= kPieces<E> / 2;
        return _mm256_permutevar8x32_epi32(load_words(from - (is_end ? 8 : 0)), is_end ? from_before : from_start);
    }

    // Returns words with two codes of six bits each, the odd one at the top, as codes of eight bits have them: in the lower
    // half of a vector the first eight of each sixteen codes.
    MXQ_HD static Words pairs_at_top(const Words& stored) {
        const __m256i order = _mm256_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 8, 9, 9, 10, 11, 12, 12, 13,  //
                                               2, 3, 3, 4, 5, 6, 6, 7, 10, 11, 11, 12, 13, 14, 14, 15);
        return _mm256_mullo_epi16(_mm256_shuffle_epi8(stored, order), _mm256_set1_epi32(0x00010010));  // from bits 0 and 4
    }

    Words odd_, even_;  // odd codes at the top of words, even ones below them; numbers of these
};

// Decodes ahead codes of four bits. A piece has half the bytes of each lane, all lanes interleaved, as they come from bytes
// that lie 32 apart: of 4-byte words a0 a1 .. a7 | b0 .. b7 of a unit, piece 0 has the lower halves a0 b0 a1 b1 .. of both,
// and piece 1 the upper ones.
template <class E>
struct NibblePiece {
    static constexpr int steps = 8;

    template <class Look>
    MXQ_HD void operator()(int step, const uint8_t* unit, int piece, uint16_t* to, const Look&) {
        const __m256i ones = _mm256_set1_epi8(0x0F), uppers = _mm256_set1_epi16(short(0xFF00));
        const __m256i table = load_words(kHalfTable<E>.upper);
        to += piece * (kUnit / kPieces<E>);
        if (step == 0) high_ = both_halves(unit, piece), low_ = _mm256_and_si256(high_, ones), keep_here(low_);
        if (step == 1) high_ = _mm256_and_si256(_mm256_srli_epi16(high_, 4), ones);
        if (step == 2) low_ = _mm256_shuffle_epi8(table, low_), keep_here(low_);
        if (step == 3) high_ = _mm256_shuffle_epi8(table, high_);
        if (step < 4) keep_here(high_);
        if (step >= 4) {
            const Words& upper = step < 6 ? low_ : high_;
            Words halves = step % 2 ? _mm256_and_si256(upper, uppers) : _mm256_slli_epi16(upper, 8);
            keep_here(halves);
            store_words(halves, to + (step - 4) * 16);
        }
    }

private:
    // Loads two bytes of each lane.
    MXQ_HD static Words both_halves(const uint8_t* unit, int piece) {
        const uint8_t* const from = unit + 2 * piece;
        return _mm256_blend_epi16(load_words(from), load_words(from + kUnit / 4 - 2), 0xAA);
    }

    Words low_, high_;  // codes, then the upper bytes of their numbers
};

template <class E>
using PieceDecoder = std::conditional_t<E::bits == 4, NibblePiece<E>, WidePiece<E>>;

// Returns a part of vector n of a decoded unit. Codes of four bits have a piece for the odd vectors, whose codes are the
// first four of each lane in the order of their bytes, low ones first, then one for the even ones; pieces of others have a
// part of four vectors, of which the odd ones follow the even ones.
template <class E>
MXQ_HD Lanes load_halves(const uint16_t* unit, int n, int64_t part) {
    const int64_t pair = n / 2, in_nibbles = (1 - n % 2) * 64 + (pair % 2 * 2 + pair / 2) * 16 + part * 8;
    const int64_t in_bytes = (n / 4 * 2 + part) * 32 + n % 2 * 16 + n % 4 / 2 * 8;
    const uint16_t* const from = unit + (E::bits == 4 ? in_nibbles : in_bytes);
    return {_mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(from)))};
}

template <class E, class Use>
MXQ_HD void decode_unit(const uint8_t* codes, int64_t part, const Use& use) {
    alignas(64) uint16_t halves[kUnit];
    for (int piece = E::bits == 4 ? 0 : int(part); piece < kPieces<E>; piece += E::bits == 4 ? 1 : 2) {
        PieceDecoder<E> decode;
#pragma GCC unroll 8
        for (int step = 0; step < decode.steps; step++) decode(step, codes, piece, halves, [](const Words&) {});
    }
#pragma GCC unroll 8
    for (int n = 0; n < kUnitVectors; n++) use(n, load_halves<E>(halves, n, part));
}
template <class E>
constexpr int kFold = E::bits == 4 ? 0 : 15 - E::bias;  // from F16
// Tells whether NaN becomes a number: lines that have some are decoded in another way.
template <class E>
constexpr bool kLosesNan = E::first_special == E::nan_code&& has_nan<E>;
#else
template <class E, class Use>
void decode_unit(const uint8_t* codes, int64_t, const Use& use) {
    constexpr Order order = E::bits == 4 ? Order::nibbles : Order::bytes;
    float values[kUnit];
    Lanes arranged[kUnitVectors];
    for (int64_t i = 0; i < kUnit; i += kSixteen) store_sixteen(decode_stored_16<E>(codes + i * E::bits / 8), values + i);
    arrange_as<order>(values, arranged[0].all);
    for (int n = 0; n < kUnitVectors; n++) use(n, arranged[n]);
}
template <class E>
constexpr int kFold = 0;
template <class E>
constexpr bool kLosesNan = false;
#endif

// Decodes units of codes of E, part by part, or as pairs of BF16.
template <class E>
struct UnitDecoder {
    using Element = E;

    template <class Use>
    MXQ_HD static void decode(const uint8_t* codes, int64_t part, const Use& use) {
        decode_unit<E>(codes, part, use);
    }
#if defined(__AVX512BF16__)
    template <class Use>
    MXQ_HD static void decode_words(const uint8_t* codes, const Use& use) {
        decode_pairs<E>(codes, use);
    }
#endif
};

}  // namespace
}  // namespace mxq::cpu
