// Dequantize: codes times their scales, rounded to the output's type. Part of kernels.cpp.
//
//     rowwise      stored codes of a row --------------- decode ------> values -> the row of the output
//
//     columnwise   tile, a line of codes per column          transposed, a row of codes per row
//                    c0: r0 r1 r2 ... r255       bytes         r0: c0 c1 c2 ... c127
//                    c1: r0 r1 r2 ...         ---------->      r1: c0 c1 c2 ...       -- decode --> rows of the output
//                    ...                                       ...
//                    a factor for every 16 codes               a factor for every column, the same for 16 rows
//
//     transformed  codes -- decode --> fp32 -- undo --> values, of a row or of 16 codes of each of 128 columns
//
// The last 16 codes of a columnwise group may reach into its padding, which every alignment has room for.
//
// Decoding goes by sixteens for any codes and scales (cpu/decode.h). MXFP8 goes by way of F16 without rounding, 32 codes at
// a time, where numerics/mx_via_f16.h serves every scale of the K-major row and no code is special. An element costs its
// code, its share of a scale and the output in memory traffic, which is the bound.
#pragma once
#include "cpu/decode_lines.h"
#include "cpu/kernels.h"
#include "cpu/moves.h"
#include "cpu/quantize_values.h"
#include "numerics/convert.h"
#include "numerics/mx_via_f16.h"

namespace mxq::cpu {
namespace {

constexpr int64_t kTileSixteens = kTileRows / kSixteen;

// ---- Values to the output's type --------------------------------------------------------------------------------------
// convert_16 rounds sixteen values to the output's type and gives NaN the library's bits.

#if defined(__F16C__) && defined(__AVX2__)
// Returns all bits of each lane set that holds NaN.
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
// Words are made before they become 16 bits, for the reason that narrow_words in cpu/quantize_codes.h gives.
template <class T>
MXQ_HD void convert_16(const SixteenFloats& values, T* out) {
    uint32_t words[kSixteen];
    for (int64_t i = 0; i < kSixteen; i++) words[i] = from_float<T>(values.values[i]).bits;
    for (int64_t i = 0; i < kSixteen; i++) out[i].bits = uint16_t(words[i]);
}
#endif

// Rounds whole sixteens of values to the output's type.
template <class T>
void convert_values(const float* values, int64_t count, void* out) {
    for (int64_t i = 0; i < count; i += kSixteen) convert_16(load_sixteen(values + i), static_cast<T*>(out) + i);
}

// Decodes stored codes, of which every sixteen have a factor, to whole sixteens of the output.
template <class E, bool has_global, class T>
void decode_line(const uint8_t* codes, int64_t count, const float* factors, float global, void* out) {
    for (int64_t i = 0; i < count; i += kSixteen)
        convert_16(decode_sixteen<E, has_global>(codes + i * E::bits / 8, count - i, factors[i / kSixteen], global),
                   static_cast<T*>(out) + i);
}

// ---- Codes in a tile, a byte each -------------------------------------------------------------------------------------

// Unpacks stored codes to whole sixteens of a byte each.
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

// Decodes codes that are a byte and have a factor each, to whole sixteens of the output.
template <class E, bool has_global, class T>
void decode_columns(const uint8_t* codes, int64_t count, const float* factors, float global, void* out) {
    for (int64_t i = 0; i < count; i += kSixteen) {
        SixteenFloats values = times(decode_bytes_16<E>(codes + i), load_sixteen(factors + i));
        if constexpr (has_global) values = times(values, sixteen_of(global));
        convert_16(values, static_cast<T*>(out) + i);
    }
}

// ---- MXFP8 by way of F16 (numerics/mx_via_f16.h) ----------------------------------------------------------------------

#if defined(__F16C__)
// Returns whether no code is Inf or NaN.
template <class E>
bool are_finite(const uint8_t* codes, int64_t count) {
    if (!has_nan<E>) return true;
    uint8_t special = 0;
    for (int64_t i = 0; i < count; i++) special |= uint8_t((codes[i] & 0x7F) >= E::first_special);
    return special == 0;
}

// store_16 stores sixteen values, given as those of even and of odd elements.
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

// Returns the values of sixteen even or odd codes of 32 as F16 numbers, in two halves. The codes are at the top of words.
struct CodeValues {
    Floats low, high;
};
template <class E>
MXQ_HD CodeValues f16_values(Words codes) {
    const __m256i halves = halves_of_lanes<E>(__m256i(codes));
    return {Floats(_mm256_cvtph_ps(_mm256_castsi256_si128(halves))), Floats(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)))};
}

