// Quantize and dequantize, built once per instruction set (MXQ_ISA: scalar, avx2, avx512); the compiler vectorises.
//
// Work goes in patches that stay in L1: 4096 elements as fp32, converted once, then one short loop per step:
//
//     quantize       input -> values -> maxima of 32 -> scales, reciprocals -> codes -> lines of the output
//
//     rowwise        patch = a few rows x up to 1024 columns; a block is 32 neighbours
//     columnwise     patch = 32 rows x 128 columns; a block is a column; four patches make a tile of 128 x 128 codes,
//                    which is transposed by bytes, so that each output line gets 128 of them at once
//     both           one patch serves both, then the tile
//     32x32          one maximum for 32 columns; the codes serve both parts
//
//     dequantize     codes (columnwise: a tile, transposed) -> times the scale, rounded -> rows of the output
//
// Each step is a loop over whole blocks: a partial one is filled with zeros, which change no maximum. Steps are picked by
// pointer (input type, policy, rounding, element type), so none of them multiplies the others' code.
// Bytes per element: input + 1 + 1/32 (quantize, per part). With 32-byte vectors bound by arithmetic: rounding to codes first.
// Large outputs are written past the caches: half of a store's traffic is otherwise reading what it overwrites.
#include "cpu/kernels.h"

#include "cpu/scale_window.h"
#include "numerics/convert.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mxq::cpu {
namespace {

constexpr int64_t kPatch = 4096;                     // elements
constexpr int64_t kPatchCols = 1024;                 // of a rowwise patch
constexpr int64_t kTile = 128;                       // rows and columns of a tile
constexpr int64_t kBlocks = kPatch / kMxBlock;
constexpr int64_t kTileBlocks = kTile / kMxBlock;

// ---- Moving bytes -------------------------------------------------------------------------------------------------

MXQ_HD int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// From L1 to the output. Streamed in whole cache lines: a part of one costs more than it saves.
void store_line(void* to, const void* from, int64_t bytes, bool stream) {
#if defined(__x86_64__)
    if (stream) {
        auto* target = static_cast<char*>(to);
        auto* source = static_cast<const char*>(from);
        const int64_t head = least(bytes, int64_t(-reinterpret_cast<uintptr_t>(to) & 63));
        memcpy(target, source, size_t(head));
        int64_t i = head;
        for (; i + 64 <= bytes; i += 64)
            for (int64_t j = i; j < i + 64; j += 16)
                _mm_stream_si128(reinterpret_cast<__m128i*>(target + j),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + j)));
        memcpy(target + i, source + i, size_t(bytes - i));
        return;
    }
#endif
    memcpy(to, from, size_t(bytes));
}

// Streamed stores are not ordered with those that tell another thread that a piece is done.
void finish_stores() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

typedef uint8_t Bytes16 __attribute__((vector_size(16)));

// 16 x 16 bytes: four perfect shuffles of the rows.
MXQ_HD void transpose_16(const uint8_t* from, uint8_t* to) {
    Bytes16 rows[2][16];
    for (int i = 0; i < 16; i++) memcpy(&rows[0][i], from + i * kTile, 16);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < 8; i++) {
            const Bytes16 a = rows[stage % 2][i], b = rows[stage % 2][i + 8];
            rows[1 - stage % 2][2 * i] =
                __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            rows[1 - stage % 2][2 * i + 1] =
                __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
    for (int i = 0; i < 16; i++) memcpy(to + i * kTile, &rows[0][i], 16);
}

// The first rows x cols of a tile, rounded up to 16.
void transpose_tile(const uint8_t (*from)[kTile], int64_t rows, int64_t cols, uint8_t (*to)[kTile]) {
    for (int64_t row = 0; row < rows; row += 16)
        for (int64_t col = 0; col < cols; col += 16) transpose_16(&from[row][col], &to[col][row]);
}

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

struct QuantizeSteps {
    decltype(&load_values<float>) load;
    decltype(&block_maxima<Nonfinite::Propagate>) block_maxima;
    decltype(&column_maxima<Nonfinite::Propagate>) column_maxima;
    decltype(&make_scales<E4M3, ScaleRounding::Floor, Nonfinite::Propagate>) scales;
    decltype(&encode_blocks<E4M3>) encode_blocks;
    decltype(&encode_columns<E4M3>) encode_columns;
};

