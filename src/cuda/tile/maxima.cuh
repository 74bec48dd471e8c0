// The maxima of a kernel with tiles in registers: from a thread's patch to a table for each part in shared memory.
//
//     rows      over a vector in the thread, then over the lanes of a block; each lane keeps a share of the rows
//     columns   over 16 rows in the thread, then one exchange with lane ^ 16
//     squares   both, to one maximum for all rows of the square; squares of 128: one maximum for each warp
#pragma once
#include "cuda/memory/magnitudes.cuh"
#include "cuda/tile/location.cuh"

namespace mxq::cuda {

constexpr int kTableLines = kTile + 4;  // padded, so that blocks start in different banks

// Only 4-bit elements have blocks of 16.
template <class E>
constexpr int kTableBlocks = E::bits == 4 ? kTile / kNvBlock : kTile / kMxBlock;

template <class E>
struct alignas(16) PartScales {
    uint32_t table[kTableBlocks<E>][kTableLines];     // bits of maxima, then of factors
    uint32_t words[kTableBlocks<E> / 4][kTile];       // four scale bytes, by row
};

template <class E>
struct TileScales {
    PartScales<E> parts[2];       // rowwise, columnwise
    uint32_t warp_maxima[8];
};

// What decides scales, apart from the problem.
struct ScaleRule {
    int32_t shift;        // a block has 1 << shift codes: 4, 5 or 7; 7 stands for longer blocks, too
    bool whole;           // ROW, TENSOR
    bool per_line;        // ROW
    bool saturates;       // a maximum ignores NaN
    bool records;         // TENSOR, delayed: the maximum is stored, but not used here
    const float* maxima[2];   // ROW, TENSOR: of each part
    int64_t whole_counts[2];  // scales that the whole grid stores
};

// Whether maxima of columns span 32 rows, which two threads of a warp have, or the 16 rows of one thread.
template <class E>
__device__ __forceinline__ bool is_of_pairs(int shift) {
    return E::bits != 4 || shift > 4;
}

// Stores the maxima of a thread's columns, as bits, in a part's table.
template <class E, class T, int columns>
__device__ __forceinline__ void store_column_maxima(const uint32_t (&maxima)[columns], const Patch<T>& patch, int shift,
                                                    PartScales<E>& scales) {
    const bool pairs = is_of_pairs<E>(shift);
    if (pairs && threadIdx.x % 32 >= 16) return;
    uint32_t* to = &scales.table[patch.row >> (pairs ? 5 : 4)][patch.column];
#pragma unroll
    for (int v = 0; v < columns; v += 4)
        *reinterpret_cast<uint4*>(to + v) = {maxima[v], maxima[v + 1], maxima[v + 2], maxima[v + 3]};
}

// Stores the maxima of a thread's columns over its 16 rows, as bits, in the table of a part.
template <class E, class T, int columns>
__device__ __forceinline__ void put_column_maxima(uint32_t (&maxima)[columns], const Patch<T>& patch, int shift,
                                                  PartScales<E>& scales) {
    if (is_of_pairs<E>(shift))
#pragma unroll
        for (uint32_t& maximum : maxima) maximum = max(maximum, __shfl_xor_sync(kAllLanes, maximum, 16));
    store_column_maxima<E>(maxima, patch, shift, scales);
}

template <class E, Nonfinite policy>
__device__ __forceinline__ void put_column_maxima(const PatchVectors<float>& vectors, const Patch<float>& patch, int shift,
                                                  PartScales<E>& scales) {
    uint32_t maxima[4] = {};
#pragma unroll
    for (int w = 0; w < 4; w++)
#pragma unroll
        for (int i = 0; i < Patch<float>::rows; i++)
            maxima[w] = larger_magnitudes<float, policy>(maxima[w], vectors[i].words[w]);
    put_column_maxima<E>(maxima, patch, shift, scales);
}

// Two columns share a word until the threads have exchanged. (quantize_fp4_pairs takes BF16 to blocks of 16.)
template <class E, Nonfinite policy>
__device__ __forceinline__ void put_column_maxima(const PatchVectors<Bf16>& vectors, const Patch<Bf16>& patch, int shift,
                                                  PartScales<E>& scales) {
    uint32_t maxima[8];
#pragma unroll
    for (int w = 0; w < 4; w++) {
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < Patch<Bf16>::rows; i++) largest = larger_magnitudes<Bf16, policy>(largest, vectors[i].words[w]);
        largest = larger<Bf16>(largest, __shfl_xor_sync(kAllLanes, largest, 16));
#pragma unroll
        for (int i = 0; i < 2; i++) maxima[w * 2 + i] = magnitude_bits<Bf16>(largest, i);
    }
    store_column_maxima<E>(maxima, patch, shift, scales);
}

// Makes one step of reduce_lanes on two maxima a word: the first n words become n / 2.
template <int distance, int n, int size>
__device__ __forceinline__ void halve_pairs(uint32_t (&pairs)[size]) {
    const bool odd = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < n / 2; i++) {
        const uint32_t mine = odd ? pairs[2 * i + 1] : pairs[2 * i], other = odd ? pairs[2 * i] : pairs[2 * i + 1];
        pairs[i] = __vmaxu2(mine, __shfl_xor_sync(kAllLanes, other, distance));
    }
}