// Decodes 32 neighbours that are a byte each. The factors are those of the even and of the odd elements of the first and the
// second sixteen.
template <class E, class Store>
MXQ_HD void decode_32(const uint8_t* codes, const Floats (&even)[2], const Floats (&odd)[2], const Store& store) {
    const Words pairs = read<Words>(codes);
    const CodeValues evens = f16_values<E>(pairs << (16 - E::bits)), odds = f16_values<E>(pairs << (8 - E::bits));
    store(evens.low * even[0], odds.low * odd[0], 0);
    store(evens.high * even[1], odds.high * odd[1], 16);
}

// Makes the factors of F16 numbers from those of codes. Returns false if a scale is not served.
template <class E>
bool make_f16_factors(const float* factors, int64_t count, float* scales) {
    uint32_t rare = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t scale = float_bits(factors[i]) >> 23;
        scales[i] = decode_via_f16_factor<E>(scale);
        rare |= uint32_t(!can_decode_via_f16(scale));
    }
    return rare == 0;
}

// Decodes whole blocks of a K-major row, of which every sixteen codes have a factor. Returns false, and stores nothing, if
// it does not serve them.
template <class E, class T>
bool decode_blocks_via_f16(const uint8_t* codes, int64_t count, const float* factors, void* out) {
    float scales[kLineSixteens];
    if (!make_f16_factors<E>(factors, count / kSixteen, scales) || !are_finite<E>(codes, count)) return false;
    for (int64_t i = 0; i < count; i += kMxBlock) {
        const Floats scale[] = {all(scales[i / kSixteen]), all(scales[i / kSixteen])};
        decode_32<E>(codes + i, scale, scale,
                     [&](Floats even, Floats odd, int64_t at) { store_16(even, odd, static_cast<T*>(out) + i + at); });
    }
    return true;
}

// Decodes up to 16 rows of a tile, of which every column has a factor. Calls store(even, odd, row, col) for every sixteen.
template <class E, class Store>
MXQ_HD void decode_tile(const uint8_t (*codes)[kTile], int64_t rows, int64_t cols, const float* factors, const Store& store) {
    for (int64_t first = 0; first < cols; first += kMxBlock) {
        const Floats even[] = {even_of(factors + first), even_of(factors + first + 16)};
        const Floats odd[] = {odd_of(factors + first), odd_of(factors + first + 16)};
        for (int64_t row = 0; row < rows; row++)
            decode_32<E>(codes[row] + first, even, odd, [&](Floats even_values, Floats odd_values, int64_t at) {
                store(even_values, odd_values, row, first + at);
            });
    }
}

// Decodes up to 16 rows of a tile. Returns false, and stores nothing, if it does not serve them.
template <class E, class T>
bool decode_columns_via_f16(const uint8_t (*codes)[kTile], int64_t rows, int64_t cols, const float* factors,
                          uint8_t (*out)[kTile * sizeof(float)]) {
    alignas(64) float scales[kTile];
    if (!make_f16_factors<E>(factors, cols, scales)) return false;
    if (!are_finite<E>(codes[0], rows * kTile)) return false;
    decode_tile<E>(codes, rows, cols, scales, [&](Floats even, Floats odd, int64_t row, int64_t col) {
        store_16(even, odd, reinterpret_cast<T*>(out[row]) + col);
    });
    return true;
}

// Rounds eight values that are no NaN to BF16, each in the upper half of its lane; the lower halves mean nothing.
MXQ_HD Bits rounded_to_bf16(Floats values) { return Bits(values) + 0x7FFF + ((Bits(values) >> 16) & 1); }

