// Encodes values to codes of a byte each, and packs codes as they are stored. Part of kernels.cpp.
//
//     values x multiplier -> code, to nearest or by random bytes -> masked -> packed 8, 6 or 4 bits each
#pragma once
#include "cpu/moves.h"
#include "cpu/quantize_nvfp4.h"
#include "cpu/quantize_scales.h"
#include "numerics/element.h"
#include "numerics/packing.h"
#include "numerics/philox.h"

namespace mxq::cpu {
namespace {

// Stores the low bytes of words. Codes are 32-bit words before they become bytes, because a compiler that sees the narrowing
// in the loop of the arithmetic narrows every operand instead of the one result.
MXQ_HD void narrow_words(const uint32_t* words, uint8_t* codes) {
    for (int64_t i = 0; i < kMxBlock; i++) codes[i] = uint8_t(words[i]);
}

// Rounds to nearest. A type with NaN has a code for everything that a multiplier can make of a value, and needs no mask.
template <class E>
struct Nearest {
    struct None {
        MXQ_HD uint32_t operator[](int64_t) const { return 0; }
    };
    MXQ_HD static None random_of(const uint8_t*) {
        return {};
    }
    MXQ_HD static uint32_t code(float scaled, uint32_t mask, uint32_t) {
        const uint32_t code = encode<E>(scaled);
        return has_nan<E> ? code : code & mask;
    }
};

// Rounds E2M1 by a random byte for each element. The bytes are widened in a loop of their own, for the vectoriser.
struct Stochastic {
    struct Words {
        alignas(64) uint32_t words[kMxBlock];
        MXQ_HD uint32_t operator[](int64_t i) const { return words[i]; }
    };
    MXQ_HD static Words random_of(const uint8_t* bytes) {
        Words random;
        for (int64_t i = 0; i < kMxBlock; i++) random.words[i] = bytes[i];
        return random;
    }
    MXQ_HOST static uint32_t code(float scaled, uint32_t mask, uint32_t random) { return stochastic_e2m1(scaled, random) & mask; }
};

// Encodes 32 neighbours. `multiplier` and `mask` are functions of the neighbour's number.
template <class Rounding, class Multipliers, class Masks>
MXQ_HD void encode_32(const float* values, const Multipliers& multiplier, const Masks& mask, const uint8_t* random,
                      uint8_t* codes) {
    alignas(64) uint32_t words[kMxBlock];
    const auto bytes = Rounding::random_of(random);
    for (int64_t i = 0; i < kMxBlock; i++)
        words[i] = Rounding::code(multiply_rn(values[i], multiplier(i)), mask(i), bytes[i]);
    narrow_words(words, codes);
}

#if defined(__AVX2__) && defined(__F16C__)
// Returns words that are no NaN as they are, and +0 in position of a NaN.
MXQ_HD __m256i without_nan(Words words) {
    const __m256i nan = _mm256_cmpgt_epi16(__m256i(words & 0x7FFF), _mm256_set1_epi16(kInfinityBits >> 16));
    return _mm256_andnot_si256(nan, __m256i(words));
}

// Encodes 32 neighbours to E2M1, rounded to nearest: their products, rounded to odd as BF16, have the codes of the products
// (numerics/nvfp4.h). The codes are masked by the bytes of `mask`.
MXQ_HD void encode_e2m1_32(const float* values, const Floats (&multipliers)[4], __m256i mask, uint8_t* codes) {
    const auto words = [&](int i) {  // those of 16 neighbours: 0, 8, 1, 9 and so on
        return to_odd_words(read<Floats>(values + 8 * i) * multipliers[i], read<Floats>(values + 8 * i + 8) * multipliers[i + 1]);
    };
    const Words first = words(0), second = words(2);
    const __m256i magnitudes = _mm256_packus_epi16(__m256i(e2m1_magnitudes(first)), __m256i(e2m1_magnitudes(second)));
    const __m256i saturated = _mm256_packs_epi16(without_nan(first), without_nan(second));
    const __m256i signs = _mm256_and_si256(_mm256_srli_epi16(saturated, 4), _mm256_set1_epi8(ElementBits<E2M1>::sign));
    const __m256i apart = _mm256_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15,  //
                                           0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m256i fours = _mm256_shuffle_epi8(_mm256_or_si256(magnitudes, signs), apart);
    const __m256i in_order = _mm256_permutevar8x32_epi32(fours, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes), _mm256_and_si256(in_order, mask));
}

// Does what encode_blocks does, for E2M1 rounded to nearest.
template <int64_t length>
MXQ_HD void encode_e2m1_blocks(const float* values, int64_t blocks, const BlockScales& scales, uint8_t* codes) {
    for (int64_t i = 0; i < blocks * length; i += kMxBlock) {
        const int64_t first = i / length, second = (i + kNvBlock) / length;
        const Floats low = all(scales.multipliers[first]), high = all(scales.multipliers[second]);
        const __m256i mask = _mm256_set_m128i(_mm_set1_epi8(char(scales.masks[second])), _mm_set1_epi8(char(scales.masks[first])));
        encode_e2m1_32(values + i, {low, low, high, high}, mask, codes + i);
    }
}

// Does what encode_columns does, for E2M1 rounded to nearest.
MXQ_HD void encode_e2m1_columns(const float* values, int64_t rows, int64_t pitch, const BlockScales& scales, uint8_t* codes,
                                int64_t code_pitch) {
    for (int64_t col = 0; col < pitch; col += kMxBlock) {
        Floats multipliers[4];
        alignas(32) uint8_t masks[kMxBlock];
        for (int i = 0; i < 4; i++) multipliers[i] = read<Floats>(scales.multipliers + col + 8 * i);
        narrow_words(scales.masks + col, masks);
        const __m256i mask = read<__m256i>(masks);
        for (int64_t row = 0; row < rows; row++)
            encode_e2m1_32(values + row * pitch + col, multipliers, mask, codes + row * code_pitch + col);
    }
}

// Whether E2M1 is encoded by the functions above.
template <class Rounding>
constexpr bool by_odd_words = __is_same(Rounding, Nearest<E2M1>);
#else
template <class Rounding>
constexpr bool by_odd_words = false;
template <int64_t length>
MXQ_HD void encode_e2m1_blocks(const float*, int64_t, const BlockScales&, uint8_t*) {}
MXQ_HD void encode_e2m1_columns(const float*, int64_t, int64_t, const BlockScales&, uint8_t*, int64_t) {}
#endif

// Encodes blocks of `length` neighbours.
template <class Rounding, int64_t length>
void encode_blocks(const float* values, int64_t blocks, const BlockScales& scales, const uint8_t* random, uint8_t* codes) {
    if constexpr (by_odd_words<Rounding>) return encode_e2m1_blocks<length>(values, blocks, scales, codes);
    for (int64_t i = 0; i < blocks * length; i += kMxBlock) {
        // These 32 neighbours are one block, a part of one, or two blocks of 16.
        const int64_t first = i / length, second = (i + kNvBlock) / length;
        const float multipliers[] = {scales.multipliers[first], scales.multipliers[second]};
        const uint32_t masks[] = {scales.masks[first], scales.masks[second]};
        const auto of = [](const auto& both, int64_t j) { return length >= kMxBlock || j < kNvBlock ? both[0] : both[1]; };
        encode_32<Rounding>(values + i, [&](int64_t j) { return of(multipliers, j); }, [&](int64_t j) { return of(masks, j); },
                            random + i, codes + i);
    }
}

// Encodes rows whose columns have a scale each, to K-major rows of codes that are `code_pitch` apart.
template <class Rounding>
void encode_columns(const float* values, int64_t rows, int64_t pitch, const BlockScales& scales, const uint8_t* random,
                    uint8_t* codes, int64_t code_pitch) {
    if constexpr (by_odd_words<Rounding>) return encode_e2m1_columns(values, rows, pitch, scales, codes, code_pitch);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t col = 0; col < pitch; col += kMxBlock) {
            const int64_t at = row * pitch + col;
            encode_32<Rounding>(values + at, [&](int64_t i) { return scales.multipliers[col + i]; },
                                [&](int64_t i) { return scales.masks[col + i]; }, random + at, codes + row * code_pitch + col);
        }
}

