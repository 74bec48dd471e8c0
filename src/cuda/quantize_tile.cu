// quantize_tile: F32, F16 or BF16 to the columnwise part, to both parts from one read, and to 32x32 tiles.
//
// A block of threads takes a tile of 128 x 128; who holds what: tiles.cuh. A patch stays in registers from its one read to
// its last use:
//
//     column maxima  16 rows in the thread, then one exchange with lane ^ 16
//     row maxima     a chunk in the thread, then over the 4 lanes (F32: 8) of a block; each lane keeps a share of the rows
//     32x32          both, to one maximum
//     row codes      from registers to memory: 128 contiguous bytes a row (F32: 64)
//     column codes   as pieces through shared memory, then as 128-byte segments of the transposed lines
//     scales         as words through shared memory, then 512 contiguous bytes (swizzled, padding included) or 4 a line
//
// Bytes an element: 2 or 4 read once, 1.03 written for each part. Bound by memory: 16 loads of 16 bytes in flight a thread
// need no copy engine and no second stage, since four blocks share an SM and are at different steps.
#include "cuda/access.cuh"
#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/tiles.cuh"
#include "cuda/types.cuh"

namespace mxq::cuda {
namespace {

struct Arguments {
    QuantizeProblem problem;
    Tiles tiles;
    bool wide_in, wide_rowwise, wide_columnwise;
};

// Threads that share an SM: what 64 registers of data leave room for. Below sm_89 codes are rounded in software, which
// takes more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kSmThreads = 384;
#else
constexpr int kSmThreads = 512;
#endif

template <class T>
constexpr int kSmBlocks = (kSmThreads + Patch<T>::threads - 1) / Patch<T>::threads;

template <class T>
using PatchChunks = Chunk<T>[Patch<T>::rows];

// What a thread knows of scales: of the 32 rows of each of its columns, and of the rows that it keeps,
// lane % block_lanes + i * block_lanes.
template <class T>
struct PatchScales {
    static constexpr int rows = Patch<T>::rows / Patch<T>::block_lanes;
    uint32_t columnwise[Patch<T>::columns];
    uint32_t rowwise[rows];
};

struct Shared {
    uint4 pieces[kTile * kLinePieces];
    uint32_t rowwise_scales[kTile], columnwise_scales[kTile];  // scale words by line
};

template <class T, Nonfinite policy>
__device__ __forceinline__ void column_maxima(const PatchChunks<T>& chunks, uint32_t (&maxima)[Patch<T>::columns]) {
    constexpr int per_word = Patch<T>::columns / 4;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        uint32_t largest = magnitudes<T, policy>(chunks[0].words[w]);
#pragma unroll
        for (int i = 1; i < Patch<T>::rows; i++) largest = larger<T>(largest, magnitudes<T, policy>(chunks[i].words[w]));
        largest = larger<T>(largest, __shfl_xor_sync(kAllLanes, largest, 16));
#pragma unroll
        for (int i = 0; i < per_word; i++) maxima[w * per_word + i] = magnitude_bits<T>(largest, i);
    }
}

template <class T, Nonfinite policy>
__device__ __forceinline__ void row_maxima(const PatchChunks<T>& chunks, uint32_t (&kept)[PatchScales<T>::rows]) {
    uint32_t maxima[Patch<T>::rows];
#pragma unroll
    for (int i = 0; i < Patch<T>::rows; i++) maxima[i] = largest_bits<T>(chunk_magnitudes<T, policy>(chunks[i]));
    reduce_lanes<Patch<T>::block_lanes>(maxima);
#pragma unroll
    for (int i = 0; i < PatchScales<T>::rows; i++) kept[i] = maxima[i];
}

// Block maxima, as far as the problem needs them.
template <class T, Nonfinite policy>
__device__ __forceinline__ PatchScales<T> block_maxima(const QuantizeProblem& problem, const PatchChunks<T>& chunks) {
    PatchScales<T> maxima{};
    if (problem.has_columnwise || problem.square_tiles) column_maxima<T, policy>(chunks, maxima.columnwise);
    if (problem.square_tiles) {
        uint32_t tile[1] = {maxima.columnwise[0]};
#pragma unroll
        for (int i = 1; i < Patch<T>::columns; i++) tile[0] = max(tile[0], maxima.columnwise[i]);
        reduce_lanes<Patch<T>::block_lanes>(tile);
        for (uint32_t& maximum : maxima.columnwise) maximum = tile[0];
        for (uint32_t& maximum : maxima.rowwise) maximum = tile[0];
    } else if (problem.has_rowwise) {
        row_maxima<T, policy>(chunks, maxima.rowwise);
    }
    return maxima;
}

// Every lane fetches the scales of its 16 rows from the lanes of its block and stores the codes.
template <class E, class T>
__device__ __forceinline__ void emit_rowwise(const Arguments& a, const Patch<T>& patch, const PatchChunks<T>& chunks,
                                             const uint32_t (&kept)[PatchScales<T>::rows], Shared& shared) {
    constexpr int lanes = Patch<T>::block_lanes, lane_rows = PatchScales<T>::rows;
    const int lane = threadIdx.x % lanes;
    auto* bytes = reinterpret_cast<uint8_t*>(shared.rowwise_scales);
    uint32_t packed = 0;
#pragma unroll
    for (int i = 0; i < lane_rows; i++) {
        packed |= kept[i] << (i * 8);
        bytes[(patch.row + lane + i * lanes) * kTileBlocks + patch.column / kMxBlock] = uint8_t(kept[i]);
    }
    uint32_t of_lane[lanes];
#pragma unroll
    for (int i = 0; i < lanes; i++) of_lane[i] = __shfl_sync(kAllLanes, packed, threadIdx.x % 32 - lane + i);
#pragma unroll
    for (int i = 0; i < Patch<T>::rows; i++) {
        const float reciprocal = scale_reciprocal(of_lane[i % lanes] >> (i / lanes * 8) & 0xFF);
        const auto codes = quantize_chunk<E>(chunks[i], reciprocal);
        store_codes(codes, a.wide_rowwise, a.problem.rowwise.codes, a.tiles.cols, patch, i);
    }
}

// The 16 codes of one column of the patch.
template <class E, class T>
__device__ __forceinline__ uint4 quantize_piece(const PatchChunks<T>& chunks, int column, float reciprocal) {
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < kPieceCodes; i += 2) {
        const float first = multiply_rn(chunks[i][column], reciprocal);
        const float second = multiply_rn(chunks[i + 1][column], reciprocal);
        words[i / 4] |= encode_pair<E>(first, second) << (i % 4 * 8);
    }
    return {words[0], words[1], words[2], words[3]};
}

