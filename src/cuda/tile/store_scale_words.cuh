// Stores the scale bytes of a tile, four of a row to a word, from shared memory to a part, for all kernels of tiles.
#pragma once
#include "cuda/memory/scale_words.cuh"
#include "cuda/tile/location.cuh"

namespace mxq::cuda {

// The maximum of scale words of a row of a tile of E: only 4-bit elements have blocks of 16, and then two words.
template <class E>
constexpr int kLineWords = E::bits == 4 ? 2 : 1;

// One scale word of a tile: word `index` of row `line`, number `order` in the order of the layout. Rows have `most` words
// where blocks are 16, else one. Words after the last do not exist.
template <int most>
struct ScaleWord {
    int order, line, index;
    bool exists;

    __device__ __forceinline__ ScaleWord(const ScaleLayout& layout, int number) : order(number) {
        const int log2_words = most == 2 && layout.block == kNvBlock ? 1 : 0;  // of a row
        exists = order < kTile << log2_words;
        index = most == 1 ? 0 : layout.swizzled ? order / kTile : order & log2_words;
        line = layout.swizzled ? line_of_word(layout, order % kTile) : order >> log2_words;
    }
};

// Returns how many bytes of a word a compact tile with such blocks stores.
__device__ __forceinline__ int stored_of_word(const ScaleLayout& layout) {
    return min(max(kTile >> log2_of(uint32_t(layout.block)), 1), 4);
}

// Stores the scale bytes of a compact tile that has all of them, 1 << log2_bytes a row, as store_scale_bytes does.
template <int threads, class WordAt>
__device__ __forceinline__ void store_whole_scale_bytes(uint8_t* to, const ScaleLayout& layout, int log2_bytes,
                                                        const WordAt& word_at) {
    const int byte = threadIdx.x & ((1 << log2_bytes) - 1), step = threads >> log2_bytes;
    const int64_t step_bytes = step * layout.line_stride;
    int line = threadIdx.x >> log2_bytes;
    to += line * layout.line_stride + byte * layout.column_stride;
#pragma unroll 2
    for (; line < kTile; line += step, to += step_bytes) store_kept(to, uint8_t(word_at(line, byte / 4) >> byte % 4 * 8));
}

// Stores the scale words of a compact tile with unaligned rows: four lanes a word, so that the bytes of a warp are adjacent.
template <int threads, int most, class WordAt>
__device__ __forceinline__ void store_scale_bytes(uint8_t* scales, const ScaleTile& tile, const WordAt& word_at) {
    const int in_word = stored_of_word(tile.layout), byte = threadIdx.x % 4;
    const int rows_log2 = log2_of(uint32_t(tile.layout.tile_rows));
    uint8_t* const to = scales + tile.offset(0, tile.column);
    const int log2_bytes = most == 2 && tile.layout.block == kNvBlock ? 3 : 2;
    if (rows_log2 == 0 && in_word == 4 && tile.lines == kTile && tile.column + (1 << log2_bytes) <= tile.layout.columns)
        return store_whole_scale_bytes<threads>(to, tile.layout, log2_bytes, word_at);
#pragma unroll 1
    for (int first = 0; first < most * kTile; first += threads / 4) {
        const ScaleWord<most> at(tile.layout, first + threadIdx.x / 4);
        const uint32_t column = at.index * 4 + byte;
        if (!at.exists || byte >= in_word || tile.column + column >= tile.layout.columns || !tile.stores(at.line)) continue;
        store_kept(to + (at.line >> rows_log2) * tile.layout.line_stride + column * tile.layout.column_stride,
                   uint8_t(word_at(at.line, at.index) >> (byte * 8)));
    }
}

// Stores the scale words of a tile of any layout, edges included, by all `threads` of the block. word_at(line, index) is one
// of them. Swizzled tiles are written in full, zeros where nothing has a scale.
template <int threads, int most, class WordAt>
__device__ __forceinline__ void store_scale_words(uint8_t* scales, const ScaleTile& tile, const WordAt& word_at) {
    const ScaleLayout& layout = tile.layout;
    if (!layout.swizzled && layout.line_stride % 4 != 0) return store_scale_bytes<threads, most>(scales, tile, word_at);
#pragma unroll 1
    for (int first = 0; first < most * kTile; first += threads) {
        const ScaleWord<most> at(layout, first + threadIdx.x);
        const uint32_t column = tile.column + at.index * 4;
        const int left = int(min(layout.columns - column, int64_t(4))), in_word = stored_of_word(layout);
        if (!at.exists || left <= 0) continue;
        const uint32_t word = at.line < tile.lines ? word_at(at.line, at.index) & (~0u >> (32 - 8 * left)) : 0;
        const int stored = layout.swizzled ? 4 : tile.stores(at.line) ? min(left, in_word) : 0;
        uint8_t* const to = scales + tile.offset(at.line, column);
        if (layout.swizzled) store_scale_word(to, word, stored);
        else if (stored > 0) store_shared_scale_word(to, word, stored);
    }
}

// Stores the scale words of a tile of a part: at once where all rows have whole aligned words.
template <int threads, int most, class WordAt>
__device__ __forceinline__ void store_scale_words(const QuantizedPart& part, const PartTile& tile, const WordAt& word_at) {
    if (!tile.whole_words) return store_scale_words<threads, most>(part.scales, tile.scales, word_at);
#pragma unroll
    for (int first = 0; first < most * kTile; first += threads) {
        const ScaleWord<most> at(part.layout, first + threadIdx.x);
        if (!at.exists) break;
        const int64_t byte = part.layout.swizzled ? at.order * 4 : at.line * tile.scale_step + at.index * 4;
        auto* const to = reinterpret_cast<uint32_t*>(tile.scale_bytes + byte);
        if (part.layout.swizzled) *to = word_at(at.line, at.index);
        else store_kept(to, word_at(at.line, at.index));
    }
}

}  // namespace mxq::cuda
