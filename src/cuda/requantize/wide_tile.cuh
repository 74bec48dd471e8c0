// The tiles of requantize_wide: where they lie, how codes and scales come into shared memory, how scales leave it.
#pragma once
#include "cuda/memory/scale_words.cuh"
#include "cuda/requantize/codes_tile.cuh"
#include "cuda/requantize/output_codes.cuh"

namespace mxq::cuda {

constexpr int kWide = 256;         // lines and positions of a tile
constexpr int kWideThreads = 256;  // a line each, while scales are moved
constexpr int kWideBlocks = 3;     // that share an SM
constexpr int kWideChunks = kWide / kChunk, kWideScales = kWide / kMxBlock;

struct WideArguments {
    QuantizedPart from, to;
    uint32_t across, down;  // tiles of a matrix
    uint32_t band;          // tiles down of a band of tiles, which run together
    ScaleSteps steps;
    Nonfinite nonfinite;
};

// Holds the unit that 32 lines share in a block of 32 positions.
struct WideUnit {
    float value;     // 2^-6 of the largest scale
    uint32_t whole;  // no line's products vanish
};

struct WideShared {
    uint4 codes[kWide * kWideChunks + kWideChunks];
    alignas(16) uint16_t factors[kWideScales][kWideChunks][kChunk + 8];  // scales over units in F16, by block of positions
    WideUnit units[kWideScales][kWideScales];                            // by block of positions, and of lines
    alignas(8) uint32_t from_scales[kWide][2], to_scales[kWide][2];      // bytes of a line

    static __device__ __forceinline__ int slot(int line) { return line * kWideChunks + line / kChunk; }
};

// Where a tile lies in the source, and how much of it exists.
struct WidePlace {
    int64_t matrix, line, position;
    int lines, length;

    __device__ __forceinline__ explicit WidePlace(const WideArguments& a) {
        const uint32_t in_band = a.band * a.across, above = blockIdx.x / in_band * a.band, tile = blockIdx.x % in_band;
        const uint32_t height = min(a.band, a.down - above), across = tile / height;
        matrix = row_of_blocks(), line = int64_t(above + tile - across * height) * kWide, position = int64_t(across) * kWide;
        lines = int(min(a.from.lines - line, int64_t(kWide))), length = int(min(a.from.length - position, int64_t(kWide)));
    }
    __device__ __forceinline__ bool exists(const WideArguments& a) const { return matrix < a.from.matrices; }
};

// Starts to copy the tile's codes, zeros where there are none.
__device__ __forceinline__ void copy_wide_codes(const WideArguments& a, const WidePlace& place, WideShared& shared) {
    constexpr int step = kWideThreads / kWideChunks;
    static_assert(step == kChunk);  // each step is a slot more
    const int line = threadIdx.x / kWideChunks, piece = threadIdx.x % kWideChunks;
    const uint8_t* at = a.from.line(place.matrix, place.line + line) + place.position + piece * 16;
    uint4* to = &shared.codes[WideShared::slot(line) + piece];
    const int existing = piece * 16 < place.length ? place.lines - line : 0;
    const uint64_t next = uint64_t(a.from.line_bytes) * step;
    if (existing + line == kWide) {
#pragma unroll
        for (int i = 0; i < kWide; i += step, at += next, to += step * kWideChunks + 1) copy_piece(to, at, true);
    } else {
#pragma unroll 1
        for (int i = 0; i < kWide; i += step, at += next, to += step * kWideChunks + 1)
            copy_piece(to, i < existing ? at : a.from.codes, i < existing);
    }
}

// Loads the scales that a tile has of one line of the source, zeros where there are none: `left` are there from `column` on.
__device__ __forceinline__ uint2 load_wide_line(const uint8_t* from, int64_t left, bool swizzled) {
    if (left >= 8 && !swizzled && reinterpret_cast<uintptr_t>(from) % 8 == 0) return *reinterpret_cast<const uint2*>(from);
    uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t rest = left - i * 4;
        if (rest <= 0) continue;
        words[i] = load_scale_word(from + i * (swizzled ? kSwizzleBytes : 4), rest);
        if (rest < 4) words[i] &= ~0u >> (32 - 8 * rest);
    }
    return make_uint2(words[0], words[1]);
}

// Loads the scales of the thread's line and sets them under the units of its warp, which has 32 lines. A barrier must follow.
__device__ __forceinline__ void load_wide_scales(const WideArguments& a, const WidePlace& place, WideShared& shared) {
    static_assert(kWideThreads == kWide);
    const int line = threadIdx.x, lane = line % 32;
    const ScaleLayout& layout = a.from.layout;
    const int64_t column = place.position / kMxBlock;
    const bool exists = line < place.lines;
    const uint2 scales = load_wide_line(a.from.scales + layout.offset(place.matrix, place.line + line, column),
                                        exists ? layout.columns - column : 0, layout.swizzled);
    uint32_t mine = 0, vanishing = 0;  // the largest scale of the lane's block; bits of the blocks where the line's products may
#pragma unroll
    for (int block = 0; block < kWideScales; block++) {
        const uint32_t scale = (block < 4 ? scales.x : scales.y) >> (block % 4 * 8) & 0xFF;
        const uint32_t largest = __reduce_max_sync(kAllLanes, scale);
        const int below = exists ? int(largest - scale) : 0;
        const float factor = bits_float(uint32_t(max(127 + 6 - below, 0)) << 23);  // the scale over 2^-6 of the largest
        shared.factors[block][line / kChunk][line % kChunk] = uint16_t(f16_pair_of(factor));
        if (below > 21) vanishing |= 1u << block;
        if (lane == block) mine = largest;
    }
    vanishing = __reduce_or_sync(kAllLanes, vanishing);
    if (lane < kWideScales) shared.units[lane][line / 32] = {multiply_rn(scale_value(mine), 0x1p-6f), ~vanishing >> lane & 1};
    shared.from_scales[line][0] = scales.x, shared.from_scales[line][1] = scales.y;
}

// Stores the scales that a tile has of a line of a compact layout: up to eight bytes.
__device__ __forceinline__ void store_wide_line(uint8_t* to, uint2 words, int64_t left) {
    if (left >= 8 && reinterpret_cast<uintptr_t>(to) % 8 == 0) return store_kept(reinterpret_cast<uint2*>(to), words);
    store_shared_scale_word(to, words.x, min(left, int64_t(4)));
    if (left > 4) store_shared_scale_word(to + 4, words.y, min(left - 4, int64_t(4)));
}

// Stores the scales of a line of the output, by each thread. Swizzled tiles are written in full, zeros where nothing has a
// scale.
__device__ __forceinline__ void store_wide_scales(const WideArguments& a, const WidePlace& place, const WideShared& shared) {
    const ScaleLayout& layout = a.to.layout;
    const int line = int(threadIdx.x) / kTile * kTile + line_of_word(layout, int(threadIdx.x) % kTile);
    const int stored = layout.swizzled ? (place.length + kTile - 1) / kTile * kTile : place.length;
    if (line >= stored) return;
    const int64_t column = place.line / kMxBlock, left = layout.columns - column;
    uint8_t* const to = a.to.scales + layout.offset(place.matrix, place.position + line, column);
    const uint32_t* const words = shared.to_scales[line];
    if (!layout.swizzled) return store_wide_line(to, make_uint2(words[0], words[1]), left);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t rest = min(left - i * 4, int64_t(4));
        if (rest <= 0) return;
        store_scale_word(to + i * kSwizzleBytes, line < place.length ? words[i] & (~0u >> (32 - 8 * rest)) : 0, 4);
    }
}

}  // namespace mxq::cuda