// ---- Random bytes of a patch ------------------------------------------------------------------------------------------

// The seed and offset, and where the patch stands among the codes of the part as stored: its first K-major row, and its
// first code in a K-major row divided by 16.
struct RandomPosition {
    const uint64_t* seed_offset;
    int64_t row, chunk;
};

MXQ_HD PhiloxWords random_words(const RandomPosition& position, int64_t row, int64_t chunk, bool columnwise) {
    return philox(
        philox_key(position.seed_offset[0]),
        philox_counter(uint32_t(position.chunk + chunk), uint32_t(position.row + row), columnwise, position.seed_offset[1]));
}

#if defined(__AVX2__)
// Four counters, or their random words: vector i has word i of each, in the lower half of 64 bits. The upper halves mean
// nothing.
struct FourCounters {
    __m256i words[4];
};

MXQ_HD FourCounters philox(const PhiloxKey& key, const FourCounters& counters) {
    const __m256i first = _mm256_set1_epi64x(0xD2511F53), second = _mm256_set1_epi64x(0xCD9E8D57);
    __m256i c0 = counters.words[0], c1 = counters.words[1], c2 = counters.words[2], c3 = counters.words[3];
    for (int round = 0; round < PhiloxKeys::rounds; ++round) {
        const __m256i keys[] = {_mm256_set1_epi64x(PhiloxKeys::word(key.words[0], 2 * round)),
                                _mm256_set1_epi64x(PhiloxKeys::word(key.words[1], 2 * round + 1))};
        const __m256i first_product = _mm256_mul_epu32(c0, first), second_product = _mm256_mul_epu32(c2, second);
        c0 = _mm256_xor_si256(_mm256_srli_epi64(second_product, 32), _mm256_xor_si256(c1, keys[0]));
        c1 = second_product;
        c2 = _mm256_xor_si256(_mm256_srli_epi64(first_product, 32), _mm256_xor_si256(c3, keys[1]));
        c3 = first_product;
    }
    return {{c0, c1, c2, c3}};
}

