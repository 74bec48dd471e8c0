// Dequantize. Part of kernels.cpp.
#pragma once
#include "cpu/decode_lines.h"
#include "cpu/kernels.h"
#include "cpu/moves.h"
#include "numerics/convert.h"
#include "numerics/halves.h"

namespace mxq::cpu {
namespace {

constexpr int64_t kTileSixteens = kTileRows / kSixteen;

// ---- Values to the output's type --------------------------------------------------------------------------------------

#if defined(__F16C__) && defined(__AVX2__)
MXQ_HD __m256i nan_mask(__m256 values) { return _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q)); }

MXQ_HD void convert_16(const SixteenFloats& values, float* out) {
    const auto convert = [](__m256 floats) {
        return _mm256_blendv_ps(floats, _mm256_set1_ps(bits_float(kNanBits)), _mm256_castsi256_ps(nan_mask(floats)));
    };
    _mm256_storeu_ps(out, convert(values.low));
    _mm256_storeu_ps(out + 8, convert(values.high));
}
MXQ_HD void convert_16(const SixteenFloats& values, F16* out) {
    const auto convert = [](__m256 floats) {
        const __m256i nan = nan_mask(floats);
        const __m128i nan_words = _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
        return _mm_blendv_epi8(_mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT), _mm_set1_epi16(0x7FFF), nan_words);
    };
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), convert(values.low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 8), convert(values.high));
}
MXQ_HD void convert_16(const SixteenFloats& values, Bf16* out) {
    const auto convert = [](__m256 floats) {
        const __m256i bits = _mm256_castps_si256(floats);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
        return _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), _mm256_set1_epi32(0x7FFF), nan_mask(floats));
    };
    const __m256i pairs = _mm256_packus_epi32(convert(values.low), convert(values.high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(pairs, 0xD8));
}
#else
MXQ_HD void convert_16(const SixteenFloats& values, float* out) {
    for (int64_t i = 0; i < kSixteen; i++) out[i] = from_float<float>(values.values[i]);
}
// As in quantize, words before bytes.
template <class T>
MXQ_HD void convert_16(const SixteenFloats& values, T* out) {
    uint32_t words[kSixteen];
    for (int64_t i = 0; i < kSixteen; i++) words[i] = from_float<T>(values.values[i]).bits;
    for (int64_t i = 0; i < kSixteen; i++) out[i].bits = uint16_t(words[i]);
}
#endif

// Stored codes with a factor for every sixteen, to whole sixteens of the output.
template <class E, bool has_global, class T>
void decode_line(const uint8_t* codes, int64_t count, const float* factors, float global, void* out) {
    for (int64_t i = 0; i < count; i += kSixteen)
        convert_16(decode_sixteen<E, has_global>(codes + i * E::bits / 8, count - i, factors[i / kSixteen], global),
                   static_cast<T*>(out) + i);
}

// ---- Codes one a byte, from and to a tile ----------------------------------------------------------------------------

template <int bits>
void unpack_codes(const uint8_t* codes, int64_t count, uint8_t* to) {
    if constexpr (bits == 8) {
        memcpy(to, codes, size_t(count));
        return;
    }
    for (int64_t i = 0; i < count; i += kSixteen) {
        uint8_t copy[kSixteen];
        unpack_stored_16<bits>(whole_sixteen<bits>(codes + i * bits / 8, count - i, copy), to + i);
    }
}

// Codes that have a factor each.
template <class E, bool has_global, class T>
void decode_columns(const uint8_t* codes, int64_t count, const float* factors, float global, void* out) {
    for (int64_t i = 0; i < count; i += kSixteen) {
        SixteenFloats values = times(decode_bytes_16<E>(codes + i), load_sixteen(factors + i));
        if constexpr (has_global) values = times(values, sixteen_of(global));
        convert_16(values, static_cast<T*>(out) + i);
    }
}

// ---- MXFP8 by way of halves (numerics/halves.h), without rounding: for codes and scales that it serves ----------------

#if defined(__F16C__)
// Neither Inf nor NaN.
template <class E>
bool are_plain_codes(const uint8_t* codes, int64_t count) {
    uint8_t special = 0;
    for (int64_t i = 0; i < count; i++) special |= uint8_t((codes[i] & 0x7F) >= E::first_special);
    return special == 0;
}

MXQ_HD void store_16(Floats even, Floats odd, Bf16* out) {
    const Bits words = (Bits(even) >> 16) | (Bits(odd) & 0xFFFF0000);
    memcpy(out, &words, sizeof words);
}
MXQ_HD void store_16(Floats even, Floats odd, F16* out) {
    const __m128i low = _mm256_cvtps_ph(__m256(even), _MM_FROUND_TO_NEAREST_INT);
    const __m128i high = _mm256_cvtps_ph(__m256(odd), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_unpacklo_epi16(low, high));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 8), _mm_unpackhi_epi16(low, high));
}
MXQ_HD void store_16(Floats even, Floats odd, float* out) {
    const Floats low = __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
    const Floats high = __builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
    memcpy(out, &low, sizeof low);
    memcpy(out + 8, &high, sizeof high);
}

