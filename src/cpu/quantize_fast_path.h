// The fast path of quantize from BF16 tensors, by vectors of 16-bit words: MX formats (numerics/mx_via_f16.h) and NVFP4
// (cpu/quantize_nvfp4.h). Part of kernels.cpp. F16 and F32 made words first would take longer than the exact path.
//
//     BF16 words -> their maxima -> scales, factors -> MX: F16 -> codes, a byte each
//                                                   -> MXFP4: words again -> codes, a byte each
//                                                   -> NVFP4: words again -> codes, a byte each
//
// Patches with a block that has NaN or Inf, or is near the ends of fp32, are left to the exact path.
#pragma once
#include "cpu/quantize_nvfp4.h"
#include "cpu/quantize_scales.h"
#include "cpu/quantize_values.h"
#include "numerics/mx_via_f16.h"

namespace mxq::cpu {
namespace {

#if defined(__F16C__)
// Loads a patch as words: the rows that the input has, and zeros to the right of and below them. `prefetches` asks for the
// rows that the next patch has in the same place.
inline void load_words(const QuantizeProblem& problem, const Rectangle& patch, int64_t height, int64_t pitch,
                       bool prefetches, uint16_t* words) {
    const int64_t rows = rows_within(problem.source.rows, patch);
    for (int64_t row = 0; row < rows; row++) {
        uint16_t* to = words + row * pitch;
        if (prefetches) prefetch_next<Bf16>(problem.source.plain, patch, row, height);
        const Bf16* const line = input_line<Bf16>(problem.source.plain, patch.matrix, patch.row + row, patch.col);
        memcpy(to, line, size_t(patch.cols) * sizeof *to);
        memset(to + patch.cols, 0, size_t(pitch - patch.cols) * sizeof *to);
    }
    memset(words + rows * pitch, 0, size_t((height - rows) * pitch) * sizeof *words);
}

// Returns, for each half of 128 bits, the maxima of pairs of a's lanes, interleaved with those of b's.
MXQ_HD Words fold(Words a, Words b) {
    return larger(__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27),
                  __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31));
}

// Returns the maxima of eight blocks.
template <int64_t length>
MXQ_HD __m128i word_maxima_of_eight(const uint16_t* words) {
    Words m[8];
    for (int64_t i = 0; i < 8; i++) {
        m[i] = read<Words>(words + i * length) & 0x7FFF;
        if (length > 16) m[i] = larger(m[i], read<Words>(words + i * length + 16) & 0x7FFF);
    }
    for (int distance = 4; distance > 0; distance /= 2)
        for (int i = 0; i < distance; i++) m[i] = fold(m[i], m[i + distance]);
    return _mm_max_epu16(_mm256_castsi256_si128(__m256i(m[0])), _mm256_extracti128_si256(__m256i(m[0]), 1));
}

// Stores the maxima of blocks by sixteens, each sixteen by one store, because they are loaded by one load. It may read and
// write up to fifteen blocks more than `blocks`, for which the scratch has room.
template <int64_t length>
void word_block_maxima(const uint16_t* words, int64_t blocks, uint16_t* maxima) {
    for (int64_t first = 0; first < blocks; first += 16) {
        const uint16_t* const from = words + first * length;
        const __m128i low = word_maxima_of_eight<length>(from), high = word_maxima_of_eight<length>(from + 8 * length);
        _mm256_store_si256(reinterpret_cast<__m256i*>(maxima + first), _mm256_set_m128i(high, low));
    }
}

// Merges each `times` maxima to one, which makes the maxima of `count` blocks.
MXQ_HD void merge_maxima(int64_t count, int64_t times, uint16_t* maxima) {
    for (int64_t i = 0; times > 1 && i < count; i++) {
        uint16_t maximum = 0;
        for (int64_t j = i * times; j < (i + 1) * times; j++) maximum = maximum < maxima[j] ? maxima[j] : maximum;
        maxima[i] = maximum;
    }
}

