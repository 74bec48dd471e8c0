// The codes of a kernel with tiles in registers: from a thread's patch and its factors to memory.
//
//     rowwise, 8 bits         a vector's 4 or 8 codes, from registers
//     rowwise, 6 and 4 bits   lanes exchange codes so that each holds a chunk of 16 codes of one row, 12 or 8 bytes:
//                             4 bits leave from registers, 6 bits through shared memory
//     columnwise              a thread has a chunk of each of its columns, which leaves through shared memory
//
//     shared memory           K-major rows of 8 chunks (128, 96 or 64 bytes), which leave as contiguous segments,
//                             by accesses as wide as the rows in memory are aligned
#pragma once
#include "cuda/memory/codes.cuh"
#include "cuda/tile/scales.cuh"
#include "numerics/packing.h"

namespace mxq::cuda {

// K-major rows of codes, each skewed against the rows before, so that lanes of different columns use different banks.
template <class E>
struct alignas(16) TileCodes {
    uint32_t words[kTile * 4 * E::bits + kTile];

    // Returns the first word of a row whose chunks come from `columns` columns a lane.
    template <int columns>
    static __device__ __forceinline__ int line(int index) {
        return index * (4 * E::bits) + index / columns * 4;
    }
};

// Returns the alignment in bytes, 16, 8, 4 or 1, of every K-major row.
inline int code_access(const QuantizedPart& part, bool grouped) {
    const int64_t group_bytes = grouped && part.columnwise ? int64_t(part.units.codes) * part.bits / 8 : 0;
    for (int bytes : {16, 8, 4})
        if (is_aligned(part.codes, bytes) && part.line_bytes % bytes == 0 && group_bytes % bytes == 0) return bytes;
    return 1;
}

// Returns a mask of the bits that codes may have under a factor, one code a byte. Under NaN (scale 255) codes of types
// without NaN are 0. A block with NVFP4's scale 0 keeps signs alone.
template <class E>
__device__ __forceinline__ uint32_t factor_mask(float factor) {
    if constexpr (E::bits == 8) return ~0u;
    if (is_nan(factor)) return 0;
    return E::bits == 4 && factor == 0 ? ElementBits<E>::sign * 0x01010101u : ~0u;
}

// Makes the 16 codes of one column of the patch, one a byte.
template <class E, class T>
__device__ __forceinline__ void quantize_column(const PatchVectors<T>& vectors, int column, float factor,
                                                uint32_t (&codes)[4]) {
    const uint32_t mask = factor_mask<E>(factor);
#pragma unroll
    for (int w = 0; w < 4; w++) {
        uint32_t word = 0;
#pragma unroll
        for (int i = 4 * w; i < 4 * w + 4; i += 2) {
            const float first = multiply_rn(vectors[i][column], factor), second = multiply_rn(vectors[i + 1][column], factor);
            word |= encode_pair<E>(first, second) << (i % 4 * 8);
        }
        codes[w] = word & mask;
    }
}

// Packs a chunk and stores it to shared or global memory, by accesses as wide as it is aligned.
template <int bits>
__device__ __forceinline__ void store_chunk(uint32_t* to, const uint32_t (&codes)[4]) {
    uint32_t packed[bits / 2];
    pack_16<bits>(codes, packed);
    if constexpr (bits == 8) *reinterpret_cast<uint4*>(to) = {packed[0], packed[1], packed[2], packed[3]};
    else if constexpr (bits == 4) *reinterpret_cast<uint2*>(to) = {packed[0], packed[1]};
    else
#pragma unroll
        for (int i = 0; i < bits / 2; i++) to[i] = packed[i];
}

// Copies a unit of a row from shared memory to a part.
template <class Unit, class E, class T>
__device__ __forceinline__ void copy_unit(const TileCodes<E>& codes, const CodeTile& to, int line, int byte) {
    const auto* from = reinterpret_cast<const uint8_t*>(&codes.words[codes.template line<Patch<T>::columns>(line)]);
    *reinterpret_cast<Unit*>(to.codes + line * to.line_bytes + byte) = *reinterpret_cast<const Unit*>(from + byte);
}

// Copies rows from shared memory to a part, by all threads of the block.
template <class E, class T>
__device__ __forceinline__ void copy_wide_lines(const TileCodes<E>& codes, const CodeTile& to) {
    constexpr int units = kTile * E::bits / 8 / sizeof(uint4), count = kTile * units / Patch<T>::threads;
    const int bytes = (to.length * E::bits + 7) / 8;
#pragma unroll
    for (int j = 0; j < count; j++) {
        const int i = j * Patch<T>::threads + threadIdx.x, line = i / units, byte = i % units * int(sizeof(uint4));
        if (line < to.lines && byte < bytes) copy_unit<uint4, E, T>(codes, to, line, byte);
    }
}

// Copies rows by smaller units. A row gets as many threads as it has units, rounded up to a power of two, so that short rows
// take few steps.
template <class Unit, class E, class T>
__device__ __forceinline__ void copy_lines(const TileCodes<E>& codes, const CodeTile& to) {
    const int units = (to.length * E::bits + 8 * int(sizeof(Unit)) - 1) / (8 * int(sizeof(Unit)));
    if (units <= 0) return;
    const int log2_units = units <= 1 ? 0 : 32 - __clz(units - 1), in_line = (1 << log2_units) - 1;
#pragma unroll 4
    for (int i = threadIdx.x; i < to.lines << log2_units; i += Patch<T>::threads)
        if ((i & in_line) < units) copy_unit<Unit, E, T>(codes, to, i >> log2_units, (i & in_line) * int(sizeof(Unit)));
}

template <class E, class T>
__device__ __forceinline__ void store_lines(const TileCodes<E>& codes, const CodeTile& to, int access) {
    switch (access) {
        case 16: return copy_wide_lines<E, T>(codes, to);
        case 8: return copy_lines<uint2, E, T>(codes, to);
        case 4: return copy_lines<uint32_t, E, T>(codes, to);
        default: return copy_lines<uint8_t, E, T>(codes, to);
    }
}

// ---- Columns ---------------------------------------------------------------------------------------------------------

template <class E, class T>
__device__ __forceinline__ void put_columns(const PatchVectors<T>& vectors, const Patch<T>& patch, int shift,
                                            const PartScales<E>& scales, TileCodes<E>& codes) {
    const uint32_t* factors = &scales.table[patch.row >> shift][patch.column];
    uint32_t* to = &codes.words[codes.template line<Patch<T>::columns>(patch.column) + patch.row / kChunk * (E::bits / 2)];
#pragma unroll
    for (int v = 0; v < Patch<T>::columns; v++) {
        uint32_t column[4];
        quantize_column<E, T>(vectors, v, bits_float(factors[v]), column);
        store_chunk<E::bits>(to + v * 4 * E::bits, column);
    }
}

// ---- Rows ------------------------------------------------------------------------------------------------------------

// Exchanges words among n lanes that have words of n rows each, so that every lane has one row. For n = 2 rows have two
// words, for n = 4 one.
template <int lanes>
__device__ __forceinline__ void exchange_rows(uint32_t (&words)[4]) {
    if constexpr (lanes == 4) {
        const bool odd = threadIdx.x & 1;
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const uint32_t other = __shfl_xor_sync(kAllLanes, odd ? words[i] : words[i + 1], 1);
            words[i] = odd ? other : words[i];
            words[i + 1] = odd ? words[i + 1] : other;
        }
    }
    const bool high = threadIdx.x & (lanes / 2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t other = __shfl_xor_sync(kAllLanes, high ? words[i] : words[i + 2], lanes / 2);
        words[i] = high ? other : words[i];
        words[i + 2] = high ? words[i + 2] : other;
    }
}

