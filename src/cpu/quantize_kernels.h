// Quantize. Part of kernels.cpp.
#pragma once
#include "cpu/kernels.h"
#include "cpu/moves.h"
#include "cpu/scale_window.h"
#include "numerics/convert.h"
#include "numerics/halves.h"

namespace mxq::cpu {
namespace {

constexpr int64_t kPatch = 4096;         // elements
constexpr int64_t kBlocks = kPatch / kMxBlock;

// ---- Steps of quantize, each over scratch -------------------------------------------------------------------------

template <class T>
MXQ_HD void load_row(const T* line, int64_t count, float* to) {
    int64_t i = 0;
#if defined(__F16C__)
    // The vectoriser does not find this instruction. It gives to_float's bits, but for a signaling NaN.
    if constexpr (__is_same(T, F16))
        for (; i + 8 <= count; i += 8)
            _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line + i))));
#endif
    for (; i < count; i++) to[i] = to_float(line[i]);
}

// Rows of the input, as fp32, filled with zeros to `pitch` columns and `height` rows.
template <class T>
void load_values(const PlainMatrix& in, const Rectangle& from, int64_t height, int64_t pitch, float* values) {
    for (int64_t row = 0; row < from.rows; row++) {
        const T* line = static_cast<const T*>(in.data) +
                        (from.matrix * in.rows + from.row + row) * in.row_stride + from.col;
        float* to = values + row * pitch;
        load_row(line, from.cols, to);
        for (int64_t i = from.cols; i < pitch; i++) to[i] = 0;
    }
    for (int64_t i = from.rows * pitch; i < height * pitch; i++) values[i] = 0;
}

template <Nonfinite policy>
void block_maxima(const float* values, int64_t blocks, uint32_t* maxima) {
    for (int64_t block = 0; block < blocks; block++) {
        uint32_t maximum = 0;
        for (int64_t i = 0; i < kMxBlock; i++) {
            const uint32_t bits = amax_bits<policy>(values[block * kMxBlock + i]);
            maximum = maximum < bits ? bits : maximum;
        }
        maxima[block] = maximum;
    }
}

// Over the 32 rows of a patch.
template <Nonfinite policy>
void column_maxima(const float* values, int64_t pitch, uint32_t* maxima) {
    for (int64_t i = 0; i < pitch; i++) maxima[i] = 0;
    for (int64_t row = 0; row < kMxBlock; row++)
        for (int64_t i = 0; i < pitch; i++) {
            const uint32_t bits = amax_bits<policy>(values[row * pitch + i]);
            maxima[i] = maxima[i] < bits ? bits : maxima[i];
        }
}

template <class E, ScaleRounding rounding, Nonfinite policy>
void make_scales(const uint32_t* maxima, int64_t count, uint8_t* scales, float* reciprocals) {
    for (int64_t i = 0; i < count; i++) {
        const uint32_t scale = scale_of<E, rounding, policy>(maxima[i]);
        scales[i] = uint8_t(scale);
        reciprocals[i] = scale_reciprocal(scale);
    }
}

// Codes stand as 32-bit words before they become bytes: a compiler that sees the narrowing in the loop narrows every
// operand of the arithmetic instead of its one result.
MXQ_HD void narrow_block(const uint32_t* words, uint8_t* codes) {
    for (int64_t i = 0; i < kMxBlock; i++) codes[i] = uint8_t(words[i]);
}

template <class E>
void encode_blocks(const float* values, int64_t blocks, const float* reciprocals, uint8_t* codes) {
    for (int64_t block = 0; block < blocks; block++) {
        alignas(64) uint32_t words[kMxBlock];
        const float reciprocal = reciprocals[block];
        for (int64_t i = 0; i < kMxBlock; i++)
            words[i] = quantize_element<E>(values[block * kMxBlock + i], reciprocal);
        narrow_block(words, codes + block * kMxBlock);
    }
}

