// Quantize by way of 16 bits: MX formats from plain tensors (numerics/halves.h), NVFP4 from BF16 ones. Part of kernels.cpp.
//
//     input -> words of 16 bits -> maxima of words -> scales, factors -> MX: halves -> codes, a byte each
//                                                                     -> NVFP4: as in cpu/quantize_nvfp4.h
//
// Patches with a block that is not finite or near the ends of fp32 are left to the exact way.
#pragma once
#include "cpu/quantize_nvfp4.h"
#include "cpu/quantize_scales.h"
#include "cpu/quantize_values.h"
#include "numerics/halves.h"

namespace mxq::cpu {
namespace {

#if defined(__F16C__)
// to_odd_bf16 of sixteen.
MXQ_HD void shorten_16(const float* values, uint16_t* to) {
    const auto shorten = [](Bits bits) { return __m256i((bits | ((bits & 0xFFFF) + 0xFFFF)) >> 16); };
    const __m256i pairs = _mm256_packus_epi32(shorten(read<Bits>(values)), shorten(read<Bits>(values + 8)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(pairs, 0xD8));
}

template <class T>
MXQ_HD void shorten_row(const T* line, int64_t count, uint16_t* to) {
    alignas(64) float values[kMxBlock];
    for (int64_t i = 0; i < count; i += kMxBlock) {
        const int64_t length = least(kMxBlock, count - i);
        load_row(line + i, length, values);
        if (length == kMxBlock)
            for (int64_t j = 0; j < kMxBlock; j += 16) shorten_16(values + j, to + i + j);
        else
            for (int64_t j = 0; j < length; j++) to[i + j] = uint16_t(to_odd_bf16(values[j]));
    }
}
template <>
MXQ_HD void shorten_row(const Bf16* line, int64_t count, uint16_t* to) {
    memcpy(to, line, size_t(count) * sizeof *line);
}

// load_values, shortened.
template <class T>
void load_words(const QuantizeProblem& problem, const Rectangle& patch, int64_t height, int64_t pitch, bool prefetches,
                uint16_t* words) {
    const int64_t rows = rows_within(problem.source.rows, patch);
    for (int64_t row = 0; row < rows; row++) {
        uint16_t* to = words + row * pitch;
        if (prefetches) prefetch_next<T>(problem.source.plain, patch, row, height);
        shorten_row(input_line<T>(problem.source.plain, patch.matrix, patch.row + row, patch.col), patch.cols, to);
        memset(to + patch.cols, 0, size_t(pitch - patch.cols) * sizeof *to);
    }
    memset(words + rows * pitch, 0, size_t((height - rows) * pitch) * sizeof *words);
}

// Per half of 128 bits, the maxima of a's lanes in pairs, interleaved with those of b's.
MXQ_HD Words fold(Words a, Words b) {
    return larger(__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27),
                  __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31));
}

// Of eight blocks.
template <int64_t length>
MXQ_HD __m128i short_maxima_of_eight(const uint16_t* words) {
    Words m[8];
    for (int64_t i = 0; i < 8; i++) {
        m[i] = read<Words>(words + i * length) & 0x7FFF;
        if (length > 16) m[i] = larger(m[i], read<Words>(words + i * length + 16) & 0x7FFF);
    }
    for (int distance = 4; distance > 0; distance /= 2)
        for (int i = 0; i < distance; i++) m[i] = fold(m[i], m[i + distance]);
    return _mm_max_epu16(_mm256_castsi256_si128(__m256i(m[0])), _mm256_extracti128_si256(__m256i(m[0]), 1));
}

// Of blocks in sixteens, in one store for what is loaded in one: the last sixteen may read beyond `blocks`, up to the end of
// the scratch.
template <int64_t length>
void short_block_maxima(const uint16_t* words, int64_t blocks, uint16_t* maxima) {
    for (int64_t first = 0; first < blocks; first += 16) {
        const uint16_t* const from = words + first * length;
        const __m128i low = short_maxima_of_eight<length>(from), high = short_maxima_of_eight<length>(from + 8 * length);
        _mm256_store_si256(reinterpret_cast<__m256i*>(maxima + first), _mm256_set_m128i(high, low));
    }
}

// `count` blocks, of so many times the length that the maxima have.
MXQ_HD void merge_maxima(int64_t count, int64_t times, uint16_t* maxima) {
    for (int64_t i = 0; times > 1 && i < count; i++) {
        uint16_t maximum = 0;
        for (int64_t j = i * times; j < (i + 1) * times; j++) maximum = maximum < maxima[j] ? maxima[j] : maximum;
        maxima[i] = maximum;
    }
}

// Scales of tiles, bytes and multipliers, to each of their columns. From the last on: in place.
MXQ_HD void spread_scales(int64_t tiles, int64_t width, BlockScales& scales) {
    for (int64_t tile = tiles - 1; tile >= 0; tile--) {
        const float multiplier = scales.multipliers[tile];
        memset(scales.bytes + tile * width, scales.bytes[tile], size_t(width));
        for (int64_t i = 0; i < width; i++) scales.multipliers[tile * width + i] = multiplier;
    }
}

// Maxima of so many rows more.
inline void raise_short_column_maxima(const uint16_t* words, int64_t rows, int64_t pitch, uint16_t* maxima) {
    for (int64_t i = 0; i < pitch; i += 16) {
        Words maximum = read<Words>(maxima + i);
        for (int64_t row = 0; row < rows; row++)
            maximum = larger(maximum, read<Words>(words + row * pitch + i) & 0x7FFF);
        memcpy(maxima + i, &maximum, sizeof maximum);
    }
}

// False where a block needs the exact way.
template <class E, ScaleRounding rounding, Nonfinite policy>
bool make_short_scales(const ScaleRule&, const uint16_t* maxima, int64_t count, BlockScales& scales) {
    uint32_t rare = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t maximum = uint32_t(maxima[i]) << 16;
        const uint32_t scale = scale_of<E, rounding, policy>(maximum);
        scales.bytes[i] = uint8_t(scale);
        scales.multipliers[i] = half_factor<E>(scale);
        rare |= uint32_t((maximum != 0) & !is_odd_bf16_scale(scale));
    }
    return rare == 0;
}

