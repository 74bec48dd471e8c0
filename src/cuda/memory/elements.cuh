// How kernels read and write plain elements: 16 bytes at a time where all is aligned ("wide"), else element by element. What
// is narrow, and what is missing at a ragged edge, ends here: past these functions every kernel sees full chunks.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "core/problem.h"
#include "numerics/convert.h"

namespace mxq::cuda {

inline bool is_aligned(const void* pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

template <class T>
using StoredBits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;

// The elements of 16 bytes of a row.
template <class T>
struct Chunk {
    static constexpr int count = 16 / sizeof(T);
    static constexpr int in_word = 4 / sizeof(T), element_bits = 8 * sizeof(T);
    uint32_t words[4];

    __device__ __forceinline__ float operator[](int i) const {
        if constexpr (std::is_same_v<T, float>) return bits_float(words[i]);
        else return to_float(T{uint16_t(words[i / 2] >> (i % 2 * 16))});
    }
};

// Returns whether every row can be accessed chunk by chunk.
template <class T>
bool is_wide(const PlainMatrix& matrix) {
    const bool rows_aligned = matrix.matrices * matrix.rows == 1 || matrix.row_stride % Chunk<T>::count == 0;
    return is_aligned(matrix.data, 16) && rows_aligned && matrix.cols % Chunk<T>::count == 0;
}

// Returns whether codes can be accessed `count` at a time.
inline bool is_wide(const QuantizedPart& part, int count) {
    return is_aligned(part.codes, count) && part.length % count == 0;
}

// A "place" says which accesses of a lane exist. Access i of a place
//     exists(i)          has its first element inside the matrix
//     valid(i)           has so many elements inside
//     offset(i, stride)  starts there, in elements, where rows are `stride` apart
// Wide accesses exist in full or not at all. What does not exist is zero.

template <class T>
__device__ __forceinline__ Chunk<T> load_chunk_wide(const T* from, bool exists) {
    const uint4 v = exists ? __ldcs(reinterpret_cast<const uint4*>(from)) : uint4{};
    return {{v.x, v.y, v.z, v.w}};
}

template <class T>
__device__ __forceinline__ Chunk<T> load_chunk_narrow(const T* from, int valid) {
    const auto* bits = reinterpret_cast<const StoredBits<T>*>(from);
    Chunk<T> chunk{};
#pragma unroll
    for (int i = 0; i < Chunk<T>::count; i++)
        if (i < valid) chunk.words[i / chunk.in_word] |= uint32_t(bits[i]) << (i % chunk.in_word * chunk.element_bits);
    return chunk;
}

// Loads all chunks of a place; every load is issued before the first is needed.
template <class T, int n, class Place>
__device__ __forceinline__ void load_chunks(Chunk<T> (&chunks)[n], bool wide, const T* from, int64_t stride,
                                            const Place& place) {
    if (wide) {
#pragma unroll
        for (int i = 0; i < n; i++) chunks[i] = load_chunk_wide(from + place.offset(i, stride), place.exists(i));
    } else {
#pragma unroll
        for (int i = 0; i < n; i++) chunks[i] = load_chunk_narrow(from + place.offset(i, stride), place.valid(i));
    }
}

template <class T>
__device__ __forceinline__ Chunk<T> round_chunk(const float (&values)[Chunk<T>::count]) {
    Chunk<T> chunk{};
#pragma unroll
    for (int i = 0; i < Chunk<T>::count; i++) {
        if constexpr (std::is_same_v<T, float>) chunk.words[i] = float_bits(from_float<float>(values[i]));
        else chunk.words[i / 2] |= uint32_t(from_float<T>(values[i]).bits) << (i % 2 * 16);
    }
    return chunk;
}

template <class T, class Place>
__device__ __forceinline__ void store_chunk(const Chunk<T>& chunk, bool wide, T* to, int64_t stride, const Place& place,
                                            int i) {
    to += place.offset(i, stride);
    if (wide) {
        const uint4 v = {chunk.words[0], chunk.words[1], chunk.words[2], chunk.words[3]};
        if (place.exists(i)) __stcs(reinterpret_cast<uint4*>(to), v);  // H200: a plain store is 1 to 3 points slower to F32
        return;
    }
    auto* bits = reinterpret_cast<StoredBits<T>*>(to);
#pragma unroll
    for (int j = 0; j < Chunk<T>::count; j++)
        if (j < place.valid(i))
            bits[j] = StoredBits<T>(chunk.words[j / chunk.in_word] >> (j % chunk.in_word * chunk.element_bits));
}

}  // namespace mxq::cuda