// A patch of 32 rows into a tile of codes.
template <class E>
void encode_columns(const float* values, int64_t pitch, const float* reciprocals, uint8_t (*codes)[kTile]) {
    for (int64_t row = 0; row < kMxBlock; row++)
        for (int64_t first = 0; first < pitch; first += kMxBlock) {
            alignas(64) uint32_t words[kMxBlock];
            for (int64_t i = 0; i < kMxBlock; i++)
                words[i] = quantize_element<E>(values[row * pitch + first + i], reciprocals[first + i]);
            narrow_block(words, codes[row] + first);
        }
}

// ---- The same by way of halves (numerics/halves.h) ------------------------------------------------------------------

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
void load_words(const PlainMatrix& in, const Rectangle& from, int64_t height, int64_t pitch, uint16_t* words) {
    for (int64_t row = 0; row < from.rows; row++) {
        const T* line = static_cast<const T*>(in.data) +
                        (from.matrix * in.rows + from.row + row) * in.row_stride + from.col;
        uint16_t* to = words + row * pitch;
        shorten_row(line, from.cols, to);
        memset(to + from.cols, 0, size_t(pitch - from.cols) * sizeof *to);
    }
    memset(words + from.rows * pitch, 0, size_t((height - from.rows) * pitch) * sizeof *words);
}

MXQ_HD Words larger(Words a, Words b) { return Words(_mm256_max_epu16(__m256i(a), __m256i(b))); }

// Per half of 128 bits, the maxima of a's lanes in pairs, interleaved with those of b's.
MXQ_HD Words fold(Words a, Words b) {
    return larger(__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27),
                  __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31));
}

// Of blocks in eights: the last eight may read beyond `blocks`, up to the end of the scratch.
inline void short_block_maxima(const uint16_t* words, int64_t blocks, uint16_t* maxima) {
    for (int64_t first = 0; first < blocks; first += 8) {
        Words m[8];
        for (int64_t i = 0; i < 8; i++) {
            const uint16_t* block = words + (first + i) * kMxBlock;
            m[i] = larger(read<Words>(block) & 0x7FFF, read<Words>(block + 16) & 0x7FFF);
        }
        for (int distance = 4; distance > 0; distance /= 2)
            for (int i = 0; i < distance; i++) m[i] = fold(m[i], m[i + distance]);
        const __m128i low = _mm256_castsi256_si128(__m256i(m[0])), high = _mm256_extracti128_si256(__m256i(m[0]), 1);
        _mm_store_si128(reinterpret_cast<__m128i*>(maxima + first), _mm_max_epu16(low, high));
    }
}

inline void short_column_maxima(const uint16_t* words, int64_t pitch, uint16_t* maxima) {
    for (int64_t i = 0; i < pitch; i += 16) {
        Words maximum{};
        for (int64_t row = 0; row < kMxBlock; row++)
            maximum = larger(maximum, read<Words>(words + row * pitch + i) & 0x7FFF);
        memcpy(maxima + i, &maximum, sizeof maximum);
    }
}

// False where a block needs the exact way.
template <class E, ScaleRounding rounding, Nonfinite policy>
bool make_short_scales(const uint16_t* maxima, int64_t count, uint8_t* scales, float* factors) {
    uint32_t rare = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t maximum = uint32_t(maxima[i]) << 16;
        const uint32_t scale = scale_of<E, rounding, policy>(maximum);
        scales[i] = uint8_t(scale);
        factors[i] = half_factor<E>(scale);
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
    return limited | ((halves >> 8) & 0x80);
}

// The codes of 32 neighbours, in order.
MXQ_HD void store_32(Words first, Words second, uint8_t* codes) {
    const __m256i bytes = _mm256_packus_epi16(__m256i(first), __m256i(second));
    const __m128i even = _mm256_castsi256_si128(bytes), odd = _mm256_extracti128_si256(bytes, 1);
    _mm_store_si128(reinterpret_cast<__m128i*>(codes), _mm_unpacklo_epi8(even, odd));
    _mm_store_si128(reinterpret_cast<__m128i*>(codes + 16), _mm_unpackhi_epi8(even, odd));
}

