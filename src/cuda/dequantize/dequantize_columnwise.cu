// dequantize_columnwise: a columnwise part of any format to F32, F16 or BF16; compact or swizzled scales, experts, groups.
//
// A block of threads takes tiles of 256 x 128 elements, each read and written once.
//
//     codes in memory     lines of the transposed matrix: 256, 192 or 128 bytes of a tile, read as words, which are shifted
//                         where lines are not aligned. With half as much of a line at once, memory gives a twentieth less
//                         (docs/performance.md)
//     shared memory       pieces: 16 codes of a line, 16 pieces a line; the scales of 128 lines, twice 4 or 8 bytes or one fp32
//     registers           a patch of the output: 16 rows of 8 columns (F32: 4)
//
//                      lane 0    lane 1        lane 15     columns 16 * (8 or 4); F32: warps 4..7 take the right half
//         rows 0..15   [vector]  [vector] ...  [vector] }
//         rows 16..31  lane 16   lane 17  ...  lane 31  }  warp 0; warps 1, 2, 3 the 32 rows after
//         rows 128 on                                      threads of threadIdx.y 1
//
// Codes and scales are copied to shared memory without a register, all of a tile on their way at once. A thread takes half a
// piece of each of its columns, picks the codes of a row out of two columns at a time, and writes the 16 bytes of the row: a
// warp writes 256 contiguous bytes of two rows. Codes of six and four bits are decoded where they are packed
// (numerics/packed_pairs.h), to BF16 under E8M0 scales in packed products; rows that are not aligned are stored by whole warps
// (memory/spread_store.cuh).
//
// With groups, a tile lies in one group tile, 256 rows of one group; a block of threads takes some neighbouring tiles of it.
// The rows that pad the output are +0.
//
// Bytes an element: 0.5 to 1.06 read, 2 or 4 written; bound by memory in this pattern, with 4 to 7 instructions an element in
// the loops to BF16 (machine code).
#include "cuda/dequantize/dequantize.cuh"
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/memory/async_copy.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/memory/spread_store.cuh"
#include "cuda/tile/patch.cuh"
#include "numerics/packed_pairs.h"

namespace mxq::cuda {
namespace {

constexpr int kRowsLog2 = 8, kRows = 1 << kRowsLog2;  // of a tile
constexpr int kHalves = kRows / kTile;                 // rows of threads, a patch of 128 rows each
constexpr int kPieces = kRows / kPieceCodes;           // of a line
constexpr int kMostTiles = 4;                          // of a group tile that a block of threads takes

struct Arguments {
    DequantizeProblem problem;
    uint32_t down, across;   // tiles of a matrix; with groups, group tiles of all groups and blocks of threads of one
    uint32_t lines;          // rows of tiles of all matrices
    int32_t block_tiles;     // of a group tile that a block of threads takes
    bool whole_words_in;     // every line of codes is read in whole words
    bool whole_vectors_out;  // every row of the output is written in whole vectors
};

template <int bits>
struct Shared {
    static constexpr int piece_words = bits / 2;
    alignas(16) uint32_t pieces[kTile * kPieces * piece_words];
    uint2 scales[kHalves][kTile];
};

template <class T>
constexpr int kThreads = kHalves * Patch<T>::threads;

// Returns the index of a thread in its block.
template <class T>
__device__ __forceinline__ int thread_index() {
    return int(threadIdx.y) * Patch<T>::threads + int(threadIdx.x);
}

// Returns the slot of a piece in shared memory: moved within its line so that lanes meet different banks, both when they hold
// one piece of every `columns`-th line and when they hold the pieces of one line.
template <class T>
__device__ __forceinline__ uint32_t slot_of_piece(uint32_t line, uint32_t piece) {
    return line * kPieces + (piece ^ (line / Patch<T>::columns % kPieces));
}

// Describes what one access reads of a line: a piece of 16 or 8 bytes, or a word of six-bit codes.
template <int bits>
using Access = std::conditional_t<bits == 8, uint4, std::conditional_t<bits == 6, uint32_t, uint2>>;

// Starts to load a tile's codes as pieces, word by word: a warp takes two neighbouring lines at a time, neighbouring lanes
// neighbouring words. So slots are those of the first lines, but for bits of their own.
template <class T, int bits>
__device__ __forceinline__ void start_pieces(const uint8_t* from, int64_t line_bytes, int lines, int length,
                                             Shared<bits>& shared) {
    using Word = Access<bits>;
    constexpr uint32_t of_piece = bits == 6 ? 3 : 1, of_line = kPieces * of_piece, step = kThreads<T> / 32 * 2;
    const uint32_t warp = uint32_t(thread_index<T>()) / 32, lane = threadIdx.x % 32;
#pragma unroll 1  // else all addresses are worked out before the first tile, and spill
    for (uint32_t place = lane; place < 2 * of_line; place += 32) {
        const uint32_t first = warp * 2 + place / of_line, word = place % of_line, piece = word / of_piece;
        const uint8_t* at = from + first * line_bytes + word * sizeof(Word);
        Word* const slots = reinterpret_cast<Word*>(shared.pieces) + first * of_line + word % of_piece;
        const uint32_t slot = piece ^ (first / Patch<T>::columns % kPieces);
        const int left = int(piece) * kPieceCodes < length ? lines - int(first) : 0;
#pragma unroll
        for (uint32_t line = 0; line < kTile; line += step, at += step * line_bytes)
            if (int(line) < left)
                copy_word(slots + line * of_line + (slot ^ (line / Patch<T>::columns % kPieces)) * of_piece, at);
    }
}

// Where a piece lies in lines of any alignment: in so many aligned words and one more.
template <class T, int bits>
struct ShiftedPiece {
    static constexpr int words = Shared<bits>::piece_words;
    const uint8_t* at;
    const uint32_t* aligned;
    uint32_t* to;
    int left;        // bytes of the line from here on; none where there is no line
    uint32_t shift;  // bits of the first word before it

