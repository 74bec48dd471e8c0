// What quantize_columns and quantize_groups share: a thread block takes two tiles, one below the other, one for each
// threadIdx.y. It stores their columnwise 8-bit codes together, 256 bytes of a K-major row at once.
//
//     threadIdx.y 0   rows 0..127     shared[0]: half of every column }   16 bytes a lane, 16 lanes a K-major row
//     threadIdx.y 1   rows 128..255   shared[1]: the other half       }
#pragma once
#include "cuda/device.h"
#include "cuda/kernel_lists.h"
#include "cuda/quantize/quantize_tile.cuh"
#include "cuda/quantize/quantize_tile.h"

namespace mxq::cuda {

constexpr int kTwoTiles = 2, kTwoTilesRows = kTwoTiles * kTile;
// Whether two thread blocks of two tiles fit on an SM of the chip that is compiled for. Kernels for other chips are empty.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200)
constexpr bool kTwoTilesFit = false;
#else
constexpr bool kTwoTilesFit = true;
#endif

constexpr dim3 kTwoTilesBlock(Patch<Bf16>::threads, kTwoTiles);
constexpr int kTwoTilesThreads = kTwoTiles * Patch<Bf16>::threads, kTwoTilesBlocks = kSmBlocks<Bf16> / kTwoTiles;

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns why a problem is not one of aligned BF16 to columns of 8 bits, or why the device has no room for two tiles.
inline Reason declines_two_tiles(const Context& context, const QuantizeProblem& problem) {
    if (Reason reason = declines_tile_options(problem); !reason.empty()) return reason;
    if (!problem.has_columnwise) return "needs a columnwise part, found the rowwise one alone";
    if (!is_bf16(problem)) return needs_bf16(problem.source.plain);
    if (problem.format->bits != 8) return needs("codes of 8 bits", problem.format->name);
    if (!is_wide_patch_source(problem) || code_access(problem.columnwise, problem.grouped.set()) != 16)
        return "needs aligned rows and aligned codes, found others";
    if (Tiles(problem).count() == 0) return "needs elements, found none";
    if (Reason reason = needs_cuda(context); !reason.empty()) return reason;
    const int32_t capability = context.cuda->compute_capability, code = context.cuda->code_capability;
    if (code < 90 || capability >= 120)
        return [capability, code] {
            return format_text("needs compute capability 9.0 to 11.0, where two thread blocks of two tiles fit on an SM, and "
                               "code compiled for it, found %d.%d and code for %d.%d",
                               capability / 10, capability % 10, code / 10, code % 10);
        };
    return "";
}

// ---- On the device ---------------------------------------------------------------------------------------------------

__device__ __forceinline__ int thread_of_two() { return int(threadIdx.y) * Patch<Bf16>::threads + int(threadIdx.x); }

// Stores the K-major rows of both tiles by all threads, 16 bytes at a time.
template <class E>
__device__ __forceinline__ void store_two_tiles(const TileShared<E> (&shared)[kTwoTiles], const CodeTile& to) {
    constexpr int threads = kTwoTilesThreads, units = kTwoTilesRows / sizeof(uint4), in_tile = units / kTwoTiles;
    const int thread = thread_of_two(), unit = thread % units;
#pragma unroll
    for (int i = 0; i < kTile * units / threads; i++) {
        const int line = i * (threads / units) + thread / units;
        const auto* from = &shared[unit / in_tile].codes.words[TileCodes<E>::template line<Patch<Bf16>::columns>(line)];
        if (line < to.lines && unit * int(sizeof(uint4)) < to.length)
            *reinterpret_cast<uint4*>(to.codes + line * to.line_bytes + unit * sizeof(uint4)) =
                reinterpret_cast<const uint4*>(from)[unit % in_tile];
    }
}

}  // namespace mxq::cuda
