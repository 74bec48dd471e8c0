// The tile of dequantize_columnwise in shared memory, and the loads of codes and scales: asynchronous copies of aligned
// K-major rows, else two aligned words for each.
#pragma once
#include "cuda/dequantize/dequantize.cuh"
#include "cuda/memory/async_copy.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/tile/patch.cuh"

namespace mxq::cuda::columnwise {

constexpr int kHalfChunk = kChunk / 2;  // rows of a thread's patch

// The variants of the kernel. Matrices (large ones) and Tiles (groups and other matrices) read K-major rows in whole words
// and write whole vectors. Any takes rows of any alignment.
enum class Variant { Matrices, Tiles, Any };

struct Arguments {
    DequantizeProblem problem;
    uint32_t down, across;   // tiles of a matrix; with groups, all group tiles and the thread blocks of one
    uint32_t lines;          // rows of tiles of all matrices
    int32_t block_tiles;     // of a group tile that a thread block takes
    bool wide_words_in;      // six bits: every K-major row is read in words of 16 bytes
};

// Returns log2 of the rows of a tile.
constexpr int tile_rows_log2(Variant variant, int bits, int64_t element_bytes) {
    return variant == Variant::Matrices && bits < 8 && element_bytes == 2 ? 9 : 8;
}

// The tile of a kernel in shared memory.
template <class T, class E, Variant variant>
struct Tile {
    static constexpr int bits = E::bits;
    // Threads of a block; 1024 share an SM. More, smaller thread blocks hide the search for a group.
    static constexpr int threads = variant == Variant::Matrices ? 512 : 256, warps = threads / 32;
    static constexpr int sm_blocks = (variant == Variant::Any && bits == 6 ? 768 : 1024) / threads;
    static constexpr int rows_log2 = tile_rows_log2(variant, bits, sizeof(T)), rows = 1 << rows_log2;
    static constexpr int chunks = rows / kChunk;  // of a K-major row
    static constexpr int chunk_words = bits / 2;
    static constexpr int columns = Vector<T>::count;   // of a thread
    static constexpr int row_lanes = kTile / columns;  // lanes of one row
    static constexpr int warp_rows = 32 / row_lanes * kHalfChunk;
    // The swizzle permutes units of one chunk. Units of 6-bit codes have two or four chunks, and are then whole words of 8
    // or 16 bytes.
    static constexpr int unit_chunks = bits == 6 ? rows / 128 : 1, units = chunks / unit_chunks;
    static constexpr int unit_words = unit_chunks * chunk_words;
    // The minimum of rows that share a scale word of a K-major row, and the scale words of a row in the tile.
    static constexpr int least_word_rows = bits == 4 ? 4 * kNvBlock : 4 * kMxBlock;
    static constexpr int scale_words = rows / least_word_rows;

    alignas(16) uint32_t codes[kTile * chunks * chunk_words];
    alignas(16) uint32_t scales[scale_words][kTile];