// Returns the random words of four chunks of K-major rows: of the chunk and the row in the vectors.
MXQ_HD FourCounters random_of_four(const RandomPosition& position, __m256i rows, __m256i chunks, bool columnwise) {
    const PhiloxCounter fixed = philox_counter(0, 0, columnwise, position.seed_offset[1]);
    return philox(philox_key(position.seed_offset[0]),
                  {{_mm256_add_epi32(chunks, _mm256_set1_epi64x(uint32_t(position.chunk))),
                    _mm256_or_si256(_mm256_add_epi32(rows, _mm256_set1_epi64x(uint32_t(position.row))),
                                    _mm256_set1_epi64x(fixed.words[1])),
                    _mm256_set1_epi64x(fixed.words[2]), _mm256_set1_epi64x(fixed.words[3])}});
}

MXQ_HD __m256i join_words(__m256i even, __m256i odd) { return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA); }

// Stores random bytes of four chunks of a row at a time, and returns how many chunks are done.
MXQ_HD int64_t random_of_fours(const RandomPosition& position, int64_t row, int64_t chunks, uint8_t* random) {
    int64_t chunk = 0;
    for (; chunk + 4 <= chunks; chunk += 4) {
        const FourCounters of = random_of_four(position, _mm256_set1_epi64x(row),
                                               _mm256_setr_epi64x(chunk, chunk + 1, chunk + 2, chunk + 3), false);
        const __m256i low = join_words(of.words[0], of.words[1]), high = join_words(of.words[2], of.words[3]);
        const __m256i even = _mm256_unpacklo_epi64(low, high), odd = _mm256_unpackhi_epi64(low, high);  // chunks 0 2, 1 3
        auto* const to = reinterpret_cast<__m256i*>(random + chunk * 16);
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }
    return chunk;
}