// Copies the scale byte and the multiplier of each tile to all of its `width` columns. It works in place, from the last tile
// on.
MXQ_HD void spread_scales(int64_t tiles, int64_t width, BlockScales& scales) {
    for (int64_t tile = tiles - 1; tile >= 0; tile--) {
        const float multiplier = scales.multipliers[tile];
        memset(scales.bytes + tile * width, scales.bytes[tile], size_t(width));
        for (int64_t i = 0; i < width; i++) scales.multipliers[tile * width + i] = multiplier;
    }
}

// Raises the maxima of columns to those of `rows` rows more.
inline void raise_word_column_maxima(const uint16_t* words, int64_t rows, int64_t pitch, uint16_t* maxima) {
    for (int64_t i = 0; i < pitch; i += 16) {
        Words maximum = read<Words>(maxima + i);
        for (int64_t row = 0; row < rows; row++)
            maximum = larger(maximum, read<Words>(words + row * pitch + i) & 0x7FFF);
        memcpy(maxima + i, &maximum, sizeof maximum);
    }
}

// Makes scale bytes and factors, by sixteens: up to fifteen more than `count`, for which the scratch has room. Returns false
// where a block needs the exact path.
template <class E, ScaleRounding rounding, Nonfinite policy>
bool make_word_scales(const ScaleRule&, const uint16_t* maxima, int64_t count, BlockScales& scales) {
    uint32_t rare = 0;
    for (int64_t first = 0; first < count; first += 16) {
        const auto left = uint32_t(count - first);
        alignas(64) uint32_t bytes[16], factors[16];  // factors as bits, for the vectoriser
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t maximum = uint32_t(maxima[first + i]) << 16, scale = scale_of<E, rounding, policy>(maximum);
            bytes[i] = scale;
            factors[i] = float_bits(encode_via_f16_factor<E>(scale));
            rare |= (i < left) & (maximum != 0) & !can_encode_via_f16(scale);
        }
        narrow_16(bytes, scales.bytes + first);
        memcpy(scales.multipliers + first, factors, sizeof factors);
    }
    return rare == 0;
}

// Returns the codes of 16 words, each in 16 bits: those of the even elements, then those of the odd ones.
template <class E>
MXQ_HD Words encode_16(Words words, Floats even_factors, Floats odd_factors) {
    using R = F16ToCode<E>;
    const Floats even = Floats(Bits(words) << 16) * even_factors;
    const Floats odd = Floats(Bits(words) & 0xFFFF0000) * odd_factors;
    const Words halves = Words(_mm256_set_m128i(_mm256_cvtps_ph(__m256(odd), _MM_FROUND_TO_NEAREST_INT),
                                                _mm256_cvtps_ph(__m256(even), _MM_FROUND_TO_NEAREST_INT)));
    const Words magnitudes = halves & 0x7FFF;
    const Words codes = (magnitudes + R::below_half + ((magnitudes >> R::shift) & 1)) >> R::shift;
    const Words limited = Words(_mm256_min_epu16(__m256i(codes), _mm256_set1_epi16(R::max_code)));
    return limited | ((halves >> (16 - E::bits)) & uint16_t(ElementBits<E>::sign));
}

// Stores the codes of 32 neighbours in order, from two results of encode_16.
MXQ_HD void store_32(Words first, Words second, uint8_t* codes) {
    const __m256i bytes = _mm256_packus_epi16(__m256i(first), __m256i(second));
    const __m128i even = _mm256_castsi256_si128(bytes), odd = _mm256_extracti128_si256(bytes, 1);
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes),
                       _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd)));
}

// Encodes 32 neighbours to E by way of F16.
template <class E>
struct WordsViaF16 : WordFactors {
    using WordFactors::WordFactors;

    MXQ_HD void encode(const uint16_t* words, uint8_t* codes) const {
        store_32(encode_16<E>(read<Words>(words), even[0], odd[0]), encode_16<E>(read<Words>(words + 16), even[1], odd[1]),
                 codes);
    }
};

// Returns what is added to the magnitudes of sixteen words under these factors for those of their products, which
// E2m1FromOddBf16 rounds: powers of two move the exponent alone. They are limited, so that zeros in blocks of zeros,
// which may have any scale, stay below the least of code 1.
MXQ_HD SignedWords e2m1_places(Floats first, Floats second) {
    const int16_t of_one = int16_t(float_bits(encode_via_f16_factor<E2M1>(127)) >> 16);
    const __m256i tops = _mm256_packus_epi32(__m256i(Bits(first) >> 16), __m256i(Bits(second) >> 16));
    const auto places = SignedWords(_mm256_permute4x64_epi64(tops, 0xD8)) - of_one;
    return SignedWords(_mm256_min_epi16(__m256i(places), _mm256_set1_epi16(E2m1FromOddBf16::first - 1)));
}