typedef int16_t SignedWords __attribute__((vector_size(32)));

// Codes in the upper bytes.
template <class E>
MXQ_HD __m256i halves_of(Words codes) {
    constexpr int shift = 5 - E::exponent_bits;
    return __m256i(Words(SignedWords(codes) >> shift) & uint16_t(0x8000 | 0x7FFF >> shift));
}

// 32 neighbours, their scales as factors of the even and the odd elements of each half.
template <class E, class T>
MXQ_HD void decode_32(const uint8_t* codes, const Floats (&even)[2], const Floats (&odd)[2], T* out) {
    const Words pairs = read<Words>(codes);
    const __m256i evens = halves_of<E>(pairs << 8), odds = halves_of<E>(pairs & 0xFF00);
    store_16(Floats(_mm256_cvtph_ps(_mm256_castsi256_si128(evens))) * even[0],
             Floats(_mm256_cvtph_ps(_mm256_castsi256_si128(odds))) * odd[0], out);
    store_16(Floats(_mm256_cvtph_ps(_mm256_extracti128_si256(evens, 1))) * even[1],
             Floats(_mm256_cvtph_ps(_mm256_extracti128_si256(odds, 1))) * odd[1], out + 16);
}

// Scales for halves, made of factors; false if one is not plain.
template <class E>
bool make_half_scales(const float* factors, int64_t count, float* scales) {
    uint32_t rare = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t scale = float_bits(factors[i]) >> 23;
        scales[i] = half_scale<E>(scale);
        rare |= uint32_t(!is_plain_scale(scale));
    }
    return rare == 0;
}

// Whole blocks of a line, with a factor for every sixteen codes, or false.
template <class E, class T>
bool decode_plain_blocks(const uint8_t* codes, int64_t count, const float* factors, void* out) {
    float scales[kLineSixteens];
    if (!make_half_scales<E>(factors, count / kSixteen, scales) || !are_plain_codes<E>(codes, count)) return false;
    for (int64_t i = 0; i < count; i += kMxBlock) {
        const Floats scale[] = {all(scales[i / kSixteen]), all(scales[i / kSixteen])};
        decode_32<E>(codes + i, scale, scale, static_cast<T*>(out) + i);
    }
    return true;
}

// The columns of up to 16 rows of a tile, with a factor each, or false.
template <class E, class T>
bool decode_plain_columns(const uint8_t (*codes)[kTile], int64_t rows, int64_t cols, const float* factors,
                          uint8_t (*out)[kTile * sizeof(float)]) {
    alignas(64) float scales[kTile];
    if (!make_half_scales<E>(factors, cols, scales)) return false;
    if (!are_plain_codes<E>(codes[0], rows * kTile)) return false;
    for (int64_t first = 0; first < cols; first += kMxBlock) {
        const Floats even[] = {even_of(scales + first), even_of(scales + first + 16)};
        const Floats odd[] = {odd_of(scales + first), odd_of(scales + first + 16)};
        for (int64_t row = 0; row < rows; row++)
            decode_32<E>(codes[row] + first, even, odd, reinterpret_cast<T*>(out[row]) + first);
    }
    return true;
}
#endif

// ---- A rectangle -------------------------------------------------------------------------------------------------------

struct DequantizeSteps {
    int64_t bytes;  // of an output element
    // NULL: there are none.
    bool (*plain_blocks)(const uint8_t* codes, int64_t count, const float* factors, void* out);
    bool (*plain_columns)(const uint8_t (*codes)[kTile], int64_t rows, int64_t cols, const float* factors,
                          uint8_t (*out)[kTile * sizeof(float)]);
    decltype(&unpack_codes<8>) unpack;
    decltype(&decode_line<E4M3, false, float>) line, columns;
};

template <class E, class T>
DequantizeSteps steps_of(ScaleType scale) {
    DequantizeSteps steps{};
    steps.bytes = sizeof(T);
#if defined(__F16C__)
    if constexpr (E::bits == 8)
        if (scale == ScaleType::E8M0) {
            steps.plain_blocks = decode_plain_blocks<E, T>;
            steps.plain_columns = decode_plain_columns<E, T>;
        }
#endif
    steps.unpack = unpack_codes<E::bits>;
    const bool has_global = scale == ScaleType::E4M3;
    steps.line = has_global ? decode_line<E, true, T> : decode_line<E, false, T>;
    steps.columns = has_global ? decode_columns<E, true, T> : decode_columns<E, false, T>;
    return steps;
}