template <class E, class T>
__device__ __forceinline__ void emit_columnwise(const Patch<T>& patch, const PatchChunks<T>& chunks,
                                                const uint32_t (&scales)[Patch<T>::columns], Shared& shared) {
    auto* bytes = reinterpret_cast<uint8_t*>(shared.columnwise_scales);
#pragma unroll
    for (int v = 0; v < Patch<T>::columns; v++) {
        const int line = patch.column + v;
        if (threadIdx.x % 32 < 16) bytes[line * kTileBlocks + patch.row / kMxBlock] = uint8_t(scales[v]);
        shared.pieces[piece_slot<T>(line, patch.row / kPieceCodes)] =
            quantize_piece<E, T>(chunks, v, scale_reciprocal(scales[v]));
    }
}

// Pieces to the transposed matrix, eight lanes a line.
template <class T>
__device__ __forceinline__ void store_pieces(const Arguments& a, const Tile& tile, const Shared& shared) {
    const QuantizedPart& part = a.problem.columnwise;
    uint8_t* to = part.codes + (tile.matrix * part.lines + tile.col) * part.length + tile.row;
    const int lines = int(min(part.lines - tile.col, int64_t(kTile)));
    const int length = int(min(part.length - tile.row, int64_t(kTile)));
    if (a.wide_columnwise) {
#pragma unroll
        for (int j = 0; j < kTile * kLinePieces / Patch<T>::threads; j++) {
            const int i = j * Patch<T>::threads + threadIdx.x, line = i / kLinePieces, piece = i % kLinePieces;
            auto* at = reinterpret_cast<uint4*>(to + line * part.length + piece * kPieceCodes);
            if (line < lines && piece * kPieceCodes < length) *at = shared.pieces[piece_slot<T>(line, piece)];
        }
        return;
    }
    const auto* bytes = reinterpret_cast<const uint8_t*>(shared.pieces);
    for (int i = threadIdx.x; i < lines * kTile; i += Patch<T>::threads) {
        const int line = i / kTile, code = i % kTile;
        const int slot = piece_slot<T>(line, code / kPieceCodes);
        if (code < length) to[line * part.length + code] = bytes[slot * kPieceCodes + code % kPieceCodes];
    }
}

