// The second half of dequantize_columnwise, from a tile in shared memory to rows. A thread takes half a chunk of each of its
// columns and picks the codes of a row out of two columns at a time. It multiplies them by scales, or by factors for pairs,
// and stores them.
#pragma once
#include "cuda/dequantize/columnwise_tile.cuh"
#include "numerics/packed_pairs.h"

namespace mxq::cuda::columnwise {

// The scale words of a thread's columns for its rows.
template <int columns>
struct ScaleWords {
    uint32_t words[columns];

    __device__ __forceinline__ explicit ScaleWords(const uint32_t* first) {
        const auto* const from = reinterpret_cast<const uint4*>(first);
#pragma unroll
        for (int v = 0; v < columns; v += 4) {
            const uint4 four = from[v / 4];
            words[v] = four.x, words[v + 1] = four.y, words[v + 2] = four.z, words[v + 3] = four.w;
        }
    }
};

// Eight rows of a thread's columns, from half a chunk of each. 8-bit codes become fp32.
template <class T, class E>
struct HalfRows {
    static constexpr int columns = Vector<T>::count;
    Codes<8> codes[columns];

    // `line` is the first of the columns.
    template <class Tile>
    __device__ __forceinline__ HalfRows(const Tile& tile, int line, int chunk, int half) {
        const auto* from = reinterpret_cast<const uint2*>(tile.codes + Tile::word_of_chunk(line, chunk)) + half;
#pragma unroll
        for (int v = 0; v < columns; v++, from += Tile::chunks * 2) codes[v] = {{from->x, from->y}};
    }
    // Returns the codes of row i of columns v and v + 1, the first in the low byte.
    __device__ __forceinline__ uint32_t pair(int v, int i) const {
        return __byte_perm(codes[v].words[i / 4], codes[v + 1].words[i / 4], (4 + i % 4) << 4 | i % 4) & 0xFFFF;
    }
    __device__ __forceinline__ float2 values(int v, int i) const { return decode_pair<E>(pair(v, i)); }
};

// 6-bit and 4-bit codes stay packed until two columns' codes of a row are shifted to where numbers have them.
template <class T, class E>
requires(E::bits < 8) struct HalfRows<T, E> {
    static constexpr int columns = Vector<T>::count, in_word = E::bits == 6 ? 4 : 8;  // codes
    uint32_t words[columns][8 / in_word];

    template <class Tile>
    __device__ __forceinline__ HalfRows(const Tile& tile, int line, int chunk, int half) {
        const uint32_t* from = tile.codes + Tile::word_of_chunk(line, chunk) + half;
#pragma unroll
        for (int v = 0; v < columns; v++, from += Tile::chunks * Tile::chunk_words) {
            words[v][0] = from[0];
            if constexpr (E::bits == 6) {  // 48 bits from bit 0 or 16 on
                const uint32_t low = from[0], high = from[1];
                words[v][0] = __funnelshift_r(low, high, half * 16);
                words[v][1] = half == 0 ? __funnelshift_r(low, high, 24) : high >> 8;
            }
        }
    }
    __device__ __forceinline__ uint32_t window(int v, int i) const {
        return window_of_lines<E::bits>(words[v][i / in_word], words[v + 1][i / in_word], i % in_word);
    }
    static __device__ __forceinline__ int bit(int i) { return bit_in_window<E::bits>(i % in_word); }
    __device__ __forceinline__ float2 values(int v, int i) const { return decode_window<E>(window(v, i), bit(i)); }
};

// The scales of a thread's columns as fp32, which turn codes into rows of elements.
template <class T, class E>
struct ColumnScales {
    static constexpr int columns = Vector<T>::count;
    float scales[columns], global;

    // `row` is the thread's first row.
    __device__ __forceinline__ ColumnScales(ScaleType type, float above, const ScaleWords<columns>& from, int row)
        : global(above) {
        if (E::bits == 8 && type == ScaleType::F32) {
#pragma unroll
            for (int v = 0; v < columns; v++) scales[v] = bits_float(from.words[v]);
        } else if (E::bits == 4 && type == ScaleType::E4M3) {
            const int bit = row / int(kNvBlock) % 4 * 8;
#pragma unroll
            for (int v = 0; v < columns; v++) scales[v] = decode_pair<E4M3>(from.words[v] >> bit & 0xFF).x;
        } else {
            const int bit = row / int(kMxBlock) % 4 * 8;
#pragma unroll
            for (int v = 0; v < columns; v++) scales[v] = scale_value(from.words[v] >> bit & 0xFF);
        }
    }
    __device__ __forceinline__ Vector<T> row_of(const HalfRows<T, E>& rows, int i) const {
        float values[columns];
#pragma unroll
        for (int v = 0; v < columns; v += 2) {
            const float2 pair = rows.values(v, i);
            values[v] = multiply_rn(pair.x, scales[v]);
            values[v + 1] = multiply_rn(pair.y, scales[v + 1]);
            if constexpr (E::bits == 4)
                values[v] = multiply_rn(values[v], global), values[v + 1] = multiply_rn(values[v + 1], global);
        }
        return round_vector<T>(values);
    }
};

// E8M0 scales of a thread's columns as BF16 factors, two columns in a word. They turn 6-bit and 4-bit codes into rows of
// BF16.
template <class E>
struct ColumnFactors {
    static constexpr int columns = Vector<Bf16>::count;
    uint32_t factors[columns / 2];
    bool plain = true;  // no scale is special

