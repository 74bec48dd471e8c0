// quantize_fp4_groups: groups of rows of aligned BF16 to columns of NVFP4 or MXFP4, or to both parts, rounded to nearest.
//
// A block of threads takes 128 rows of whatever groups, in bands of 16 rows (NVFP4) or 32 (MXFP4), and up to four such tiles
// side by side (tile/shared_bands.cuh). fp4_pair_tiles.cuh has the loops over a tile.
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/quantize/fp4_pair_tiles.cuh"
#include "cuda/tile/shared_bands.cuh"

namespace mxq::cuda {
namespace {

using namespace fp4_pairs;

// The rows of a band: as many as a block of a column has codes.
template <bool nvfp4>
constexpr int kBandRows = nvfp4 ? kNvBlock : kMxBlock;

template <bool nvfp4>
struct BandArguments : Arguments {
    BandTiles<kBandRows<nvfp4>> bands;
};

template <bool nvfp4>
struct Shared : PairShared {
    TileBands<kBandRows<nvfp4>> bands;

    // Returns where codes go: of columns those of the tile, of rows those of the warp's band.
    __device__ __forceinline__ CodeTile code_tile(const QuantizeProblem& p, bool columnwise) const {
        return columnwise ? bands.columns : rows_of_band(p, bands);
    }
};
static_assert(kFitsBlocks<Shared<false>> && kFitsBlocks<Shared<true>>);

// Stores the scales of a tile of bands, and what pads groups behind their last bands.
template <bool nvfp4>
__device__ __forceinline__ void store_band_scales(const QuantizeProblem& p, const Shared<nvfp4>& shared) {
    const auto& bands = shared.bands;
    const PlacedBand& at = bands.of_warp();
    __syncthreads();
    if (p.has_rowwise && at.band.exists()) {
        store_row_scales(p.rowwise, bands, [&](int line, int i) { return shared.scales[0][line][i]; });
        if (at.band.rows_behind > 0) store_placed_rows_behind<kBandRows<nvfp4>>(p.rowwise, at, bands.columns.lines);
    }
    const uint32_t(&words)[kTile][2] = shared.scales[1];
    if (!p.columnwise.layout.swizzled)
        return store_compact_columns(p.columnwise, bands, [&](int line, int i) { return words[line][i]; });
    const int place = bands.place_of_warp();
    store_swizzled_columns(bands, [&](int line) {
        return __funnelshift_r(words[line][nvfp4 ? place / 4 : 0], nvfp4 && place < 4 ? words[line][1] : 0, place % 4 * 8);
    });
}

template <bool nvfp4>
__global__ void __launch_bounds__(kChunkThreads, kPairBlocks<nvfp4>)
    quantize_fp4_groups_kernel(const __grid_constant__ BandArguments<nvfp4> a) {
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<Shared<nvfp4>*>(memory);
    const QuantizeProblem& p = a.problem;
    float amax = nvfp4 && !p.compute_amax ? table_amax(p, 0) : 0;
    if (!copy_bands(shared.tile, p, a.bands)) return wait_for_previous_kernel();
    describe_bands(p, a.bands, shared.bands);
    if (nvfp4 && p.compute_amax) amax = computed_table_amax(p, 0);
    const bool fast = nvfp4 ? !put_cut_tables(p, amax, shared) : a.plain;
#pragma unroll 1
    do {
        wait_for_pieces();
        __syncthreads();
        if (p.has_rowwise) emit_rowwise<nvfp4>(a, fast, shared);
        emit_columnwise<nvfp4>(a, fast, shared);
        store_band_scales(p, shared);
    } while (copy_next_bands(shared.tile, p, a.bands, shared.bands));
}

// ---- On the host -----------------------------------------------------------------------------------------------------

template <bool nvfp4>
void launch_bands(const Context& context, const QuantizeProblem& problem, void* stream, Start start) {
    const BandArguments<nvfp4> a{arguments_of(problem), BandTiles<kBandRows<nvfp4>>(problem)};
    if (a.tiles.count() == 0) return;
    const KernelEntry<bool, BandArguments<nvfp4>> only[] = {
        {nvfp4, quantize_fp4_groups_kernel<nvfp4>, kChunkThreads, sizeof(Shared<nvfp4>)}};
    launch(context, only, nvfp4, "quantize_fp4_groups", a.bands.grid(), stream, a, start);
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
    if (!fits_shared_bands(problem)) return "needs aligned swizzled scales, and short groups or aligned codes, found others";
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const Start start = start_with_amax(context, problem, call);
    if (problem.format->is_nvfp4())
        launch_bands<true>(context, problem, call.stream, start);
    else
        launch_bands<false>(context, problem, call.stream, start);
}

void load(const Context&) {
    load_kernel(quantize_fp4_groups_kernel<false>, sizeof(Shared<false>));
    load_kernel(quantize_fp4_groups_kernel<true>, sizeof(Shared<true>));
}

}  // namespace

const QuantizeImplementation quantize_fp4_groups = {"quantize_fp4_groups", declines, nullptr, run, load};

}  // namespace mxq::cuda
