// How kernels touch memory: 16 bytes at a time where all is aligned ("wide"), else element by element. What is narrow,
// and what is missing at a ragged edge, ends here: past these functions every kernel sees full chunks.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "core/layout.h"
#include "core/problem.h"
#include "numerics/convert.h"
#include "numerics/e8m0.h"

namespace mxq::cuda {

// ---- Grids of any size -----------------------------------------------------------------------------------------------

// At least `blocks` blocks; kernels leave those past the end.
inline dim3 grid_of(int64_t blocks) {
    constexpr int64_t longest = 0x7FFFFFFF;
    const int64_t x = blocks < 1 ? 1 : blocks < longest ? blocks : longest;
    return dim3(uint32_t(x), uint32_t(ceil_div(blocks, x) + (blocks < 1)));
}

__device__ __forceinline__ int64_t block_index() { return int64_t(blockIdx.y) * gridDim.x + blockIdx.x; }

// At least `rows` rows of `across` blocks, so that kernels need not divide.
inline dim3 grid_of_rows(int64_t across, int64_t rows) {
    constexpr int64_t most = 65535;
    const int64_t y = rows < 1 ? 1 : rows < most ? rows : most;
    return dim3(uint32_t(across < 1 ? 1 : across), uint32_t(y), uint32_t(ceil_div(rows, y) + (rows < 1)));
}

__device__ __forceinline__ uint32_t row_of_blocks() { return blockIdx.z * gridDim.y + blockIdx.y; }

// ---- Plain elements --------------------------------------------------------------------------------------------------

inline bool is_aligned(const void* pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

template <class T>
using StoredBits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;

// 16 bytes of a row.
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

// Whether every row can be accessed chunk by chunk.
template <class T>
bool is_wide(const PlainMatrix& matrix) {
    const bool rows_aligned = matrix.matrices * matrix.rows == 1 || matrix.row_stride % Chunk<T>::count == 0;
    return is_aligned(matrix.data, 16) && rows_aligned && matrix.cols % Chunk<T>::count == 0;
}

// Whether codes can be accessed `count` at a time.
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

// All loads are issued before the first is needed.
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

// ---- Magnitudes ------------------------------------------------------------------------------------------------------

// Magnitudes are kept packed like the elements, as bits without sign, which are ordered like the values. Maxima by
// PROPAGATE hand on a NaN, whose bits are above Inf's; by SATURATE they ignore it.
// The largest of magnitudes that are no NaN and of the elements of a word of a chunk.
template <class T, Nonfinite policy>
__device__ __forceinline__ uint32_t larger_magnitudes(uint32_t largest, uint32_t word) {
    if constexpr (std::is_same_v<T, float>) {
        const float a = bits_float(largest), b = fabsf(bits_float(word));
        if constexpr (policy == Nonfinite::Saturate) return float_bits(fmaxf(a, b));
        float max;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(max) : "f"(a), "f"(b));
        return float_bits(max);
    } else {
        uint32_t magnitude, max;
        if constexpr (std::is_same_v<T, Bf16>) {
            asm("abs.bf16x2 %0, %1;" : "=r"(magnitude) : "r"(word));
            if constexpr (policy == Nonfinite::Saturate)
                asm("max.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(largest), "r"(magnitude));
            else
                asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(largest), "r"(magnitude));
        } else {
            asm("abs.f16x2 %0, %1;" : "=r"(magnitude) : "r"(word));
            if constexpr (policy == Nonfinite::Saturate)
                asm("max.f16x2 %0, %1, %2;" : "=r"(max) : "r"(largest), "r"(magnitude));
            else
                asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(max) : "r"(largest), "r"(magnitude));
        }
        return max;
    }
}

template <class T>
__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    if constexpr (std::is_same_v<T, float>) return a > b ? a : b;
    else return __vmaxu2(a, b);
}

// The i-th magnitude of a word as bits of an fp32 value.
template <class T>
__device__ __forceinline__ uint32_t magnitude_bits(uint32_t word, int i) {
    if constexpr (std::is_same_v<T, float>) return word;
    else return float_bits(to_float(T{uint16_t(word >> (i * 16))}));
}

// The largest magnitude of a word as bits of an fp32 value.
template <class T>
__device__ __forceinline__ uint32_t largest_bits(uint32_t word) {
    if constexpr (std::is_same_v<T, float>) return word;
    else return magnitude_bits<T>((word & 0xFFFF) > word >> 16 ? word : word >> 16, 0);
}

// The largest magnitude of a chunk, still packed.
template <class T, Nonfinite policy>
__device__ __forceinline__ uint32_t chunk_magnitudes(const Chunk<T>& chunk, uint32_t largest = 0) {
#pragma unroll
    for (int i = 0; i < 4; i++) largest = larger_magnitudes<T, policy>(largest, chunk.words[i]);
    return largest;
}

constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