// Codes of 16 words, each in 16 bits: those of even elements, then those of odd ones.
template <class E>
MXQ_HD Words encode_16(Words words, Floats even_factors, Floats odd_factors) {
    using R = HalfRounding<E>;
    const Floats even = Floats(Bits(words) << 16) * even_factors;
    const Floats odd = Floats(Bits(words) & 0xFFFF0000) * odd_factors;
    const Words halves = Words(_mm256_set_m128i(_mm256_cvtps_ph(__m256(odd), _MM_FROUND_TO_NEAREST_INT),
                                                _mm256_cvtps_ph(__m256(even), _MM_FROUND_TO_NEAREST_INT)));
    const Words magnitudes = halves & 0x7FFF;
    const Words codes = (magnitudes + R::below_half + ((magnitudes >> R::shift) & 1)) >> R::shift;
    const Words limited = Words(_mm256_min_epu16(__m256i(codes), _mm256_set1_epi16(R::max_code)));
    return limited | ((halves >> (16 - E::bits)) & uint16_t(ElementBits<E>::sign));
}

// The codes of 32 neighbours, in order.
MXQ_HD void store_32(Words first, Words second, uint8_t* codes) {
    const __m256i bytes = _mm256_packus_epi16(__m256i(first), __m256i(second));
    const __m128i even = _mm256_castsi256_si128(bytes), odd = _mm256_extracti128_si256(bytes, 1);
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes),
                       _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd)));
}

// Thirty-two words at a time, of blocks so many times as long.
template <class E>
void encode_short_blocks(const uint16_t* words, int64_t count, int64_t times, const Ahead& ahead, const float* factors,
                         uint8_t* codes) {
    const int shift = __builtin_ctz(uint32_t(times));
    for (int64_t i = 0; i < count; i++) {
        ahead.ask(0, i * kMxBlock);
        const Floats factor = all(factors[i >> shift]);
        const uint16_t* block = words + i * kMxBlock;
        store_32(encode_16<E>(read<Words>(block), factor, factor), encode_16<E>(read<Words>(block + 16), factor, factor),
                 codes + i * kMxBlock);
    }
}

template <class E>
void encode_short_columns(const uint16_t* words, int64_t pitch, const Ahead& ahead, const float* factors, uint8_t* codes,
                          int64_t code_pitch) {
    for (int64_t first = 0; first < pitch; first += kMxBlock) {
        const Floats even[] = {even_of(factors + first), even_of(factors + first + 16)};
        const Floats odd[] = {odd_of(factors + first), odd_of(factors + first + 16)};
        for (int64_t row = 0; row < kMxBlock; row++) {
            ahead.ask(row, first);
            const uint16_t* line = words + row * pitch + first;
            store_32(encode_16<E>(read<Words>(line), even[0], odd[0]), encode_16<E>(read<Words>(line + 16), even[1], odd[1]),
                     codes + row * code_pitch + first);
        }
    }
}

struct ShortSteps {
    decltype(&load_words<float>) load;  // NULL: not served
    decltype(&short_block_maxima<kMxBlock>) maxima;
    decltype(&make_short_scales<E4M3, ScaleRounding::Floor, Nonfinite::Propagate>) scales;
    decltype(&encode_short_blocks<E4M3>) blocks;
    decltype(&encode_short_columns<E4M3>) columns;
};

template <class E, Nonfinite policy>
decltype(ShortSteps::scales) short_scales_of(ScaleRounding rounding) {
    switch (rounding) {
        case ScaleRounding::Floor: return make_short_scales<E, ScaleRounding::Floor, policy>;
        case ScaleRounding::Ceil: return make_short_scales<E, ScaleRounding::Ceil, policy>;
        case ScaleRounding::Even: return make_short_scales<E, ScaleRounding::Even, policy>;
        default: return make_short_scales<E, ScaleRounding::Rceil, policy>;
    }
}

