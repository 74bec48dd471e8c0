// dequantize_columnwise: a columnwise part of any format to F32, F16 or BF16; compact or swizzled scales, experts, groups.
//
// A block of threads takes a tile of 128 columns, each of its elements read and written once: 256 rows, in large matrices 512
// where codes have six and four bits and rows 16, so that a line has at least 256 bytes of a tile. With half as much of a line
// at once, memory gives a twentieth less (docs/performance.md). A block has 512 threads, 256 where its tile lies in a group
// tile or something is not aligned.
//
//     codes in memory     lines of the transposed matrix, read as words, which are shifted where lines are not aligned
//     shared memory       pieces: 16 codes of a line, in slots of one, six bits of two or four; the scale words of 128 lines,
//                         four bytes or one fp32 for each 64 or 128 rows
//     registers           a patch of the output: 8 rows of 8 columns (F32: 4)
//
//                      lane 0    lane 1        lane 15     columns 16 * 8; F32: a row has 32 lanes
//         rows 0..7    [vector]  [vector] ...  [vector] }
//         rows 8..15   lane 16   lane 17  ...  lane 31  }  warp 0; warps 1, 2 .. 15 the rows after, then warp 0 again
//
// Codes and scales are copied to shared memory without a register, all of a tile on their way at once. A thread takes half a
// piece of each of its columns, picks the codes of a row out of two columns at a time, and writes the 16 bytes of the row: a
// warp writes 256 contiguous bytes of two rows. Codes of six and four bits are decoded where they are packed
// (numerics/packed_pairs.h), to BF16 under E8M0 scales in packed products, under E4M3 scales in packed products of F16; rows
// that are not aligned are stored by whole warps (memory/spread_store.cuh).
//
// Groups begin at multiples of a piece in every line. So of aligned ones a block takes any 256 codes of 128 lines, and each
// warp finds the group of its 16 rows, its band, where these belong:
//
//     lines of codes        |  group 0   |   group 1   |2 |  group 3 ...
//     blocks of threads     [ 0 1 2 ..        .. 14 15 ][ 0 1 2 ...          bands, a warp each
//
// A tile of other groups lies in one group tile, 256 rows of one group, and a block of threads takes some neighbouring tiles
// of it. The rows that pad the output are +0.
//
// Bytes an element: 0.5 to 1.06 read, 2 or 4 written; bound by memory in this pattern (docs/performance.md).
#include "cuda/dequantize/dequantize.cuh"
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/memory/async_copy.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/ordered_groups.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/memory/spread_store.cuh"
#include "cuda/tile/patch.cuh"
#include "numerics/packed_pairs.h"

namespace mxq::cuda {
namespace {

constexpr int kHalfPiece = kPieceCodes / 2;  // rows of a thread's patch
constexpr int64_t kSmallTiles = 132;
constexpr int64_t kShortGroup = 128;  // rows
constexpr int kMostTiles = 4;         // of a group tile that a block of threads takes

// Names what a kernel serves. Matrices (large ones), Bands (of short groups) and Tiles (of other groups and matrices) have lines
// that are read in whole words and rows that are written in whole vectors; in Lines the lines are not aligned, in Any the rows
// are not either.
enum class Way { Matrices, Bands, Tiles, Lines, Any };

template <Way way>
constexpr bool kReadsAny = way == Way::Lines || way == Way::Any;

struct Arguments {
    DequantizeProblem problem;
    uint32_t down, across;   // tiles of a matrix; with groups, group tiles of all groups and blocks of threads of one
    uint32_t lines;          // rows of tiles of all matrices
    int32_t block_tiles;     // of a group tile that a block of threads takes
    bool wide_words_in;      // six bits: every line of codes is read in words of 16 bytes
    bool whole_words_in;     // every line of codes is read in whole words
    bool scales_as_codes;    // compact scales of groups begin where their codes do
};

// The tile of a kernel, and what is in shared memory of it.
template <class T, class E, Way way>
struct Tile {
    static constexpr int bits = E::bits;
    // Threads of a block, of which 1024 share a multiprocessor: where a group is waited for, more blocks hide it.
    static constexpr int threads = way == Way::Matrices || way == Way::Bands ? 512 : 256, warps = threads / 32;
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
    static constexpr int scale_words = way == Way::Bands ? warps : rows / least_word_rows;

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

// Where a piece lies in lines of any alignment: in so many aligned words and one more.
template <class Tile>
struct ShiftedPiece {
    static constexpr int words = Tile::piece_words;
    const uint8_t* at;
    const uint32_t* aligned;
    uint32_t* to;
    int left;        // bytes of the line from here on; none where there is no line
    uint32_t shift;  // bits of the first word before it