// Encodes 32 neighbours to E2M1, with the factors of WordFactors.
struct E2m1Words {
    SignedWords places[2];

    MXQ_HD E2m1Words(float first, float second)
        : places{e2m1_places(all(first), all(first)), e2m1_places(all(second), all(second))} {}
    MXQ_HD explicit E2m1Words(const float* factors)
        : places{e2m1_places(read<Floats>(factors), read<Floats>(factors + 8)),
                 e2m1_places(read<Floats>(factors + 16), read<Floats>(factors + 24))} {}

    MXQ_HD void encode(const uint16_t* words, uint8_t* codes) const {
        const Words first = read<Words>(words), second = read<Words>(words + 16);
        store_e2m1_32(e2m1_codes(SignedWords(first & 0x7FFF) + places[0]),
                      e2m1_codes(SignedWords(second & 0x7FFF) + places[1]), first, second, codes);
    }
};

// Encodes `count` times `unit` neighbours, of which each `times` are a block; of units of 16 an even number.
template <class Encoder, int64_t unit>
void encode_word_blocks(const uint16_t* words, int64_t count, int64_t times, const Prefetcher& prefetcher,
                        const float* factors, uint8_t* codes) {
    const int shift = __builtin_ctz(uint32_t(times));
    for (int64_t i = 0; i < count; i += kMxBlock / unit) {
        prefetcher.prefetch(0, i * unit);
        const float first = factors[i >> shift], second = unit == kMxBlock ? first : factors[(i + 1) >> shift];
        Encoder(first, second).encode(words + i * unit, codes + i * unit);
    }
}

// Encodes `unit` rows whose columns have a factor each, to K-major rows of codes that are `code_pitch` apart.
template <class Encoder, int64_t unit>
void encode_word_columns(const uint16_t* words, int64_t pitch, const Prefetcher& prefetcher, const float* factors,
                         uint8_t* codes, int64_t code_pitch) {
    for (int64_t col = 0; col < pitch; col += kMxBlock) {
        const Encoder encoder(factors + col);
        for (int64_t row = 0; row < unit; row++) {
            prefetcher.prefetch(row, col);
            encoder.encode(words + row * pitch + col, codes + row * code_pitch + col);
        }
    }
}

struct FastSteps {
    decltype(&word_block_maxima<kMxBlock>) maxima;  // NULL where the fast path does not serve the problem
    decltype(&make_word_scales<E4M3, ScaleRounding::Floor, Nonfinite::Propagate>) scales;
    decltype(&encode_word_blocks<E2m1Words, kMxBlock>) blocks;
    decltype(&encode_word_columns<E2m1Words, kMxBlock>) columns;
};

template <class E>
FastSteps fast_steps_of(const QuantizeProblem& problem) {
    using Encoder = std::conditional_t<__is_same(E, E2M1), E2m1Words, WordsViaF16<E>>;
    const auto scales = with_mx_rule(problem, []<ScaleRounding rounding, Nonfinite policy>(MxRule<rounding, policy>) {
        return &make_word_scales<E, rounding, policy>;
    });
    return {word_block_maxima<kMxBlock>, scales, encode_word_blocks<Encoder, kMxBlock>,
            encode_word_columns<Encoder, kMxBlock>};
}

inline FastSteps fast_nvfp4_steps_of(const QuantizeProblem& problem) {
    if (problem.four_over_six != FourOverSix::None) return {};
    return {word_block_maxima<kNvBlock>, make_nvfp4_word_scales, encode_word_blocks<Nvfp4Words, kNvBlock>,
            encode_word_columns<Nvfp4Words, kNvBlock>};
}

