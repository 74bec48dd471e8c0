// What kernels share that hold a tile in registers: what the host prepares, and the steps from patches to the outputs.
//
//     patch --put_maxima--> tables of both parts --make_scales--> factors, stored scales
//       |                                                            |          |
//       +--------------------------------> put_rows, put_columns <---+          |
//                                            |            |                     |
//                                         rowwise    columnwise codes        scales      in memory
#pragma once
#include "cuda/quantize/amax.h"
#include "cuda/launch.h"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/tile/codes.cuh"
#include "cuda/tile/patch_source.cuh"

namespace mxq::cuda {

struct TileArguments {
    Tiles tiles;
    ScaleRule rule;
    int access[2];  // code_access of the parts: rowwise, columnwise
    bool wide_in, direct_rows;
    QuantizeProblem problem;
};

template <class E>
struct TileShared {
    union {
        SourceScaleTable source_scales;  // until patches are there
        TileCodes<E> codes;
    };
    TileScales<E> scales;
    Group group;
};

// The threads of an SM: 64 registers of data leave room for so many.
constexpr int kSmThreads = kConvertsInSoftware ? 384 : 512;

template <class T>
constexpr int kSmBlocks = (kSmThreads + Patch<T>::threads - 1) / Patch<T>::threads;

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns whether elements are held as BF16.
inline bool holds_bf16(const QuantizeProblem& p) { return is_bf16(p) && p.format->element != Element::E2M1; }

// Returns how many maxima a part with ROW or TENSOR scales has.
inline int64_t whole_count(const QuantizeProblem& problem, const QuantizedPart& part) {
    if (problem.tile.id == MXQ_SCALING_TENSOR) return scope_count(problem, part);
    return part.lines * (part.columnwise && problem.grouped.set() ? problem.grouped.groups.count : part.matrices);
}

// The maxima that scales are made from: in the caller's memory, else in the workspace.
struct AmaxBuffers {
    bool wanted;
    float* parts[2];
    uint64_t workspace_bytes;