template <class E>
void encode_short_blocks(const uint16_t* words, int64_t blocks, const float* factors, uint8_t* codes) {
    for (int64_t i = 0; i < blocks; i++) {
        const Floats factor = all(factors[i]);
        const uint16_t* block = words + i * kMxBlock;
        store_32(encode_16<E>(read<Words>(block), factor, factor), encode_16<E>(read<Words>(block + 16), factor, factor),
                 codes + i * kMxBlock);
    }
}

template <class E>
void encode_short_columns(const uint16_t* words, int64_t pitch, const float* factors, uint8_t (*codes)[kTile]) {
    for (int64_t first = 0; first < pitch; first += kMxBlock) {
        const Floats even[] = {even_of(factors + first), even_of(factors + first + 16)};
        const Floats odd[] = {odd_of(factors + first), odd_of(factors + first + 16)};
        for (int64_t row = 0; row < kMxBlock; row++) {
            const uint16_t* line = words + row * pitch + first;
            store_32(encode_16<E>(read<Words>(line), even[0], odd[0]), encode_16<E>(read<Words>(line + 16), even[1], odd[1]),
                     codes[row] + first);
        }
    }
}

struct ShortSteps {
    decltype(&load_words<float>) load;
    decltype(&make_short_scales<E4M3, ScaleRounding::Floor, Nonfinite::Propagate>) scales;
    decltype(&encode_short_blocks<E4M3>) encode_blocks;
    decltype(&encode_short_columns<E4M3>) encode_columns;
};
#else
struct ShortSteps {};
#endif

struct QuantizeSteps {
    ShortSteps shortly;
    decltype(&load_values<float>) load;
    decltype(&block_maxima<Nonfinite::Propagate>) block_maxima;
    decltype(&column_maxima<Nonfinite::Propagate>) column_maxima;
    decltype(&make_scales<E4M3, ScaleRounding::Floor, Nonfinite::Propagate>) scales;
    decltype(&encode_blocks<E4M3>) encode_blocks;
    decltype(&encode_columns<E4M3>) encode_columns;
};

template <class E, Nonfinite policy, ScaleRounding rounding>
QuantizeSteps steps_of() {
    QuantizeSteps steps{};
    steps.block_maxima = block_maxima<policy>;
    steps.column_maxima = column_maxima<policy>;
    steps.encode_blocks = encode_blocks<E>;
    steps.encode_columns = encode_columns<E>;
    steps.scales = make_scales<E, rounding, policy>;
#if defined(__F16C__)
    steps.shortly.scales = make_short_scales<E, rounding, policy>;
    steps.shortly.encode_blocks = encode_short_blocks<E>;
    steps.shortly.encode_columns = encode_short_columns<E>;
#endif
    return steps;
}

template <class E, Nonfinite policy>
QuantizeSteps steps_of(ScaleRounding rounding) {
    switch (rounding) {
        case ScaleRounding::Floor: return steps_of<E, policy, ScaleRounding::Floor>();
        case ScaleRounding::Ceil: return steps_of<E, policy, ScaleRounding::Ceil>();
        case ScaleRounding::Even: return steps_of<E, policy, ScaleRounding::Even>();
        default: return steps_of<E, policy, ScaleRounding::Rceil>();
    }
}

template <class E>
QuantizeSteps steps_of(const QuantizeProblem& problem) {
    return problem.nonfinite == Nonfinite::Propagate ? steps_of<E, Nonfinite::Propagate>(problem.scale_rounding)
                                                     : steps_of<E, Nonfinite::Saturate>(problem.scale_rounding);
}

template <class T>
void take_input(QuantizeSteps& steps) {
    steps.load = load_values<T>;
#if defined(__F16C__)
    steps.shortly.load = load_words<T>;
#endif
}

QuantizeSteps steps_of(const QuantizeProblem& problem) {
    QuantizeSteps steps = problem.format == MXQ_FORMAT_MXFP8_E4M3 ? steps_of<E4M3>(problem) : steps_of<E5M2>(problem);
    switch (problem.in.format) {
        case MXQ_FORMAT_F32: take_input<float>(steps); break;
        case MXQ_FORMAT_F16: take_input<F16>(steps); break;
        case MXQ_FORMAT_BF16: take_input<Bf16>(steps); break;
    }
    return steps;
}

