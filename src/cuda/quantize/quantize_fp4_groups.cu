// quantize_fp4_groups: groups of aligned BF16 rows to columnwise NVFP4 or MXFP4, or to both parts, rounded to nearest.
//
// A thread block takes 128 rows of any groups, in subtiles of 16 rows (NVFP4) or 32 (MXFP4). It takes up to four such tiles
// in a row (tile/shared_subtiles.cuh). So no tile of a short group is half empty. fp4_pair_tiles.cuh has the loops over a
// tile.
//
// Bytes an element: 2 read, 0.53 or 0.56 written for each part. Both parts are bound by arithmetic, as in
// quantize_fp4_pairs.
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/quantize/fp4_pair_tiles.cuh"
#include "cuda/tile/shared_subtiles.cuh"

namespace mxq::cuda {
namespace {

using namespace fp4_pairs;

// The rows of a subtile: a block of a column.
template <bool nvfp4>
constexpr int kRowsOfSubtile = nvfp4 ? kNvBlock : kMxBlock;

template <bool nvfp4>
struct SubtileArguments : Arguments {
    SubtileGrid<kRowsOfSubtile<nvfp4>> subtiles;
};

template <bool nvfp4>
struct Shared : PairShared {
    TileSubtiles<kRowsOfSubtile<nvfp4>> subtiles;

    // Returns the destination of codes: columnwise those of the tile, rowwise those of the warp's subtile.
    __device__ __forceinline__ CodeTile code_tile(const QuantizeProblem& p, bool columnwise) const {
        return columnwise ? subtiles.columns : rows_of_subtile(p, subtiles);
    }
};
static_assert(kFitsBlocks<Shared<false>> && kFitsBlocks<Shared<true>>);

// Stores the scales of a tile of subtiles, and the padding after the last subtiles of groups.
template <bool nvfp4>
__device__ __forceinline__ void store_subtile_scales(const QuantizeProblem& p, const Shared<nvfp4>& shared) {
    const auto& subtiles = shared.subtiles;
    const SubtileOutputs& at = subtiles.of_warp();
    __syncthreads();
    if (p.has_rowwise && at.subtile.exists()) {
        store_row_scales(p.rowwise, subtiles, [&](int line, int i) { return shared.scales[0][line][i]; });
        if (at.subtile.rows_behind > 0)
            store_rows_behind_subtile<kRowsOfSubtile<nvfp4>>(p.rowwise, at, subtiles.columns.lines);
    }
    const uint32_t(&words)[kTile][2] = shared.scales[1];
    if (!p.columnwise.layout.swizzled)
        return store_compact_columns(p.columnwise, subtiles, [&](int line, int i) { return words[line][i]; });
    const int index = subtiles.index_of_warp();
    store_swizzled_columns(subtiles, [&](int line) {
        return __funnelshift_r(words[line][nvfp4 ? index / 4 : 0], nvfp4 && index < 4 ? words[line][1] : 0, index % 4 * 8);
    });
}

template <bool nvfp4>
__global__ void __launch_bounds__(kChunkThreads, kPairBlocks<nvfp4>)
    quantize_fp4_groups_kernel(const __grid_constant__ SubtileArguments<nvfp4> a) {
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<Shared<nvfp4>*>(memory);
    const QuantizeProblem& p = a.problem;
    float amax = nvfp4 && !p.compute_amax ? table_amax(p, 0) : 0;
    if (!copy_subtiles(shared.tile, p, a.subtiles)) return wait_for_previous_kernel();
    describe_subtiles(p, a.subtiles, shared.subtiles);
    if (nvfp4 && p.compute_amax) amax = computed_table_amax(p, 0);
    const bool fast = nvfp4 ? !put_cut_tables(p, amax, shared) : a.plain;
#pragma unroll 1
    do {
        wait_for_copies();
        __syncthreads();
        if (p.has_rowwise) emit_rowwise<nvfp4>(a, fast, shared);
        emit_columnwise<nvfp4>(a, fast, shared);
        store_subtile_scales(p, shared);
    } while (copy_next_subtiles(shared.tile, p, a.subtiles, shared.subtiles));
}

// ---- On the host -----------------------------------------------------------------------------------------------------

template <bool nvfp4>
void launch_subtiles(const Context& context, const QuantizeProblem& problem, void* stream, Start start) {
    const SubtileArguments<nvfp4> a{arguments_of(problem), SubtileGrid<kRowsOfSubtile<nvfp4>>(problem)};
    if (a.tiles.count() == 0) return;
    const KernelEntry<bool, SubtileArguments<nvfp4>> only[] = {
        {nvfp4, quantize_fp4_groups_kernel<nvfp4>, kChunkThreads, sizeof(Shared<nvfp4>)}};
    launch(context, only, nvfp4, "quantize_fp4_groups", a.subtiles.grid(), stream, a, start);
}

// Returns whether one global maximum serves all groups of a part.
bool has_one_amax(const QuantizedPart& part) { return part.scope_stride == 0; }

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (!problem.grouped.set()) return "needs groups, found none";
    if (!problem.has_columnwise) return "needs the columnwise part, found the rowwise one alone";
    if (Reason reason = declines_pairs(problem); !reason.empty()) return reason;
    const int length = problem.format->is_nvfp4() ? kNvBlock : kMxBlock;
    if (problem.tile.length != length) return "needs blocks of 16 (nvfp4) or 32 (mxfp4), found others";
    if (!has_one_amax(problem.columnwise) || (problem.has_rowwise && !has_one_amax(problem.rowwise)))
        return "needs one amax for all groups, found one for each";
    if (!fits_shared_subtiles(problem))
        return "needs aligned swizzled scales, and short groups or aligned codes, found others";
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const Start start = start_with_amax(context, problem, call);
    if (problem.format->is_nvfp4())
        launch_subtiles<true>(context, problem, call.stream, start);
    else
        launch_subtiles<false>(context, problem, call.stream, start);
}

void load(const Context&) {
    load_kernel(quantize_fp4_groups_kernel<false>, sizeof(Shared<false>));
    load_kernel(quantize_fp4_groups_kernel<true>, sizeof(Shared<true>));
}

}  // namespace

const QuantizeImplementation quantize_fp4_groups = {"quantize_fp4_groups", declines, nullptr, run, load};

}  // namespace mxq::cuda