    __device__ __forceinline__ ShiftedPiece(const uint8_t* from, int64_t line_bytes, int lines, int valid, int i,
                                            Tile& tile) {
        const int line = i / Tile::pieces, piece = i % Tile::pieces;
        left = line < lines ? valid - piece * words * 4 : 0;
        at = from + line * line_bytes + piece * words * 4;
        shift = uint32_t(reinterpret_cast<uintptr_t>(at) % 4) * 8;
        aligned = reinterpret_cast<const uint32_t*>(at - shift / 8);
        to = tile.codes + Tile::word_of_piece(line, piece);
    }
    // Writes the piece, given the words that it lies in.
    __device__ __forceinline__ void put(const uint32_t (&read)[words + 1]) const {
        uint32_t piece[words];
#pragma unroll
        for (int w = 0; w < words; w++) piece[w] = __funnelshift_r(read[w], read[w + 1], shift);
        if constexpr (words == 4)
            *reinterpret_cast<uint4*>(to) = make_uint4(piece[0], piece[1], piece[2], piece[3]);
        else if constexpr (words == 2)
            *reinterpret_cast<uint2*>(to) = make_uint2(piece[0], piece[1]);
        else
            to[0] = piece[0], to[1] = piece[1], to[2] = piece[2];
    }
    __device__ __forceinline__ bool lies_in(const uint8_t* first, const uint8_t* end) const {
        const auto* const begin = reinterpret_cast<const uint8_t*>(aligned);
        return begin >= first && begin + (words + 1) * 4 <= end;
    }
};

// Loads a tile's codes as pieces from lines of any alignment: the aligned words that a piece lies in, shifted; where they reach
// beyond the tile's first or last line, byte by byte. Out of line, since it is rare.
template <class Tile>
__device__ __noinline__ void load_shifted_pieces(const uint8_t* from, int64_t line_bytes, int lines, int length,
                                                 Tile& tile) {
    using Piece = ShiftedPiece<Tile>;
    constexpr int step = Tile::threads, all = kTile * Tile::pieces;
    const int valid = (length * Tile::bits + 7) / 8;  // bytes of a line
    const uint8_t* const end = from + (lines - 1) * line_bytes + valid;
    bool rest = false;
#pragma unroll 4
    for (int i = int(threadIdx.x); i < all; i += step) {
        const Piece piece(from, line_bytes, lines, valid, i, tile);
        const bool exists = piece.left > 0, whole = exists && piece.lies_in(from, end);
        uint32_t read[Piece::words + 1];
#pragma unroll
        for (int w = 0; w <= Piece::words; w++) read[w] = whole ? __ldg(piece.aligned + w) : 0;
        if (whole) piece.put(read);
        rest = rest || whole != exists;
    }
    if (!rest) return;
#pragma unroll 1
    for (int i = int(threadIdx.x); i < all; i += step) {
        const Piece piece(from, line_bytes, lines, valid, i, tile);
        if (piece.left <= 0 || piece.lies_in(from, end)) continue;
        auto* const bytes = reinterpret_cast<uint8_t*>(piece.to);
        for (int byte = 0; byte < min(piece.left, Piece::words * 4); byte++) bytes[byte] = piece.at[byte];
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

// The scale words of a thread's columns that have its rows.
template <int columns>
struct ScaleWords {
    uint32_t words[columns];

    __device__ __forceinline__ explicit ScaleWords(const uint32_t* first) {
        const auto* const from = reinterpret_cast<const uint4*>(first);
#pragma unroll
        for (int v = 0; v < columns; v += 4) {
            const uint4 four = from[v / 4];
            words[v] = four.x, words[v + 1] = four.y, words[v + 2] = four.z, words[v + 3] = four.w;
        }
    }
};

// ---- Rows ------------------------------------------------------------------------------------------------------------

// Eight rows of a thread's columns, from half of a piece of each. Codes of 8 bits become fp32 numbers.
template <class T, class E>
struct HalfRows {
    static constexpr int columns = Vector<T>::count;
    Codes<8> codes[columns];

    // `line` is the first of the columns.
    template <class Tile>
    __device__ __forceinline__ HalfRows(const Tile& tile, int line, int piece, int half) {
        const auto* from = reinterpret_cast<const uint2*>(tile.codes + Tile::word_of_piece(line, piece)) + half;
#pragma unroll
        for (int v = 0; v < columns; v++, from += Tile::pieces * 2) codes[v] = {{from->x, from->y}};
    }
    // Returns the codes of row i of columns v and v + 1, the first in the low byte.
    __device__ __forceinline__ uint32_t pair(int v, int i) const {
        return __byte_perm(codes[v].words[i / 4], codes[v + 1].words[i / 4], (4 + i % 4) << 4 | i % 4) & 0xFFFF;
    }
    __device__ __forceinline__ float2 values(int v, int i) const { return decode_pair<E>(pair(v, i)); }
};

// Codes of six and four bits stay packed until two columns' codes of a row are moved to where numbers have them.
template <class T, class E>
requires(E::bits < 8) struct HalfRows<T, E> {
    static constexpr int columns = Vector<T>::count, in_word = E::bits == 6 ? 4 : 8;  // codes
    uint32_t words[columns][8 / in_word];

    template <class Tile>
    __device__ __forceinline__ HalfRows(const Tile& tile, int line, int piece, int half) {
        const uint32_t* from = tile.codes + Tile::word_of_piece(line, piece) + half;
#pragma unroll
        for (int v = 0; v < columns; v++, from += Tile::pieces * Tile::piece_words) {
            words[v][0] = from[0];
            if constexpr (E::bits == 6) {  // 48 bits from bit 0 or 16 on
                const uint32_t low = from[0], high = from[1];
                words[v][0] = __funnelshift_r(low, high, half * 16);
                words[v][1] = half == 0 ? __funnelshift_r(low, high, 24) : high >> 8;
            }
        }
    }
    __device__ __forceinline__ uint32_t window(int v, int i) const {
        return window_of_lines<E::bits>(words[v][i / in_word], words[v + 1][i / in_word], i % in_word);
    }
    static __device__ __forceinline__ int bit(int i) { return bit_in_window<E::bits>(i % in_word); }
    __device__ __forceinline__ float2 values(int v, int i) const { return decode_window<E>(window(v, i), bit(i)); }
};

// Holds the scales of a thread's columns as fp32 numbers, and makes rows of elements with them.
template <class T, class E>
struct ColumnScales {
    static constexpr int columns = Vector<T>::count;
    float scales[columns], global;

    // `row` is the first of the thread's.
    __device__ __forceinline__ ColumnScales(ScaleType type, float above, const ScaleWords<columns>& from, int row)
        : global(above) {
        if (E::bits == 8 && type == ScaleType::F32) {
#pragma unroll
            for (int v = 0; v < columns; v++) scales[v] = bits_float(from.words[v]);
        } else if (E::bits == 4 && type == ScaleType::E4M3) {
            const int bit = row / int(kNvBlock) % 4 * 8;
#pragma unroll
            for (int v = 0; v < columns; v++) scales[v] = decode_pair<E4M3>(from.words[v] >> bit & 0xFF).x;
        } else {
            const int bit = row / int(kMxBlock) % 4 * 8;
#pragma unroll
            for (int v = 0; v < columns; v++) scales[v] = scale_value(from.words[v] >> bit & 0xFF);
        }
    }
    __device__ __forceinline__ Vector<T> row_of(const HalfRows<T, E>& rows, int i) const {
        float values[columns];
#pragma unroll
        for (int v = 0; v < columns; v += 2) {
            const float2 pair = rows.values(v, i);
            values[v] = multiply_rn(pair.x, scales[v]);
            values[v + 1] = multiply_rn(pair.y, scales[v + 1]);
            if constexpr (E::bits == 4)
                values[v] = multiply_rn(values[v], global), values[v + 1] = multiply_rn(values[v + 1], global);
        }
        return round_vector<T>(values);
    }
};

// Holds E8M0 scales of a thread's columns as BF16 factors, two columns in a word, and makes rows of BF16 of codes of six and
// four bits with them.
template <class E>
struct ColumnFactors {
    static constexpr int columns = Vector<Bf16>::count;
    uint32_t factors[columns / 2];
    bool plain = true;  // no scale is special

    __device__ __forceinline__ ColumnFactors(const ScaleWords<columns>& from, int row) {
        constexpr Bf16DecodeRule rule = bf16_decode_rule<E>();
        const int bit = row / int(kMxBlock) % 4 * 8;
#pragma unroll
        for (int v = 0; v < columns; v++) {
            const uint32_t byte = from.words[v] >> bit & 0xFF, factor = bf16_e8m0_factor(rule, byte);
            plain = plain && !is_special_scale(rule, byte);
            factors[v / 2] = v % 2 == 0 ? factor : permute_bytes(factors[v / 2], factor, 0x5410);
        }
    }
    __device__ __forceinline__ Vector<Bf16> row_of(const HalfRows<Bf16, E>& rows, int i) const {
        Vector<Bf16> vector;
#pragma unroll
        for (int v = 0; v < columns; v += 2)
            vector.words[v / 2] = decode_window_to_bf16<E>(rows.window(v, i), rows.bit(i), factors[v / 2]);
        return vector;
    }
};

// Holds E4M3 scales of a thread's columns as F16 factors, two columns in a word, and makes rows of E2M1 codes with them. A
// code where F16 has its bits (numerics/packed_pairs.h) is 2^-14 of its value; times 2^7 and its scale it is 2^-7 of their
// product, which has at most six significant bits, the lowest 2^-17, and is exact.
template <class T>
struct ColumnHalves {
    static constexpr int columns = Vector<T>::count, kept = 7;  // of 2^14
    uint32_t factors[columns / 2];
    float global;

    __device__ __forceinline__ ColumnHalves(float above, const ScaleWords<columns>& from, int row)
        : global(multiply_rn(above, float(1 << kept))) {
        const uint32_t byte = uint32_t(row) / uint32_t(kNvBlock) % 4, selector = byte | (4 + byte) << 4;
#pragma unroll
        for (int v = 0; v < columns; v += 2) {
            const uint32_t pair = permute_bytes(from.words[v], from.words[v + 1], selector) & 0xFFFF;
            factors[v / 2] =
                multiply_f16_pairs(decode_pair_to_f16<E4M3>(pair), uint32_t(15 + kept) << 10 | uint32_t(15 + kept) << 26);
        }
    }
    // Returns whether the factor above serves.
    static __device__ __forceinline__ bool serves(float above) {
        return fabsf(above) < bits_float(uint32_t(127 + 100) << 23);
    }

    __device__ __forceinline__ Vector<T> row_of(const HalfRows<T, E2M1>& rows, int i) const {
        float values[columns];
#pragma unroll
        for (int v = 0; v < columns; v += 2) {
            const uint32_t moved = move_codes<E2M1, 10>(rows.window(v, i), rows.bit(i));
            const uint32_t scaled = multiply_f16_pairs(moved, factors[v / 2]);
            const float2 pair = __half22float2(__half2(__builtin_bit_cast(__half2_raw, scaled)));
            values[v] = multiply_rn(pair.x, global), values[v + 1] = multiply_rn(pair.y, global);
        }
        return round_vector<T>(values);
    }
};

// A thread's patch, whose columns 15 or 31 (F32) neighbouring lanes go on with: where it writes, how many rows have codes,
// how many are written, and how many columns these have from the first lane's on.
template <class T>
struct PatchRows {
    static constexpr int lanes = kTile / Vector<T>::count;
    T* out;
    int64_t row_stride;
    int filled, written, left;
    bool exists;  // the lane's first column does

    __device__ __forceinline__ PatchRows(T* patch, int64_t stride, int rows, int out_rows, int cols, int column)
        : out(patch),
          row_stride(stride),
          written(min(out_rows, kHalfPiece)),
          left(cols - column + int(threadIdx.x) % lanes * Vector<T>::count),
          exists(column < cols) {
        filled = min(rows, written);
    }
    // Stores the vector of row i, if that is below `end`. All lanes of the warp call it.
    __device__ __forceinline__ void store(const Vector<T>& vector, int i, int end, SpreadStore<T>* spread) const {
        T* const to = out + i * row_stride;
        if (!spread)
            store_vector_plain(vector, to, exists && i < end);
        else
            spread->template store_rows<lanes>(vector, to, i < end ? left : 0);
    }
};

// Writes the rows that have codes.
template <class T, class E, class Scales>
__device__ __forceinline__ void store_rows(const PatchRows<T>& to, const Scales& scales, const HalfRows<T, E>& rows,
                                           SpreadStore<T>* spread) {
#pragma unroll
    for (int i = 0; i < kHalfPiece; i++) to.store(scales.row_of(rows, i), i, to.filled, spread);
}

// Writes the rows that have codes by factors where that is possible; false: nothing was written.
template <class T, class E>
__device__ __forceinline__ bool store_rows_by_factors(const PatchRows<T>& to, ScaleType type, float global,
                                                      const ScaleWords<Vector<T>::count>& words, int row,
                                                      const HalfRows<T, E>& rows, SpreadStore<T>* spread) {
    if constexpr (E::bits < 8 && std::is_same_v<T, Bf16>) {
        if (type == ScaleType::E8M0 && !spread) {
            const ColumnFactors<E> factors(words, row);
            if (factors.plain) store_rows<T, E>(to, factors, rows, spread);
            return factors.plain;
        }
    }
    if constexpr (E::bits == 4 && sizeof(T) == 2) {
        if (type == ScaleType::E4M3 && !spread && ColumnHalves<T>::serves(global)) {
            store_rows<T, E>(to, ColumnHalves<T>(global, words, row), rows, spread);
            return true;
        }
    }
    return false;
}

// Writes the rows of a patch; those without codes are +0.
template <class T, class E>
__device__ __forceinline__ void store_patch(const PatchRows<T>& to, ScaleType type, float global,
                                            const ScaleWords<Vector<T>::count>& words, int first_row,
                                            const HalfRows<T, E>& rows, SpreadStore<T>* spread) {
    if (!store_rows_by_factors<T, E>(to, type, global, words, first_row, rows, spread))
        store_rows<T, E>(to, ColumnScales<T, E>(type, global, words, first_row), rows, spread);
#pragma unroll 1
    for (int row = 0; row < kHalfPiece; row++)
        if (!__all_sync(kAllLanes, row < to.filled || row >= to.written))
            to.store(Vector<T>{}, row, row < to.filled ? 0 : to.written, spread);
}

template <class T, class E, Way way>
__device__ __forceinline__ void dequantize_tile(const Arguments& a, const DequantizeScope& scope, const ScaleLayout& layout,
                                                int first_row, int64_t col, Tile<T, E, way>& tile, SpreadStore<T>* spread) {
    using Tile = Tile<T, E, way>;
    const QuantizedPart& in = a.problem.in;
    const uint8_t* from = scope.codes + col * in.line_bytes + int64_t(first_row) * E::bits / 8;
    const int lines = int(min(in.lines - col, int64_t(kTile))), filled = min(scope.rows - first_row, Tile::rows);
    if (!kReadsAny<way> || a.whole_words_in)
        start_codes(a, from, lines, filled, tile);
    else
        load_shifted_pieces(from, in.line_bytes, lines, filled, tile);
    if (filled > 0 && !start_scales(in, layout, scope.scales, col, first_row, filled, tile))
        load_scales(in, layout, scope.scales, col, first_row, filled, tile);
    wait_for_pieces();
    __syncthreads();
    const int warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32), column = lane % Tile::row_lanes * Tile::columns;
    const int64_t row_stride = a.problem.out.row_stride;
    T* const out = reinterpret_cast<T*>(scope.out) + first_row * row_stride + col + column;
#pragma unroll 1
    for (int row = warp * Tile::warp_rows; row < Tile::rows; row += Tile::warps * Tile::warp_rows) {
        const int mine = row + lane / Tile::row_lanes * kHalfPiece;
        const PatchRows<T> to(out + mine * row_stride, row_stride, scope.rows - first_row - mine,
                              scope.out_rows - first_row - mine, lines, column);
        const HalfRows<T, E> rows(tile, column, mine / kPieceCodes, mine / kHalfPiece % 2);
        const ScaleWords<Tile::columns> words(&tile.scales[mine >> word_rows_log2(layout)][column]);
        store_patch<T, E>(to, in.scale_type, scope.global, words, mine, rows, spread);
    }
}

// Describes what a block of threads works on: neighbouring tiles of one scope, from `row` on; of a matrix it is one tile.
struct TileRow {
    DequantizeScope scope;
    ScaleLayout layout;
    int32_t row;
    int64_t col, end;  // columns; none where there is no group
};

template <int rows_log2>
__device__ __forceinline__ TileRow tile_of_matrix(const Arguments& a, uint32_t line, int64_t across, int64_t element_bytes) {
    const DequantizeProblem& p = a.problem;
    const uint32_t expert = p.out.matrices == 1 ? 0 : line / a.down;
    return {p.out.matrices == 1 ? scope_of_expert(p, 0, element_bytes) : scope_of_expert(p, expert, element_bytes),
            p.in.layout, int32_t((line - expert * a.down) << rows_log2), across * kTile, (across + 1) * kTile};
}

// Finds the tiles of a group tile, by one warp.
template <int rows_log2>
__device__ __forceinline__ void find_tiles_of_group(const Arguments& a, uint32_t group_tile, int64_t across,
                                                    int64_t element_bytes, TileRow& tiles) {
    const DequantizeProblem& p = a.problem;
    GroupSumUnits units = group_sum_units(p.in.units, {p.out.group_unit, 1});
    units.tile_rows_log2 = rows_log2;
    const Group group = find_group_tile(p.grouped, units, group_tile);
    if (threadIdx.x != 0) return;
    tiles.col = across * a.block_tiles * kTile;
    tiles.end = group.exists() ? min(tiles.col + a.block_tiles * kTile, p.out.cols) : 0;
    if (!group.exists()) return;
    tiles.scope = scope_of_group(p, group.first(), group.second().codes, group.rows, element_bytes);
    tiles.layout = group_layout(p.in, group.rows);
    tiles.row = int32_t((group_tile - group.first_group_tile) << rows_log2);
}

// Dequantizes the tiles of a block of threads, which are of a group or of a matrix of any alignment.
template <class T, class E, Way way>
__device__ __forceinline__ void dequantize_tiles(const Arguments& a, uint32_t line, Tile<T, E, way>& tile,
                                                 SpreadStore<T>* spread) {
    __shared__ TileRow tiles;  // not in registers, which patches need
    if (threadIdx.x < 32) {
        if (a.problem.grouped.groups.set)
            find_tiles_of_group<tile.rows_log2>(a, line, blockIdx.x, sizeof(T), tiles);
        else if (threadIdx.x == 0)
            tiles = tile_of_matrix<tile.rows_log2>(a, line, blockIdx.x, sizeof(T));
    }
    __syncthreads();
#pragma unroll 1
    for (int64_t col = tiles.col; col < tiles.end; col += kTile) {
        dequantize_tile<T, E, way>(a, tiles.scope, tiles.layout, tiles.row, col, tile, spread);
        __syncthreads();
    }
}

// ---- Groups ----------------------------------------------------------------------------------------------------------

// Counts bands in place of group tiles: as many rows of a group, padding included, as a piece has codes. Groups begin at
// multiples of a piece in every line, so these are bands side by side.
struct BandUnits : GroupSumUnits {
    __device__ __forceinline__ uint32_t group_tiles(uint32_t rows) const {
        return round_up(kSourceCodes, rows) / kPieceCodes;
    }
};

__device__ __forceinline__ BandUnits band_units(const DequantizeProblem& p) {
    return {group_sum_units(p.in.units, {p.out.group_unit, 1})};
}

// A warp's band; `row` is its first row in the group.
struct Band {
    DequantizeScope scope;
    int32_t row;
    bool exists;
};

__device__ __forceinline__ Band band_of(const DequantizeProblem& p, const Group& group, uint32_t index,
                                        int64_t element_bytes) {
    if (!group.exists()) return {};
    return {scope_of_group(p, group.first(), group.second().codes, group.rows, element_bytes),
            int32_t((index - group.first_group_tile) * kPieceCodes), true};
}

// Loads the scales of a band: of each line a byte or one fp32 number, to the scale words of the warp.
__device__ __forceinline__ void load_scales_of_band(const QuantizedPart& part, const Band& band, int64_t first_line,
                                                    uint32_t (&words)[kTile]) {
    const ScaleLayout layout = group_layout(part, band.scope.rows);
    const uint32_t column = uint32_t(band.row) / uint32_t(layout.block);
    uint32_t loaded[kTile / 32];
#pragma unroll
    for (int i = 0; i < kTile / 32; i++) {
        const int64_t line = first_line + i * 32 + int(threadIdx.x % 32);
        if (line >= part.lines) continue;
        const int64_t offset = layout.offset(0, line, column);
        if (layout.bytes == 4)
            loaded[i] = reinterpret_cast<const uint32_t*>(band.scope.scales)[offset];
        else
            loaded[i] = band.scope.scales[offset];
    }
#pragma unroll
    for (int i = 0; i < kTile / 32; i++) words[i * 32 + threadIdx.x % 32] = loaded[i];
}

// Dequantizes a tile of bands, each of which is one warp's and of any group.
template <class T, class E>
__device__ __forceinline__ void dequantize_bands(const Arguments& a, uint32_t line, Tile<T, E, Way::Bands>& tile) {
    using Tile = Tile<T, E, Way::Bands>;
    const DequantizeProblem& p = a.problem;
    const int warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32);
    const int64_t first_code = int64_t(line) * Tile::rows, col = int64_t(blockIdx.x) * kTile;
    const int lines = int(min(p.in.lines - col, int64_t(kTile)));
    const int length = int(min(p.in.length - first_code, int64_t(Tile::rows)));
    bool has_scales = false;
    const auto start = [&] {
        start_codes(a, p.in.codes + col * p.in.line_bytes + first_code * E::bits / 8, lines, length, tile);
        has_scales = a.scales_as_codes && start_scales(p.in, p.in.layout, p.in.scales, col, int(first_code), length, tile);
    };
    const bool is_certain = first_code < p.grouped.rows;  // else only padding may reach it
    if (is_certain) start();
    const Group group = find_ordered_group_tile(p.grouped, band_units(p), line * Tile::warps + warp);
    if (!is_certain) {
        if (!__syncthreads_or(group.exists())) return;
        start();
    }
    __shared__ Band bands[Tile::warps];  // not in registers, which patches need
    const Band& band = bands[warp];
    if (lane == 0) bands[warp] = band_of(p, group, line * Tile::warps + warp, sizeof(T));
    __syncwarp();
    if (!has_scales && band.exists && band.row < band.scope.rows) load_scales_of_band(p.in, band, col, tile.scales[warp]);
    wait_for_pieces();
    __syncthreads();
    if (!band.exists) return;
    const int scale_row = has_scales ? warp * kPieceCodes : 0;  // of the tile, or of the band
    const int scale_word = has_scales ? scale_row >> word_rows_log2(p.in.layout) : warp;
    const int column = lane % Tile::row_lanes * Tile::columns;
    const int64_t row_stride = p.out.row_stride;
    T* const out = reinterpret_cast<T*>(band.scope.out) + col + column;
#pragma unroll 1
    for (int row = lane / Tile::row_lanes * kHalfPiece; row < kPieceCodes; row += Tile::warp_rows) {
        const int mine = band.row + row;
        const PatchRows<T> to(out + mine * row_stride, row_stride, band.scope.rows - mine, band.scope.out_rows - mine, lines,
                              column);
        const HalfRows<T, E> rows(tile, column, warp, row / kHalfPiece);
        const ScaleWords<Tile::columns> words(&tile.scales[scale_word][column]);
        store_patch<T, E>(to, p.in.scale_type, band.scope.global, words, scale_row, rows, nullptr);
    }
}

template <class T, class E, Way way>
__global__ void __launch_bounds__((Tile<T, E, way>::threads), (Tile<T, E, way>::sm_blocks))
    dequantize_columnwise_kernel(const __grid_constant__ Arguments a) {
    using Tile = Tile<T, E, way>;
    extern __shared__ __align__(16) uint8_t shared[];
    Tile& tile = *reinterpret_cast<Tile*>(shared);
    const uint32_t line = row_of_blocks();
    if (line >= a.lines || blockIdx.x >= a.across) return;
    if constexpr (way == Way::Matrices) {
        const TileRow row = tile_of_matrix<Tile::rows_log2>(a, line, blockIdx.x, sizeof(T));
        dequantize_tile<T, E, way>(a, row.scope, a.problem.in.layout, row.row, row.col, tile, nullptr);
    } else if constexpr (way == Way::Bands) {
        dequantize_bands<T, E>(a, line, tile);
    } else if constexpr (way != Way::Any) {
        dequantize_tiles<T, E, way>(a, line, tile, nullptr);
    } else {
        __shared__ SpreadStore<T> spreads[Tile::warps];
        dequantize_tiles<T, E, way>(a, line, tile, &spreads[threadIdx.x / 32]);
    }
}

struct Kernel {
    KernelTypes types;
    Way way;
    void (*function)(Arguments);
    int32_t threads, rows, shared_bytes;  // rows of a tile
};

template <class T, class E, Way way>
constexpr Kernel kernel_of() {
    using Tile = Tile<T, E, way>;
    return {types_of<T, E>(), way, dequantize_columnwise_kernel<T, E, way>, Tile::threads, Tile::rows, sizeof(Tile)};
}

constexpr auto kernels = for_all_types([]<class T, class E>(T, E) {
    return std::array{kernel_of<T, E, Way::Matrices>(), kernel_of<T, E, Way::Bands>(), kernel_of<T, E, Way::Tiles>(),
                      kernel_of<T, E, Way::Lines>(), kernel_of<T, E, Way::Any>()};
});

bool writes_whole_vectors(const PlainMatrix& out) {
    return out.format == MXQ_FORMAT_F32 ? is_wide<float>(out) : is_wide<Bf16>(out);
}

// Returns whether every line is read in whole words, from the start of each group on.
bool reads_whole_words(const DequantizeProblem& p) {
    return is_word_wise(p.in) && (!p.grouped.set() || p.in.units.codes % kPieceCodes == 0);
}

// Returns whether there are so few tiles that smaller blocks of threads, or smaller tiles, take less time.
bool is_small(const DequantizeProblem& p) {
    const int64_t tiles = p.out.matrices * ceil_div(p.out.rows, 512) * ceil_div(p.out.cols, kTile);
    return tiles < (p.in.bits == 8 ? 2 : 1) * kSmallTiles;
}

Way way_of(const DequantizeProblem& p) {
    if (!writes_whole_vectors(p.out)) return Way::Any;
    if (!reads_whole_words(p)) return Way::Lines;
    if (!p.grouped.set()) return is_small(p) ? Way::Tiles : Way::Matrices;
    const bool short_groups = p.grouped.rows <= kShortGroup * p.grouped.groups.count;
    return short_groups && p.out.group_unit <= p.in.units.codes ? Way::Bands : Way::Tiles;
}

const Kernel& kernel_for(const DequantizeProblem& p) {
    const Way way = way_of(p);
    for (const auto& of_types : kernels)
        for (const Kernel& kernel : of_types)
            if (kernel.types == KernelTypes{p.out.format, p.in.element} && kernel.way == way) return kernel;
    return kernels[0][0];  // not reached: there is a kernel for every pair of types
}

// Returns whether codes of six bits can be read 64 at a time, three words of 16 bytes.
bool has_wide_words(const DequantizeProblem& p, Way way) {
    const QuantizedPart& in = p.in;
    const bool starts_aligned = way == Way::Bands || !p.grouped.set();
    return in.bits == 6 && is_aligned(in.codes, 16) && in.line_bytes % 16 == 0 && in.length % 64 == 0 && starts_aligned;
}

// Returns how many tiles of a group tile a block of threads takes: several where groups are so short on average that finding
// one takes as long as its tile.
int32_t tiles_of_block(const DequantizeProblem& p, int32_t rows) {
    return int64_t(p.grouped.groups.count) * rows > p.grouped.rows ? kMostTiles : 1;
}

// Returns how many tiles lie below one another, at most.
int64_t tiles_down(const DequantizeProblem& p, const Kernel& kernel) {
    if (!p.grouped.set()) return ceil_div(p.out.rows, kernel.rows);
    if (kernel.way != Way::Bands) return group_tiles_bound(p.grouped, kernel.rows);
    return ceil_div(padded_rows_bound(p.grouped.rows, p.grouped.groups.count, p.in.units.codes), kernel.rows);
}

Reason declines(const Context& context, const DequantizeProblem& problem) {
    if (!problem.columnwise) return "needs a columnwise part, found a rowwise one";
    if (problem.in.transformed) return "needs no transform, found a Hadamard transform";
    return needs_cuda(context);
}

void run(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    const Kernel& kernel = kernel_for(problem);
    const bool groups = problem.grouped.set();
    const PlainMatrix& out = problem.out;
    Arguments a{};
    a.problem = problem;
    a.block_tiles = kernel.way != Way::Bands && groups ? tiles_of_block(problem, kernel.rows) : 1;
    a.wide_words_in = has_wide_words(problem, kernel.way);
    a.whole_words_in = reads_whole_words(problem);
    a.scales_as_codes = !problem.in.layout.swizzled && problem.in.units.scales == problem.in.units.codes;
    a.down = uint32_t(tiles_down(problem, kernel));
    a.across = uint32_t(ceil_div(out.cols, kTile * a.block_tiles));
    a.lines = uint32_t(out.matrices) * a.down;
    launch(context, kernel.function, "dequantize_columnwise", grid_of_rows(a.across, a.lines), dim3(kernel.threads),
           size_t(kernel.shared_bytes), call.stream, a);
}

void load(const Context&) {
    for (const auto& of_types : kernels)
        for (const Kernel& kernel : of_types) load_kernel(kernel.function, size_t(kernel.shared_bytes));
}

}  // namespace

const DequantizeImplementation dequantize_columnwise = {"dequantize_columnwise", declines, nullptr, run, load};

}  // namespace mxq::cuda
