// The second half of dequantize_columnwise, from a tile in shared memory to rows. A thread takes half a chunk of each of its
// columns and picks the codes of a row out of two columns at a time. It multiplies them by scales, or by factors for pairs,
// and stores them.
#pragma once
#include "cuda/dequantize/columnwise_tile.cuh"
#include "numerics/f16_pairs.h"
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

// Eight rows of a thread's columns, from half a chunk of each: a byte a code.
template <class T, class E>
struct HalfRows {
    static constexpr int columns = Vector<T>::count;
    Codes<8> codes[columns];

    // `line` is the first of the columns.
    template <class Tile>
    __device__ __forceinline__ HalfRows(const Tile& tile, int line, int chunk, int half) {
        const uint32_t* from = tile.codes + Tile::word_of_chunk(line, chunk) + half * (E::bits / 4);
#pragma unroll
        for (int v = 0; v < columns; v++, from += Tile::chunks * Tile::chunk_words) codes[v] = load(from, half);
    }
    // Loads the codes of a column. Those of 6 bits are 48 bits, from bit 0 or 16 on.
    static __device__ __forceinline__ Codes<8> load(const uint32_t* from, int half) {
        if constexpr (E::bits == 8) {
            const uint2 both = *reinterpret_cast<const uint2*>(from);
            return {{both.x, both.y}};
        } else {
            const uint32_t low = from[0], high = from[1];
            return {{unpack_4<6>(__funnelshift_r(low, high, half * 16)),
                     unpack_4<6>(half == 0 ? __funnelshift_r(low, high, 24) : high >> 8)}};
        }
    }
    // Returns the codes of row i of columns v and v + 1, the first in the low byte.
    __device__ __forceinline__ uint32_t pair(int v, int i) const {
        return __byte_perm(codes[v].words[i / 4], codes[v + 1].words[i / 4], (4 + i % 4) << 4 | i % 4) & 0xFFFF;
    }
    __device__ __forceinline__ float2 values(int v, int i) const { return decode_pair<E>(pair(v, i)); }
};

// 4-bit codes stay packed until two columns' codes of a row are shifted to where F16 has them.
template <class T>
struct HalfRows<T, E2M1> {
    static constexpr int columns = Vector<T>::count;
    uint32_t words[columns];

    template <class Tile>
    __device__ __forceinline__ HalfRows(const Tile& tile, int line, int chunk, int half) {
        const uint32_t* from = tile.codes + Tile::word_of_chunk(line, chunk) + half;
#pragma unroll
        for (int v = 0; v < columns; v++, from += Tile::chunks * Tile::chunk_words) words[v] = *from;
    }
    // Returns row i of columns v and v + 1 as F16 numbers of 2^-14 times the codes' values.
    __device__ __forceinline__ uint32_t moved(int v, int i) const { return move_e2m1_to_f16(words[v], words[v + 1], i); }
    __device__ __forceinline__ float2 values(int v, int i) const {
        constexpr uint32_t power = uint32_t(15 + 14) << 10 | uint32_t(15 + 14) << 26;
        return __half22float2(__half2(__builtin_bit_cast(__half2_raw, multiply_f16_pairs(moved(v, i), power))));
    }
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
            const uint32_t scaled = multiply_f16_pairs(rows.moved(v, i), factors[v / 2]);
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
    static constexpr int lanes = kTile / Vector<T>::count;  // of one row
    T* out;
    int64_t row_stride;
    int filled, written, left;

    __device__ __forceinline__ PatchRows(T* patch, int64_t stride, int rows, int out_rows, int columns_left)
        : out(patch), row_stride(stride), written(min(out_rows, kHalfChunk)), left(columns_left) {
        filled = min(rows, written);
    }
    // Stores the vector of row i, if i is below `end`. All lanes of the warp call it.
    __device__ __forceinline__ void store(const Vector<T>& vector, int i, int end) const {
        T* const to = out + i * row_stride;
        if constexpr (whole)
            store_vector_plain(vector, to, left > 0 && i < end);
        else
            store_vectors_unaligned<T, lanes>(vector, to, i < end ? left + int(threadIdx.x) % lanes * Vector<T>::count : 0);
    }
    // Stores +0 in row i, by any lanes of a warp.
    __device__ __forceinline__ void store_zeros(int i) const {
        if constexpr (whole)
            store_vector_plain(Vector<T>{}, out + i * row_stride, left > 0);
        else
            store_vector_narrow(Vector<T>{}, out + i * row_stride, left);
    }
};

// Writes the rows that have codes.
template <class T, class E, class Scales, bool whole>
__device__ __forceinline__ void store_rows(const PatchRows<T, whole>& to, const Scales& scales, const HalfRows<T, E>& rows) {
#pragma unroll
    for (int i = 0; i < kHalfChunk; i++) to.store(scales.row_of(rows, i), i, to.filled);
}

// Writes the rows of a patch. Rows without codes are +0.
template <class T, class E, bool whole>
__device__ __forceinline__ void store_patch(const PatchRows<T, whole>& to, ScaleType type, float global,
                                            const ScaleWords<Vector<T>::count>& words, int first_row,
                                            const HalfRows<T, E>& rows) {
    bool done = false;
    if constexpr (whole && E::bits == 4 && sizeof(T) == 2) {
        done = type == ScaleType::E4M3 && ColumnHalves<T>::serves(global);
        if (done) store_rows(to, ColumnHalves<T>(global, words, first_row), rows);
    }
    if (!done) store_rows(to, ColumnScales<T, E>(type, global, words, first_row), rows);
#pragma unroll 1
    for (int row = 0; row < kHalfChunk; row++)
        if (row >= to.filled && row < to.written) to.store_zeros(row);
}

}  // namespace mxq::cuda::columnwise