// The destinations of a lane's rows of codes, `bytes` into each: global memory, or rows in shared memory. Row i of the lane
// goes to at(i).
template <class E, class T>
struct RowPointers {
    uint8_t* first;
    int64_t stride;
    int skew;      // of every `columns` rows
    int existing;  // rows

    __device__ __forceinline__ RowPointers(const CodeTile& to, TileCodes<E>& codes, bool direct, int row, int bytes) {
        constexpr int columns = Patch<T>::columns;
        auto* line = reinterpret_cast<uint8_t*>(&codes.words[codes.template line<columns>(row)]);
        const int existing_bytes = (to.length * E::bits + 7) / 8;
        first = (direct ? to.codes + row * to.line_bytes : line) + bytes;
        stride = direct ? to.line_bytes : kTile * E::bits / 8;
        skew = direct ? 0 : 16;
        existing = !direct ? kTile : bytes < existing_bytes ? to.lines - row : 0;
    }
    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ uint32_t* at(int i) const {
        return reinterpret_cast<uint32_t*>(first + i * stride + i / Patch<T>::columns * skew);
    }
};

// Stores rows of 8-bit codes, vector by vector.
template <class E, class T>
__device__ __forceinline__ void put_vector_rows(const PatchVectors<T>& vectors, const Patch<T>& patch, const uint32_t* factors,
                                                const CodeTile& to, bool direct, TileCodes<E>& codes) {
    const RowPointers<E, T> pointers(to, codes, direct, patch.row, patch.column);
#pragma unroll
    for (int i = 0; i < Patch<T>::rows; i++) {
        const auto row = quantize_vector<E>(vectors[i], bits_float(factors[i]));
        if (!pointers.exists(i)) continue;
        if constexpr (Patch<T>::columns == 8) *reinterpret_cast<uint2*>(pointers.at(i)) = {row.words[0], row.words[1]};
        else *pointers.at(i) = row.words[0];
    }
}

