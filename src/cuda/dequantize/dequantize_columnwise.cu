// dequantize_columnwise: a columnwise part of any format to F32, F16 or BF16; compact or swizzled scales, experts, groups.
//
// A block of threads takes tiles of 256 x 128 elements, each read and written once.
//
//     codes in memory     lines of the transposed matrix: 256, 192 or 128 bytes of a tile, read as words or byte by byte. With
//                         half as much of a line at once, memory gives a twentieth less (docs/performance.md)
//     shared memory       pieces: 16 codes of a line, 16 pieces a line; the scales of 128 lines, twice 4 or 8 bytes or one fp32
//     registers           a patch of the output: 16 rows of 8 columns (F32: 4)
//
//                      lane 0    lane 1        lane 15     columns 16 * (8 or 4); F32: warps 4..7 take the right half
//         rows 0..15   [vector]  [vector] ...  [vector] }
//         rows 16..31  lane 16   lane 17  ...  lane 31  }  warp 0; warps 1, 2, 3 the 32 rows after
//         rows 128 on                                      threads of threadIdx.y 1
//
// A thread unpacks half a piece of each of its columns to a byte per code, picks the codes of a row out of them, and writes the
// 16 bytes of the row: a warp writes 256 contiguous bytes of two rows.
//
// With groups, a tile lies in one group tile, 256 rows of one group; a block of threads takes some neighbouring tiles of it.
// The rows that pad the output are +0.
//
// Bytes an element: 0.5 to 1.06 read, 2 or 4 written; bound by memory.
#include "cuda/dequantize/dequantize.cuh"
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/tile/patch.cuh"