template <class E, Nonfinite policy>
QuantizeSteps steps_of(ScaleRounding rounding) {
    QuantizeSteps steps{};
    steps.block_maxima = block_maxima<policy>;
    steps.column_maxima = column_maxima<policy>;
    steps.encode_blocks = encode_blocks<E>;
    steps.encode_columns = encode_columns<E>;
    switch (rounding) {
        case ScaleRounding::Floor: steps.scales = make_scales<E, ScaleRounding::Floor, policy>; break;
        case ScaleRounding::Ceil: steps.scales = make_scales<E, ScaleRounding::Ceil, policy>; break;
        case ScaleRounding::Even: steps.scales = make_scales<E, ScaleRounding::Even, policy>; break;
        case ScaleRounding::Rceil: steps.scales = make_scales<E, ScaleRounding::Rceil, policy>; break;
    }
    return steps;
}

template <class E>
QuantizeSteps steps_of(const QuantizeProblem& problem) {
    return problem.nonfinite == Nonfinite::Propagate ? steps_of<E, Nonfinite::Propagate>(problem.scale_rounding)
                                                     : steps_of<E, Nonfinite::Saturate>(problem.scale_rounding);
}

QuantizeSteps steps_of(const QuantizeProblem& problem) {
    QuantizeSteps steps = problem.format == MXQ_FORMAT_MXFP8_E4M3 ? steps_of<E4M3>(problem) : steps_of<E5M2>(problem);
    switch (problem.in.format) {
        case MXQ_FORMAT_F32: steps.load = load_values<float>; break;
        case MXQ_FORMAT_F16: steps.load = load_values<F16>; break;
        case MXQ_FORMAT_BF16: steps.load = load_values<Bf16>; break;
    }
    return steps;
}

// ---- Quantize -----------------------------------------------------------------------------------------------------

uint8_t* line_of(const QuantizedPart& part, int64_t matrix, int64_t line, int64_t first) {
    return part.codes + (matrix * part.lines + line) * part.length + first;
}

struct Maker {
    const QuantizeProblem& problem;
    const QuantizeSteps steps;
    const bool stream;

    alignas(64) float values[kPatch];
    alignas(64) uint32_t maxima[kBlocks];
    alignas(64) float reciprocals[kBlocks];
    alignas(64) uint8_t scales[kBlocks];
    alignas(64) uint8_t tile_scales[kTileBlocks][kTile];  // columnwise
    alignas(64) uint8_t codes[kPatch];
    alignas(64) uint8_t tile[kTile][kTile], transposed[kTile][kTile];

    Maker(const QuantizeProblem& problem, bool stream) : problem(problem), steps(steps_of(problem)), stream(stream) {}

    // The rowwise scales from the swizzled tile on in which (row, col) lies.
    ScaleWindow<uint8_t> row_scales(int64_t matrix, int64_t row, int64_t col) const {
        return {problem.rowwise.scales, problem.rowwise.layout, matrix, row / kTile * kTile, col / kMxBlock};
    }

    // The loaded patch, `pitch` wide, rowwise.
    void make_rows(const Rectangle& patch, int64_t pitch) {
        const int64_t blocks = patch.rows * pitch / kMxBlock, row_blocks = pitch / kMxBlock;
        const ScaleWindow<uint8_t> window = row_scales(patch.matrix, patch.row, patch.col);
        steps.block_maxima(values, blocks, maxima);
        steps.scales(maxima, blocks, scales, reciprocals);
        steps.encode_blocks(values, blocks, reciprocals, codes);
        for (int64_t row = 0; row < patch.rows; row++) {
            store_line(line_of(problem.rowwise, patch.matrix, patch.row + row, patch.col), codes + row * pitch,
                       patch.cols, stream);
            window.store(patch.row % kTile + row, row_blocks, scales + row * row_blocks);
        }
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
                steps.load(problem.in, patch, patch.rows, pitch, values);
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
            steps.load(problem.in, patch, kMxBlock, pitch, values);
            if (problem.has_rowwise && !problem.square_tiles) make_rows(patch, pitch);
            steps.column_maxima(values, pitch, maxima);
            if (problem.square_tiles) spread_square_maxima(pitch);
            steps.scales(maxima, pitch, tile_scales[row / kMxBlock], reciprocals);
            steps.encode_columns(values, pitch, reciprocals, tile + row);
        }
        if (problem.has_rowwise && problem.square_tiles) store_square_rows(at);
        if (problem.has_rowwise) clear_below_rows(at);
        if (problem.has_columnwise) store_columns(at);
    }

    // 32 columns share the largest of their maxima.
    void spread_square_maxima(int64_t pitch) {
        for (int64_t first = 0; first < pitch; first += kMxBlock) {
            uint32_t maximum = 0;
            for (int64_t i = first; i < first + kMxBlock; i++) maximum = maximum < maxima[i] ? maxima[i] : maximum;
            for (int64_t i = first; i < first + kMxBlock; i++) maxima[i] = maximum;
        }
    }

    void store_square_rows(const Rectangle& at) {
        const ScaleWindow<uint8_t> window = row_scales(at.matrix, at.row, at.col);
        for (int64_t row = 0; row < at.rows; row++) {
            store_line(line_of(problem.rowwise, at.matrix, at.row + row, at.col), tile[row], at.cols, stream);
            uint8_t line_scales[kTileBlocks];
            for (int64_t i = 0; i < kTileBlocks; i++) line_scales[i] = tile_scales[row / kMxBlock][i * kMxBlock];
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

// ---- Dequantize ---------------------------------------------------------------------------------------------------

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
// Every code is a half: E5M2 its upper byte, E4M3 (smaller exponent bias) one with its exponent off by 8.
template <class E>
MXQ_HD void decode_codes(const uint8_t* codes, float* values) {
    for (int64_t i = 0; i < kMxBlock; i += 16) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i));
        __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
        if constexpr (__is_same(E, E4M3)) {
            const __m256i top = _mm256_set1_epi16(0x7F00), infinity = _mm256_set1_epi16(0x7C00);
            const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(halves, top), top);
            halves = _mm256_and_si256(_mm256_srai_epi16(halves, 1), _mm256_set1_epi16(int16_t(0xBFFF)));
            halves = _mm256_or_si256(halves, _mm256_and_si256(nan, infinity));
        }
        const __m256 rebias = _mm256_set1_ps(float(1 << (15 - E::bias)));
        _mm256_storeu_ps(values + i, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), rebias));
        _mm256_storeu_ps(values + i + 8, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), rebias));
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