// Stores the maxima of the patch's rows over blocks of 32 columns in the table of a part, by way of two rows a word. Each
// lane of a block gets a share of the rows.
template <class E, Nonfinite policy>
__device__ __forceinline__ void put_row_maxima(const PatchVectors<Bf16>& vectors, const Patch<Bf16>& patch, int,
                                               PartScales<E>& scales) {
    constexpr int count = Patch<Bf16>::rows / 2;
    uint32_t pairs[count];
#pragma unroll
    for (int i = 0; i < count; i++) {
        const uint32_t first = vector_magnitudes<Bf16, policy>(vectors[2 * i]);
        const uint32_t second = vector_magnitudes<Bf16, policy>(vectors[2 * i + 1]);
        pairs[i] = larger<Bf16>(__byte_perm(first, second, 0x5410), __byte_perm(first, second, 0x7632));
    }
    const auto put = [&](uint32_t* to, uint32_t pair) {
        *reinterpret_cast<uint2*>(to) = {magnitude_bits<Bf16>(pair, 0), magnitude_bits<Bf16>(pair, 1)};
    };
    halve_pairs<1, count>(pairs);
    halve_pairs<2, count / 2>(pairs);
    uint32_t* to = &scales.table[patch.column >> 5][patch.row + threadIdx.x % 4 * 2];
#pragma unroll
    for (int i = 0; i < count / 4; i++) put(to + 8 * i, pairs[i]);
}

// Stores the maxima of a thread's 16 rows over blocks of 16 or 32 columns, as bits, in the table of a part. Each lane of a
// block gets a share of the rows.
template <class E, class T, int rows>
__device__ __forceinline__ void put_row_maxima(uint32_t (&maxima)[rows], const Patch<T>& patch, int shift,
                                               PartScales<E>& scales) {
    constexpr int lanes = kNvBlock / Patch<T>::columns, count = rows / lanes;
    const int lane = threadIdx.x;
    uint32_t kept[count];
    reduce_lanes<lanes>(maxima);
#pragma unroll
    for (int i = 0; i < count; i++) kept[i] = maxima[i];
    if (E::bits == 4 && shift == 4) {
        uint32_t* to = &scales.table[patch.column >> 4][patch.row + lane % lanes];
#pragma unroll
        for (int i = 0; i < count; i++) to[i * lanes] = kept[i];
    } else {
        reduce_lanes<2 * lanes, count, lanes>(kept);
        uint32_t* to = &scales.table[patch.column >> 5][patch.row + lane % (2 * lanes)];
#pragma unroll
        for (int i = 0; i < count / 2; i++) to[i * 2 * lanes] = kept[i];
    }
}

template <class E, Nonfinite policy>
__device__ __forceinline__ void put_row_maxima(const PatchVectors<float>& vectors, const Patch<float>& patch, int shift,
                                               PartScales<E>& scales) {
    uint32_t maxima[Patch<float>::rows];
#pragma unroll
    for (int i = 0; i < Patch<float>::rows; i++) maxima[i] = vector_magnitudes<float, policy>(vectors[i]);
    put_row_maxima<E>(maxima, patch, shift, scales);
}

// Returns the largest magnitude of a patch, as bits.
template <class T, Nonfinite policy>
__device__ __forceinline__ uint32_t patch_maximum(const PatchVectors<T>& vectors) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < Patch<T>::rows; i++) largest = vector_magnitudes<T, policy>(vectors[i], largest);
    return largest_bits<T>(largest);
}

// Stores the maximum of the square tile of 16 or 32 that contains the patch, for all of its rows and columns. A null pointer
// means that there is no such part.
template <class E, class T>
__device__ __forceinline__ void put_square_maximum(uint32_t maximum, const Patch<T>& patch, int shift,
                                                   PartScales<E>* rowwise, PartScales<E>* columnwise) {
    const int lanes = (1 << shift) / Patch<T>::columns;
    for (int distance = 1; distance < lanes; distance *= 2)
        maximum = max(maximum, __shfl_xor_sync(kAllLanes, maximum, distance));
    if (shift > 4) maximum = max(maximum, __shfl_xor_sync(kAllLanes, maximum, 16));
    if (rowwise)
        for (int i = threadIdx.x % lanes; i < Patch<T>::rows; i += lanes)
            rowwise->table[patch.column >> shift][patch.row + i] = maximum;
    if (columnwise)
        for (int i = 0; i < Patch<T>::columns; i += 4)
            *reinterpret_cast<uint4*>(&columnwise->table[patch.row >> shift][patch.column + i]) = {maximum, maximum, maximum,
                                                                                                   maximum};
}

// Stores the maximum of a patch where its scales come from: in the tables, or for longer blocks in the entry of its warp.
template <class E, class T>
__device__ __forceinline__ void put_patch_maximum(uint32_t maximum, const Patch<T>& patch, int shift, TileScales<E>& scales,
                                                  PartScales<E>* rowwise, PartScales<E>* columnwise) {
    if (shift < 7) return put_square_maximum<E>(maximum, patch, shift, rowwise, columnwise);
    const uint32_t of_warp = __reduce_max_sync(kAllLanes, maximum);
    if (threadIdx.x % 32 == 0) scales.warp_maxima[threadIdx.x / 32] = of_warp;
}

// Stores all maxima that the scales of the tile need.
template <class E, class T, Nonfinite policy>
__device__ __forceinline__ void put_maxima(const QuantizeProblem& problem, const ScaleRule& rule,
                                           const PatchVectors<T>& vectors, const Patch<T>& patch, TileScales<E>& scales) {
    if (problem.square_tiles || rule.whole) {
        if (rule.whole && !rule.records) return;
        return put_patch_maximum<E>(patch_maximum<T, policy>(vectors), patch, rule.shift, scales,
                                    problem.has_rowwise ? &scales.parts[0] : nullptr,
                                    problem.has_columnwise ? &scales.parts[1] : nullptr);
    }
    if (problem.has_columnwise) put_column_maxima<E, policy>(vectors, patch, rule.shift, scales.parts[1]);
    if (problem.has_rowwise) put_row_maxima<E, policy>(vectors, patch, rule.shift, scales.parts[0]);
}

}  // namespace mxq::cuda