template <class E>
ShortSteps short_steps_of(const QuantizeProblem& problem) {
    ShortSteps steps{};
    switch (problem.source.plain.format) {
        case MXQ_FORMAT_F32: steps.load = load_words<float>; break;
        case MXQ_FORMAT_F16: steps.load = load_words<F16>; break;
        default: steps.load = load_words<Bf16>;
    }
    steps.maxima = short_block_maxima<kMxBlock>;
    steps.scales = problem.nonfinite == Nonfinite::Propagate
                       ? short_scales_of<E, Nonfinite::Propagate>(problem.scale_rounding)
                       : short_scales_of<E, Nonfinite::Saturate>(problem.scale_rounding);
    steps.blocks = encode_short_blocks<E>;
    steps.columns = encode_short_columns<E>;
    return steps;
}

// Products with these scales are no BF16 numbers, so that only the inputs are short.
inline ShortSteps short_nvfp4_steps_of(const QuantizeProblem& problem) {
    if (problem.source.plain.format != MXQ_FORMAT_BF16 || problem.four_over_six != FourOverSix::None) return {};
    return {load_words<Bf16>, short_block_maxima<kNvBlock>, make_short_nvfp4_scales, encode_nvfp4_blocks, encode_nvfp4_columns};
}

inline ShortSteps short_steps_of(const QuantizeProblem& problem) {
    const bool served = problem.format->scale != ScaleType::F32 && !problem.source.is_quantized() && !problem.seed_offset &&
                        !problem.hadamard.rowwise && !problem.hadamard.columnwise;
    if (!served) return {};
    if (problem.format->scale == ScaleType::E4M3) return short_nvfp4_steps_of(problem);
    switch (problem.format->element) {
        case Element::E4M3: return short_steps_of<E4M3>(problem);
        case Element::E5M2: return short_steps_of<E5M2>(problem);
        case Element::E2M3: return short_steps_of<E2M3>(problem);
        case Element::E3M2: return short_steps_of<E3M2>(problem);
        default: return short_steps_of<E2M1>(problem);
    }
}

struct Shortened {
    const QuantizeProblem& problem;
    const ShortSteps steps;
    const int64_t unit, times;  // what the steps take as a block, and how often one has it
    Ahead ahead{}, ahead_of_rows{};
    alignas(64) uint16_t words[kPatch] = {};
    alignas(64) uint16_t maxima[kPatchBlocks] = {};

    explicit Shortened(const QuantizeProblem& problem)
        : problem(problem), steps(short_steps_of(problem)), unit(least(problem.tile.length, kMxBlock)),
          times(steps.load ? problem.tile.length / unit : 0) {}

    bool serves() const { return steps.load; }

    // `next` is the patch to come, whose lines are asked for one by one; if it has no rows, what is below is, at once.
    void load(const Rectangle& patch, int64_t height, int64_t pitch, const Rectangle& next) {
        const bool asks = next.rows > 0 && problem.source.plain.format != MXQ_FORMAT_F32;
        const Ahead at_hand = {words, 0};  // asks for nothing new
        ahead = at_hand;
        const PlainMatrix& in = problem.source.plain;
        if (asks) ahead = {input_line<uint16_t>(in, next.matrix, next.row, next.col), in.row_stride};
        ahead_of_rows = height == 1 ? ahead : at_hand;
        steps.load(problem, patch, height, pitch, !asks, words);
    }

    // False where the exact way is needed.
    bool encode_rows(const ScaleRule& rule, int64_t blocks, BlockScales& scales, uint8_t* codes) {
        steps.maxima(words, blocks * times, maxima);
        merge_maxima(blocks, times, maxima);
        if (!steps.scales(rule, maxima, blocks, scales)) return false;
        steps.blocks(words, blocks * times, times, ahead_of_rows, scales.multipliers, codes);
        return true;
    }

    void clear_column_maxima(int64_t pitch) { memset(maxima, 0, size_t(pitch) * sizeof *maxima); }
    void raise_column_maxima(int64_t pitch) { raise_short_column_maxima(words, unit, pitch, maxima); }
    bool make_column_scales(const ScaleRule& rule, int64_t pitch, BlockScales& scales) {
        if (!problem.square_tiles) return steps.scales(rule, maxima, pitch, scales);
        const int64_t length = problem.tile.length, tiles = pitch / length;
        merge_maxima(tiles, length, maxima);
        if (!steps.scales(rule, maxima, tiles, scales)) return false;
        spread_scales(tiles, length, scales);
        return true;
    }
    void encode_columns(int64_t pitch, const BlockScales& scales, uint8_t* codes, int64_t code_pitch) {
        steps.columns(words, pitch, ahead, scales.multipliers, codes, code_pitch);
    }
};
#else
struct Shortened {
    explicit Shortened(const QuantizeProblem&) {}
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