// Decodes up to 16 rows of a tile under factors of any value, to BF16. The factor of a code's F16 is 2^(15 - bias) times that of
// the code. Returns false, and stores nothing, where a product could be NaN.
template <class E, bool has_global>
bool decode_columns_to_bf16(const uint8_t (*codes)[kTile], int64_t rows, int64_t cols, const float* factors, float global,
                            uint8_t (*out)[kTile * sizeof(float)]) {
    alignas(64) float scales[kTile];
    bool is_finite = float_bits(global) << 1 < kInfinityBits << 1;
    for (int64_t i = 0; i < cols; i++) {
        scales[i] = multiply_rn(factors[i], float(1 << (15 - E::bias)));
        is_finite &= (float_bits(scales[i]) & kMagnitudeMask) < kInfinityBits;
    }
    if (!is_finite || !are_finite<E>(codes[0], rows * kTile)) return false;
    const Floats globals = all(has_global ? global : 1.0f);
    decode_tile<E>(codes, rows, cols, scales, [&](Floats even, Floats odd, int64_t row, int64_t col) {
        const Bits evens = rounded_to_bf16(has_global ? even * globals : even);
        const Bits odds = rounded_to_bf16(has_global ? odd * globals : odd);
        store_16(Floats(evens), Floats(odds), reinterpret_cast<Bf16*>(out[row]) + col);
    });
    return true;
}
#endif

// ---- Hadamard transform ------------------------------------------------------------------------------------------------

// Undoes the transform of every sixteen neighbours: the same steps as transform_rows, with the signs last.
void undo_transform(int64_t count, uint32_t mask, float* values) {
    transform_rows(count, 0, values);
    uint32_t signs[kSixteen];
    for (int i = 0; i < kSixteen; i++) signs[i] = (mask >> i & 1) << 31;
    for (int64_t first = 0; first < count; first += kSixteen)
        for (int i = 0; i < kSixteen; i++) values[first + i] = bits_float(float_bits(values[first + i]) ^ signs[i]);
}

// ---- A rectangle -------------------------------------------------------------------------------------------------------

struct DequantizeSteps {
    int64_t bytes;  // the size of an output element
    // The steps by way of F16; NULL where the format has none.
    bool (*blocks_via_f16)(const uint8_t* codes, int64_t count, const float* factors, void* out);
    bool (*columns_via_f16)(const uint8_t (*codes)[kTile], int64_t rows, int64_t cols, const float* factors,
                          uint8_t (*out)[kTile * sizeof(float)]);
    // The steps for any factors; NULL where the output is not BF16.
    bool (*columns_to_bf16)(const uint8_t (*codes)[kTile], int64_t rows, int64_t cols, const float* factors, float global,
                            uint8_t (*out)[kTile * sizeof(float)]);
    decltype(&unpack_codes<8>) unpack;
    decltype(&decode_line<E4M3, false, float>) line, columns;
    decltype(&convert_values<float>) convert;
};