inline FastSteps fast_steps_of(const QuantizeProblem& problem) {
    const bool is_bf16 = problem.source.is_plain() && problem.source.plain.format == MXQ_FORMAT_BF16;
    const bool served = is_bf16 && problem.format->scale != ScaleType::F32 && problem.tile.length != 0 &&
                        !problem.seed_offset && !is_transformed(problem);
    if (!served) return {};
    if (problem.format->scale == ScaleType::E4M3) return fast_nvfp4_steps_of(problem);
    return with_element(problem.format->element, [&]<class E>(E) {
        if constexpr (encodes_via_f16<E>) return fast_steps_of<E>(problem);
        else return FastSteps{};
    });
}

// The words of a patch, and what is made of them.
struct FastPath {
    const QuantizeProblem& problem;
    const FastSteps steps;
    const int64_t unit, times;  // how many elements the steps take as a block, and how many such blocks a scale stands for
    Prefetcher prefetcher{}, row_prefetcher{};
    alignas(64) uint16_t words[kPatch] = {};
    alignas(64) uint16_t maxima[kPatchBlocks] = {};

    explicit FastPath(const QuantizeProblem& problem)
        : problem(problem), steps(fast_steps_of(problem)), unit(least(problem.tile.length, kMxBlock)),
          times(steps.maxima ? problem.tile.length / unit : 0) {}

    bool serves() const { return steps.maxima; }

    // Loads a patch. `next` is the patch to come, whose K-major rows are prefetched one by one while this one is encoded; if
    // it has no rows, the rows below this patch are prefetched at once.
    void load(const Rectangle& patch, int64_t height, int64_t pitch, const Rectangle& next) {
        const bool asks = next.rows > 0;
        const Prefetcher at_hand = {words, 0};  // prefetches what is in L1 already
        prefetcher = at_hand;
        if (asks) prefetcher = {input_line<uint16_t>(problem.source.plain, next.matrix, next.row, next.col), problem.source.plain.row_stride};
        row_prefetcher = height == 1 ? prefetcher : at_hand;
        load_words(problem, patch, height, pitch, !asks, words);
    }

    // Makes the scales and codes of a patch whose blocks lie in rows. Returns false where the exact path is needed.
    bool encode_rows(const ScaleRule& rule, int64_t blocks, BlockScales& scales, uint8_t* codes) {
        steps.maxima(words, blocks * times, maxima);
        merge_maxima(blocks, times, maxima);
        if (!steps.scales(rule, maxima, blocks, scales)) return false;
        steps.blocks(words, blocks * times, times, row_prefetcher, scales.multipliers, codes);
        return true;
    }

    void clear_column_maxima(int64_t pitch) { memset(maxima, 0, size_t(pitch) * sizeof *maxima); }
    void raise_column_maxima(int64_t pitch) { raise_word_column_maxima(words, unit, pitch, maxima); }
    // Makes the scales of columns. Returns false where the exact path is needed.
    bool make_column_scales(const ScaleRule& rule, int64_t pitch, BlockScales& scales) {
        if (!problem.square_tiles) return steps.scales(rule, maxima, pitch, scales);
        const int64_t length = problem.tile.length, tiles = pitch / length;
        merge_maxima(tiles, length, maxima);
        if (!steps.scales(rule, maxima, tiles, scales)) return false;
        spread_scales(tiles, length, scales);
        return true;
    }
    // Stores the codes of a patch whose columns have a scale each.
    void encode_columns(int64_t pitch, const BlockScales& scales, uint8_t* codes, int64_t code_pitch) {
        steps.columns(words, pitch, prefetcher, scales.multipliers, codes, code_pitch);
    }
};
#else
// Without F16C there is no fast path.
struct FastPath {
    explicit FastPath(const QuantizeProblem&) {}
    bool serves() const { return false; }
    void load(const Rectangle&, int64_t, int64_t, const Rectangle&) {}
    bool encode_rows(const ScaleRule&, int64_t, BlockScales&, uint8_t*) { return false; }
    void clear_column_maxima(int64_t) {}
    void raise_column_maxima(int64_t) {}
    bool make_column_scales(const ScaleRule&, int64_t, BlockScales&) { return false; }
    void encode_columns(int64_t, const BlockScales&, uint8_t*, int64_t) {}
};
#endif

}  // namespace
}  // namespace mxq::cpu