    __device__ __forceinline__ ShiftedPiece(const uint8_t* from, int64_t line_bytes, int lines, int valid, int i,
                                            Shared<bits>& shared) {
        const int line = i / kPieces, piece = i % kPieces;
        left = line < lines ? valid - piece * words * 4 : 0;
        at = from + line * line_bytes + piece * words * 4;
        shift = uint32_t(reinterpret_cast<uintptr_t>(at) % 4) * 8;
        aligned = reinterpret_cast<const uint32_t*>(at - shift / 8);
        to = shared.pieces + slot_of_piece<T>(line, piece) * words;
    }
    __device__ __forceinline__ bool lies_in(const uint8_t* first, const uint8_t* end) const {
        const auto* const begin = reinterpret_cast<const uint8_t*>(aligned);
        return begin >= first && begin + (words + 1) * 4 <= end;
    }
};

// Loads a tile's codes as pieces from lines of any alignment: the aligned words that a piece lies in, shifted; where they reach
// beyond the tile's first or last line, byte by byte. Out of line, since it is rare.
template <class T, int bits>
__device__ __noinline__ void load_shifted_pieces(const uint8_t* from, int64_t line_bytes, int lines, int length,
                                                 Shared<bits>& shared) {
    using Piece = ShiftedPiece<T, bits>;
    constexpr int step = kThreads<T>, all = kTile * kPieces;
    const int valid = (length * bits + 7) / 8;  // bytes of a line
    const uint8_t* const end = from + (lines - 1) * line_bytes + valid;
    bool rest = false;
#pragma unroll 4
    for (int i = thread_index<T>(); i < all; i += step) {
        const Piece piece(from, line_bytes, lines, valid, i, shared);
        const bool exists = piece.left > 0, whole = exists && piece.lies_in(from, end);
        uint32_t read[Piece::words + 1];
#pragma unroll
        for (int w = 0; w <= Piece::words; w++) read[w] = whole ? __ldg(piece.aligned + w) : 0;
#pragma unroll
        for (int w = 0; w < Piece::words; w++)
            if (whole) piece.to[w] = __funnelshift_r(read[w], read[w + 1], piece.shift);
        rest = rest || whole != exists;
    }
    if (!rest) return;
#pragma unroll 1
    for (int i = thread_index<T>(); i < all; i += step) {
        const Piece piece(from, line_bytes, lines, valid, i, shared);
        if (piece.left <= 0 || piece.lies_in(from, end)) continue;
        auto* const bytes = reinterpret_cast<uint8_t*>(piece.to);
        for (int byte = 0; byte < min(piece.left, Piece::words * 4); byte++) bytes[byte] = piece.at[byte];
    }
}

// Starts to load the scales of a tile's lines where they are whole aligned words; false: load_scales must. A swizzled tile
// is 512 bytes in a row, the next one the next 512.
__device__ __forceinline__ bool start_scales(const QuantizedPart& part, const ScaleLayout& layout, const uint8_t* scales,
                                             int64_t first_line, int first_code, uint2 (&words)[kTile]) {
    if (!layout.has_adjacent_fours() || (!layout.swizzled && layout.line_stride % 4 != 0)) return false;
    const bool swizzled = layout.swizzled, two = layout.block == kNvBlock;
    const int column = first_code >> log2_of(uint32_t(layout.block)), left = int(layout.columns) - column;
    const uint8_t* const first = scales + layout.offset(0, first_line, column);
    if (reinterpret_cast<uintptr_t>(first) % 4 != 0 || (!swizzled && left < (two ? 8 : 4))) return false;
    const int rows_log2 = log2_of(uint32_t(layout.tile_rows)), lines = int(min(part.lines - first_line, int64_t(kTile)));
    for (int i = threadIdx.x; i < kTile; i += blockDim.x) {
        const int in_tile = line_of_word(layout, i);
        if (in_tile >= lines) continue;
        const uint8_t* const at = first + (swizzled ? i * 4 : (in_tile >> rows_log2) * layout.line_stride);
        copy_word(&words[in_tile].x, at);
        if (two && left > 4)
            copy_word(&words[in_tile].y, reinterpret_cast<const uint32_t*>(at + (swizzled ? kSwizzleBytes : 4)));
    }
    return true;
}

// Loads the scales of a tile's lines as they are stored: a byte for each of up to eight blocks, or one fp32 number. The loop
// follows the layout's order, so that a swizzled tile is 512 bytes in a row.
__device__ __forceinline__ void load_scales(const QuantizedPart& part, const ScaleLayout& layout, const uint8_t* scales,
                                            int64_t first_line, int64_t first_code, uint2 (&words)[kTile]) {
    const int64_t column = uint32_t(first_code) / uint32_t(layout.block);
    for (int i = threadIdx.x; i < kTile; i += blockDim.x) {
        const int in_tile = line_of_word(layout, i);
        const int64_t line = first_line + in_tile;
        uint2 word{};
        if (line < part.lines) {
            const int64_t offset = layout.offset(0, line, column);
            if (layout.bytes == 4) {
                word.x = reinterpret_cast<const uint32_t*>(scales)[offset];
            } else if (layout.block > kMxBlock) {
                word.x = scales[offset] * 0x01010101u;
            } else {
                word.x = load_scale_word(scales + offset, layout.columns - column);
                if (layout.block == kNvBlock && column + 4 < layout.columns)
                    word.y = load_scale_word(scales + layout.offset(0, line, column + 4), layout.columns - column - 4);
            }
        }
        words[in_tile] = word;
    }
}

// Returns the value of a line's scale for the codes from `row` of the tile on.
__device__ __forceinline__ float scale_of(ScaleType type, uint2 words, int row) {
    if (type == ScaleType::F32) return bits_float(words.x);
    const int block = type == ScaleType::E4M3 ? row / int(kNvBlock) : row / int(kMxBlock);
    return scale_of_byte(type, (block < 4 ? words.x : words.y) >> (block % 4 * 8) & 0xFF);
}

// ---- Rows ------------------------------------------------------------------------------------------------------------

// The scale byte of a column's codes from `row` of the tile on.
__device__ __forceinline__ uint32_t scale_byte_of(const uint2& words, int row) {
    const int block = row / int(kMxBlock);
    return words.x >> (block * 8) & 0xFF;
}

// Eight rows of a thread's columns, from half of a piece of each. Codes of 8 bits become fp32 numbers.
template <class T, class E>
struct HalfRows {
    static constexpr int columns = Patch<T>::columns;
    Codes<8> codes[columns];