// Stores rows of 6-bit and 4-bit codes, chunk by chunk.
template <class E, class T>
__device__ __forceinline__ void put_chunk_rows(const PatchVectors<T>& vectors, const Patch<T>& patch,
                                               const uint32_t* factors, const CodeTile& to, bool direct,
                                               TileCodes<E>& codes) {
    constexpr int lanes = kChunk / Patch<T>::columns, words_each = 4 / lanes;
    const RowPointers<E, T> pointers(to, codes, direct, patch.row + int(threadIdx.x) % lanes,
                                     patch.column / kChunk * (E::bits * kChunk / 8));
#pragma unroll
    for (int i = 0; i < Patch<T>::rows; i += lanes) {
        uint32_t words[4];
#pragma unroll
        for (int r = 0; r < lanes; r++) {
            const float factor = bits_float(factors[i + r]);
            const auto row = quantize_vector<E>(vectors[i + r], factor);
            const uint32_t mask = factor_mask<E>(factor);
#pragma unroll
            for (int w = 0; w < words_each; w++) words[r * words_each + w] = row.words[w] & mask;
        }
        exchange_rows<lanes>(words);
        if (pointers.exists(i)) store_chunk<E::bits>(pointers.at(i), words);
    }
}

// Stores rows of codes that went to shared memory: all rows of 6-bit codes, and unaligned ones.
template <class E, class T>
__device__ __forceinline__ void store_staged_rows(const TileCodes<E>& codes, const CodeTile& to, int access) {
    __syncthreads();
    store_lines<E, T>(codes, to, access);
    __syncthreads();
}

template <class E, class T>
__device__ __forceinline__ void put_rows(const PatchVectors<T>& vectors, const Patch<T>& patch, int shift,
                                         const PartScales<E>& scales, const CodeTile& to, bool direct, TileCodes<E>& codes) {
    const uint32_t* factors = &scales.table[patch.column >> shift][patch.row];
    if constexpr (E::bits == 8) put_vector_rows<E, T>(vectors, patch, factors, to, direct, codes);
    else
        put_chunk_rows<E, T>(vectors, patch, factors, to, E::bits == 4 && direct, codes);
}

}  // namespace mxq::cuda
