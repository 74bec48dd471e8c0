// dequantize_columnwise: a columnwise part of any format to F32, F16 or BF16; compact or swizzled scales, experts, groups.
//
// A block of threads takes tiles of 128 x 128 elements, each read and written once. Codes come as 128, 96 or 64 bytes of the
// transposed lines and cross as pieces of 16 through shared memory. A thread takes a patch, 16 rows of 8 columns (F32: 4):
//
//                 lane 0    lane 1        lane 15     columns 16 * (8 or 4); F32: warps 4..7 take the right half
//     rows 0..15  [chunk]   [chunk]  ...  [chunk]  }
//     rows 16..31  lane 16   lane 17 ...   lane 31 }  warp 0; warps 1, 2, 3 the 32 rows after
//
// It unpacks half a piece of each of its columns to a byte per code, picks the codes of a row out of them, and writes 16 bytes
// of it; a warp 256 contiguous bytes of two rows. The scales of a tile cross in shared memory too: a line's 4 or 8 bytes, or
// one fp32 number.
//
// With groups, a tile lies in one group: 128 of its rows; a block of threads takes some neighbouring tiles of them. The rows
// that pad the output are +0.
//
// Bytes an element: 0.5 to 1.06 read, 2 or 4 written; bound by memory.
#include "cuda/memory/decode.cuh"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/device.h"
#include "cuda/implementations.h"

namespace mxq::cuda {
namespace {

constexpr int kSide = 128;        // of a tile
constexpr int kPiece = 16;        // codes
constexpr int kLinePieces = kSide / kPiece;
constexpr int kGroupTiles = 4;    // that a block of threads takes of a group

struct Arguments {
    DequantizeProblem problem;
    int64_t down, across;  // tiles; with groups, down is of all groups and across counts blocks of threads
    int64_t blocks;        // of threads
    bool wide_in, wide_out;
};

// A matrix, or a group of one: where its codes, scales and rows begin, and how many rows have codes and places.
struct Region {
    const uint8_t* codes;
    const uint8_t* scales;
    uint8_t* out;
    int64_t rows, out_rows;
    float global;
};

template <int bits>
struct Shared {
    static constexpr int piece_words = bits / 2;
    alignas(16) uint32_t pieces[kSide * kLinePieces * piece_words];
    uint2 scales[kSide];
};

// What a thread holds; a place in the sense of memory/elements.cuh, access i being row i of the patch.
template <class T>
struct Patch {
    static constexpr int columns = Chunk<T>::count;
    static constexpr int rows = kPiece;
    static constexpr int threads = kSide * kSide / (rows * columns);

    int row, column;  // in the tile
    int64_t first_row, first_column;
    int filled, existing, existing_columns;