struct DequantizeSteps {
    int64_t bytes;  // of an output element
    decltype(&decode_blocks<E4M3, float>) blocks, columns;
};

template <class E>
DequantizeSteps steps_of(int32_t out_format) {
    switch (out_format) {
        case MXQ_FORMAT_F32: return {4, decode_blocks<E, float>, decode_columns<E, float>};
        case MXQ_FORMAT_F16: return {2, decode_blocks<E, F16>, decode_columns<E, F16>};
        default: return {2, decode_blocks<E, Bf16>, decode_columns<E, Bf16>};
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

    alignas(64) uint8_t tile[kTile][kTile], transposed[kTile][kTile];
    alignas(64) uint8_t scales[kTile];
    alignas(64) float values[kTileBlocks][kTile] = {};  // of scales
    alignas(64) uint8_t out[kPatchCols * sizeof(float)];

    Reader(const DequantizeProblem& problem, bool stream)
        : problem(problem), steps(steps_of(problem)), stream(stream) {}

    void store(int64_t matrix, int64_t row, int64_t col, int64_t count) {
        const PlainMatrix& to = problem.out;
        store_line(static_cast<uint8_t*>(to.data) + ((matrix * to.rows + row) * to.row_stride + col) * steps.bytes, out,
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
                store(piece.matrix, piece.row + row, piece.col + col, count);
            }
    }

    void read_row(const uint8_t* codes, int64_t count) {
        const int64_t whole = count / kMxBlock, rest = count % kMxBlock;
        scale_values(scales, ceil_div(count, kMxBlock), values[0]);
        steps.blocks(codes, whole, values[0], out);
        if (rest == 0) return;
        uint8_t last[kMxBlock] = {};
        memcpy(last, codes + whole * kMxBlock, size_t(rest));
        steps.blocks(last, 1, values[0] + whole, out + whole * kMxBlock * steps.bytes);
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
            for (int64_t i = 0; i < blocks; i++) values[i][col] = scale_value(scales[i]);
        }
        transpose_tile(tile, at.cols, at.rows, transposed);
        for (int64_t row = 0; row < at.rows; row++) {
            steps.columns(transposed[row], ceil_div(at.cols, kMxBlock), values[row / kMxBlock], out);
            store(at.matrix, at.row + row, at.col, at.cols);
        }
    }
};

void dequantize_rectangle(const DequantizeProblem& problem, const Rectangle& piece, bool stream) {
    Reader reader(problem, stream);
    problem.columnwise ? reader.columns(piece) : reader.rows(piece);
    finish_stores();
}

}  // namespace

#define MXQ_TEXT_OF(isa) #isa
#define MXQ_TEXT(isa) MXQ_TEXT_OF(isa)
#define MXQ_JOIN_OF(isa, name) isa##name
#define MXQ_JOIN(isa, name) MXQ_JOIN_OF(isa, name)

extern const Kernels MXQ_JOIN(MXQ_ISA, _kernels) = {MXQ_TEXT(MXQ_ISA), quantize_rectangle, dequantize_rectangle};

}  // namespace mxq::cpu
