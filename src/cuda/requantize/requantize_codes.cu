// requantize_codes: E4M3 and E2M1 codes, in lines of whole 8 codes, to E4M3 and E2M1 of any scaling and layout, by way of
// codes in registers; experts, and groups of rows.
//
//     codes --a byte each, 16 lines x 8 positions a thread--> registers --decode, again for each use--> values
//     values --> maxima --> tables of both parts --> factors --> codes along the source's lines, codes across them
//
// The patches are those of 16-bit elements (tile/code_patch.cuh), so that twice the warps of requantize_values share an SM.
// The source's scales come from a table in shared memory. E5M2 and six bits are left to requantize_values: a kernel for each
// pair of types would take most of the library's time to compile.
//
// Bytes an element: 0.53 to 1.03 read once, as much written for each part. Bound by instructions: about 17 an element and part,
// by ncu's issue slots.
#include "cuda/launch.h"
#include "cuda/implementations.h"
#include "cuda/quantize/quantize_tile.cuh"
#include "cuda/quantize/quantize_tile.h"
#include "cuda/requantize/source_lines.cuh"
#include "cuda/tile/code_patch.cuh"

namespace mxq::cuda {
namespace {

template <class E>
struct CodeShared {
    TileShared<E> tile;
    SourceScales source;
};

// Puts all maxima that the tile's scales need. `along` is the part that lies along the source's lines.
template <class E, class S, Nonfinite policy>
__device__ __forceinline__ void put_code_maxima(const TileArguments& a, const PatchValues<S>& values, const CodePatch& patch,
                                                int along, TileScales<E>& scales) {
    const ScaleRule& rule = a.rule;
    PartScales<E>&to_along = scales.parts[along], &to_across = scales.parts[1 - along];
    if (a.problem.square_tiles || rule.whole) {
        if (rule.whole && !rule.records) return;
        return put_patch_maximum<E>(largest_of_patch<S, policy>(values), patch, rule.shift, scales, &to_along, &to_across);
    }
    if (has_part(a.problem, 1 - along)) put_maxima_across<E, S, policy>(values, patch, rule.shift, to_across);
    if (has_part(a.problem, along)) put_maxima_along<E, S, policy>(values, patch, rule.shift, to_along);
}

// Turns maxima into factors. Warps have whole blocks of both parts, but in the order of the source: where that is columnwise,
// all of them meet.
template <class E>
__device__ __forceinline__ void make_patch_scales(const TileArguments& a, const TilePlace& place, bool turned,
                                                  TileShared<E>& shared) {
    if (turned) __syncthreads();
    make_scales<E, Bf16>(a.problem, a.rule, place, shared.group, shared.scales);
    if (turned) __syncthreads();
    if (a.rule.records) record_maximum<E, Bf16>(a.problem, place, shared.scales);
}

__device__ __forceinline__ CodeTile part_codes(const TileArguments& a, const TilePlace& place, const Group& group,
                                               int columnwise) {
    return CodeTile(part_of(a.problem, columnwise), place, group_start(a.problem.grouped, group, kRowwisePart + columnwise),
                    a.problem.source.cols);
}

template <class S, class E>
__device__ __forceinline__ void requantize_patch(const TileArguments& a, const TilePlace& place, const CodePatch& lines,
                                                 PatchCodes& codes, CodeShared<E>& shared) {
    const int along = a.problem.source.quantized.columnwise ? 1 : 0,
              from_shift = source_shift(a.problem.source.quantized.layout);
    TileShared<E>& tile = shared.tile;
    const auto values = [&] { return PatchValues<S>(codes, lines, from_shift, shared.source); };
    if (a.rule.saturates) put_code_maxima<E, S, Nonfinite::Saturate>(a, values(), lines, along, tile.scales);
    else put_code_maxima<E, S, Nonfinite::Propagate>(a, values(), lines, along, tile.scales);
    make_patch_scales(a, place, along == 1, tile);
    forget_values(codes);
    if (has_part(a.problem, along)) {
        const CodeTile to = part_codes(a, place, tile.group, along);
        put_along<E>(values(), lines, a.rule.shift, tile.scales.parts[along], to, a.direct_rows, tile.codes);
        if (!a.direct_rows) store_staged_rows<E, Bf16>(tile.codes, to, a.access[along]);
    }
    forget_values(codes);
    if (has_part(a.problem, 1 - along)) {
        put_across<E>(values(), lines, a.rule.shift, tile.scales.parts[1 - along], tile.codes);
        __syncthreads();
        store_lines<E, Bf16>(tile.codes, part_codes(a, place, tile.group, 1 - along), a.access[1 - along]);
    } else {
        __syncthreads();
    }
#pragma unroll 1
    for (int part = 0; part < 2; part++)
        if (has_part(a.problem, part))
            store_scales<E, Bf16>(a.problem, a.rule, place, tile.group, part, tile.scales.parts[part]);
}

// Blocks that share an SM: 96 registers a thread. Below sm_89 codes are rounded in software, which takes more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kCodeBlocks = 3;
#else
constexpr int kCodeBlocks = 5;
#endif

template <class S, class E>
__global__ void __launch_bounds__(CodePatch::threads, kCodeBlocks)
    requantize_codes_kernel(const __grid_constant__ TileArguments a) {
    __shared__ CodeShared<E> shared;
    wait_for_previous_kernel();  // which makes the maxima
    store_whole_scales<E>(a.problem, a.rule);
    TilePlace place;
    if (!find_tile(a.tiles, a.problem.grouped, shared.tile.group, place)) return;
    const QuantizedPart& part = a.problem.source.quantized;
    const GroupStart start = group_start(a.problem.grouped, shared.tile.group, kSourcePart);
    const CodeTile from(part, place, start, a.problem.source.cols);
    const int rows = int(min(place.rows - place.row, int64_t(kTile)));
    const int length = part.columnwise ? rows : from.length;
    const CodePatch lines(part.columnwise ? from.lines : rows, length);
    PatchCodes codes;
    load_patch_codes<S::bits>(from, lines, codes);
    ScaleTile scales(part, place, start, a.problem.source.cols, a.problem.grouped.groups.set);
    if (!part.columnwise) scales.lines = min(scales.lines, rows);  // swizzled square tiles have NaN for a group's padding, too
    load_source_scales(part, scales, length, shared.source.table);
    shared.source.table[SourceScales::nothing][threadIdx.x] = 0;
    if (threadIdx.x == 0) shared.source.global = global_scale(part, place.scope);
    unpack_patch<S>(codes);
    __syncthreads();
    requantize_patch<S>(a, place, lines, codes, shared);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Names what a kernel is compiled for.
struct Key {
    Element from, to;
    bool operator==(const Key&) const = default;
};

template <class From, class To>
constexpr KernelEntry<Key, TileArguments> entry(Element from, Element to) {
    return {{from, to}, requantize_codes_kernel<SourceCodes<From>, To>, CodePatch::threads, 0};
}

constexpr KernelEntry<Key, TileArguments> kernels[] = {
    entry<E4M3, E4M3>(Element::E4M3, Element::E4M3),
    entry<E4M3, E2M1>(Element::E4M3, Element::E2M1),
    entry<E2M1, E4M3>(Element::E2M1, Element::E4M3),
    entry<E2M1, E2M1>(Element::E2M1, Element::E2M1),
};

bool is_e4m3_or_e2m1(Element element) { return element == Element::E4M3 || element == Element::E2M1; }

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (Reason reason = declines_tile_options(problem); !reason.empty()) return reason;
    if (!is_e4m3_or_e2m1(problem.source.quantized.element)) return "needs e4m3 or e2m1 codes in the source, found others";
    if (!is_e4m3_or_e2m1(problem.format->element))
        return [format = problem.format] { return std::string("needs e4m3 or e2m1 codes out, found ") + format->name; };
    if (Reason reason = declines_source_lines(problem); !reason.empty()) return reason;
    return needs_cuda(context);
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const AmaxBuffers amax(problem, call.workspace);
    TileArguments a = tile_arguments(problem, amax);
    const int along = problem.source.quantized.columnwise ? 1 : 0;
    const bool has_along = along ? problem.has_columnwise : problem.has_rowwise;
    a.direct_rows = has_along && stores_along_directly(a.access[along]);
    const Start start = prepare_amax(context, problem, a.rule, amax, call);
    const Key key{problem.source.quantized.element, problem.format->element};
    if (has_tile_work(a)) launch(context, kernels, key, "requantize_codes", a.tiles.grid(), call.stream, a, start);
}

void load(const Context&) { load_kernels(kernels); }

}  // namespace

const QuantizeImplementation requantize_codes = {"requantize_codes", declines, tile_workspace_bytes, run, load};

}  // namespace mxq::cuda