template <class E, class T>
DequantizeSteps steps_of(ScaleType scale) {
    DequantizeSteps steps{};
    steps.bytes = sizeof(T);
#if defined(__F16C__)
    if (scale == ScaleType::E8M0) steps.columns_via_f16 = decode_columns_via_f16<E, T>;
    if constexpr (E::bits == 8)
        if (scale == ScaleType::E8M0) steps.blocks_via_f16 = decode_blocks_via_f16<E, T>;
    if constexpr (__is_same(T, Bf16))
        steps.columns_to_bf16 =
            scale == ScaleType::E4M3 ? decode_columns_to_bf16<E, true> : decode_columns_to_bf16<E, false>;
#endif
    steps.unpack = unpack_codes<E::bits>;
    steps.convert = convert_values<T>;
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

// Dequantizes rectangles of one problem.
struct RectangleDequantizer {
    const DequantizeProblem& problem;
    const QuantizedPart& in;
    const DequantizeSteps steps;
    const LineDecoder decode;
    const bool stream;

    alignas(64) uint8_t tile[kTile][kTileRows], transposed[kTileRows][kTile];
    alignas(64) float factors[kTileSixteens][kTile];
    alignas(64) uint8_t out[kSixteen][kTile * sizeof(float)];  // 16 rows of a tile, or one long row
    // Hold values of a transformed part: one of each column of a tile, and sixteen of each, or a row.
    alignas(64) float row_values[kTile] = {}, values[kTile * kSixteen];

    RectangleDequantizer(const DequantizeProblem& problem, bool stream)
        : problem(problem), in(problem.in), steps(steps_of(problem)), decode(problem.in), stream(stream) {
        static_assert(kPatchCols <= kTile * kSixteen);
    }

    void store(int64_t matrix, int64_t row, int64_t col, int64_t count, const uint8_t* from) {
        store_line(element_address(problem.out, matrix, row, col), from, count * steps.bytes, stream);
    }
    const uint8_t* codes(int64_t matrix, int64_t line, int64_t first) const { return line_of(in, matrix, line, first); }

    void rows(const Rectangle& region) {
        for (int64_t row = region.row; row < region.row + region.rows; row++)
            for (int64_t col = region.col; col < region.col + region.cols; col += kPatchCols) {
                const int64_t count = least(kPatchCols, region.col + region.cols - col);
                read_row(region.matrix, row, col, count);
                store(region.matrix, row, col, count, long_row());
            }
    }

    // Returns all of `out` as one row.
    uint8_t* long_row() { return out[0]; }

    // Decodes codes [first, first + count) of a K-major row, and undoes their transform.
    void undo_line(int64_t matrix, int64_t line, int64_t first, int64_t count, float* to) const {
        decode(matrix, line, first, count, to);
        undo_transform(count, in.hadamard_mask, to);
    }

    void read_row(int64_t matrix, int64_t row, int64_t col, int64_t count) {
        if (in.transformed) {
            undo_line(matrix, row, col, count, values);
            return steps.convert(values, count, long_row());
        }
        float sixteenths[kLineSixteens];
        load_sixteenths(in, matrix, row, col, count, sixteenths);
        const uint8_t* from = codes(matrix, row, col);
        const int64_t whole = count / kMxBlock * kMxBlock;
        const bool served = steps.blocks_via_f16 && steps.blocks_via_f16(from, whole, sixteenths, long_row());
        const int64_t done = served ? whole : 0;
        steps.line(from + done * in.bits / 8, count - done, sixteenths + done / kSixteen, global_scale(in, matrix),
                   long_row() + done * steps.bytes);
    }

    void columns(const Rectangle& region) {
        if (!in.transformed) clear_tile();
        for (int64_t col = 0; col < region.cols; col += kTile) {
            const Rectangle at = {region.matrix, region.row, region.col + col, region.rows, least(kTile, region.cols - col)};
            in.transformed ? undo_tile(at) : read_tile(at);
        }
    }

    // Clears what tiles at the end of a matrix do not fill.
    void clear_tile() {
        memset(tile, 0, sizeof tile);
        memset(transposed, 0, sizeof transposed);
        memset(factors, 0, sizeof factors);
    }

    // Dequantizes a tile of a transformed part.
    void undo_tile(const Rectangle& at) {
        for (int64_t row = 0; row < at.rows; row += kSixteen) {
            for (int64_t i = 0; i < at.cols; i++)
                undo_line(at.matrix, at.col + i, at.row + row, kSixteen, values + i * kSixteen);
            for (int64_t j = 0; j < least(kSixteen, at.rows - row); j++) {
                for (int64_t i = 0; i < at.cols; i++) row_values[i] = values[i * kSixteen + j];
                steps.convert(row_values, at.cols, out[0]);
                store(at.matrix, at.row + row + j, at.col, at.cols, out[0]);
            }
        }
    }

    // Dequantizes a tile, and prefetches codes of the next one.
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
        if (steps.columns_via_f16 && steps.columns_via_f16(codes, rows, cols, factors, out)) return;
        const float global = global_scale(in, matrix);
        if (steps.columns_to_bf16 && steps.columns_to_bf16(codes, rows, cols, factors, global, out)) return;
        for (int64_t row = 0; row < rows; row++) steps.columns(codes[row], cols, factors, global, out[row]);
    }
};

void dequantize_rectangle(const DequantizeProblem& problem, const Rectangle& region, bool stream, void* scratch) {
    static_assert(sizeof(RectangleDequantizer) <= kScratchBytes && alignof(RectangleDequantizer) <= kScratchAlignment);
    RectangleDequantizer& dequantizer = *::new (scratch) RectangleDequantizer(problem, stream);
    problem.columnwise ? dequantizer.columns(region) : dequantizer.rows(region);
    finish_stores();
}

}  // namespace
}  // namespace mxq::cpu
