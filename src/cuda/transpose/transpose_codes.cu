// transpose_codes: transposes the bytes of a matrix, by tiles of 64 x 64.
//
//     thread t, pass i    loads codes 4 (t % 16) and the next three of row t / 16 + 16 i of the tile
//                         stores code 4 (t % 16) and the next three of row t / 16 + 16 i of the transposed tile
//     shared              rows of 64 bytes, 68 apart: no bank conflicts among words of a row or bytes of a column
//
// Bytes are loaded from shared memory one by one: the product that follows takes many times as long.
#include "cuda/transpose/transpose_codes.h"

#include "cuda/launch.h"
#include "cuda/memory/grid.cuh"
#include "core/layout.h"

namespace mxq::cuda {
namespace {

constexpr int kTile = 64, kPitch = kTile + 4, kThreads = 256, kPassRows = kThreads / 16;

struct Arguments {
    const uint8_t* from;
    uint8_t* to;
    int64_t lines, codes;  // as they are read: k and n
    int64_t line_bytes, matrix_bytes, to_line_bytes, to_matrix_bytes;
    int64_t tiles_across, tiles_down, blocks;
    bool whole_words;  // rows of `from` begin at multiples of 4 bytes
};

// Returns up to four codes of a row; those that do not exist are 0.
__device__ __forceinline__ uint32_t load_four(const uint8_t* from, int64_t left, bool whole_words) {
    if (whole_words && left >= 4) return *reinterpret_cast<const uint32_t*>(from);
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < left) word |= uint32_t(from[i]) << 8 * i;
    return word;
}

__global__ void __launch_bounds__(kThreads) transpose_codes_kernel(const __grid_constant__ Arguments args) {
    __shared__ uint8_t tile[kTile * kPitch];
    const int64_t block = block_index();
    if (block >= args.blocks) return;
    const int64_t of_matrix = args.tiles_across * args.tiles_down, matrix = block / of_matrix, index = block % of_matrix;
    const int64_t line = index / args.tiles_across * kTile, code = index % args.tiles_across * kTile;
    const int four = int(threadIdx.x % 16) * 4, first = int(threadIdx.x / 16);
    const uint8_t* const from = args.from + matrix * args.matrix_bytes;
    uint8_t* const to = args.to + matrix * args.to_matrix_bytes;
#pragma unroll
    for (int i = first; i < kTile; i += kPassRows) {
        const int64_t left = line + i < args.lines ? args.codes - code - four : 0;
        const uint8_t* const at = from + (line + i) * args.line_bytes + code + four;
        *reinterpret_cast<uint32_t*>(tile + i * kPitch + four) = left > 0 ? load_four(at, left, args.whole_words) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int i = first; i < kTile; i += kPassRows) {
        if (code + i >= args.codes || line + four >= args.lines) continue;
        uint32_t word = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) word |= uint32_t(tile[(four + j) * kPitch + i]) << 8 * j;
        *reinterpret_cast<uint32_t*>(to + (code + i) * args.to_line_bytes + line + four) = word;
    }
}

}  // namespace

void transpose_codes(const Context& context, const GemmOperand& from, const GemmOperand& to, void* stream) {
    Arguments args{from.codes,      to.codes,          from.length,     from.lines,
                   from.line_bytes, from.matrix_bytes, to.line_bytes,   to.matrix_bytes,
                   0,               0,                 0,               from.line_bytes % 4 == 0 && from.matrix_bytes % 4 == 0};
    args.whole_words = args.whole_words && reinterpret_cast<uintptr_t>(from.codes) % 4 == 0;
    args.tiles_across = ceil_div(args.codes, int64_t(kTile)), args.tiles_down = ceil_div(args.lines, int64_t(kTile));
    args.blocks = from.matrices * args.tiles_across * args.tiles_down;
    if (args.blocks == 0) return;
    launch(context, transpose_codes_kernel, "transpose_codes", grid_of(args.blocks), dim3(kThreads), 0, stream, args);
}

void load_transpose_codes(const Context&) { load_kernel(transpose_codes_kernel); }

}  // namespace mxq::cuda
