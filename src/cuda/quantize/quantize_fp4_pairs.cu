// quantize_fp4_pairs: aligned BF16 to NVFP4 or MXFP4, rounded to nearest, in blocks of a row or column, with or without
// groups.
//
// A thread block takes a tile of 128 x 128 through shared memory; fp4_pair_tiles.cuh has its loops.
//
// Bytes an element: 2 read, 0.53 or 0.56 written for each part. One part is bound by memory, both by arithmetic:
//
//     instructions an element and part (sm_90a)   7 to 8; NVFP4 with ties to even: 9
//     of these on the ALU, at half the rate       half
//
//     tried in vain                               slower by
//     from registers, unrolled                    25% (instruction fetches)
//     a persistent kernel with two stages         10%
//     a fifth thread block an SM, NVFP4           3% (MXFP4 gains 2 to 4%, and has it)
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/quantize/fp4_pair_tiles.cuh"

namespace mxq::cuda {
namespace {

using namespace fp4_pairs;

struct Shared : PairShared {
    TileInfo info;

    __device__ __forceinline__ const CodeTile& code_tile(const QuantizeProblem&, bool columnwise) const {
        return info.parts[kRowwisePart + columnwise].codes;
    }
};
static_assert(kFitsBlocks<Shared>);

// Loads the tile and its description. Ends with a barrier. Returns whether the faster form of codes serves.
template <bool nvfp4>
__device__ __forceinline__ bool load_tile(const Arguments& a, const TileCoord& coord, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    float amax = nvfp4 && !p.compute_amax ? table_amax(p, coord.scope) : 0;
    copy_plain(shared.tile, p.source.plain, SourceTile(p, coord, shared.info.group));
    describe_tile(p, coord, shared.info);
    if (nvfp4 && p.compute_amax) amax = computed_table_amax(p, coord.scope);
    const bool fast = nvfp4 ? !put_cut_tables(p, amax, shared) : a.plain;
    wait_for_copies();
    __syncthreads();
    return fast;
}

template <bool nvfp4>
__global__ void __launch_bounds__(kChunkThreads, kPairBlocks<nvfp4>)
    quantize_fp4_pairs_kernel(const __grid_constant__ Arguments a) {
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    const QuantizeProblem& p = a.problem;
    TileCoord coord;
    if (!find_tile(a.tiles, p.grouped, shared.info.group, coord)) return wait_for_previous_kernel();
    const bool fast = load_tile<nvfp4>(a, coord, shared);
    if (p.has_rowwise) emit_rowwise<nvfp4>(a, fast, shared);
    if (p.has_columnwise) emit_columnwise<nvfp4>(a, fast, shared);
    __syncthreads();
    if (p.has_rowwise) store_scales(p.rowwise, shared.info.parts[kRowwisePart], shared.scales[0]);
    if (p.has_columnwise) store_scales(p.columnwise, shared.info.parts[kColumnwisePart], shared.scales[1]);
}

// By whether they make NVFP4.
constexpr auto kernels = kernels_of(
    [](auto nvfp4) { return kernel(quantize_fp4_pairs_kernel<nvfp4.value>, kChunkThreads, sizeof(Shared)); },
    Values<false, true>{});

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (Reason reason = declines_pairs(problem); !reason.empty()) return reason;
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const Start start = start_with_amax(context, problem, call);
    const Arguments a = arguments_of(problem);
    if (a.tiles.count() > 0)
        launch(context, kernels, problem.format->is_nvfp4(), "quantize_fp4_pairs", a.tiles.grid(), call.stream, a, start);
}

}  // namespace

const QuantizeImplementation quantize_fp4_pairs = {"quantize_fp4_pairs", declines, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
