// Dequantize. Part of kernels.cpp.
#pragma once
#include "cpu/decode.h"
#include "cpu/kernels.h"
#include "cpu/moves.h"
#include "cpu/scale_window.h"
#include "numerics/convert.h"
#include "numerics/e8m0.h"
#include "numerics/halves.h"

namespace mxq::cpu {
namespace {

void scale_values(const uint8_t* scales, int64_t count, float* values) {
    for (int64_t i = 0; i < count; i++) values[i] = scale_value(scales[i]);
}

MXQ_HD uint32_t to_word(float value) { return float_bits(value); }
template <class T>
MXQ_HD uint32_t to_word(T value) { return value.bits; }

MXQ_HD void from_word(uint32_t word, float& out) { out = bits_float(word); }
template <class T>
MXQ_HD void from_word(uint32_t word, T& out) { out.bits = uint16_t(word); }

// The values of a block, but for the bits of a NaN.
#if defined(__F16C__)
template <class E>
MXQ_HD void decode_codes(const uint8_t* codes, float* values) {
    for (int64_t i = 0; i < kMxBlock; i += 16) {
        const SixteenFloats decoded = decode_16<E>(codes + i);
        _mm256_storeu_ps(values + i, decoded.low);
        _mm256_storeu_ps(values + i + 8, decoded.high);
    }
}
#else
template <class E>
MXQ_HD void decode_codes(const uint8_t* codes, float* values) {
    alignas(64) uint32_t words[kMxBlock];
    for (int64_t i = 0; i < kMxBlock; i++) words[i] = codes[i];
    for (int64_t i = 0; i < kMxBlock; i++) values[i] = decode<E>(words[i]);
}
#endif

// A block, with a scale for all or for each element: dequantize_element to T. As in quantize, words before bytes.
template <class E, class T, class Scale>
MXQ_HD void decode_block(const uint8_t* codes, const Scale& scale, T* out) {
    alignas(64) float values[kMxBlock];
    alignas(64) uint32_t words[kMxBlock];
    decode_codes<E>(codes, values);
    for (int64_t i = 0; i < kMxBlock; i++) words[i] = to_word(from_float<T>(multiply_rn(values[i], scale(i))));
    for (int64_t i = 0; i < kMxBlock; i++) from_word(words[i], out[i]);
}

template <class E, class T>
void decode_blocks(const uint8_t* codes, int64_t blocks, const float* scales, void* out) {
    for (int64_t block = 0; block < blocks; block++) {
        const float scale = scales[block];
        decode_block<E>(codes + block * kMxBlock, [&](int64_t) { return scale; },
                        static_cast<T*>(out) + block * kMxBlock);
    }
}

// Blocks of codes that have a scale each.
template <class E, class T>
void decode_columns(const uint8_t* codes, int64_t blocks, const float* scales, void* out) {
    for (int64_t first = 0; first < blocks * kMxBlock; first += kMxBlock)
        decode_block<E>(codes + first, [&](int64_t i) { return scales[first + i]; }, static_cast<T*>(out) + first);
}

// ---- The same by way of halves (numerics/halves.h), without rounding: for codes and scales that it serves ----------

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
    return __m256i(Words(SignedWords(codes) >> shift) & uint16_t(shift ? 0xBFFF : 0xFFFF));
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

template <class E>
bool make_half_scales(const uint8_t* scales, int64_t count, float* factors) {
    uint32_t rare = 0;
    for (int64_t i = 0; i < count; i++) {
        factors[i] = half_scale<E>(scales[i]);
        rare |= uint32_t(!is_plain_scale(scales[i]));
    }
    return rare == 0;
}

// decode_blocks, or false.
template <class E, class T>
bool decode_plain_blocks(const uint8_t* codes, int64_t blocks, const uint8_t* scales, void* out) {
    float factors[kPatchCols / kMxBlock];
    if (!make_half_scales<E>(scales, blocks, factors) || !are_plain_codes<E>(codes, blocks * kMxBlock)) return false;
    for (int64_t i = 0; i < blocks; i++) {
        const Floats factor[] = {all(factors[i]), all(factors[i])};
        decode_32<E>(codes + i * kMxBlock, factor, factor, static_cast<T*>(out) + i * kMxBlock);
    }
    return true;
}

// The columns of up to 32 rows of a tile, or false.
template <class E, class T>
bool decode_plain_columns(const uint8_t (*codes)[kTile], int64_t rows, int64_t blocks, const uint8_t* scales,
                          uint8_t (*out)[kTile * sizeof(float)]) {
    alignas(64) float factors[kTile];
    if (!make_half_scales<E>(scales, blocks * kMxBlock, factors)) return false;
    if (!are_plain_codes<E>(codes[0], rows * kTile)) return false;
    for (int64_t first = 0; first < blocks * kMxBlock; first += kMxBlock) {
        const Floats even[] = {even_of(factors + first), even_of(factors + first + 16)};
        const Floats odd[] = {odd_of(factors + first), odd_of(factors + first + 16)};
        for (int64_t row = 0; row < rows; row++)
            decode_32<E>(codes[row] + first, even, odd, reinterpret_cast<T*>(out[row]) + first);
    }
    return true;
}
#else
template <class E, class T>
bool decode_plain_blocks(const uint8_t*, int64_t, const uint8_t*, void*) {
    return false;
}
template <class E, class T>
bool decode_plain_columns(const uint8_t (*)[kTile], int64_t, int64_t, const uint8_t*, uint8_t (*)[kTile * sizeof(float)]) {
    return false;
}
#endif

struct DequantizeSteps {
    int64_t bytes;  // of an output element
    decltype(&decode_plain_blocks<E4M3, float>) plain_blocks;
    decltype(&decode_plain_columns<E4M3, float>) plain_columns;
    decltype(&decode_blocks<E4M3, float>) blocks, columns;
};

template <class E, class T>
DequantizeSteps steps_of() {
    return {sizeof(T), decode_plain_blocks<E, T>, decode_plain_columns<E, T>, decode_blocks<E, T>, decode_columns<E, T>};
}

template <class E>
DequantizeSteps steps_of(int32_t out_format) {
    switch (out_format) {
        case MXQ_FORMAT_F32: return steps_of<E, float>();
        case MXQ_FORMAT_F16: return steps_of<E, F16>();
        default: return steps_of<E, Bf16>();
    }
}

DequantizeSteps steps_of(const DequantizeProblem& problem) {
    return problem.format == MXQ_FORMAT_MXFP8_E4M3 ? steps_of<E4M3>(problem.out.format)
                                                   : steps_of<E5M2>(problem.out.format);
}

struct Reader {
    const DequantizeProblem& problem;
    const DequantizeSteps steps;
    const bool stream;