    // `line` is the first of the columns.
    __device__ __forceinline__ HalfRows(const Shared<8>& shared, int line, int piece, int half) {
        const auto* from = reinterpret_cast<const uint2*>(shared.pieces) + slot_of_piece<T>(line, piece) * 2 + half;
#pragma unroll
        for (int v = 0; v < columns; v++) codes[v] = {{from[v * kPieces * 2].x, from[v * kPieces * 2].y}};
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
    static constexpr int columns = Patch<T>::columns, in_word = E::bits == 6 ? 4 : 8;  // codes
    uint32_t words[columns][8 / in_word];

    __device__ __forceinline__ HalfRows(const Shared<E::bits>& shared, int line, int piece, int half) {
        const uint32_t* from = shared.pieces + slot_of_piece<T>(line, piece) * Shared<E::bits>::piece_words + half;
#pragma unroll
        for (int v = 0; v < columns; v++, from += kPieces * Shared<E::bits>::piece_words) {
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
    static constexpr int columns = Patch<T>::columns;
    float scales[columns], global;

    __device__ __forceinline__ ColumnScales(ScaleType type, float above, const uint2* words, int row) : global(above) {
#pragma unroll
        for (int v = 0; v < columns; v++) scales[v] = scale_of(type, words[v], row);
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
    static constexpr int columns = Patch<Bf16>::columns;
    uint32_t factors[columns / 2];
    bool plain = true;  // no scale is special

    __device__ __forceinline__ ColumnFactors(const uint2* words, int row) {
        constexpr Bf16DecodeRule rule = bf16_decode_rule<E>();
#pragma unroll
        for (int v = 0; v < columns; v++) {
            const uint32_t byte = scale_byte_of(words[v], row), factor = bf16_e8m0_factor(rule, byte);
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

// The rows of a thread's patch, which it shares with 15 neighbouring lanes: where it writes, how many rows have codes, how
// many are written, and how many columns these have from the first lane's on.
template <class T>
struct PatchRows {
    static constexpr int lanes = 16;
    T* out;
    int filled, written, left;
    bool exists;  // the lane's first column does

    __device__ __forceinline__ PatchRows(T* half_tile, int64_t row_stride, const Patch<T>& patch, int rows, int out_rows,
                                         int cols)
        : out(half_tile + patch.offset(0, row_stride)),
          written(min(out_rows - patch.row, Patch<T>::rows)),
          left(cols - patch.column + int(threadIdx.x) % lanes * Patch<T>::columns),
          exists(patch.column < cols) {
        filled = min(rows - patch.row, written);
    }
    // Stores the vector of row i, if that is below `end`. All lanes of the warp call it.
    template <bool wide>
    __device__ __forceinline__ void store(const Vector<T>& vector, T* to, int i, int end, SpreadStore<T>& spread) const {
        if constexpr (wide)
            store_vector_wide(vector, to, exists && i < end);
        else
            spread.template store_rows<lanes>(vector, to, i < end ? left : 0);
    }
};

// Writes the rows that have codes.
template <bool wide, class T, class E, class Scales>
__device__ __forceinline__ void store_rows(const Arguments& a, const Patch<T>& patch, const PatchRows<T>& to,
                                           const Scales& scales, const Shared<E::bits>& shared, SpreadStore<T>& spread) {
    constexpr int half_rows = Patch<T>::rows / 2;
    const int piece = (int(threadIdx.y) * kTile + patch.row) / kPieceCodes;
    const int64_t row_stride = a.problem.out.row_stride;
    T* out = to.out;
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
        const HalfRows<T, E> rows(shared, patch.column, piece, half);
#pragma unroll
        for (int i = 0; i < half_rows; i++, out += row_stride)
            to.template store<wide>(scales.row_of(rows, i), out, half * half_rows + i, to.filled, spread);
    }
}

// Does the same by factors where that is possible; false: nothing was written.
template <class T, class E>
__device__ __forceinline__ bool store_rows_by_factors(const Arguments& a, const Patch<T>& patch, const PatchRows<T>& to,
                                                      const Shared<E::bits>& shared, SpreadStore<T>& spread) {
    if constexpr (E::bits < 8 && std::is_same_v<T, Bf16>) {
        if (a.problem.in.scale_type != ScaleType::E8M0 || !a.whole_vectors_out) return false;
        const ColumnFactors<E> factors(&shared.scales[threadIdx.y][patch.column], patch.row);
        if (factors.plain) store_rows<true, T, E>(a, patch, to, factors, shared, spread);
        return factors.plain;
    }
    return false;
}

// Writes the rows of a patch; those without codes are +0.
template <bool wide, class T, class E>
__device__ __forceinline__ void store_patch(const Arguments& a, const Patch<T>& patch, const PatchRows<T>& to, float global,
                                            const Shared<E::bits>& shared, SpreadStore<T>& spread) {
    if (!wide || !store_rows_by_factors<T, E>(a, patch, to, shared, spread)) {
        const uint2* const words = &shared.scales[threadIdx.y][patch.column];
        const ColumnScales<T, E> scales(a.problem.in.scale_type, global, words, patch.row);
        store_rows<wide, T, E>(a, patch, to, scales, shared, spread);
    }
#pragma unroll 1
    for (int row = 0; row < Patch<T>::rows; row++) {
        if (__all_sync(kAllLanes, row < to.filled || row >= to.written)) continue;
        T* const out = to.out + row * a.problem.out.row_stride;
        to.template store<wide>(Vector<T>{}, out, row, row < to.filled ? 0 : to.written, spread);
    }
}

template <class T, class E>
__device__ __forceinline__ void dequantize_tile(const Arguments& a, const DequantizeScope& scope, const ScaleLayout& layout,
                                                int row, int64_t col, Shared<E::bits>& shared, SpreadStore<T>& spread) {
    const QuantizedPart& in = a.problem.in;
    const uint8_t* from = scope.codes + col * in.line_bytes + int64_t(row) * E::bits / 8;
    const int lines = int(min(in.lines - col, int64_t(kTile))), filled = min(scope.rows - row, kRows);
    const int half_row = row + int(threadIdx.y) * kTile;  // of the threads' 128 rows
    if (a.whole_words_in)
        start_pieces<T>(from, in.line_bytes, lines, filled, shared);
    else load_shifted_pieces<T>(from, in.line_bytes, lines, filled, shared);
    if (half_row < scope.rows && !start_scales(in, layout, scope.scales, col, half_row, shared.scales[threadIdx.y]))
        load_scales(in, layout, scope.scales, col, half_row, shared.scales[threadIdx.y]);
    wait_for_pieces();
    __syncthreads();
    const Patch<T> patch(scope.out_rows - half_row, lines);
    T* const out = reinterpret_cast<T*>(scope.out) + half_row * a.problem.out.row_stride + col;
    const PatchRows<T> to(out, a.problem.out.row_stride, patch, scope.rows - half_row, scope.out_rows - half_row, lines);
    if (a.whole_vectors_out)
        store_patch<true, T, E>(a, patch, to, scope.global, shared, spread);
    else
        store_patch<false, T, E>(a, patch, to, scope.global, shared, spread);
}

// Describes what a block of threads works on: neighbouring tiles of one scope, from `row` on; of a matrix it is one tile.
struct TileRow {
    DequantizeScope scope;
    ScaleLayout layout;
    int32_t row;
    int64_t col, end;  // columns; none where there is no group
};

__device__ __forceinline__ TileRow tile_of_matrix(const Arguments& a, uint32_t line, int64_t across, int64_t element_bytes) {
    const DequantizeProblem& p = a.problem;
    const uint32_t expert = p.out.matrices == 1 ? 0 : line / a.down;
    return {scope_of_expert(p, expert, element_bytes), p.in.layout, int32_t((line - expert * a.down) << kRowsLog2),
            across * kTile, (across + 1) * kTile};
}

// Finds the tiles of a group tile, by one warp.
__device__ __forceinline__ void find_tiles_of_group(const Arguments& a, uint32_t group_tile, int64_t across,
                                                    int64_t element_bytes, TileRow& tiles) {
    const DequantizeProblem& p = a.problem;
    GroupSumUnits units = group_sum_units(p.in.units, {p.out.group_unit, 1});
    units.tile_rows_log2 = kRowsLog2;
    const Group group = find_group_tile(p.grouped, units, group_tile);
    if (threadIdx.x != 0) return;
    tiles.col = across * a.block_tiles * kTile;
    tiles.end = group.exists() ? min(tiles.col + a.block_tiles * kTile, p.out.cols) : 0;
    if (!group.exists()) return;
    tiles.scope = scope_of_group(p, group.first(), group.second().codes, group.rows, element_bytes);
    tiles.layout = group_layout(p.in, group.rows);
    tiles.row = int32_t((group_tile - group.first_group_tile) << kRowsLog2);
}

template <class T, class E>
__global__ void __launch_bounds__(kThreads<T>, 1024 / kThreads<T>)
    dequantize_columnwise_kernel(const __grid_constant__ Arguments a) {
    __shared__ Shared<E::bits> shared;
    __shared__ SpreadStore<T> spreads[kThreads<T> / 32];
    __shared__ TileRow tiles;  // not in registers, which patches need
    const uint32_t line = row_of_blocks(), across = blockIdx.x;
    if (line >= a.lines || across >= a.across) return;
    if (thread_index<T>() < 32) {
        if (a.problem.grouped.groups.set) find_tiles_of_group(a, line, across, sizeof(T), tiles);
        else if (threadIdx.x == 0) tiles = tile_of_matrix(a, line, across, sizeof(T));
    }
    __syncthreads();
#pragma unroll 1
    for (int64_t col = tiles.col; col < tiles.end; col += kTile) {
        dequantize_tile<T, E>(a, tiles.scope, tiles.layout, tiles.row, col, shared, spreads[thread_index<T>() / 32]);
        __syncthreads();
    }
}

struct Kernel {
    KernelTypes types;
    void (*function)(Arguments);
    bool (*writes_whole_vectors)(const PlainMatrix&);
    int32_t threads;
};

constexpr auto kernels = for_all_types([]<class T, class E>(T, E) -> Kernel {
    return {types_of<T, E>(), dequantize_columnwise_kernel<T, E>, is_wide<T>, Patch<T>::threads};
});

const Kernel& kernel_for(const DequantizeProblem& p) {
    for (const Kernel& kernel : kernels)
        if (kernel.types == KernelTypes{p.out.format, p.in.element}) return kernel;
    return kernels[0];  // not reached: there is a kernel for every pair of types
}

// Returns how many tiles of a group tile a block of threads takes: several where groups are so short on average that finding
// one takes as long as its tile.
int32_t tiles_of_block(const DequantizeProblem& p) {
    return int64_t(p.grouped.groups.count) * kRows > p.grouped.rows ? kMostTiles : 1;
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
    Arguments a{
        problem, 0, 0, 0, groups ? tiles_of_block(problem) : 1, is_word_wise(problem.in), kernel.writes_whole_vectors(out)};
    a.down = uint32_t(groups ? group_tiles_bound(problem.grouped, kRows) : ceil_div(out.rows, kRows));
    a.across = uint32_t(ceil_div(out.cols, kTile * a.block_tiles));
    a.lines = uint32_t(out.matrices) * a.down;
    launch(context, kernel.function, "dequantize_columnwise", grid_of_rows(a.across, a.lines), dim3(kernel.threads, kHalves),
           0, call.stream, a);
}

void load(const Context&) {
    for (const Kernel& kernel : kernels) load_kernel(kernel.function);
}

}  // namespace

const DequantizeImplementation dequantize_columnwise = {"dequantize_columnwise", declines, nullptr, run, load};

}  // namespace mxq::cuda