    AmaxBuffers(const QuantizeProblem& problem, void* workspace) : wanted(false), parts{}, workspace_bytes(0) {
        const bool whole = problem.tile.length == 0;
        wanted = problem.compute_amax || (whole && !problem.quantization_scale);
        const QuantizedPart* const of[] = {&problem.rowwise, &problem.columnwise};
        const bool has[] = {problem.has_rowwise, problem.has_columnwise};
        for (int i = 0; wanted && i < 2; i++) {
            if (!has[i]) continue;
            parts[i] = of[i]->amax;
            if (parts[i] || !whole) continue;
            parts[i] = reinterpret_cast<float*>(static_cast<uint8_t*>(workspace) + workspace_bytes);
            workspace_bytes += uint64_t(round_up(whole_count(problem, *of[i]) * int64_t(sizeof(float)), 256));
        }
    }
};

inline ScaleRule scale_rule(const QuantizeProblem& problem, const AmaxBuffers& amax) {
    ScaleRule rule{};
    rule.shift = problem.tile.length == kNvBlock ? 4 : problem.tile.length == kMxBlock ? 5 : 7;
    rule.whole = problem.tile.length == 0;
    rule.per_line = problem.tile.is_row();
    rule.saturates = !problem.format->is_mx() || problem.nonfinite == Nonfinite::Saturate;
    rule.records = problem.quantization_scale && (problem.rowwise.amax || problem.columnwise.amax);
    if (!rule.whole) return rule;
    rule.maxima[0] = amax.parts[0];
    rule.maxima[1] = amax.parts[1];
    if (problem.has_rowwise && !rule.per_line) rule.whole_counts[0] = whole_count(problem, problem.rowwise);
    if (problem.has_columnwise && !problem.columnwise.layout.swizzled)
        rule.whole_counts[1] = whole_count(problem, problem.columnwise);
    return rule;
}

// Returns whether rows of codes leave from registers.
inline bool stores_rows_directly(const QuantizeProblem& p, int access) {
    const int columns = holds_bf16(p) ? Patch<Bf16>::columns : Patch<float>::columns;
    return p.has_rowwise && p.format->bits != 6 && access >= (p.format->bits == 8 ? columns : 8);
}

inline TileArguments tile_arguments(const QuantizeProblem& problem, const AmaxBuffers& amax) {
    TileArguments a{Tiles(problem), scale_rule(problem, amax), {}, is_wide_patch_source(problem), false, problem};
    const bool grouped = problem.grouped.set();
    if (problem.has_rowwise) a.access[0] = code_access(problem.rowwise, grouped);
    if (problem.has_columnwise) a.access[1] = code_access(problem.columnwise, grouped);
    a.direct_rows = stores_rows_directly(problem, a.access[0]);
    return a;
}

// Returns whether there are tiles, or scales that exist without elements.
inline bool has_tile_work(const TileArguments& a) {
    return a.tiles.count() > 0 || a.rule.whole_counts[0] > 0 || a.rule.whole_counts[1] > 0;
}

// Makes or clears the maxima, before the tiles. Returns how the kernel over tiles may start.
inline Start prepare_amax(const Context& context, const QuantizeProblem& problem, const ScaleRule& rule,
                          const AmaxBuffers& amax, const Launch& call) {
    const Start start =
        amax.wanted ? launch_amax(context, problem, amax.parts[0], amax.parts[1], call) : Start::AfterAll;
    if (!rule.records) return start;
    for (const QuantizedPart* part : {&problem.rowwise, &problem.columnwise})  // delayed scaling collects them
        if (part->amax)
            clear(context, part->amax, size_t(scope_count(problem, *part)) * sizeof(float), "clearing an amax", call.stream);
    return Start::AfterAll;
}

// ---- On the device ---------------------------------------------------------------------------------------------------

// Keeps the elements, but no value computed from them. Otherwise the compiler keeps the fp32 values of all elements from the
// rows to the columns, and spills.
template <class T>
__device__ __forceinline__ void forget_values(PatchVectors<T>& vectors) {
#pragma unroll
    for (int i = 0; i < Patch<T>::rows; i++)
#pragma unroll
        for (int w = 0; w < 4; w++) asm volatile("" : "+r"(vectors[i].words[w]));
}

// Stores the codes and scales of a tile, whose elements are in registers, in every part. All threads of the block call it.
// store_columns(to) stores the columnwise codes, which are in shared memory.
template <class E, class T, class StoreColumns>
__device__ __forceinline__ void quantize_patch(const TileArguments& a, const TileCoord& coord, const Patch<T>& patch,
                                               PatchVectors<T>& vectors, TileShared<E>& shared,
                                               const StoreColumns& store_columns) {
    const QuantizeProblem& problem = a.problem;
    TileScales<E>& scales = shared.scales;
    const int shift = a.rule.shift;
    if (a.rule.saturates) put_maxima<E, T, Nonfinite::Saturate>(problem, a.rule, vectors, patch, scales);
    else put_maxima<E, T, Nonfinite::Propagate>(problem, a.rule, vectors, patch, scales);
    make_scales<E, T>(problem, a.rule, coord, shared.group, scales);
    if (a.rule.records) record_maximum<E, T>(problem, coord, scales);
    forget_values<T>(vectors);
    if (problem.has_rowwise) {
        const CodeTile to(problem.rowwise, coord, group_start(problem.grouped, shared.group, kRowwisePart),
                          problem.source.cols);
        put_rows<E, T>(vectors, patch, shift, scales.parts[0], to, a.direct_rows, shared.codes);
        if (!a.direct_rows) store_staged_rows<E, T>(shared.codes, to, a.access[0]);
    }
    forget_values<T>(vectors);
    if (problem.has_columnwise) put_columns<E, T>(vectors, patch, shift, scales.parts[1], shared.codes);
    __syncthreads();
    if (problem.has_columnwise) {
        const CodeTile to(problem.columnwise, coord, group_start(problem.grouped, shared.group, kColumnwisePart),
                          problem.source.cols);
        store_columns(to);
    }
    if (coord.row >= coord.rows) return;  // the missing second tile of a thread block of two
#pragma unroll 1
    for (int columnwise = 0; columnwise < 2; columnwise++)
        if (has_part(problem, columnwise))
            store_scales<E, T>(problem, a.rule, coord, shared.group, columnwise, scales.parts[columnwise]);
}

}  // namespace mxq::cuda