// ---- Quantize -----------------------------------------------------------------------------------------------------

struct Maker {
    const QuantizeProblem& problem;
    const QuantizeSteps steps;
    const bool stream;

    alignas(64) float values[kPatch];
    alignas(64) uint16_t words[kPatch] = {};  // the values, shortened
    alignas(64) uint32_t maxima[kBlocks];
    alignas(64) uint16_t short_maxima[kBlocks];
    alignas(64) float reciprocals[kBlocks];
    alignas(64) uint8_t scales[kBlocks];
    alignas(64) uint8_t tile_scales[kTileBlocks][kTile];  // columnwise
    alignas(64) uint8_t codes[kPatch];
    alignas(64) uint8_t tile[kTileRows][kTile], transposed[kTile][kTileRows];

    Maker(const QuantizeProblem& problem, bool stream) : problem(problem), steps(steps_of(problem)), stream(stream) {}

    // The rowwise scales from the swizzled tile on in which (row, col) lies.
    ScaleWindow<uint8_t> row_scales(int64_t matrix, int64_t row, int64_t col) const {
        return {problem.rowwise.scales, problem.rowwise.layout, matrix, row / kSwizzleRows * kSwizzleRows, col / kMxBlock};
    }

    void load_shortly([[maybe_unused]] const Rectangle& patch, [[maybe_unused]] int64_t height,
                      [[maybe_unused]] int64_t pitch) {
#if defined(__F16C__)
        steps.shortly.load(problem.in, patch, height, pitch, words);
#endif
    }

    // False where the exact way is needed: no F16 here, a nonfinite block, or one near the ends of fp32.
    bool encode_rows_shortly([[maybe_unused]] int64_t blocks) {
#if defined(__F16C__)
        short_block_maxima(words, blocks, short_maxima);
        if (!steps.shortly.scales(short_maxima, blocks, scales, reciprocals)) return false;
        steps.shortly.encode_blocks(words, blocks, reciprocals, codes);
        return true;
#else
        return false;
#endif
    }

    bool encode_columns_shortly([[maybe_unused]] int64_t pitch, [[maybe_unused]] int64_t row) {
#if defined(__F16C__)
        short_column_maxima(words, pitch, short_maxima);
        if (problem.square_tiles) spread_square_maxima(pitch, short_maxima);
        if (!steps.shortly.scales(short_maxima, pitch, tile_scales[row / kMxBlock], reciprocals)) return false;
        steps.shortly.encode_columns(words, pitch, reciprocals, tile + row);
        return true;
#else
        return false;
#endif
    }

    // The patch in `words`, `pitch` wide, rowwise.
    void make_rows(const Rectangle& patch, int64_t pitch) {
        const int64_t blocks = patch.rows * pitch / kMxBlock, row_blocks = pitch / kMxBlock;
        const ScaleWindow<uint8_t> window = row_scales(patch.matrix, patch.row, patch.col);
        if (!encode_rows_shortly(blocks)) {
            steps.load(problem.in, patch, patch.rows, pitch, values);
            steps.block_maxima(values, blocks, maxima);
            steps.scales(maxima, blocks, scales, reciprocals);
            steps.encode_blocks(values, blocks, reciprocals, codes);
        }
        for (int64_t row = 0; row < patch.rows; row++) {
            store_line(line_of(problem.rowwise, patch.matrix, patch.row + row, patch.col), codes + row * pitch,
                       patch.cols, stream);
            window.store(patch.row % kSwizzleRows + row, row_blocks, scales + row * row_blocks);
        }
    }

    // The same columnwise, into rows of the tile from `row` on.
    void make_columns(const Rectangle& patch, int64_t pitch, int64_t row) {
        if (encode_columns_shortly(pitch, row)) return;
        steps.load(problem.in, patch, kMxBlock, pitch, values);
        steps.column_maxima(values, pitch, maxima);
        if (problem.square_tiles) spread_square_maxima(pitch, maxima);
        steps.scales(maxima, pitch, tile_scales[row / kMxBlock], reciprocals);
        steps.encode_columns(values, pitch, reciprocals, tile + row);
    }

