// Loads and stores of scales, four bytes of a row at a time.
#pragma once
#include "core/layout.h"
#include "core/problem.h"
#include "cuda/memory/kept_store.cuh"

namespace mxq::cuda {

// A scale word: the scales of a row at columns c .. c + 3, c a multiple of 4, the lowest in the low byte. It is contiguous
// in both layouts.

// Returns how many bytes of a scale word a layout stores at (line, column).
__device__ __forceinline__ int64_t stored_scales(const ScaleLayout& layout, int64_t lines, int64_t line, int64_t column) {
    if (layout.swizzled) return kSwizzleColumns;
    return line < lines && (layout.tile_rows == 1 || line % layout.tile_rows == 0) ? layout.columns - column : 0;
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

// Stores a scale word whose sector other thread blocks complete.
__device__ __forceinline__ void store_shared_scale_word(uint8_t* to, uint32_t word, int64_t count) {
    if (is_word(to, count)) return store_kept(reinterpret_cast<uint32_t*>(to), word);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < count) store_kept(to + i, uint8_t(word >> (i * 8)));
}

__device__ __forceinline__ uint32_t load_scale_word(const uint8_t* from, int64_t count) {
    if (is_word(from, count)) return *reinterpret_cast<const uint32_t*>(from);
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < count) word |= uint32_t(from[i]) << (i * 8);
    return word;
}

// Returns the row of scale word number `word` of a tile, in the order of the layout. A swizzled tile is 512 contiguous
// bytes.
__device__ __forceinline__ int line_of_word(const ScaleLayout& layout, int word) {
    return layout.swizzled ? word % 4 * 32 + word / 4 : word;
}

}  // namespace mxq::cuda