    __device__ __forceinline__ ColumnFactors(const ScaleWords<columns>& from, int row) {
        constexpr Bf16DecodeRule rule = bf16_decode_rule<E>();
        const int bit = row / int(kMxBlock) % 4 * 8;
#pragma unroll
        for (int v = 0; v < columns; v++) {
            const uint32_t byte = from.words[v] >> bit & 0xFF, factor = bf16_e8m0_factor(rule, byte);
            plain = plain && !is_special_scale(rule, byte);
            factors[v / 2] = v % 2 == 0 ? factor : permute_bytes(factors[v / 2], factor, 0x5410);
        }
    }
    __device__ __forceinline__ Vector<Bf16> row_of(const HalfRows<Bf16, E>& rows, int i) const {
        Vector<Bf16> vector;
#pragma unroll
        for (int v = 0; v < columns; v += 2)
            vector.words[v / 2] = decode_window_to_bf16<E>(rows.window(v, i), rows.bit(i), factors[v / 2]);
        return vector;
    }
};

// E4M3 scales of a thread's columns as F16 factors, two columns in a word. They turn E2M1 codes into rows. A code shifted to
// where F16 has its bits (numerics/packed_pairs.h) is 2^-14 of its value. Times 2^7 and its scale it is 2^-7 of the product,
// which is exact: at most six significant bits, the lowest 2^-17.
template <class T>
struct ColumnHalves {
    static constexpr int columns = Vector<T>::count, kept = 7;  // of the 2^14
    uint32_t factors[columns / 2];
    float global;

    __device__ __forceinline__ ColumnHalves(float above, const ScaleWords<columns>& from, int row)
        : global(multiply_rn(above, float(1 << kept))) {
        const uint32_t byte = uint32_t(row) / uint32_t(kNvBlock) % 4, selector = byte | (4 + byte) << 4;
#pragma unroll
        for (int v = 0; v < columns; v += 2) {
            const uint32_t pair = permute_bytes(from.words[v], from.words[v + 1], selector) & 0xFFFF;
            factors[v / 2] =
                multiply_f16_pairs(decode_pair_to_f16<E4M3>(pair), uint32_t(15 + kept) << 10 | uint32_t(15 + kept) << 26);
        }
    }
    // Returns whether the global scale `above` permits this.
    static __device__ __forceinline__ bool serves(float above) {
        return fabsf(above) < bits_float(uint32_t(127 + 100) << 23);
    }

    __device__ __forceinline__ Vector<T> row_of(const HalfRows<T, E2M1>& rows, int i) const {
        float values[columns];
#pragma unroll
        for (int v = 0; v < columns; v += 2) {
            const uint32_t moved = move_codes<E2M1, 10>(rows.window(v, i), rows.bit(i));
            const uint32_t scaled = multiply_f16_pairs(moved, factors[v / 2]);
            const float2 pair = __half22float2(__half2(__builtin_bit_cast(__half2_raw, scaled)));
            values[v] = multiply_rn(pair.x, global), values[v + 1] = multiply_rn(pair.y, global);
        }
        return round_vector<T>(values);
    }
};

// The destination of a thread's patch: how many rows have codes, how many are written, and how many columns exist from the
// thread's first on. `whole`: whole vectors are stored, else single elements.
template <class T, bool whole>
struct PatchRows {
    T* out;
    int64_t row_stride;
    int filled, written, left;

    __device__ __forceinline__ PatchRows(T* patch, int64_t stride, int rows, int out_rows, int columns_left)
        : out(patch), row_stride(stride), written(min(out_rows, kHalfChunk)), left(columns_left) {
        filled = min(rows, written);
    }
    // Stores the vector of row i, if i is below `end`.
    __device__ __forceinline__ void store(const Vector<T>& vector, int i, int end) const {
        T* const to = out + i * row_stride;
        if constexpr (whole)
            store_vector_plain(vector, to, left > 0 && i < end);
        else
            store_vector_narrow(vector, to, i < end ? left : 0);
    }
};

// Writes the rows that have codes.
template <class T, class E, class Scales, bool whole>
__device__ __forceinline__ void store_rows(const PatchRows<T, whole>& to, const Scales& scales, const HalfRows<T, E>& rows) {
#pragma unroll
    for (int i = 0; i < kHalfChunk; i++) to.store(scales.row_of(rows, i), i, to.filled);
}

// Writes the rows that have codes by factors if possible; false: nothing was written.
template <class T, class E, bool whole>
__device__ __forceinline__ bool store_rows_by_factors(const PatchRows<T, whole>& to, ScaleType type, float global,
                                                      const ScaleWords<Vector<T>::count>& words, int row,
                                                      const HalfRows<T, E>& rows) {
    if constexpr (whole && E::bits < 8 && std::is_same_v<T, Bf16>) {
        if (type == ScaleType::E8M0) {
            const ColumnFactors<E> factors(words, row);
            if (factors.plain) store_rows(to, factors, rows);
            return factors.plain;
        }
    }
    if constexpr (whole && E::bits == 4 && sizeof(T) == 2) {
        if (type == ScaleType::E4M3 && ColumnHalves<T>::serves(global)) {
            store_rows(to, ColumnHalves<T>(global, words, row), rows);
            return true;
        }
    }
    return false;
}

// Writes the rows of a patch. Rows without codes are +0.
template <class T, class E, bool whole>
__device__ __forceinline__ void store_patch(const PatchRows<T, whole>& to, ScaleType type, float global,
                                            const ScaleWords<Vector<T>::count>& words, int first_row,
                                            const HalfRows<T, E>& rows) {
    if (!store_rows_by_factors(to, type, global, words, first_row, rows))
        store_rows(to, ColumnScales<T, E>(type, global, words, first_row), rows);
#pragma unroll 1
    for (int row = 0; row < kHalfChunk; row++)
        if (row >= to.filled && row < to.written) to.store(Vector<T>{}, row, to.written);
}

}  // namespace mxq::cuda::columnwise