    // Returns the swizzled index of a unit in its K-major row. Lanes use different banks both when they hold one chunk of
    // every `columns`-th row and when they hold the chunks of one row.
    static __device__ __forceinline__ uint32_t swizzled(uint32_t line, uint32_t unit) {
        return unit ^ (line / columns % units);
    }
    static __device__ __forceinline__ uint32_t word_of_chunk(uint32_t line, uint32_t chunk) {
        return (line * units + swizzled(line, chunk / unit_chunks)) * unit_words + chunk % unit_chunks * chunk_words;
    }
};

// Starts to load a tile's codes, word by word. A warp takes some neighbouring K-major rows at a time, and neighbouring lanes
// take neighbouring words.
template <class Word, class Tile>
__device__ __forceinline__ void start_codes(const uint8_t* from, int64_t line_bytes, int lines, int length, Tile& tile) {
    constexpr uint32_t of_unit = Tile::unit_words * 4 / sizeof(Word), of_line = Tile::units * of_unit;
    constexpr uint32_t together = of_line % 16 == 0 ? 2 : 4, step = Tile::warps * together;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1  // unrolled, all addresses are computed before the first tile, and spill
    for (uint32_t index = lane; index < together * of_line; index += 32) {
        const uint32_t first = warp * together + index / of_line, word = index % of_line, unit = word / of_unit;
        const uint8_t* at = from + first * line_bytes + word * sizeof(Word);
        Word* const units = reinterpret_cast<Word*>(tile.codes) + first * of_line + word % of_unit;
        const int left = int(word * sizeof(Word)) * 8 < length * Tile::bits ? lines - int(first) : 0;
#pragma unroll
        for (uint32_t line = 0; line < kTile; line += step, at += step * line_bytes)
            if (int(line) < left) copy_word(units + line * of_line + Tile::swizzled(first + line, unit) * of_unit, at);
    }
}

template <class Tile>
__device__ __forceinline__ void start_codes(const Arguments& a, const uint8_t* from, int lines, int length, Tile& tile) {
    const int64_t line_bytes = a.problem.in.line_bytes;
    if constexpr (Tile::bits == 8)
        return start_codes<uint4>(from, line_bytes, lines, length, tile);
    else if constexpr (Tile::bits == 4)
        return start_codes<uint2>(from, line_bytes, lines, length, tile);
    else if (a.wide_words_in)
        start_codes<std::conditional_t<Tile::unit_chunks == 4, uint4, uint2>>(from, line_bytes, lines, length, tile);
    else
        start_codes<uint32_t>(from, line_bytes, lines, length, tile);
}

// Returns the word at `at`, of which `existing` bytes exist. All codes of the tile are between `first` and `end`: aligned words
// that reach beyond them are not read.
__device__ __forceinline__ uint32_t load_unaligned_word(const uint8_t* at, int existing, const uint8_t* first,
                                                        const uint8_t* end) {
    const uint32_t shift = uint32_t(reinterpret_cast<uintptr_t>(at)) % 4;
    const uint8_t* const aligned = at - shift;
    if (aligned >= first && aligned + 8 <= end) {
        const auto* const words = reinterpret_cast<const uint32_t*>(aligned);
        return __funnelshift_r(words[0], words[1], shift * 8);
    }
    uint32_t word = 0;
    for (int i = 0; i < min(existing, 4); i++) word |= uint32_t(at[i]) << (i * 8);
    return word;
}

// Loads a tile's codes from unaligned K-major rows. Out of line, since it is rare.
template <class Tile>
__device__ __noinline__ void load_unaligned(const uint8_t* from, int64_t line_bytes, int lines, int length, Tile& tile) {
    constexpr int chunk_words = Tile::chunk_words, of_line = Tile::chunks * chunk_words;
    const int valid = (length * Tile::bits + 7) / 8;  // bytes of a row
    const uint8_t* const end = from + (lines - 1) * line_bytes + valid;
#pragma unroll 4
    for (int i = int(threadIdx.x); i < kTile * of_line; i += Tile::threads) {
        const int line = i / of_line, word = i % of_line, existing = line < lines ? valid - word * 4 : 0;
        if (existing > 0)
            tile.codes[Tile::word_of_chunk(line, word / chunk_words) + word % chunk_words] =
                load_unaligned_word(from + line * line_bytes + word * 4, existing, from, end);
    }
}

// Returns the rows that a scale word covers.
__device__ __forceinline__ int word_rows_log2(const ScaleLayout& layout) { return layout.block == kNvBlock ? 6 : 7; }

// Starts to load the scale words of a tile's K-major rows, which have `length` codes, where they are whole and aligned;
// false: load_scales must. A swizzled tile is 512 contiguous bytes, and the next one follows.
template <class Tile>
__device__ __forceinline__ bool start_scales(const QuantizedPart& part, const ScaleLayout& layout, const uint8_t* scales,
                                             int64_t first_line, int first_code, int length, Tile& tile) {
    if (!layout.has_adjacent_fours() || (!layout.swizzled && layout.line_stride % 4 != 0)) return false;
    const bool swizzled = layout.swizzled;
    const uint32_t column = uint32_t(first_code) >> log2_of(uint32_t(layout.block));
    const int words = ((length - 1) >> word_rows_log2(layout)) + 1;
    const uint8_t* const first = scales + layout.offset(0, uint32_t(first_line), column);
    if (reinterpret_cast<uintptr_t>(first) % 4 != 0 || (!swizzled && layout.columns - column < 4 * words)) return false;
    const int line = line_of_word(layout, int(threadIdx.x % kTile));
    if (line >= int(part.lines - first_line)) return true;
    const int64_t in_tile =
        swizzled ? threadIdx.x % kTile * 4 : (line >> log2_of(uint32_t(layout.tile_rows))) * layout.line_stride;
    const uint8_t* const at = first + in_tile;
#pragma unroll 1
    for (int word = int(threadIdx.x / kTile); word < words; word += Tile::threads / kTile)
        copy_word(&tile.scales[word][line], at + word * (swizzled ? int(kSwizzleBytes) : 4));
    return true;
}

// Loads the scales of a tile's K-major rows as stored: a byte for each of four blocks, or one fp32 number. The loop follows
// the order of the layout, so that a swizzled tile is read as 512 contiguous bytes.
template <class Tile>
__device__ __forceinline__ void load_scales(const QuantizedPart& part, const ScaleLayout& layout, const uint8_t* scales,
                                            int64_t first_line, int first_code, int length, Tile& tile) {
    const int rows_log2 = word_rows_log2(layout), words = ((length - 1) >> rows_log2) + 1;
#pragma unroll 1
    for (int i = threadIdx.x; i < words * kTile; i += Tile::threads) {
        const int word = i / kTile, in_tile = line_of_word(layout, i % kTile);
        const int64_t line = first_line + in_tile;
        if (line >= part.lines) continue;
        const int64_t column = uint32_t(first_code + (word << rows_log2)) / uint32_t(layout.block);
        const int64_t offset = layout.offset(0, line, column);
        uint32_t loaded;
        if (layout.bytes == 4)
            loaded = reinterpret_cast<const uint32_t*>(scales)[offset];
        else if (layout.block > kMxBlock)
            loaded = scales[offset] * 0x01010101u;
        else
            loaded = load_scale_word(scales + offset, layout.columns - column);
        tile.scales[word][in_tile] = loaded;
    }
}

}  // namespace mxq::cuda::columnwise
