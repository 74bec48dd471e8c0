// Reads and writes plain elements: 16-byte vectors where all rows are aligned ("wide"), else element by element ("narrow").
// Ragged edges end here: the callers see full vectors.
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

// One access: 16 bytes of a row.
template <class T>
struct Vector {
    static constexpr int count = 16 / sizeof(T);
    static constexpr int in_word = 4 / sizeof(T), element_bits = 8 * sizeof(T);
    uint32_t words[4];

    __device__ __forceinline__ float operator[](int i) const {
        if constexpr (std::is_same_v<T, float>) return bits_float(words[i]);
        else return to_float(T{uint16_t(words[i / 2] >> (i % 2 * 16))});
    }
};

// Returns whether every row consists of whole aligned vectors.
inline bool is_wide(const PlainMatrix& matrix) {
    const int count = matrix.format == MXQ_FORMAT_F32 ? Vector<float>::count : Vector<Bf16>::count;
    const bool one_row = matrix.matrices * matrix.rows == 1 && matrix.group_unit == 1;  // groups pad a row to more
    const bool rows_aligned = one_row || matrix.row_stride % count == 0;
    return is_aligned(matrix.data, 16) && rows_aligned && matrix.cols % count == 0;
}

// Returns whether codes can be accessed `count` at a time.
inline bool is_wide(const QuantizedPart& part, int count) {
    return is_aligned(part.codes, count) && part.length % count == 0;
}

// Accesses are a type that tells which accesses of a lane exist. Access i
//     exists(i)          has its first element inside the matrix
//     valid(i)           has so many elements inside
//     offset(i, stride)  starts at this element, where rows are `stride` apart
// Wide accesses exist in full or not at all. Elements that do not exist are zero.

template <class T>
__device__ __forceinline__ Vector<T> load_vector_wide(const T* from, bool exists) {
    const uint4 v = exists ? *reinterpret_cast<const uint4*>(from) : uint4{};
    return {{v.x, v.y, v.z, v.w}};
}

template <class T>
__device__ __forceinline__ Vector<T> load_vector_narrow(const T* from, int valid) {
    const auto* bits = reinterpret_cast<const StoredBits<T>*>(from);
    Vector<T> vector{};
#pragma unroll
    for (int i = 0; i < Vector<T>::count; i++)
        if (i < valid) vector.words[i / vector.in_word] |= uint32_t(bits[i]) << (i % vector.in_word * vector.element_bits);
    return vector;
}

// Loads the vectors of all accesses. All loads are issued before the first use.
template <class T, int n, class Accesses>
__device__ __forceinline__ void load_wide_vectors(Vector<T> (&vectors)[n], const T* from, int64_t stride,
                                                  const Accesses& accesses) {
#pragma unroll
    for (int i = 0; i < n; i++) vectors[i] = load_vector_wide(from + accesses.offset(i, stride), accesses.exists(i));
}

template <class T, int n, class Accesses>
__device__ __forceinline__ void load_vectors(Vector<T> (&vectors)[n], bool wide, const T* from, int64_t stride,
                                             const Accesses& accesses) {
    if (wide) {
        load_wide_vectors(vectors, from, stride, accesses);
    } else {
#pragma unroll
        for (int i = 0; i < n; i++) vectors[i] = load_vector_narrow(from + accesses.offset(i, stride), accesses.valid(i));
    }
}

template <class T>
__device__ __forceinline__ Vector<T> round_vector(const float (&values)[Vector<T>::count]) {
    Vector<T> vector{};
#pragma unroll
    for (int i = 0; i < Vector<T>::count; i++) {
        if constexpr (std::is_same_v<T, float>) vector.words[i] = float_bits(from_float<float>(values[i]));
        else vector.words[i / 2] |= uint32_t(from_float<T>(values[i]).bits) << (i % 2 * 16);
    }
    return vector;
}

template <class T>
__device__ __forceinline__ void store_vector_wide(const Vector<T>& vector, T* to, bool exists) {
    const uint4 v = {vector.words[0], vector.words[1], vector.words[2], vector.words[3]};
    if (exists) __stcs(reinterpret_cast<uint4*>(to), v);  // a plain store of F32 is 1 to 3% slower on an H200
}

// Stores a vector by a plain store, which is 1 to 2% faster for 16-bit elements on an H200.
template <class T>
__device__ __forceinline__ void store_vector_plain(const Vector<T>& vector, T* to, bool exists) {
    const uint4 v = {vector.words[0], vector.words[1], vector.words[2], vector.words[3]};
    if (exists) __stwb(reinterpret_cast<uint4*>(to), v);  // remains one 16-byte store
}

// Loads and stores n elements, which are whole aligned vectors, as fp32.
template <class T, int n>
__device__ __forceinline__ void load_values(const T* from, float (&values)[n]) {
    constexpr int count = Vector<T>::count;
#pragma unroll
    for (int first = 0; first < n; first += count) {
        const Vector<T> vector = load_vector_wide(from + first, true);
#pragma unroll
        for (int i = 0; i < count; i++) values[first + i] = vector[i];
    }
}

template <class T, int n>
__device__ __forceinline__ void store_values(const float (&values)[n], T* to) {
    constexpr int count = Vector<T>::count;
#pragma unroll
    for (int first = 0; first < n; first += count) {
        float of_vector[count];
#pragma unroll
        for (int i = 0; i < count; i++) of_vector[i] = values[first + i];
        store_vector_wide(round_vector<T>(of_vector), to + first, true);
    }
}

// Stores the first `valid` elements one by one.
template <class T>
__device__ __forceinline__ void store_vector_narrow(const Vector<T>& vector, T* to, int valid) {
    auto* bits = reinterpret_cast<StoredBits<T>*>(to);
#pragma unroll
    for (int j = 0; j < Vector<T>::count; j++)
        if (j < valid) bits[j] = StoredBits<T>(vector.words[j / vector.in_word] >> (j % vector.in_word * vector.element_bits));
}

}  // namespace mxq::cuda
