// requantize_codes: E4M3 and E2M1 codes to E4M3 and E2M1 of any scaling and layout, through codes in registers; experts, and
// groups of rows. K-major rows of the source are whole aligned vectors of 8 codes.
//
//     codes in memory --16 rows x 8 positions a thread--> bytes in registers --decode, at each use--> values
//     values --> maxima --> tables of both parts --> factors --> K-major codes, transposed codes
//
// A thread block takes a tile of 128 x 128 (tile/location.cuh) and keeps it as codes (tile/code_patch.cuh), so that more
// warps share an SM than requantize_values has with fp32 values. The source's scales come from a table in shared memory. E5M2
// and 6-bit codes are left to requantize_values: a kernel for each pair of types would take long to compile.
//
// Bytes an element: 0.53 to 1.03 read once, as much written for each part. Bound by instructions.
#include "cuda/implementations.h"
#include "cuda/kernel_lists.h"
#include "cuda/quantize/quantize_tile.cuh"
#include "cuda/quantize/quantize_tile.h"
#include "cuda/tile/code_patch.cuh"

namespace mxq::cuda {
namespace {

template <class E>
struct CodeShared {
    TileShared<E> tile;
    SourceScales source;
};

// Stores all maxima that the scales of the tile need. `same` is the part of the source.
template <class E, class S, Nonfinite policy>
__device__ __forceinline__ void put_code_maxima(const TileArguments& a, const PatchValues<S>& values, const CodePatch& patch,
                                                int same, TileScales<E>& scales) {
    const ScaleRule& rule = a.rule;
    PartScales<E>&to_same = scales.parts[same], &to_other = scales.parts[1 - same];
    if (a.problem.square_tiles || rule.whole) {
        if (rule.whole && !rule.records) return;
        return put_patch_maximum<E>(largest_of_patch<S, policy>(values), patch, rule.shift, scales, &to_same, &to_other);
    }
    if (has_part(a.problem, 1 - same)) put_position_maxima<E, S, policy>(values, patch, rule.shift, to_other);
    if (has_part(a.problem, same)) put_line_maxima<E, S, policy>(values, patch, rule.shift, to_same);
}

// Turns maxima into factors. A warp holds whole blocks in the order of the source. Where that is columnwise, make_scales
// takes other blocks than the warp's own, and all warps must wait.
template <class E>
__device__ __forceinline__ void make_code_scales(const TileArguments& a, const TileCoord& coord, bool waits,
                                                 TileShared<E>& shared) {
    if (waits) __syncthreads();
    make_scales<E, Bf16>(a.problem, a.rule, coord, shared.group, shared.scales);
    if (waits) __syncthreads();
    if (a.rule.records) record_maximum<E, Bf16>(a.problem, coord, shared.scales);
}

__device__ __forceinline__ CodeTile part_codes(const TileArguments& a, const TileCoord& coord, const Group& group,
                                               int columnwise) {
    return CodeTile(part_of(a.problem, columnwise), coord, group_start(a.problem.grouped, group, kRowwisePart + columnwise),
                    a.problem.source.cols);
}

// Stores the codes and scales of a tile, whose codes are in registers, in every part.
template <class S, class E>
__device__ __forceinline__ void requantize_patch(const TileArguments& a, const TileCoord& coord, const CodePatch& patch,
                                                 PatchCodes& codes, CodeShared<E>& shared) {
    const QuantizedPart& from = a.problem.source.quantized;
    const int same = from.columnwise ? 1 : 0, from_shift = source_shift(from.layout);
    TileShared<E>& tile = shared.tile;
    const auto values = [&] { return PatchValues<S>(codes, patch, from_shift, shared.source); };
    if (a.rule.saturates) put_code_maxima<E, S, Nonfinite::Saturate>(a, values(), patch, same, tile.scales);
    else put_code_maxima<E, S, Nonfinite::Propagate>(a, values(), patch, same, tile.scales);
    make_code_scales(a, coord, from.columnwise, tile);
    forget_values(codes);
    if (has_part(a.problem, same)) {
        const CodeTile to = part_codes(a, coord, tile.group, same);
        put_lines<E>(values(), patch, a.rule.shift, tile.scales.parts[same], to, a.direct_rows, tile.codes);
        if (!a.direct_rows) store_staged_rows<E, Bf16>(tile.codes, to, a.access[same]);
    }
    forget_values(codes);
    if (has_part(a.problem, 1 - same)) put_positions<E>(values(), patch, a.rule.shift, tile.scales.parts[1 - same], tile.codes);
    __syncthreads();
    if (has_part(a.problem, 1 - same))
        store_lines<E, Bf16>(tile.codes, part_codes(a, coord, tile.group, 1 - same), a.access[1 - same]);
#pragma unroll 1
    for (int part = 0; part < 2; part++)
        if (has_part(a.problem, part))
            store_scales<E, Bf16>(a.problem, a.rule, coord, tile.group, part, tile.scales.parts[part]);
}

// Thread blocks that share an SM: 96 registers a thread. The conversions of sm_120 take more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr int kCodeBlocks = 4;
#else
constexpr int kCodeBlocks = kConvertsInSoftware ? 2 : 5;
#endif

template <class S, class E>
__global__ void __launch_bounds__(CodePatch::threads, kCodeBlocks)
    requantize_codes_kernel(const __grid_constant__ TileArguments a) {
    __shared__ CodeShared<E> shared;
    TileCoord coord;
    const bool exists = find_tile(a.tiles, a.problem.grouped, shared.tile.group, coord);
    PatchCodes codes{};
    const CodePatch patch = load_code_patch<S>(a.problem, coord, shared.tile.group, exists, shared.source, codes);
    wait_for_previous_kernel();  // the maxima
    store_whole_scales<E>(a.problem, a.rule);
    if (exists) requantize_patch<S>(a, coord, patch, codes, shared);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

using CodesOfKernels = Types<E4M3, E2M1>;
constexpr auto kernels = kernels_of(
    []<class From, class To>(From, To) { return kernel(requantize_codes_kernel<SourceCodes<From>, To>, CodePatch::threads); },
    CodesOfKernels{}, CodesOfKernels{});

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (Reason reason = declines_tile_options(problem); !reason.empty()) return reason;
    if (!is_e4m3_or_e2m1(problem.format->element)) return needs("e4m3 or e2m1 codes out", problem.format->name);
    if (Reason reason = declines_code_source(problem); !reason.empty()) return reason;
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const AmaxBuffers amax(problem, call.workspace);
    TileArguments a = tile_arguments(problem, amax);
    const int same = problem.source.quantized.columnwise ? 1 : 0;
    a.direct_rows = (same ? problem.has_columnwise : problem.has_rowwise) && a.access[same] >= 8;
    const Start start = prepare_amax(context, problem, a.rule, amax, call);
    if (has_tile_work(a))
        launch(context, kernels, {problem.source.quantized.element, problem.format->element}, "requantize_codes", a.tiles.grid(),
               call.stream, a, start);
}

}  // namespace

const QuantizeImplementation requantize_codes = {"requantize_codes", declines, tile_workspace_bytes, run, load_all<kernels>};

}  // namespace mxq::cuda
