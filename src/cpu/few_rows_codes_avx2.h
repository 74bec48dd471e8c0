// Decodes codes of a unit to F16 numbers with AVX2. Part of few_rows_kernels.cpp.
//
// Codes of four bits pick bytes of F16 numbers. Codes of six and eight bits move to where F16 has their bits.
#pragma once
#include <type_traits>

#include "cpu/decode.h"
#include "cpu/lanes.h"

namespace mxq::cpu {
namespace {

// Interleaves the lanes of a vector of sixteen: 0 8 1 9 2 10 3 11 in the first part, 4 12 5 13 and so on in the second.
MXQ_HD void interleave_lanes(float* lanes) {
    const Four a = load_four(lanes), b = load_four(lanes + 4), c = load_four(lanes + 8), d = load_four(lanes + 12);
    store_four(__builtin_shufflevector(a, c, 0, 4, 1, 5), lanes);
    store_four(__builtin_shufflevector(a, c, 2, 6, 3, 7), lanes + 4);
    store_four(__builtin_shufflevector(b, d, 0, 4, 1, 5), lanes + 8);
    store_four(__builtin_shufflevector(b, d, 2, 6, 3, 7), lanes + 12);
}

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

// How many chunks a unit is decoded in, and the bytes of one.
template <class E>
constexpr int kPieces = E::bits == 4 ? 2 : 4;
template <class E>
constexpr int64_t kPieceBytes = kUnit* E::bits / 8 / kPieces<E>;

// Keeps words in a register, and the compiler from computing them before or after any other that is kept so.
MXQ_HD void keep_here(Words& words) { asm volatile("" : "+x"(words)); }
MXQ_HD void keep_here(Lanes& lanes) { asm volatile("" : "+x"(lanes.all)); }

// Adds a * b to a sum with one rounding, and is kept in order as by keep_here(). Of an intrinsic GCC 12 makes the form that
// overwrites a factor, and moves the sum back to its register: four rows took up to a twentieth more.
MXQ_HD void add_product_here(const Lanes& a, const Lanes& b, Lanes& sum) {
    asm volatile("vfmadd231ps %2, %1, %0" : "+x"(sum.all) : "x"(a.all), "x"(b.all));
}

// Decodes a chunk of a unit of codes of six or eight bits to F16 numbers, and stores them where load_halves() finds them.
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

    // Loads the codes of a chunk: eights 0 and 2 to the lower half, 1 and 3 to the upper one. Those of six bits come with
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

// Decodes ahead codes of four bits. A chunk has half the bytes of each lane, all lanes interleaved, as they come from bytes
// that lie 32 apart: of 4-byte words a0 a1 .. a7 | b0 .. b7 of a unit, chunk 0 has the lower halves a0 b0 a1 b1 .. of both,
// and chunk 1 the upper ones.
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
    MXQ_HD static Words both_halves(const uint8_t* unit, int piece) {
        const uint8_t* const from = unit + 2 * piece;
        return _mm256_blend_epi16(load_words(from), load_words(from + kUnit / 4 - 2), 0xAA);
    }

    Words low_, high_;  // codes, then the upper bytes of their numbers
};

template <class E>
using PieceDecoder = std::conditional_t<E::bits == 4, NibblePiece<E>, WidePiece<E>>;

// Returns a part of vector n of a decoded unit. Codes of four bits have a chunk for the odd vectors, whose codes are the
// first four of each lane in the order of their bytes, low ones first, then one for the even ones; chunks of others have a
// part of four vectors, of which the odd ones follow the even ones.
template <class E>
MXQ_HD Lanes load_halves(const uint16_t* unit, int n, int64_t part) {
    const int64_t pair = n / 2, in_nibbles = (1 - n % 2) * 64 + (pair % 2 * 2 + pair / 2) * 16 + part * 8;
    const int64_t in_bytes = (n / 4 * 2 + part) * 32 + n % 2 * 16 + n % 4 / 2 * 8;
    const uint16_t* const from = unit + (E::bits == 4 ? in_nibbles : in_bytes);
    return {_mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(from)))};
}

template <class E>
struct UnitDecoder {
    using Element = E;  // units are decoded ahead, piece by piece
};
template <class E>
constexpr int kFold = E::bits == 4 ? 0 : 15 - E::bias;  // from F16
// Tells whether NaN becomes a number: rows of B that have some are decoded in another way.
template <class E>
constexpr bool kLosesNan = E::first_special == E::nan_code&& has_nan<E>;

}  // namespace
}  // namespace mxq::cpu