// Stores the bytes of a random word of 32 columns to four rows.
MXQ_HD void store_random_rows(const __m256i (&words)[4], int64_t pitch, uint8_t* random) {
    const __m256i by_byte = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                             0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m256i fours[4], pairs[4];
    for (int i = 0; i < 4; i++) fours[i] = _mm256_shuffle_epi8(words[i], by_byte);
    for (int i = 0; i < 2; i++) {
        pairs[i] = _mm256_unpacklo_epi32(fours[2 * i], fours[2 * i + 1]);
        pairs[i + 2] = _mm256_unpackhi_epi32(fours[2 * i], fours[2 * i + 1]);
    }
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int i = 0; i < 4; i++) {
        const __m256i a = pairs[i / 2 * 2], b = pairs[i / 2 * 2 + 1];
        const __m256i row = i % 2 == 0 ? _mm256_unpacklo_epi64(a, b) : _mm256_unpackhi_epi64(a, b);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(random + i * pitch), _mm256_permutevar8x32_epi32(row, in_order));
    }
}

// Stores random bytes of sixteen rows of 32 columns at a time, and returns how many columns are done.
MXQ_HD int64_t random_of_column_vectors(const RandomPosition& position, int64_t chunk, int64_t pitch, uint8_t* random) {
    int64_t col = 0;
    for (; col + 32 <= pitch; col += 32) {
        __m256i words[4][4];
        for (int64_t i = 0; i < 4; i++) {
            const int64_t first = col + 8 * i;
            const __m256i even = _mm256_setr_epi64x(first, first + 2, first + 4, first + 6), chunks = _mm256_set1_epi64x(chunk);
            const FourCounters evens = random_of_four(position, even, chunks, true);
            const FourCounters odds = random_of_four(position, _mm256_add_epi64(even, _mm256_set1_epi64x(1)), chunks, true);
            for (int word = 0; word < 4; word++) words[word][i] = join_words(evens.words[word], odds.words[word]);
        }
        for (int word = 0; word < 4; word++) store_random_rows(words[word], pitch, random + 4 * word * pitch + col);
    }
    return col;
}
#else
MXQ_HD int64_t random_of_fours(const RandomPosition&, int64_t, int64_t, uint8_t*) { return 0; }
MXQ_HD int64_t random_of_column_vectors(const RandomPosition&, int64_t, int64_t, uint8_t*) { return 0; }
#endif

// Stores a random byte for each element of a patch whose rows are K-major rows.
void random_of_rows(const RandomPosition& position, int64_t rows, int64_t pitch, uint8_t* random) {
    for (int64_t row = 0; row < rows; row++) {
        uint8_t* const line = random + row * pitch;
        for (int64_t chunk = random_of_fours(position, row, pitch / 16, line); chunk < pitch / 16; chunk++) {
            const PhiloxWords words = random_words(position, row, chunk, false);
            memcpy(line + chunk * 16, words.words, 16);
        }
    }
}

// Stores a random byte for each element of a patch whose columns are K-major rows. It has a multiple of sixteen rows.
void random_of_columns(const RandomPosition& position, int64_t rows, int64_t pitch, uint8_t* random) {
    for (int64_t chunk = 0; chunk < rows / 16; chunk++) {
        uint8_t* const lines = random + chunk * 16 * pitch;
        for (int64_t col = random_of_column_vectors(position, chunk, pitch, lines); col < pitch; col++) {
            const PhiloxWords words = random_words(position, col, chunk, true);
            for (int i = 0; i < 16; i++) lines[i * pitch + col] = uint8_t(philox_byte(words, i));
        }
    }
}

// ---- Packing ----------------------------------------------------------------------------------------------------------