    __device__ __forceinline__ Patch(const Region& region, int64_t cols, int64_t tile_row, int64_t tile_column)
        : row(threadIdx.x / 32 % 4 * 32 + threadIdx.x % 32 / 16 * rows),
          column(threadIdx.x / kSide * 16 * columns + threadIdx.x % 16 * columns), first_row(tile_row + row),
          first_column(tile_column + column) {
        existing_columns = int(min(max(cols - first_column, int64_t(0)), int64_t(columns)));
        filled = int(min(max(region.rows - first_row, int64_t(0)), int64_t(rows)));
        existing = existing_columns == 0 ? 0 : int(min(max(region.out_rows - first_row, int64_t(0)), int64_t(rows)));
    }
    __device__ __forceinline__ bool exists(int i) const { return i < existing; }
    __device__ __forceinline__ int valid(int i) const { return exists(i) ? existing_columns : 0; }
    __device__ __forceinline__ int64_t offset(int i, int64_t stride) const { return (first_row + i) * stride + first_column; }
};

// Which of a line's slots holds a piece: so moved that lanes meet different banks, both when they hold one piece of every
// `columns`-th line and when they hold the pieces of one line.
template <class T>
__device__ __forceinline__ int piece_slot(int line, int piece) {
    return line * kLinePieces + (piece ^ (line / Patch<T>::columns % kLinePieces));
}

// A part of a tile's line that is one access: a piece of 16 or 8 bytes, or a word of six-bit codes.
template <int bits>
using Access = std::conditional_t<bits == 8, uint4, std::conditional_t<bits == 6, uint32_t, uint2>>;

// Codes of the transposed matrix to pieces; neighbouring lanes read neighbouring parts of a line.
template <class T, int bits>
__device__ __forceinline__ void load_pieces_wide(const uint8_t* from, int64_t line_bytes, int lines, int length,
                                                 Shared<bits>& shared) {
    using Word = Access<bits>;
    constexpr int of_piece = bits == 6 ? 3 : 1, of_line = kLinePieces * of_piece;
    constexpr int batch = bits == 6 ? 4 : kSide * kLinePieces / Patch<T>::threads;
    auto* slots = reinterpret_cast<Word*>(shared.pieces);
#pragma unroll 1
    for (int first = threadIdx.x; first < kSide * of_line; first += batch * Patch<T>::threads) {
        Word words[batch];
#pragma unroll
        for (int j = 0; j < batch; j++) {
            const int i = first + j * Patch<T>::threads, line = i / of_line, word = i % of_line;
            const bool exists = line < lines && word / of_piece * kPiece < length;
            words[j] = exists ? __ldcs(reinterpret_cast<const Word*>(from + line * line_bytes) + word) : Word{};
        }
#pragma unroll
        for (int j = 0; j < batch; j++) {
            const int i = first + j * Patch<T>::threads, line = i / of_line, word = i % of_line;
            slots[piece_slot<T>(line, word / of_piece) * of_piece + word % of_piece] = words[j];
        }
    }
}

template <class T, int bits>
__device__ __forceinline__ void load_pieces_narrow(const uint8_t* from, int64_t line_bytes, int lines, int length,
                                                   Shared<bits>& shared) {
    constexpr int piece_bytes = kPiece * bits / 8, of_line = kLinePieces * piece_bytes;
    const int valid = (length * bits + 7) / 8;
    auto* bytes = reinterpret_cast<uint8_t*>(shared.pieces);
#pragma unroll 4
    for (int i = threadIdx.x; i < kSide * of_line; i += Patch<T>::threads) {
        const int line = i / of_line, byte = i % of_line;
        bytes[piece_slot<T>(line, byte / piece_bytes) * piece_bytes + byte % piece_bytes] =
            line < lines && byte < valid ? from[line * line_bytes + byte] : 0;
    }
}

// The scales of a tile's lines as stored: of up to eight blocks a byte each, or one number. The loop follows the layout's
// order, so that a swizzled tile is 512 bytes in a row.
__device__ __forceinline__ void load_scales(const QuantizedPart& part, const ScaleLayout& layout, const uint8_t* scales,
                                            int64_t first_line, int64_t first_code, uint2 (&words)[kSide]) {
    const int64_t column = uint32_t(first_code) / uint32_t(layout.block);
    for (int i = threadIdx.x; i < kSide; i += blockDim.x) {
        const int in_tile = layout.swizzled ? i % 4 * 32 + i / 4 : i;
        const int64_t line = first_line + in_tile;
        uint2 word{};
        if (line < part.lines) {
            const int64_t at = layout.offset(0, line, column);
            if (layout.bytes == 4) {
                word.x = reinterpret_cast<const uint32_t*>(scales)[at];
            } else if (layout.block == kWideBlock) {
                word.x = scales[at] * 0x01010101u;
            } else {
                word.x = load_scale_word(scales + at, layout.columns - column);
                if (layout.block == kNvBlock && column + 4 < layout.columns)
                    word.y = load_scale_word(scales + layout.offset(0, line, column + 4), layout.columns - column - 4);
            }
        }
        words[in_tile] = word;
    }
}

// The value of a line's scale for the codes from `row` of the tile on.
__device__ __forceinline__ float scale_of(ScaleType type, uint2 words, int row) {
    if (type == ScaleType::F32) return bits_float(words.x);
    const int place = type == ScaleType::E4M3 ? row / int(kNvBlock) : row / int(kMxBlock);
    return scale_of_byte(type, (place < 4 ? words.x : words.y) >> (place % 4 * 8) & 0xFF);
}

// Codes of row i of two neighbouring columns, the first in the low byte.
__device__ __forceinline__ uint32_t codes_of_row(const Codes<8>& first, const Codes<8>& second, int i) {
    return __byte_perm(first.words[i / 4], second.words[i / 4], (4 + i % 4) << 4 | i % 4) & 0xFFFF;
}

// Half of a piece.
template <class T, int bits>
__device__ __forceinline__ Codes<8> load_half(const Shared<bits>& shared, int line, int piece, int half) {
    const uint32_t* from = shared.pieces + piece_slot<T>(line, piece) * Shared<bits>::piece_words;
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

template <class T, class E>
__device__ __forceinline__ void store_patch(const Arguments& a, const Region& region, const Patch<T>& patch,
                                            const Shared<E::bits>& shared) {
    constexpr int columns = Patch<T>::columns, half_rows = Patch<T>::rows / 2;
    const PlainMatrix& out = a.problem.out;
    float scales[columns];
#pragma unroll
    for (int v = 0; v < columns; v++)
        scales[v] = scale_of(a.problem.in.scale_type, shared.scales[patch.column + v], patch.row);
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
        Codes<8> codes[columns];
#pragma unroll
        for (int v = 0; v < columns; v++) codes[v] = load_half<T>(shared, patch.column + v, patch.row / kPiece, half);
#pragma unroll
        for (int i = 0; i < half_rows; i++) {
            const int row = half * half_rows + i;
            float values[columns];
#pragma unroll
            for (int v = 0; v < columns; v += 2) {
                const uint32_t pair_codes = codes_of_row(codes[v], codes[v + 1], i);
                const float2 pair = decode_scaled_pair<E>(pair_codes, scales[v], scales[v + 1], region.global);
                values[v] = pair.x;
                values[v + 1] = pair.y;
            }
            const Chunk<T> chunk = row < patch.filled ? round_chunk<T>(values) : Chunk<T>{};
            store_chunk(chunk, a.wide_out, reinterpret_cast<T*>(region.out), out.row_stride, patch, row);
        }
    }
}

template <class T, class E>
__device__ __forceinline__ void dequantize_tile(const Arguments& a, const Region& region, const ScaleLayout& layout,
                                                int64_t row, int64_t col, Shared<E::bits>& shared) {
    const QuantizedPart& in = a.problem.in;
    const uint8_t* from = region.codes + col * in.line_bytes + row * E::bits / 8;
    const int lines = int(min(in.lines - col, int64_t(kSide))), length = int(min(region.rows - row, int64_t(kSide)));
    load_scales(in, layout, region.scales, col, row, shared.scales);
    if (a.wide_in) load_pieces_wide<T>(from, in.line_bytes, lines, length, shared);
    else load_pieces_narrow<T>(from, in.line_bytes, lines, length, shared);
    __syncthreads();
    store_patch<T, E>(a, region, Patch<T>(region, a.problem.out.cols, row, col), shared);
}

// Where a block of threads works: one tile of a matrix, or some tiles of 128 rows of a group.
struct Work {
    Region region;
    ScaleLayout layout;
    int64_t row, col, end;  // columns
};

__device__ __forceinline__ Work work_on_matrix(const Arguments& a, int64_t line, int64_t across, int64_t element_bytes) {
    const DequantizeProblem& p = a.problem;
    const int64_t matrix = p.out.matrices == 1 ? 0 : line / a.down, out_row = matrix * p.out.rows * p.out.row_stride;
    const Region region = {p.in.line(matrix, 0), p.in.scales + matrix * p.in.layout.matrix_scales * p.in.layout.bytes,
                           static_cast<uint8_t*>(p.out.data) + out_row * element_bytes, p.out.rows, p.out.rows,
                           global_scale(p.in, matrix)};
    return {region, p.in.layout, (line - matrix * a.down) * kSide, across * kSide, (across + 1) * kSide};
}

// No columns where the slab is in no group.
__device__ __forceinline__ void work_on_group(const Arguments& a, int64_t slab, int64_t across, int64_t element_bytes,
                                              Work& work) {
    const DequantizeProblem& p = a.problem;
    const Group group = group_of_slab(p.grouped, p.in.units, {p.out.group_unit, 1}, slab);
    if (threadIdx.x != 0) return;
    const int64_t out_row = group.second.codes * p.out.row_stride, col = across * kGroupTiles * kSide;
    const Region region = {group_codes(p.in, group.first), group_scales(p.in, group.first),
                           static_cast<uint8_t*>(p.out.data) + out_row * element_bytes, group.rows,
                           round_up(group.rows, p.out.group_unit),
                           group.exists() ? global_scale(p.in, group.first.index) : 1.0f};
    work = {region, group_layout(p.in, group.rows), (slab - group.slab) * kSide, col,
            group.exists() ? min(col + kGroupTiles * kSide, p.out.cols) : 0};
}

template <class T, class E>
__global__ void __launch_bounds__(Patch<T>::threads, 1024 / Patch<T>::threads)
    dequantize_columnwise_kernel(const __grid_constant__ Arguments a) {
    __shared__ Shared<E::bits> shared;
    __shared__ Work work;  // not in registers, which patches need
    const int64_t index = block_index(), line = index / a.across, across = index - line * a.across;
    if (index >= a.blocks) return;
    if (a.problem.grouped.groups.set) work_on_group(a, line, across, sizeof(T), work);
    else if (threadIdx.x == 0) work = work_on_matrix(a, line, across, sizeof(T));
    __syncthreads();
#pragma unroll 1
    for (int64_t col = work.col; col < work.end; col += kSide) {
        dequantize_tile<T, E>(a, work.region, work.layout, work.row, col, shared);
        __syncthreads();
    }
}

Reason declines(const Context& context, const DequantizeProblem& problem) {
    if (!problem.columnwise) return "needs a columnwise part, found a rowwise one";
    return needs_cuda(context);
}

template <class T, class E>
void run_types(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    const bool groups = problem.grouped.set();
    const PlainMatrix& out = problem.out;
    Arguments a{problem, 0, 0, 0, is_word_wise(problem.in), is_wide<T>(out)};
    a.down = groups ? slabs_bound(problem.grouped) : ceil_div(out.rows, kSide);
    a.across = ceil_div(out.cols, groups ? kSide * kGroupTiles : kSide);
    a.blocks = out.matrices * a.down * a.across;
    launch(context, dequantize_columnwise_kernel<T, E>, "dequantize_columnwise", grid_of(a.blocks), dim3(Patch<T>::threads), 0,
           call.stream, a);
}

void run(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    with_types(problem.out.format, problem.in.element,
                       [&]<class T, class E>(T, E) { run_types<T, E>(context, problem, call); });
}

void load(const Context&) {
    with_all_types([]<class T, class E>(T, E) {
        load_kernel(reinterpret_cast<const void*>(dequantize_columnwise_kernel<T, E>), 0);
    });
}

}  // namespace

const DequantizeImplementation dequantize_columnwise = {"dequantize_columnwise", declines, nullptr, run, load};

}  // namespace mxq::cuda
