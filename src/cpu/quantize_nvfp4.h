// NVFP4 codes of BF16 values by 16-bit vectors: a part of the fast path of quantize. Part of kernels.cpp.
//
//     sixteen words -> products in fp32, even and odd -> words again, rounded to odd -> codes, a byte each
//
// Blocks with a NaN are left to the exact path.
#pragma once
#include "cpu/quantize_scales.h"
#include "numerics/nvfp4.h"

namespace mxq::cpu {
namespace {

// Prefetches the input of the next patch, of two bytes an element, 32 elements at a time while the codes of this patch are
// made: only so many cache lines can be in flight at once.
struct Prefetcher {
    const uint16_t* first;
    int64_t pitch;

    MXQ_HD void prefetch(int64_t row, int64_t col) const { __builtin_prefetch(first + row * pitch + col, 0, 2); }
};

#if defined(__F16C__)
typedef int16_t SignedWords __attribute__((vector_size(32)));

MXQ_HD Words larger(Words a, Words b) { return Words(_mm256_max_epu16(__m256i(a), __m256i(b))); }

// Stores the low bytes of sixteen words.
MXQ_HD void narrow_16(const uint32_t* words, uint8_t* bytes) {
    const __m256i pairs = _mm256_packus_epi32(__m256i(read<Bits>(words)), __m256i(read<Bits>(words + 8)));
    const __m256i in_order = _mm256_permute4x64_epi64(pairs, 0xD8);
    const __m128i narrowed = _mm_packus_epi16(_mm256_castsi256_si128(in_order), _mm256_extracti128_si256(in_order, 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(bytes), narrowed);
}

// Returns sixteen values as words, rounded to odd: given as those of even and of odd lanes.
MXQ_HD Words to_odd_words(Floats even, Floats odd) {
    const __m256i kept = _mm256_blend_epi16(__m256i(Bits(even) >> 16), __m256i(odd), 0xAA);
    const __m256i rest = _mm256_blend_epi16(__m256i(even), __m256i(Bits(odd) << 16), 0xAA);
    return Words(kept) | Words(_mm256_min_epu16(rest, _mm256_set1_epi16(1)));
}

// Returns E2m1FromOddBf16::code of sixteen magnitudes of words.
MXQ_HD SignedWords e2m1_codes(SignedWords magnitudes) {
    using R = E2m1FromOddBf16;
    const auto from = [](SignedWords a, int16_t b) { return SignedWords(a > int16_t(b - 1)); };
    const auto normal = SignedWords(_mm256_max_epi16(__m256i(magnitudes), _mm256_set1_epi16(R::one)));
    // Words of NaN may go over the top, which signed ones must not.
    const auto rounded = Words(normal) + Words(R::below_half + ((normal >> R::shift) & 1));
    const auto above = SignedWords(rounded) >> R::shift;
    const auto limited = SignedWords(_mm256_min_epi16(__m256i(above), _mm256_set1_epi16(R::most_above)));
    return limited - from(magnitudes, R::first) - from(magnitudes, R::second);
}

// Returns the codes, without signs, of sixteen BF16 elements under the factors of even and of odd ones.
MXQ_HD SignedWords nvfp4_magnitudes(Words words, Floats even_factors, Floats odd_factors) {
    const Words products =
        to_odd_words(Floats(Bits(words) << 16) * even_factors, Floats(Bits(words) & 0xFFFF0000) * odd_factors);
    return e2m1_codes(SignedWords(products & 0x7FFF));
}

// Stores the codes of 32 neighbours, given by their magnitudes and by words that have their signs.
MXQ_HD void store_e2m1_32(SignedWords first, SignedWords second, Words first_words, Words second_words, uint8_t* codes) {
    const __m256i magnitudes = _mm256_packus_epi16(__m256i(first), __m256i(second));
    const __m256i saturated = _mm256_packs_epi16(__m256i(first_words), __m256i(second_words));
    const __m256i signs = _mm256_and_si256(_mm256_srli_epi16(saturated, 4), _mm256_set1_epi8(ElementBits<E2M1>::sign));
    const __m256i halves = _mm256_permute4x64_epi64(_mm256_or_si256(magnitudes, signs), 0xD8);
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes), halves);
}

// The factors of 32 neighbours, those of even and of odd ones of each sixteen.
struct WordFactors {
    Floats even[2], odd[2];

    // Has one factor for each sixteen.
    MXQ_HD WordFactors(float first, float second) : even{all(first), all(second)}, odd{even[0], even[1]} {}
    // Has a factor for each of the neighbours.
    MXQ_HD explicit WordFactors(const float* factors)
        : even{even_of(factors), even_of(factors + 16)}, odd{odd_of(factors), odd_of(factors + 16)} {}
};

// Encodes 32 neighbours to NVFP4.
struct Nvfp4Words : WordFactors {
    using WordFactors::WordFactors;

    MXQ_HD void encode(const uint16_t* words, uint8_t* codes) const {
        const Words first = read<Words>(words), second = read<Words>(words + 16);
        store_e2m1_32(nvfp4_magnitudes(first, even[0], odd[0]), nvfp4_magnitudes(second, even[1], odd[1]), first, second,
                      codes);
    }
};

// Makes scale bytes and multipliers, by sixteens: up to fifteen more than `blocks`, for which the scratch has room. Returns
// false where a block needs the exact path.
inline bool make_nvfp4_word_scales(const ScaleRule& rule, const uint16_t* maxima, int64_t blocks, BlockScales& scales) {
    const Nvfp4Global global = rule.nvfp4;
    Words largest{};
    for (int64_t first = 0; first < blocks; first += 16) {
        alignas(64) uint32_t bytes[16];
        for (int64_t i = 0; i < 16; i++) {
            const Nvfp4BlockScale scale = nvfp4_block_scale(to_float(Bf16{maxima[first + i]}), global);
            bytes[i] = scale.byte;
            scales.multipliers[first + i] = nvfp4_multiplier_of_value(scale.value, global);
        }
        narrow_16(bytes, scales.bytes + first);
        largest = larger(largest, read<Words>(maxima + first));
    }
    const __m256i nans = _mm256_cmpgt_epi16(__m256i(largest), _mm256_set1_epi16(kInfinityBits >> 16));
    return _mm256_testz_si256(nans, nans);
}
#endif

}  // namespace
}  // namespace mxq::cpu