namespace mxq::cuda {
namespace {

constexpr int kRowsLog2 = 8, kRows = 1 << kRowsLog2;  // of a tile
constexpr int kHalves = kRows / kTile;                 // rows of threads, a patch of 128 rows each
constexpr int kPieces = kRows / kPieceCodes;           // of a line
constexpr int kBlockTiles = 4;                // of a group tile that a block of threads takes

struct Arguments {
    DequantizeProblem problem;
    int64_t down, across;    // tiles of a matrix; with groups, group tiles of all groups and blocks of threads of one
    int64_t blocks;          // of threads
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
__device__ __forceinline__ int slot_of_piece(int line, int piece) {
    return line * kPieces + (piece ^ (line / Patch<T>::columns % kPieces));
}

// Describes what one access reads of a line: a piece of 16 or 8 bytes, or a word of six-bit codes.
template <int bits>
using Access = std::conditional_t<bits == 8, uint4, std::conditional_t<bits == 6, uint32_t, uint2>>;

// Loads a tile's codes as pieces, word by word; neighbouring lanes read neighbouring words of a line.
template <class T, int bits>
__device__ __forceinline__ void load_pieces_by_words(const uint8_t* from, int64_t line_bytes, int lines, int length,
                                                     Shared<bits>& shared) {
    using Word = Access<bits>;
    constexpr int of_piece = bits == 6 ? 3 : 1, of_line = kPieces * of_piece;
    constexpr int batch = bits == 6 ? 4 : kTile * kPieces / kThreads<T>;
    auto* slots = reinterpret_cast<Word*>(shared.pieces);
#pragma unroll 1
    for (int first = thread_index<T>(); first < kTile * of_line; first += batch * kThreads<T>) {
        Word words[batch];
#pragma unroll
        for (int j = 0; j < batch; j++) {
            const int i = first + j * kThreads<T>, line = i / of_line, word = i % of_line;
            const bool exists = line < lines && word / of_piece * kPieceCodes < length;
            // Loads as a plain access would, but where it stands: the compiler moves plain ones, and then it spills.
            words[j] = exists ? __ldca(reinterpret_cast<const Word*>(from + line * line_bytes) + word) : Word{};
        }
#pragma unroll
        for (int j = 0; j < batch; j++) {
            const int i = first + j * kThreads<T>, line = i / of_line, word = i % of_line;
            slots[slot_of_piece<T>(line, word / of_piece) * of_piece + word % of_piece] = words[j];
        }
    }
}

// Loads a tile's codes as pieces, byte by byte, from lines of any alignment.
template <class T, int bits>
__device__ __forceinline__ void load_pieces_by_bytes(const uint8_t* from, int64_t line_bytes, int lines, int length,
                                                     Shared<bits>& shared) {
    constexpr int piece_bytes = kPieceCodes * bits / 8, of_line = kPieces * piece_bytes;
    const int valid = (length * bits + 7) / 8;
    auto* bytes = reinterpret_cast<uint8_t*>(shared.pieces);
#pragma unroll 4
    for (int i = thread_index<T>(); i < kTile * of_line; i += kThreads<T>) {
        const int line = i / of_line, byte = i % of_line;
        bytes[slot_of_piece<T>(line, byte / piece_bytes) * piece_bytes + byte % piece_bytes] =
            line < lines && byte < valid ? from[line * line_bytes + byte] : 0;
    }
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

// Returns the codes of row i of two neighbouring columns, the first in the low byte.
__device__ __forceinline__ uint32_t codes_of_row(const Codes<8>& first, const Codes<8>& second, int i) {
    return __byte_perm(first.words[i / 4], second.words[i / 4], (4 + i % 4) << 4 | i % 4) & 0xFFFF;
}

// Returns half of a piece, a byte per code.
template <class T, int bits>
__device__ __forceinline__ Codes<8> load_half(const Shared<bits>& shared, int line, int piece, int half) {
    const uint32_t* from = shared.pieces + slot_of_piece<T>(line, piece) * Shared<bits>::piece_words;
    if constexpr (bits == 8) {
        const uint2 codes = reinterpret_cast<const uint2*>(from)[half];
        return {{codes.x, codes.y}};
    } else if constexpr (bits == 6) {
        const uint32_t low = from[half], high = from[half + 1];
        return unpack(Packed<6, 8>{{__funnelshift_r(low, high, half * 16), high >> (half * 16)}});
    } else {
        return unpack(Packed<4, 8>{{from[half]}});
    }
}

// Writes a patch; `filled` of its rows have codes, the others are +0. out: the first element of the threads' 128 rows.
template <class T, class E>
__device__ __forceinline__ void store_patch(const Arguments& a, T* out, const Patch<T>& patch, int filled, float global,
                                            const Shared<E::bits>& shared) {
    constexpr int columns = Patch<T>::columns, half_rows = Patch<T>::rows / 2;
    const int first_piece = (int(threadIdx.y) * kTile + patch.row) / kPieceCodes;
    float scales[columns];
#pragma unroll
    for (int v = 0; v < columns; v++)
        scales[v] = scale_of(a.problem.in.scale_type, shared.scales[threadIdx.y][patch.column + v], patch.row);
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
        Codes<8> codes[columns];
#pragma unroll
        for (int v = 0; v < columns; v++) codes[v] = load_half<T>(shared, patch.column + v, first_piece, half);
#pragma unroll
        for (int i = 0; i < half_rows; i++) {
            const int row = half * half_rows + i;
            float values[columns];
#pragma unroll
            for (int v = 0; v < columns; v += 2) {
                const uint32_t pair_codes = codes_of_row(codes[v], codes[v + 1], i);
                const float2 pair = decode_scaled_pair<E>(pair_codes, scales[v], scales[v + 1], global);
                values[v] = pair.x;
                values[v + 1] = pair.y;
            }
            const Vector<T> vector = row < filled ? round_vector<T>(values) : Vector<T>{};
            store_vector(vector, a.whole_vectors_out, out, a.problem.out.row_stride, patch, row);
        }
    }
}

template <class T, class E>
__device__ __forceinline__ void dequantize_tile(const Arguments& a, const DequantizeScope& scope, const ScaleLayout& layout,
                                                int row, int64_t col, Shared<E::bits>& shared) {
    const QuantizedPart& in = a.problem.in;
    const uint8_t* from = scope.codes + col * in.line_bytes + int64_t(row) * E::bits / 8;
    const int lines = int(min(in.lines - col, int64_t(kTile))), filled = min(scope.rows - row, kRows);
    const int half_row = row + int(threadIdx.y) * kTile;  // of the threads' 128 rows
    if (half_row < scope.rows) load_scales(in, layout, scope.scales, col, half_row, shared.scales[threadIdx.y]);
    if (a.whole_words_in) load_pieces_by_words<T>(from, in.line_bytes, lines, filled, shared);
    else load_pieces_by_bytes<T>(from, in.line_bytes, lines, filled, shared);
    __syncthreads();
    const Patch<T> patch(scope.out_rows - half_row, lines);
    T* out = reinterpret_cast<T*>(scope.out) + half_row * a.problem.out.row_stride + col;
    store_patch<T, E>(a, out, patch, scope.rows - half_row - patch.row, scope.global, shared);
}

// Describes what a block of threads works on: neighbouring tiles of one scope, from `row` on; of a matrix it is one tile.
struct TileRow {
    DequantizeScope scope;
    ScaleLayout layout;
    int32_t row;
    int64_t col, end;  // columns; none where there is no group
};

__device__ __forceinline__ TileRow tile_of_matrix(const Arguments& a, int64_t line, int64_t across, int64_t element_bytes) {
    const DequantizeProblem& p = a.problem;
    const int64_t expert = p.out.matrices == 1 ? 0 : line / a.down;
    return {scope_of_expert(p, expert, element_bytes), p.in.layout, int32_t((line - expert * a.down) << kRowsLog2),
            across * kTile, (across + 1) * kTile};
}

// Finds the tiles of a group tile, by one warp.
__device__ __forceinline__ void find_tiles_of_group(const Arguments& a, int64_t group_tile, int64_t across,
                                                    int64_t element_bytes, TileRow& tiles) {
    const DequantizeProblem& p = a.problem;
    GroupSumUnits units = group_sum_units(p.in.units, {p.out.group_unit, 1});
    units.tile_rows_log2 = kRowsLog2;
    const Group group = find_group_tile(p.grouped, units, uint32_t(group_tile));
    if (threadIdx.x != 0) return;
    tiles.col = across * kBlockTiles * kTile;
    tiles.end = group.exists() ? min(tiles.col + kBlockTiles * kTile, p.out.cols) : 0;
    if (!group.exists()) return;
    tiles.scope = scope_of_group(p, group.first(), group.second().codes, group.rows, element_bytes);
    tiles.layout = group_layout(p.in, group.rows);
    tiles.row = int32_t((group_tile - group.first_group_tile) << kRowsLog2);
}

template <class T, class E>
__global__ void __launch_bounds__(kThreads<T>, 1024 / kThreads<T>)
    dequantize_columnwise_kernel(const __grid_constant__ Arguments a) {
    __shared__ Shared<E::bits> shared;
    __shared__ TileRow tiles;  // not in registers, which patches need
    const int64_t index = block_index(), line = index / a.across, across = index - line * a.across;
    if (index >= a.blocks) return;
    if (thread_index<T>() < 32) {
        if (a.problem.grouped.groups.set) find_tiles_of_group(a, line, across, sizeof(T), tiles);
        else if (threadIdx.x == 0) tiles = tile_of_matrix(a, line, across, sizeof(T));
    }
    __syncthreads();
#pragma unroll 1
    for (int64_t col = tiles.col; col < tiles.end; col += kTile) {
        dequantize_tile<T, E>(a, tiles.scope, tiles.layout, tiles.row, col, shared);
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

Reason declines(const Context& context, const DequantizeProblem& problem) {
    if (!problem.columnwise) return "needs a columnwise part, found a rowwise one";
    if (problem.in.transformed) return "needs no transform, found a Hadamard transform";
    return needs_cuda(context);
}

void run(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    const Kernel& kernel = kernel_for(problem);
    const bool groups = problem.grouped.set();
    const PlainMatrix& out = problem.out;
    Arguments a{problem, 0, 0, 0, is_word_wise(problem.in), kernel.writes_whole_vectors(out)};
    a.down = groups ? group_tiles_bound(problem.grouped, kRows) : ceil_div(out.rows, kRows);
    a.across = ceil_div(out.cols, groups ? kTile * kBlockTiles : kTile);
    a.blocks = out.matrices * a.down * a.across;
    launch(context, kernel.function, "dequantize_columnwise", grid_of(a.blocks), dim3(kernel.threads, kHalves), 0, call.stream, a);
}

void load(const Context&) {
    for (const Kernel& kernel : kernels) load_kernel(kernel.function);
}

}  // namespace

const DequantizeImplementation dequantize_columnwise = {"dequantize_columnwise", declines, nullptr, run, load};

}  // namespace mxq::cuda