// Maxima over `lanes` neighbouring lanes of n values each. Lane q ends up with those of index q, q + lanes, ... in
// values[0], values[1], ... (with the one of index q % n where there are fewer values than lanes): a shuffle halves what
// is left to do instead of repeating it everywhere.
template <int lanes, int n, int distance = 1>
__device__ __forceinline__ void reduce_lanes(uint32_t (&values)[n]) {
    if constexpr (distance < lanes && n == 1) {
        values[0] = max(values[0], __shfl_xor_sync(kAllLanes, values[0], distance));
        reduce_lanes<lanes, n, 2 * distance>(values);
    } else if constexpr (distance < lanes) {
        const bool odd = threadIdx.x & distance;
        uint32_t kept[n / 2];
#pragma unroll
        for (int i = 0; i < n / 2; i++) {
            const uint32_t mine = odd ? values[2 * i + 1] : values[2 * i], other = odd ? values[2 * i] : values[2 * i + 1];
            kept[i] = max(mine, __shfl_xor_sync(kAllLanes, other, distance));
        }
        reduce_lanes<lanes, n / 2, 2 * distance>(kept);
#pragma unroll
        for (int i = 0; i < n / 2; i++) values[i] = kept[i];
    }
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Codes of a chunk, `count` bytes.
template <int count>
struct Codes {
    uint32_t words[count / 4];
};

template <int count, class Place>
__device__ __forceinline__ Codes<count> load_codes(bool wide, const uint8_t* from, int64_t stride, const Place& place,
                                                   int i) {
    Codes<count> codes{};
    from += place.offset(i, stride);
    if (wide) {
        if (!place.exists(i)) return codes;
        if constexpr (count == 8) {
            const uint2 v = __ldcs(reinterpret_cast<const uint2*>(from));
            return {{v.x, v.y}};
        } else {
            return {{__ldcs(reinterpret_cast<const uint32_t*>(from))}};
        }
    }
#pragma unroll
    for (int j = 0; j < count; j++)
        if (j < place.valid(i)) codes.words[j / 4] |= uint32_t(from[j]) << (j % 4 * 8);
    return codes;
}

template <int count, class Place>
__device__ __forceinline__ void store_codes(const Codes<count>& codes, bool wide, uint8_t* to, int64_t stride,
                                            const Place& place, int i) {
    to += place.offset(i, stride);
    if (wide) {
        if (!place.exists(i)) return;
        if constexpr (count == 8) *reinterpret_cast<uint2*>(to) = {codes.words[0], codes.words[1]};
        else *reinterpret_cast<uint32_t*>(to) = codes.words[0];
        return;
    }
#pragma unroll
    for (int j = 0; j < count; j++)
        if (j < place.valid(i)) to[j] = uint8_t(codes.words[j / 4] >> (j % 4 * 8));
}

// The codes of a chunk that lies in one block.
template <class E, class T>
__device__ __forceinline__ Codes<Chunk<T>::count> quantize_chunk(const Chunk<T>& chunk, float reciprocal) {
    Codes<Chunk<T>::count> codes{};
#pragma unroll
    for (int i = 0; i < Chunk<T>::count; i += 2)
        codes.words[i / 4] |=
            encode_pair<E>(multiply_rn(chunk[i], reciprocal), multiply_rn(chunk[i + 1], reciprocal)) << (i % 4 * 8);
    return codes;
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// A scale word: the scales of a line at columns c .. c + 3, c a multiple of 4, the lowest in the low byte. It is
// contiguous in both layouts. How many of its bytes a layout stores at (line, column):
__device__ __forceinline__ int64_t stored_scales(const ScaleLayout& layout, int64_t lines, int64_t line, int64_t column) {
    if (layout.swizzled) return kSwizzleColumns;
    return line < lines && (layout.tile_rows == 1 || line % layout.tile_rows == 0) ? layout.columns - column : 0;
}

// How many of them may be read there.
__device__ __forceinline__ int64_t readable_scales(const ScaleLayout& layout, int64_t lines, int64_t line, int64_t column) {
    if (line >= lines) return 0;
    return layout.swizzled ? kSwizzleColumns : layout.columns - column;
}

__device__ __forceinline__ bool is_word(const uint8_t* scales, int64_t count) {
    return count >= 4 && reinterpret_cast<uintptr_t>(scales) % 4 == 0;
}

__device__ __forceinline__ void store_scale_word(uint8_t* to, uint32_t word, int64_t count) {
    if (is_word(to, count)) {
        *reinterpret_cast<uint32_t*>(to) = word;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < count) to[i] = uint8_t(word >> (i * 8));
}

__device__ __forceinline__ uint32_t load_scale_word(const uint8_t* from, int64_t count) {
    if (is_word(from, count)) return *reinterpret_cast<const uint32_t*>(from);
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < count) word |= uint32_t(from[i]) << (i * 8);
    return word;
}

}  // namespace mxq::cuda
