// The tile of dequantize_columnwise in shared memory, and how codes and scales come there: copied without a register where
// lines are read in whole words, else byte by byte.
#pragma once
#include "cuda/dequantize/dequantize.cuh"
#include "cuda/memory/async_copy.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/tile/patch.cuh"

namespace mxq::cuda::columnwise {

constexpr int kHalfPiece = kPieceCodes / 2;  // rows of a thread's patch

// Names what a kernel serves. Matrices (large ones) and Tiles (of groups and of other matrices) have lines that are read in
// whole words and rows that are written in whole vectors. Any has lines and rows of any alignment.
enum class Way { Matrices, Tiles, Any };

struct Arguments {
    DequantizeProblem problem;
    uint32_t down, across;   // tiles of a matrix; with groups, group tiles of all groups and blocks of threads of one
    uint32_t lines;          // rows of tiles of all matrices
    int32_t block_tiles;     // of a group tile that a block of threads takes
    bool wide_words_in;      // six bits: every line of codes is read in words of 16 bytes
};

// The tile of a kernel, and what is in shared memory of it.
template <class T, class E, Way way>
struct Tile {
    static constexpr int bits = E::bits;
    // Threads of a block, of which 1024 share a multiprocessor: where a group is waited for, more blocks hide it.
    static constexpr int threads = way == Way::Matrices ? 512 : 256, warps = threads / 32;
    static constexpr int sm_blocks = (way == Way::Any && bits == 6 ? 768 : 1024) / threads;
    static constexpr int rows_log2 = way == Way::Matrices && bits < 8 && sizeof(T) == 2 ? 9 : 8, rows = 1 << rows_log2;
    static constexpr int pieces = rows / kPieceCodes;  // of a line
    static constexpr int piece_words = bits / 2;
    static constexpr int columns = Vector<T>::count;   // of a thread
    static constexpr int row_lanes = kTile / columns;  // lanes that have one row
    static constexpr int warp_rows = 32 / row_lanes * kHalfPiece;
    // Pieces lie in slots, of six bits two or four together: then a slot is whole words of 8 or 16 bytes.
    static constexpr int slot_pieces = bits == 6 ? rows / 128 : 1, slots = pieces / slot_pieces;
    static constexpr int slot_words = slot_pieces * piece_words;
    // How many rows share a scale word of a line, at least, and how many such words a line has in a tile.
    static constexpr int least_word_rows = bits == 4 ? 4 * kNvBlock : 4 * kMxBlock;
    static constexpr int scale_words = rows / least_word_rows;

    alignas(16) uint32_t codes[kTile * pieces * piece_words];
    alignas(16) uint32_t scales[scale_words][kTile];

    // Returns the slot of a line's slot: moved within the line so that lanes meet different banks, both when they hold one
    // piece of every `columns`-th line and when they hold the pieces of one line.
    static __device__ __forceinline__ uint32_t moved(uint32_t line, uint32_t slot) {
        return slot ^ (line / columns % slots);
    }
    static __device__ __forceinline__ uint32_t word_of_piece(uint32_t line, uint32_t piece) {
        return (line * slots + moved(line, piece / slot_pieces)) * slot_words + piece % slot_pieces * piece_words;
    }
};

// Starts to load a tile's codes, word by word: a warp takes some neighbouring lines at a time, neighbouring lanes
// neighbouring words. So slots are those of the first lines, but for bits of their own.
template <class Word, class Tile>
__device__ __forceinline__ void start_codes(const uint8_t* from, int64_t line_bytes, int lines, int length, Tile& tile) {
    constexpr uint32_t of_slot = Tile::slot_words * 4 / sizeof(Word), of_line = Tile::slots * of_slot;
    constexpr uint32_t together = of_line % 16 == 0 ? 2 : 4, step = Tile::warps * together;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1  // else all addresses are worked out before the first tile, and spill
    for (uint32_t place = lane; place < together * of_line; place += 32) {
        const uint32_t first = warp * together + place / of_line, word = place % of_line, slot = word / of_slot;
        const uint8_t* at = from + first * line_bytes + word * sizeof(Word);
        Word* const slots = reinterpret_cast<Word*>(tile.codes) + first * of_line + word % of_slot;
        const int left = int(word * sizeof(Word)) * 8 < length * Tile::bits ? lines - int(first) : 0;
#pragma unroll
        for (uint32_t line = 0; line < kTile; line += step, at += step * line_bytes)
            if (int(line) < left) copy_word(slots + line * of_line + Tile::moved(first + line, slot) * of_slot, at);
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
        start_codes<std::conditional_t<Tile::slot_pieces == 4, uint4, uint2>>(from, line_bytes, lines, length, tile);
    else
        start_codes<uint32_t>(from, line_bytes, lines, length, tile);
}

// Loads a tile's codes byte by byte, from lines of any alignment. Out of line, since it is rare.
template <class Tile>
__device__ __noinline__ void load_bytes(const uint8_t* from, int64_t line_bytes, int lines, int length, Tile& tile) {
    constexpr int piece_bytes = Tile::piece_words * 4, of_line = Tile::pieces * piece_bytes;
    const int valid = (length * Tile::bits + 7) / 8;  // bytes of a line
#pragma unroll 4
    for (int i = int(threadIdx.x); i < kTile * of_line; i += Tile::threads) {
        const int line = i / of_line, byte = i % of_line;
        auto* const piece = reinterpret_cast<uint8_t*>(tile.codes + Tile::word_of_piece(line, byte / piece_bytes));
        if (line < lines && byte < valid) piece[byte % piece_bytes] = from[line * line_bytes + byte];
    }
}

// Returns the rows that a scale word covers.
__device__ __forceinline__ int word_rows_log2(const ScaleLayout& layout) { return layout.block == kNvBlock ? 6 : 7; }

// Starts to load the scale words of a tile's lines, of its `length` rows, where they are whole and aligned; false:
// load_scales must. A swizzled tile is 512 bytes in a row, the next one the next 512.
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

// Loads the scales of a tile's lines as they are stored: a byte for each of four blocks, or one fp32 number. The loop
// follows the layout's order, so that a swizzled tile is 512 bytes in a row.
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