    alignas(64) uint8_t tile[kTile][kTileRows] = {}, transposed[kTileRows][kTile] = {};
    alignas(64) uint8_t scales[kPatchCols / kMxBlock];
    alignas(64) uint8_t tile_scales[kTileBlocks][kTile] = {};
    alignas(64) float values[kTile];  // of scales
    alignas(64) uint8_t out[kMxBlock][kTile * sizeof(float)];  // rows of a tile, or one row

    Reader(const DequantizeProblem& problem, bool stream)
        : problem(problem), steps(steps_of(problem)), stream(stream) {}

    void store(int64_t matrix, int64_t row, int64_t col, int64_t count, const uint8_t* from) {
        const PlainMatrix& to = problem.out;
        store_line(static_cast<uint8_t*>(to.data) + ((matrix * to.rows + row) * to.row_stride + col) * steps.bytes, from,
                   count * steps.bytes, stream);
    }

    void rows(const Rectangle& piece) {
        const ScaleWindow<const uint8_t> window(problem.in.scales, problem.in.layout, piece.matrix, piece.row,
                                                piece.col / kMxBlock);
        for (int64_t row = 0; row < piece.rows; row++)
            for (int64_t col = 0; col < piece.cols; col += kPatchCols) {
                const int64_t count = least(kPatchCols, piece.cols - col);
                window.load(row, col / kMxBlock, ceil_div(count, kMxBlock), scales);
                read_row(line_of(problem.in, piece.matrix, piece.row + row, piece.col + col), count);
                store(piece.matrix, piece.row + row, piece.col + col, count, out[0]);
            }
    }

    void read_row(const uint8_t* codes, int64_t count) {
        const int64_t whole = count / kMxBlock, rest = count % kMxBlock;
        read_blocks(codes, whole, scales, out[0]);
        if (rest == 0) return;
        uint8_t last[kMxBlock] = {};
        memcpy(last, codes + whole * kMxBlock, size_t(rest));
        read_blocks(last, 1, scales + whole, out[0] + whole * kMxBlock * steps.bytes);
    }

    void read_blocks(const uint8_t* codes, int64_t blocks, const uint8_t* scales, uint8_t* to) {
        if (steps.plain_blocks(codes, blocks, scales, to)) return;
        scale_values(scales, blocks, values);
        steps.blocks(codes, blocks, values, to);
    }

    void columns(const Rectangle& piece) {
        for (int64_t col = 0; col < piece.cols; col += kTile)
            read_tile({piece.matrix, piece.row, piece.col + col, piece.rows, least(kTile, piece.cols - col)});
    }

    void read_tile(const Rectangle& at) {
        const ScaleWindow<const uint8_t> window(problem.in.scales, problem.in.layout, at.matrix, at.col,
                                                at.row / kMxBlock);
        const int64_t blocks = ceil_div(at.rows, kMxBlock);
        for (int64_t col = 0; col < at.cols; col++) {
            memcpy(tile[col], line_of(problem.in, at.matrix, at.col + col, at.row), size_t(at.rows));
            window.load(col, 0, blocks, scales);
            for (int64_t i = 0; i < blocks; i++) tile_scales[i][col] = scales[i];
        }
        transpose_tile(tile, at.cols, at.rows, transposed);
        for (int64_t row = 0; row < at.rows; row += kMxBlock) {
            const int64_t rows = least(kMxBlock, at.rows - row);
            read_columns(transposed + row, rows, ceil_div(at.cols, kMxBlock), tile_scales[row / kMxBlock]);
            for (int64_t i = 0; i < rows; i++) {
                if (row + i < kTile && at.col + kTile + row + i < problem.out.cols)
                    prefetch(line_of(problem.in, at.matrix, at.col + kTile + row + i, at.row), at.rows);
                store(at.matrix, at.row + row + i, at.col, at.cols, out[i]);
            }
        }
    }

    void read_columns(const uint8_t (*codes)[kTile], int64_t rows, int64_t blocks, const uint8_t* scales) {
        if (steps.plain_columns(codes, rows, blocks, scales, out)) return;
        scale_values(scales, blocks * kMxBlock, values);
        for (int64_t row = 0; row < rows; row++) steps.columns(codes[row], blocks, values, out[row]);
    }
};

void dequantize_rectangle(const DequantizeProblem& problem, const Rectangle& piece, bool stream) {
    Reader reader(problem, stream);
    problem.columnwise ? reader.columns(piece) : reader.rows(piece);
    finish_stores();
}

}  // namespace
}  // namespace mxq::cpu