template <class T, class E>
__global__ void __launch_bounds__(Patch<T>::threads, kSmBlocks<T>)
    quantize_tile_kernel(const __grid_constant__ Arguments a) {
    __shared__ Shared shared;
    const QuantizeProblem& problem = a.problem;
    const int64_t index = block_index();
    if (index >= a.tiles.count()) return;
    const Tile tile(a.tiles, index);
    const Patch<T> patch(a.tiles, tile);
    PatchChunks<T> chunks;
    load_chunks(chunks, a.wide_in, static_cast<const T*>(problem.in.data), problem.in.row_stride, patch);

    PatchScales<T> scales = problem.nonfinite == Nonfinite::Saturate
                                ? block_maxima<T, Nonfinite::Saturate>(problem, chunks)
                                : block_maxima<T, Nonfinite::Propagate>(problem, chunks);
    if (problem.has_rowwise) {
        scales_of<E>(scales.rowwise, problem.scale_rounding, problem.nonfinite);
        emit_rowwise<E, T>(a, patch, chunks, scales.rowwise, shared);
    }
    if (problem.has_columnwise) {
        scales_of<E>(scales.columnwise, problem.scale_rounding, problem.nonfinite);
        emit_columnwise<E, T>(patch, chunks, scales.columnwise, shared);
    }
    __syncthreads();
    if (problem.has_rowwise)
        store_tile_scales(problem.rowwise, tile.matrix, tile.row, tile.col / kMxBlock, shared.rowwise_scales);
    if (problem.has_columnwise) {
        store_tile_scales(problem.columnwise, tile.matrix, tile.col, tile.row / kMxBlock, shared.columnwise_scales);
        store_pieces<T>(a, tile, shared);
    }
}

std::string declines(const Context& context, const QuantizeProblem&) { return needs_cuda(context); }

template <class T, class E>
void run_types(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const Arguments a{problem, Tiles(problem.in), is_wide<T>(problem.in),
                      problem.has_rowwise && is_wide(problem.rowwise, Chunk<T>::count),
                      problem.has_columnwise && is_wide(problem.columnwise, kPieceCodes)};
    launch(context, quantize_tile_kernel<T, E>, "quantize_tile", a.tiles.grid(), dim3(Patch<T>::threads), 0, call.stream,
           a);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    with_types(problem.in.format, problem.format,
               [&]<class T, class E>(T, E) { run_types<T, E>(context, problem, call); });
}

}  // namespace

const QuantizeImplementation quantize_tile = {"quantize_tile", declines, nullptr, run};

void load_quantize_tile() {
    with_all_types([]<class T, class E>(T, E) {
        load_kernel(reinterpret_cast<const void*>(quantize_tile_kernel<T, E>), 0);
    });
}

}  // namespace mxq::cuda