#if defined(__AVX2__)
// Packs thirty-two codes: the sixteen of each half of 128 bits to its lowest 2 * bits bytes.
template <int bits>
MXQ_HD __m256i pack_32(__m256i codes) {
    const __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(1 | (1 << bits) << 8));
    if constexpr (bits == 4) return _mm256_packus_epi16(pairs, pairs);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi32(1 | (1 << 2 * bits) << 16));
    const __m256i order = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,  //
                                           0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    return _mm256_shuffle_epi8(fours, order);
}

// Packs codes of four bits by sixty-fours and returns how many are done. Each sixty-four are one store, so that a later load
// of 32 bytes need not wait for two stores.
MXQ_HD int64_t pack_nibbles_by_vectors(const uint8_t* codes, int64_t count, uint8_t* to) {
    int64_t i = 0;
    for (; i + 64 <= count; i += 64) {
        const __m256i pair = _mm256_set1_epi16(1 | 16 << 8);
        const __m256i first = _mm256_maddubs_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)), pair);
        const __m256i second = _mm256_maddubs_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i + 32)), pair);
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xD8);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i / 2), packed);
    }
    return i;
}

// Packs codes by vectors and returns how many are done; pack_line does the rest.
template <int bits>
MXQ_HD int64_t pack_by_vectors(const uint8_t* codes, int64_t count, uint8_t* to) {
    int64_t i = bits == 4 ? pack_nibbles_by_vectors(codes, count, to) : 0;
    for (; i + 32 <= count; i += 32) {
        const __m256i packed = pack_32<bits>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)));
        auto* const first = reinterpret_cast<__m128i*>(to + i * bits / 8);
        auto* const second = reinterpret_cast<__m128i*>(to + (i + 16) * bits / 8);
        _mm_storeu_si128(first, _mm256_castsi256_si128(packed));
        _mm_storeu_si128(second, _mm256_extracti128_si256(packed, 1));
    }
    return i;
}
#else
template <int bits>
MXQ_HD int64_t pack_by_vectors(const uint8_t*, int64_t, uint8_t*) {
    return 0;
}
#endif

// Packs `count` codes to whole sixteens of stored codes. The codes after them up to a multiple of 16 must be 0, and `to`
// must have room for 8 bytes more.
template <int bits>
void pack_line(const uint8_t* codes, int64_t count, uint8_t* to) {
    for (int64_t i = pack_by_vectors<bits>(codes, count, to); i < count; i += 16) {
        uint32_t words[4], packed[bits / 2];
        memcpy(words, codes + i, sizeof words);
        pack_16<bits>(words, packed);
        memcpy(to + i * bits / 8, packed, sizeof packed);
    }
}

// ---- The steps of a problem -------------------------------------------------------------------------------------------

struct CodeSteps {
    decltype(&encode_blocks<Nearest<E4M3>, 32>) blocks;
    decltype(&encode_columns<Nearest<E4M3>>) columns;
    // NULL where codes are bytes:
    decltype(&pack_line<4>) pack;
    decltype(&pack_columns<4, kTileRows, kTile>) pack_columns;
};

template <class Rounding, int bits>
CodeSteps code_steps_of(int64_t length) {
    CodeSteps steps{};
    steps.blocks = with_block_length(length, []<int64_t block>(BlockLength<block>) { return &encode_blocks<Rounding, block>; });
    steps.columns = encode_columns<Rounding>;
    if constexpr (bits != 8) steps.pack = pack_line<bits>, steps.pack_columns = pack_columns<bits, kTileRows, kTile>;
    return steps;
}

inline CodeSteps code_steps_of(const QuantizeProblem& problem) {
    const int64_t length = problem.tile.length;
    if (problem.seed_offset) return code_steps_of<Stochastic, E2M1::bits>(length);
    return with_element(problem.format->element, [&]<class E>(E) { return code_steps_of<Nearest<E>, E::bits>(length); });
}

}  // namespace
}  // namespace mxq::cpu
