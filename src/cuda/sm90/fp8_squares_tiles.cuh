// Lays out the shared memory of a CTA of fp8_squares.cu, finds its tiles and loads them.
#pragma once
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/fp8_block.cuh"
#include "cuda/sm90/fp8_squares.h"
#include "cuda/sm90/ring.cuh"

namespace mxq::cuda::sm90::squares {

constexpr int kHalves = kRows / kHalf, kSums = kProductRows * kColumns / kWarpgroup;
constexpr int kRingStages = 3;
// A CTA starts with 168 registers a thread. Scales of lines on both sides need more of the producers'.
template <Kind kind>
constexpr int kProducerRegistersOf = kind == Kind::Each ? 56 : 40;
template <Kind kind>
constexpr int kConsumerRegistersOf = (3 * kStartRegisters - kProducerRegistersOf<kind>) / 2;
constexpr int kScaleSteps = 4, kScaleSets = 3;  // steps whose scales of A come at once; sets of them
constexpr int kBoxes = kColumns / kBoxColumns;

struct Stage {
    alignas(1024) uint8_t a[kRows * kStepBytes];
    uint8_t b[kColumns * kStepBytes];
};

// Says where the scales of a product's or group's lines begin, or of a tile's: those of its rows and of its columns.
struct FirstScales {
    const uint32_t *of_rows, *of_columns;
};

// A tile, where its scales begin, and the scale of all of its columns for each step.
template <Kind kind>
struct Slot {
    ProductTile tile;
    FirstScales first;
    float scales[kind == Kind::Each ? 1 : kMostTileSteps];
};

template <Kind kind>
struct Shared {
    static constexpr bool kEach = kind == Kind::Each;
    Stage stages[kRingStages];
    alignas(1024) uint8_t out[kConsumerWarps][kHalves][kBoxes][kBoxBytes];
    alignas(128) float row_scales[kScaleSets][kRows][kScaleSteps];
    float column_scales[kEach ? kScaleSets : 1][kEach ? kScaleSteps : 1][kEach ? kColumns : 1];
    Slot<kind> slots[kTileSlots];
    Barrier full[kRingStages], free[kRingStages], tile_full[kTileSlots], tile_free[kTileSlots];
    Barrier landed[kRingStages];  // in place of full, for the codes of a step that is cut
    Barrier scales_full[kScaleSets], scales_free[kScaleSets];
};
static_assert(sizeof(Shared<Kind::Each>) <= 227 * 1024, "what a CTA may have");
static_assert(sizeof(Shared<Kind::Any>) <= 227 * 1024 && sizeof(Shared<Kind::Whole>) <= 227 * 1024, "what a CTA may have");

// ---- Finding tiles ---------------------------------------------------------------------------------------------------

// Sets where the CTA's tile of the cluster's turn `index` lies in a product of so many rows; `tile` has the first lines of A and
// D, `scales` those of the product. Turns go through bands of columns (TileBands counts pairs of tiles), so that the lines of B
// that clusters need at a time stay in L2.
__device__ __forceinline__ void place_tile(const ProductArguments& args, uint32_t index, int64_t rows, int64_t padded,
                                           ProductTile& tile, FirstScales& scales) {
    const uint32_t row_tiles = uint32_t((rows + kRows - 1) / kRows), width = args.bands.width(), of_band = row_tiles * width;
    const uint32_t band = index / of_band, columns = min(width, args.bands.column_tiles - band * width);
    const uint32_t in_band = index - band * of_band, row_tile = in_band / columns, pair = band * width + in_band % columns;
    const int64_t row = int64_t(row_tile) * kRows;
    tile.column = tile.b_line = int32_t((pair * kCluster + block_of_cluster()) * kColumns);
    tile.columns = int32_t(min(max(args.problem.n - tile.column, int64_t(0)), int64_t(kColumns)));
    tile.rows = int32_t(min(rows - row, int64_t(kRows)));
    tile.padded_rows = int32_t(min(padded - row, int64_t(kRows)));
    tile.a_line += int32_t(row);
    tile.d_row += row;
    scales.of_rows += (row >> args.a.lines_log2) * args.a.word_stride;
    scales.of_columns += (tile.column >> args.b.lines_log2) * args.b.word_stride;
}

// Makes the tile one of group `index` along the contraction, from which its codes and scales begin.
__device__ __forceinline__ void place_codes(const ProductArguments& args, uint32_t index, ProductTile& tile,
                                            FirstScales& scales) {
    const GemmProblem& p = args.problem;
    const Group group = find_group_by<GroupBy::Index>(GroupedRows{p.groups, p.group_rows}, args.units, index);
    tile.a_code = int32_t(group.starts[kSourceCodes]), tile.b_code = int32_t(group.starts[kColumnwiseCodes]);
    tile.steps = int32_t(ceil_div(int64_t(group.rows), int64_t(kStepBytes)));
    tile.cut = int32_t(group.rows) % kStepBytes;
    tile.group = int32_t(index);
    tile.d_row = index * p.m;
    scales.of_rows += group_scale_offset(p.a.layout, {group.index, 0, 0, group.starts[kSourceScales]});
    scales.of_columns += group_scale_offset(p.b.layout, {group.index, 0, 0, group.starts[kRowwiseScales]});
}

// Returns the CTA's tile of turn `index`, for all lanes of a warp.
__device__ __forceinline__ ProductTile find_tile(const ProductArguments& args, uint32_t index, FirstScales& scales) {
    const GemmProblem& p = args.problem;
    ProductTile tile{}, none{};
    none.steps = -1;
    tile.steps = int32_t(ceil_div(p.k, int64_t(kStepBytes)));
    scales = {args.a.words, args.b.words};
    if (p.grouping == Grouping::Rows) {
        const Group group = find_group_by<GroupBy::Tile>(GroupedRows{p.groups, p.group_rows}, args.units, index);
        if (group.index < 0) return none;
        tile.group = tile.b_matrix = group.index;
        tile.a_line = int32_t(group.starts[kSourceCodes]);
        tile.d_row = group.starts[kRowwiseCodes];
        scales.of_rows += group_scale_offset(p.a.layout, {group.index, 0, 0, group.starts[kSourceScales]});
        scales.of_columns += group.index * p.b.layout.matrix_scales;
        place_tile(args, index - group.first_group_tile, group.rows, round_up_to_power(group.rows, p.d.group_unit), tile,
                   scales);
        return tile;
    }
    const uint32_t of_product = args.units.turns(uint32_t(ceil_div(p.m, int64_t(kRows)))), product = index / of_product;
    const bool along = p.grouping == Grouping::Contraction;
    if (product >= (along ? uint32_t(p.groups.count) : 1)) return none;
    if (along) place_codes(args, product, tile, scales);
    place_tile(args, index - product * of_product, p.m, p.m, tile, scales);
    return tile;
}

// Finds tiles, one warp. A barrier counts as complete before its first phase, so that slots are free at first.
template <Kind kind>
__device__ __forceinline__ void find_tiles(const ProductArguments& args, Shared<kind>& shared) {
    uint32_t index = blockIdx.x / kCluster;
#pragma unroll 1
    for (Ring<kTileSlots> slots;; slots.next(), index += gridDim.x / kCluster) {
        FirstScales first;
        const ProductTile tile = find_tile(args, index, first);
        Slot<kind>& slot = shared.slots[slots.at()];
        wait(shared.tile_free[slots.at()], slots.parity() ^ 1);
        if (kind != Kind::Each && tile.columns > 0)
#pragma unroll 1
            for (int32_t step = int32_t(threadIdx.x % 32); step < tile.steps; step += 32)
                slot.scales[step] = bits_float(__ldg(first.of_columns + step * args.b.step_stride));
        if (threadIdx.x % 32 == 0) slot.tile = tile, slot.first = first;
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(shared.tile_full[slots.at()]);
        if (tile.steps < 0) return;
    }
}

// ---- Loads -----------------------------------------------------------------------------------------------------------

// Loads the scales of A for steps `step` to `step` + 3 as boxes of half a tile, one lane; `line` is the tile's first.
__device__ __forceinline__ void load_scale_boxes(const ProductArguments& args, int32_t line, int32_t step, uint32_t halves,
                                                 float (&to)[kRows][kScaleSteps], Barrier& full) {
    for (uint32_t half = 0; half < halves; half++)
        load_tile(to[half * kHalf], args.a_words, {step * int32_t(sizeof(float)), line + int32_t(half) * kHalf}, full);
}

// Loads the operands of all tiles, one lane. Each CTA loads the half of A with its number for both, if the tile has it.
template <Kind kind>
__device__ __forceinline__ void load_operands(const ProductArguments& args, Shared<kind>& shared) {
    const uint32_t rank = block_of_cluster();
    uint32_t set = 0;  // of scales, which is next
    Ring<kRingStages> ring;
#pragma unroll 1
    for (Ring<kTileSlots> slots;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        const ProductTile& tile = shared.slots[slots.at()].tile;
        const int32_t steps = tile.steps, a_line = tile.a_line, b_line = tile.b_line, matrix = tile.b_matrix;
        const int32_t a_code = tile.a_code, b_code = tile.b_code, cut = cut_step(tile);
        const uint32_t halves = tile.rows > kHalf ? 2 : 1;
        arrive(shared.tile_free[slots.at()]);
        if (steps < 0) return;
#pragma unroll 1
        for (int32_t step = 0; step < steps; step++, ring.next()) {
            Stage& stage = shared.stages[ring.at()];
            Barrier& full = kind == Kind::Each && step == cut ? shared.landed[ring.at()] : shared.full[ring.at()];
            wait(shared.free[ring.at()], ring.parity() ^ 1);
            const bool has_scales = kind == Kind::Whole && step % kScaleSteps == 0;
            const uint32_t of_half = kHalf * (kStepBytes + (has_scales ? sizeof(shared.row_scales[0][0]) : 0));
            arrive_expecting(full, kColumns * kStepBytes + halves * of_half);
            if (rank < halves)
                load_tile_to((1u << kCluster) - 1, stage.a + rank * kHalf * kStepBytes, args.a_map,
                             {a_code + step * kStepBytes, a_line + int32_t(rank) * kHalf}, full);
            load_tile(stage.b, args.b_map, {b_code + step * kStepBytes, b_line, matrix}, full);
            if (!has_scales) continue;
            load_scale_boxes(args, a_line, step, halves, shared.row_scales[set], full);
            set ^= 1;
        }
    }
}

// Loads the scales of so many lines for steps `step` to `step` + 3 of all, one warp; those of a line lie `pitch` floats apart,
// those of a step `step_pitch`. Lanes keep an address of their own, so that a copy takes few instructions.
template <int pitch, int step_pitch>
__device__ __forceinline__ void load_scale_set(const SideView& side, const uint32_t* from, int32_t step, int32_t steps,
                                               int32_t lines, float* to) {
    constexpr int lines_at_once = 32 / kScaleSteps;
    const int32_t lane = int32_t(threadIdx.x % 32), first = lane / kScaleSteps, own = lane % kScaleSteps;
    if (step + own >= steps) return;
    const int64_t stride = lines_at_once * side.word_stride;
    from += (step + own) * side.step_stride + first * side.word_stride;
    to += first * pitch + own * step_pitch;
#pragma unroll 8
    for (int32_t line = first; line < lines; line += lines_at_once, from += stride, to += lines_at_once * pitch)
        copy_word(reinterpret_cast<uint32_t*>(to), from);
}

// Loads the scales of the lines of all tiles, one warp, up to three sets ahead.
template <Kind kind>
__device__ __forceinline__ void load_scales(const ProductArguments& args, Shared<kind>& shared) {
    Ring<kScaleSets> sets;
#pragma unroll 1
    for (Ring<kTileSlots> slots;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        const Slot<kind>& slot = shared.slots[slots.at()];
        const int32_t steps = slot.tile.steps, columns = slot.tile.columns, rows = columns > 0 ? slot.tile.rows : 0;
        const FirstScales from = slot.first;
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(shared.tile_free[slots.at()]);
        if (steps < 0) return;
#pragma unroll 1
        for (int32_t step = 0; step < steps; step += kScaleSteps, sets.next()) {
            wait(shared.scales_free[sets.at()], sets.parity() ^ 1);
            load_scale_set<kScaleSteps, 1>(args.a, from.of_rows, step, steps, rows, shared.row_scales[sets.at()][0]);
            if constexpr (kind == Kind::Each)
                load_scale_set<1, kColumns>(args.b, from.of_columns, step, steps, columns, shared.column_scales[sets.at()][0]);
            arrive_after_copies(shared.scales_full[sets.at()]);
        }
    }
}

// Clears codes behind the last of a group, one warp: waits for the codes of a step that is cut, then says that they are there.
__device__ __forceinline__ void clear_cut_steps(Shared<Kind::Each>& shared) {
    uint32_t parities = 0, first = 0;  // a bit for each stage; the stage of the tile's first step
#pragma unroll 1
    for (Ring<kTileSlots> slots;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        const ProductTile& tile = shared.slots[slots.at()].tile;
        const int32_t steps = tile.steps, kept = tile.cut;
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(shared.tile_free[slots.at()]);
        if (steps < 0) return;
        const uint32_t next = (first + uint32_t(steps)) % kRingStages, stage = (next + kRingStages - 1) % kRingStages;
        first = next;
        if (kept == 0) continue;
        wait(shared.landed[stage], parities >> stage & 1);
        parities ^= 1u << stage;
        clear_behind<kRows + kColumns>(shared.stages[stage].a, kept);
        publish_shared_writes();
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(shared.full[stage]);
    }
}

}  // namespace mxq::cuda::sm90::squares