DequantizeSteps steps_of(const DequantizeProblem& problem) {
    return with_plain(problem.out.format, [&]<class T>(T) {
        return with_element(problem.in.element, [&]<class E>(E) { return steps_of<E, T>(problem.in.scale_type); });
    });
}

struct Reader {
    const DequantizeProblem& problem;
    const QuantizedPart& in;
    const DequantizeSteps steps;
    const bool stream;

    alignas(64) uint8_t tile[kTile][kTileRows] = {}, transposed[kTileRows][kTile] = {};
    alignas(64) float factors[kTileSixteens][kTile] = {};
    alignas(64) uint8_t out[kSixteen][kTile * sizeof(float)];  // rows of a tile, or one row

    Reader(const DequantizeProblem& problem, bool stream)
        : problem(problem), in(problem.in), steps(steps_of(problem)), stream(stream) {}

    void store(int64_t matrix, int64_t row, int64_t col, int64_t count, const uint8_t* from) {
        const PlainMatrix& to = problem.out;
        store_line(static_cast<uint8_t*>(to.data) + ((matrix * to.rows + row) * to.row_stride + col) * steps.bytes, from,
                   count * steps.bytes, stream);
    }
    const uint8_t* codes(int64_t matrix, int64_t line, int64_t first) const {
        return in.line(matrix, line) + first * in.bits / 8;
    }

    void rows(const Rectangle& piece) {
        for (int64_t row = piece.row; row < piece.row + piece.rows; row++)
            for (int64_t col = piece.col; col < piece.col + piece.cols; col += kPatchCols) {
                const int64_t count = least(kPatchCols, piece.col + piece.cols - col);
                read_row(piece.matrix, row, col, count);
                store(piece.matrix, row, col, count, out[0]);
            }
    }

    void read_row(int64_t matrix, int64_t row, int64_t col, int64_t count) {
        float sixteenths[kLineSixteens];
        load_sixteenths(in, matrix, row, col, count, sixteenths);
        const uint8_t* from = codes(matrix, row, col);
        const int64_t whole = count / kMxBlock * kMxBlock;
        const bool is_plain = steps.plain_blocks && steps.plain_blocks(from, whole, sixteenths, out[0]);
        const int64_t done = is_plain ? whole : 0;
        steps.line(from + done * in.bits / 8, count - done, sixteenths + done / kSixteen, global_factor(in, matrix),
                   out[0] + done * steps.bytes);
    }

    void columns(const Rectangle& piece) {
        for (int64_t col = 0; col < piece.cols; col += kTile)
            read_tile({piece.matrix, piece.row, piece.col + col, piece.rows, least(kTile, piece.cols - col)});
    }

    void read_tile(const Rectangle& at) {
        load_tile(at);
        transpose_tile(tile, at.cols, at.rows, transposed);
        for (int64_t row = 0; row < at.rows; row += kSixteen) {
            const int64_t rows = least(kSixteen, at.rows - row);
            read_columns(at.matrix, transposed + row, rows, at.cols, factors[row / kSixteen]);
            for (int64_t i = 0; i < rows; i++) {
                if (row + i < kTile && at.col + kTile + row + i < problem.out.cols)
                    prefetch(codes(at.matrix, at.col + kTile + row + i, at.row), at.rows * in.bits / 8);
                store(at.matrix, at.row + row + i, at.col, at.cols, out[i]);
            }
        }
    }

    void load_tile(const Rectangle& at) {
        for (int64_t col = 0; col < at.cols; col++) {
            steps.unpack(codes(at.matrix, at.col + col, at.row), at.rows, tile[col]);
            float sixteenths[kLineSixteens];
            load_sixteenths(in, at.matrix, at.col + col, at.row, at.rows, sixteenths);
            for (int64_t i = 0; i * kSixteen < at.rows; i++) factors[i][col] = sixteenths[i];
        }
    }

    void read_columns(int64_t matrix, const uint8_t (*codes)[kTile], int64_t rows, int64_t cols, const float* factors) {
        if (steps.plain_columns && steps.plain_columns(codes, rows, cols, factors, out)) return;
        const float global = global_factor(in, matrix);
        for (int64_t row = 0; row < rows; row++) steps.columns(codes[row], cols, factors, global, out[row]);
    }
};

void dequantize_rectangle(const DequantizeProblem& problem, const Rectangle& piece, bool stream) {
    Reader reader(problem, stream);
    problem.columnwise ? reader.columns(piece) : reader.rows(piece);
    finish_stores();
}

}  // namespace
}  // namespace mxq::cpu