    void clear_below_rows(const Rectangle& piece) const {
        row_scales(piece.matrix, piece.row, piece.col)
            .clear(piece.rows, round_up(piece.rows, kSwizzleRows), ceil_div(piece.cols, kMxBlock));
    }

    // Rowwise 1x32 alone.
    void rows(const Rectangle& piece) {
        for (int64_t col = 0; col < piece.cols; col += kPatchCols) {
            Rectangle patch = {piece.matrix, piece.row, piece.col + col, 0, least(kPatchCols, piece.cols - col)};
            const int64_t pitch = round_up(patch.cols, kMxBlock);
            for (int64_t row = 0; row < piece.rows; row += patch.rows) {
                patch.row = piece.row + row;
                patch.rows = least(kPatch / pitch, piece.rows - row);
                load_shortly(patch, patch.rows, pitch);
                make_rows(patch, pitch);
            }
        }
        clear_below_rows(piece);
    }

    void columns(const Rectangle& piece) {
        for (int64_t col = 0; col < piece.cols; col += kTile)
            make_tile({piece.matrix, piece.row, piece.col + col, piece.rows, least(kTile, piece.cols - col)});
    }

    void make_tile(const Rectangle& at) {
        const int64_t pitch = round_up(at.cols, kMxBlock);
        for (int64_t row = 0; row < at.rows; row += kMxBlock) {
            const Rectangle patch = {at.matrix, at.row + row, at.col, least(kMxBlock, at.rows - row), at.cols};
            load_shortly(patch, kMxBlock, pitch);
            if (problem.has_rowwise && !problem.square_tiles) make_rows(patch, pitch);
            make_columns(patch, pitch, row);
        }
        if (problem.has_rowwise && problem.square_tiles) store_square_rows(at);
        if (problem.has_rowwise) clear_below_rows(at);
        if (problem.has_columnwise) store_columns(at);
    }

    // 32 columns share the largest of their maxima.
    template <class Word>
    static void spread_square_maxima(int64_t pitch, Word* maxima) {
        for (int64_t first = 0; first < pitch; first += kMxBlock) {
            Word maximum = 0;
            for (int64_t i = first; i < first + kMxBlock; i++) maximum = maximum < maxima[i] ? maxima[i] : maximum;
            for (int64_t i = first; i < first + kMxBlock; i++) maxima[i] = maximum;
        }
    }

    void store_square_rows(const Rectangle& at) {
        const ScaleWindow<uint8_t> window = row_scales(at.matrix, at.row, at.col);
        for (int64_t row = 0; row < at.rows; row++) {
            store_line(line_of(problem.rowwise, at.matrix, at.row + row, at.col), tile[row], at.cols, stream);
            uint8_t line_scales[kTile / kMxBlock];
            for (int64_t i = 0; i < kTile / kMxBlock; i++) line_scales[i] = tile_scales[row / kMxBlock][i * kMxBlock];
            window.store(row, ceil_div(at.cols, kMxBlock), line_scales);
        }
    }

    void store_columns(const Rectangle& at) {
        const QuantizedPart& part = problem.columnwise;
        const ScaleWindow<uint8_t> window(part.scales, part.layout, at.matrix, at.col, at.row / kMxBlock);
        const int64_t blocks = ceil_div(at.rows, kMxBlock);
        transpose_tile(tile, at.rows, at.cols, transposed);
        for (int64_t col = 0; col < at.cols; col++) {
            store_line(line_of(part, at.matrix, at.col + col, at.row), transposed[col], at.rows, stream);
            uint8_t line_scales[kTileBlocks];
            for (int64_t i = 0; i < kTileBlocks; i++) line_scales[i] = tile_scales[i][col];
            window.store(col, blocks, line_scales);
        }
        window.clear(at.cols, round_up(at.cols, kSwizzleRows), blocks);
    }
};

void quantize_rectangle(const QuantizeProblem& problem, const Rectangle& piece, bool stream) {
    Maker maker(problem, stream);
    problem.has_columnwise || problem.square_tiles ? maker.columns(piece) : maker.rows(piece);
    finish_stores();
}

}  // namespace
}  // namespace mxq::cpu
