// dequantize_columnwise: a columnwise part to F32, F16 or BF16; 1x32 or 32x32, compact or swizzled scales.
//
// The mirror of quantize_tile on the same tiles and patches (tiles.cuh): 128 x 128 codes are read as 128-byte segments of
// the transposed lines and cross as pieces through shared memory; a thread takes 16 rows of its 8 columns (F32: 4), picks
// the codes of a row out of its pieces byte by byte, and writes 16 bytes of it; a warp 256 contiguous bytes of two rows.
//
// Bytes an element: 1.03 read, 2 or 4 written; bound by memory.
#include "cuda/access.cuh"
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/tiles.cuh"
#include "cuda/types.cuh"

namespace mxq::cuda {
namespace {

struct Arguments {
    DequantizeProblem problem;
    Tiles tiles;
    bool wide_in, wide_out;
};

struct Shared {
    uint4 pieces[kTile * kLinePieces];
    uint32_t scales[kTile];  // scale words by line
};

// Codes of the transposed matrix to pieces, eight lanes a line.
template <class T>
__device__ __forceinline__ void load_pieces(const Arguments& a, const Tile& tile, Shared& shared) {
    const QuantizedPart& part = a.problem.in;
    const uint8_t* from = part.codes + (tile.matrix * part.lines + tile.col) * part.length + tile.row;
    const int lines = int(min(part.lines - tile.col, int64_t(kTile)));
    const int length = int(min(part.length - tile.row, int64_t(kTile)));
    if (a.wide_in) {
        constexpr int count = kTile * kLinePieces / Patch<T>::threads;
        uint4 pieces[count];
#pragma unroll
        for (int j = 0; j < count; j++) {
            const int i = j * Patch<T>::threads + threadIdx.x, line = i / kLinePieces, piece = i % kLinePieces;
            const bool exists = line < lines && piece * kPieceCodes < length;
            const auto* at = reinterpret_cast<const uint4*>(from + line * part.length + piece * kPieceCodes);
            pieces[j] = exists ? __ldcs(at) : uint4{};
        }
#pragma unroll
        for (int j = 0; j < count; j++) {
            const int i = j * Patch<T>::threads + threadIdx.x;
            shared.pieces[piece_slot<T>(i / kLinePieces, i % kLinePieces)] = pieces[j];
        }
        return;
    }
    auto* bytes = reinterpret_cast<uint8_t*>(shared.pieces);
    for (int i = threadIdx.x; i < kTile * kTile; i += Patch<T>::threads) {
        const int line = i / kTile, code = i % kTile, slot = piece_slot<T>(line, code / kPieceCodes);
        const bool exists = line < lines && code < length;
        bytes[slot * kPieceCodes + code % kPieceCodes] = exists ? from[line * part.length + code] : 0;
    }
}

// Codes of row i of two neighbouring columns, the first in the low byte.
__device__ __forceinline__ uint32_t codes_of_row(const uint32_t (&first)[4], const uint32_t (&second)[4], int i) {
    return __byte_perm(first[i / 4], second[i / 4], (4 + i % 4) << 4 | i % 4) & 0xFFFF;
}

template <class T, class E>
__global__ void __launch_bounds__(Patch<T>::threads)
    dequantize_columnwise_kernel(const __grid_constant__ Arguments a) {
    __shared__ Shared shared;
    constexpr int columns = Patch<T>::columns;
    const int64_t index = block_index();
    if (index >= a.tiles.count()) return;
    const Tile tile(a.tiles, index);
    const Patch<T> patch(a.tiles, tile);
    load_tile_scales(a.problem.in, tile.matrix, tile.col, tile.row / kMxBlock, shared.scales);
    load_pieces<T>(a, tile, shared);
    __syncthreads();

    uint32_t codes[columns][4];
    float scales[columns];
#pragma unroll
    for (int v = 0; v < columns; v++) {
        const int line = patch.column + v;
        const uint4 piece = shared.pieces[piece_slot<T>(line, patch.row / kPieceCodes)];
        codes[v][0] = piece.x, codes[v][1] = piece.y, codes[v][2] = piece.z, codes[v][3] = piece.w;
        scales[v] = scale_value(shared.scales[line] >> (patch.row / kMxBlock * 8) & 0xFF);
    }
#pragma unroll
    for (int i = 0; i < Patch<T>::rows; i++) {
        float values[columns];
#pragma unroll
        for (int v = 0; v < columns; v += 2) {
            const float2 pair = dequantize_pair<E>(codes_of_row(codes[v], codes[v + 1], i), scales[v], scales[v + 1]);
            values[v] = pair.x;
            values[v + 1] = pair.y;
        }
        const PlainMatrix& out = a.problem.out;
        store_chunk(round_chunk<T>(values), a.wide_out, static_cast<T*>(out.data), out.row_stride, patch, i);
    }
}

std::string declines(const Context& context, const DequantizeProblem& problem) {
    if (!problem.columnwise) return "needs a columnwise part, found a rowwise one";
    return needs_cuda(context);
}

template <class T, class E>
void run_types(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    const Arguments a{problem, Tiles(problem.out), is_wide(problem.in, kPieceCodes), is_wide<T>(problem.out)};
    launch(context, dequantize_columnwise_kernel<T, E>, "dequantize_columnwise", a.tiles.grid(), dim3(Patch<T>::threads), 0,
           call.stream, a);
}

void run(const Context& context, const DequantizeProblem& problem, const Launch& call) {
    with_types(problem.out.format, problem.format,
               [&]<class T, class E>(T, E) { run_types<T, E>(context, problem, call); });
}

}  // namespace

const DequantizeImplementation dequantize_columnwise = {"dequantize_columnwise", declines, nullptr, run};

void load_dequantize_columnwise() {
    with_all_types([]<class T, class E>(T, E) {
        load_kernel(reinterpret_cast<const void*>(dequantize_columnwise_kernel<T, E>), 0);
    });
}

}  // namespace mxq::cuda
