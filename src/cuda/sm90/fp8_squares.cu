// The kernels of wgmma_fp8_sm90 for FP8 with scales of 128 on both sides. B has one for 128 x 128 codes, or for 128 codes of
// each line (Kind::Each), also where groups lie along the contraction. A cluster of two CTAs takes two tiles of 256 x 128 side by
// side, which share A:
//
//     warp 0, one lane    loads a step of A and B, 128 codes of each line
//     warp 1              finds tiles, one ahead, and leaves the scales of 128 x 128 for the tile
//     warp 2              loads the scales of lines, those of four steps at once; warp 3 clears codes behind a group's last
//     warps 4..7, 8..11   consumers: 64 rows of either half of the tile each
//
// A consumer multiplies a half, m64n128k128, adds its sums to its totals, and goes on with the other half. The tensor cores
// have the other warpgroup's products meanwhile. A tile with up to 128 rows has one half.
//
// With scales of 128 x 128, D takes the sums alone, BF16 by boxes and F32 by pairs, under the first products of the next tile,
// and sums are those of fp8_consumers.cuh, bit for bit. With Kind::Each, D may be added to, at the end of a tile.
// Kind::Whole has four steps in every set, whose scales come with the first, and a BF16 D: 1.05 times as fast as Kind::Any.
#include "cuda/sm90/fp8_squares.h"

#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/fp8_block.cuh"
#include "cuda/sm90/ring.cuh"

namespace mxq::cuda::sm90::squares {
namespace {

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

// ---- Products --------------------------------------------------------------------------------------------------------

// The descriptor of a tile in stage 0, whose lower half is the same in all threads of a warp, so that those of other tiles
// are sums of uniform registers.
struct FirstTile {
    uint32_t low, high;

    __device__ __forceinline__ FirstTile(const void* tile) {
        const uint64_t bits = describe_tile(tile).bits;
        low = uint32_t(uniform(int32_t(bits)));
        high = uint32_t(bits >> 32);
    }
    // Returns the descriptor of what lies so many bytes behind it in a stage.
    __device__ __forceinline__ TileDescriptor at(uint32_t stage, int bytes) const {
        return {uint64_t(high) << 32 | (low + stage * uint32_t(sizeof(Stage) >> 4) + uint32_t(bytes >> 4))};
    }
};

// Rounds a warp's sums of a half to BF16 and puts them to shared memory, as boxes of D.
__device__ __forceinline__ void put_boxes(const float (&sums)[kSums], uint8_t (&boxes)[kBoxes][kBoxBytes]) {
    const uint32_t lane = read_thread() % 32;
    const uint32_t row = uint32_t(__cvta_generic_to_shared(boxes)) + lane % 16 * kBoxPitch;
    const uint32_t unit = (lane / 16 ^ lane % 8) * 16;  // under the swizzle
#pragma unroll
    for (int i = 0; i < kColumns / 16; i++) {
        const float* const eight = &sums[8 * i];
        store_matrices(row + i / 4 * kBoxBytes + (unit ^ i % 4 * 32), round_pair<Bf16>(eight[0], eight[1]),
                       round_pair<Bf16>(eight[2], eight[3]), round_pair<Bf16>(eight[4], eight[5]),
                       round_pair<Bf16>(eight[6], eight[7]));
    }
}

// Brings boxes of a warp's rows to D.
__device__ __forceinline__ void store_boxes(const ProductArguments& args, const RowsOfWarp& of,
                                            const uint8_t (&boxes)[kBoxes][kBoxBytes]) {
    if (of.rows >= kWarpRows) {
        if (!elect_lane()) return;
#pragma unroll
        for (int box = 0; box < kBoxes; box++)
            if (box * kBoxColumns < of.columns)
                store_tile(args.d_map, {of.column + box * kBoxColumns, int32_t(of.d_row)}, boxes[box]);
        return commit_stores();
    }
    constexpr int units = kColumns / 8;  // of 16 bytes
#pragma unroll 1
    for (int i = int(read_thread() % 32); i < of.rows * units; i += 32) {
        const int row = i / units, unit = i % units;
        const uint8_t* const from = boxes[unit / 8] + row * kBoxPitch + (unit ^ row) % 8 * 16;
        uint16_t* const to = static_cast<uint16_t*>(args.problem.d.data) + (of.d_row + row) * args.problem.d.row_stride +
                             of.column + unit * 8;
        if (unit * 8 < of.columns) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    }
}

template <Kind kind>
struct Consumer {
    static constexpr bool kEach = kind == Kind::Each, kWhole = kind == Kind::Whole;
    const ProductArguments& args;
    Shared<kind>& shared;
    FirstTile a, b;
    uint32_t scales_at;   // shared address of the scales of the thread's first row in the next set
    uint32_t columns_at;  // of those of its first two columns
    uint32_t warp;        // of the consumers
    uint32_t free_at;    // address of the first barrier `free` in the CTA with the lane's number
    bool kept = false;   // totals are those of the tile before
    uint32_t stage = 0, parity = 0;
    Ring<kTileSlots> slots = {};
    Ring<kScaleSets> sets = {};
    uint32_t words = 0;  // Kind::Whole: which of two sets is next
    float totals[kHalves][kSums];

    __device__ __forceinline__ void clear_totals() {
#pragma unroll
        for (int half = 0; half < kHalves; half++) {
#pragma unroll
            for (int i = 0; i < kSums; i++) totals[half][i] = 0;
            hold_accumulators(totals[half]);
        }
    }
    // Returns the warp's first row of a half.
    __device__ __forceinline__ int first_row(int half) const { return half * kHalf + int(warp) * kWarpRows; }
    __device__ __forceinline__ void store_elements(const ProductTile& tile) {
        wait_stores_read<0>();
        __syncwarp();
#pragma unroll
        for (int half = 0; half < kHalves; half++) put_boxes(totals[half], shared.out[warp][half]);
        publish_shared_writes();
        __syncwarp();
#pragma unroll
        for (int half = 0; half < kHalves; half++)
            store_boxes(args, rows_of_warp(args.problem, tile, first_row(half), true), shared.out[warp][half]);
    }
    __device__ __forceinline__ void store_floats(const ProductTile& tile) {
#pragma unroll
        for (int half = 0; half < kHalves; half++)
            write_floats(args.problem, rows_of_warp(args.problem, tile, first_row(half), true),
                         reinterpret_cast<const float(&)[1][kSums]>(totals[half]));
    }
    // Stores the totals of the tile before, which lies in the other slot.
    __device__ __forceinline__ void store_totals() {
        const uint32_t at = slots.at() ^ 1;
        const ProductTile& tile = shared.slots[at].tile;
        if (!kWhole && args.problem.d.format == MXQ_FORMAT_F32)
            store_floats(tile);
        else
            store_elements(tile);
        __syncwarp();
        if (read_thread() % 32 == 0) arrive(shared.tile_free[at]);
        clear_totals();
        kept = false;
    }
    __device__ __forceinline__ float row_scale(int place, int row) const {
        float scale;
        asm volatile(
            "ld.shared.f32 %0, [%1];"
            : "=f"(scale)
            : "r"(scales_at + (kWhole ? words * uint32_t(sizeof(shared.row_scales[0])) : 0) +
                  uint32_t((row * kScaleSteps + place) * 4)));
        return scale;
    }
    // Loads the scales of a quarter of the thread's columns, by pairs.
    static constexpr int kQuarters = 4, kPairs = kColumns / 8 / kQuarters;
    __device__ __forceinline__ void load_quarter(int place, int quarter, float2 (&of)[kPairs]) const {
#pragma unroll
        for (int i = 0; i < kPairs; i++)
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                         : "=f"(of[i].x), "=f"(of[i].y)
                         : "r"(columns_at + uint32_t((place * kColumns + (quarter * kPairs + i) * 8) * sizeof(float))));
    }
    // Adds the sums of a half, times the scales of their rows and columns.
    template <int half>
    __device__ __forceinline__ void add_each(int place, const float (&part)[kSums], const float (&of_rows)[2],
                                             float2 (&of)[2][kPairs]) {
#pragma unroll
        for (int quarter = 0; quarter < kQuarters; quarter++) {
            if (quarter + 1 < kQuarters) load_quarter(place, quarter + 1, of[(quarter + 1) % 2]);
#pragma unroll
            for (int i = 0; i < 4 * kPairs; i++) {
                const float2& two = of[quarter % 2][i / 4];
                const int at = quarter * 4 * kPairs + i;
                const float factor = multiply_rn(of_rows[i / 2 % 2], i % 2 ? two.y : two.x);
                totals[half][at] = __fmaf_rn(part[at], factor, totals[half][at]);
            }
        }
    }
    // Multiplies half of a step and adds its sums. Under the first products of a tile the totals of the tile before are
    // stored.
    template <int half, bool begins, bool ends>
    __device__ __forceinline__ void multiply_half(int place, float of_columns, bool more) {
        float part[kSums];
        begin_products(part);
#pragma unroll
        for (int k = 0; k < kStepBytes; k += kProductBytes)
            multiply_fp8<E4M3, E4M3>(part, a.at(stage, half * kHalf * kStepBytes + k), b.at(stage, k), k > 0);
        commit_products();
        if (ends && more) wait_for_next_set();
        if constexpr (kind == Kind::Each) {
            const float of_rows[2] = {row_scale(place, half * kHalf), row_scale(place, half * kHalf + 8)};
            float2 of[2][kPairs];
            load_quarter(place, 0, of[0]);
            wait_products<0>(part);
            add_each<half>(place, part, of_rows, of);
        } else {
            if (begins && kept) store_totals();
            const float of_rows[2] = {multiply_rn(row_scale(place, half * kHalf), of_columns),
                                      multiply_rn(row_scale(place, half * kHalf + 8), of_columns)};
            wait_products<0>(part);
#pragma unroll
            for (int i = 0; i < kSums; i++) totals[half][i] = __fmaf_rn(part[i], of_rows[i / 2 % 2], totals[half][i]);
        }
        hold_accumulators(totals[half]);
    }
    __device__ __forceinline__ void release() const {
        if (read_thread() % 32 < kCluster) arrive_at_address(free_at + stage * uint32_t(sizeof(Barrier)));
    }
    // `place`: of the step's scales in their set, which `ends` with it. Then `more` says whether the tile has another one.
    template <bool both, bool begins = false, bool ends = false>
    __device__ __forceinline__ void multiply_step(int place, float of_columns, bool more = false) {
        wait(shared.full[stage], parity);
        multiply_half<0, begins, ends && !both>(place, of_columns, more);
        if (both) multiply_half<1, false, ends>(place, of_columns, more);
        release();
        const bool last = stage == kRingStages - 1;
        stage = last ? 0 : stage + 1;
        parity ^= uint32_t(last);
    }
    __device__ __forceinline__ void next_set() {
        constexpr uint32_t of_set = sizeof(shared.row_scales[0]), of_columns = sizeof(shared.column_scales[0]);
        __syncwarp();
        if (read_thread() % 32 == 0) arrive(shared.scales_free[sets.at()]);
        const bool last = sets.at() == kScaleSets - 1;
        scales_at += last ? of_set - kScaleSets * of_set : of_set;
        columns_at += last ? of_columns - kScaleSets * of_columns : of_columns;
        sets.next();
    }
    __device__ __forceinline__ void wait_for_set() { wait(shared.scales_full[sets.at()], sets.parity()); }
    // Waits under products, where it costs nothing.
    __device__ __forceinline__ void wait_for_next_set() {
        Ring<kScaleSets> next = sets;
        next.next();
        wait(shared.scales_full[next.at()], next.parity());
    }
    // Multiplies the last steps of a tile, fewer than a set, the first of which are done.
    template <bool both>
    __device__ __forceinline__ void multiply_rest(const float* scales, int32_t done, int32_t steps) {
        if (steps == 0) return;
        constexpr uint32_t of_row = sizeof(float), of_columns = kColumns * sizeof(float);
        scales_at += uint32_t(done) * of_row, columns_at += uint32_t(done) * of_columns;
#pragma unroll 1
        for (; done < steps; done++, scales_at += of_row, columns_at += of_columns)
            multiply_step<both>(0, kEach ? 1 : scales[done]);
        scales_at -= uint32_t(steps) * of_row, columns_at -= uint32_t(steps) * of_columns;
        next_set();
    }
    // Multiplies a tile of whole sets.
    template <bool both>
    __device__ __forceinline__ void multiply_whole_tile(const float* scales, int32_t steps) {
        multiply_step<both, true>(0, scales[0]);
#pragma unroll 1
        for (;; scales += kScaleSteps) {
#pragma unroll
            for (int step = 1; step <= kScaleSteps; step++) {
                if (step == kScaleSteps) {
                    words ^= 1;
                    if ((steps -= kScaleSteps) == 0) return;
                }
                multiply_step<both>(step % kScaleSteps, scales[step]);
            }
        }
    }
    // The loop begins with the second step, so that no step in it is the first of a tile. It has no exit between the steps of a
    // set: one kept the wait for the next step behind the additions of the one before.
    template <bool both>
    __device__ __forceinline__ void multiply_tile(const float* scales, int32_t steps) {
        if constexpr (kWhole) return multiply_whole_tile<both>(scales, steps);
        wait_for_set();
        multiply_step<both, true>(0, kEach ? 1 : scales[0]);
        if (steps < kScaleSteps) return multiply_rest<both>(scales, 1, steps);
#pragma unroll 1
        for (;; scales += kScaleSteps) {
#pragma unroll
            for (int step = 1; step <= kScaleSteps; step++) {
                if (step == kScaleSteps) {
                    next_set();
                    if ((steps -= kScaleSteps) < kScaleSteps) return multiply_rest<both>(scales + kScaleSteps, 0, steps);
                }
                const float of_columns = kEach ? 1 : scales[step];
                if (step == kScaleSteps - 1)
                    multiply_step<both, false, true>(step, of_columns, steps > kScaleSteps);
                else
                    multiply_step<both>(step % kScaleSteps, of_columns);
            }
        }
    }
    // Adds to the totals of a tile what D has beside them, and stores them.
    __device__ __forceinline__ void finish_totals(const ProductTile& tile) {
        const GemmProblem& p = args.problem;
#pragma unroll
        for (int half = 0; half < kHalves; half++)
            add_more_to_sums(p, rows_of_warp(p, tile, first_row(half), true),
                             reinterpret_cast<float(&)[1][kSums]>(totals[half]));
        if (p.d.format == MXQ_FORMAT_F32)
            store_floats(tile);
        else
            store_elements(tile);
        clear_totals();
    }
    __device__ __forceinline__ void run() {
        clear_totals();
#pragma unroll 1
        for (;; slots.next()) {
            wait(shared.tile_full[slots.at()], slots.parity());
            const Slot<kind>& slot = shared.slots[slots.at()];
            const int32_t steps = uniform(slot.tile.steps);
            if (steps < 0) break;
            if (kEach && steps == 0) {  // a group without codes
            } else if (slot.tile.rows > kHalf) {
                multiply_tile<true>(slot.scales, steps);
            } else {
                multiply_tile<false>(slot.scales, steps);
            }
#pragma unroll 1
            for (int half = 0; half < kHalves; half++) clear_padding(args.problem, slot.tile, first_row(half));
            kept = !kEach;
            if constexpr (kind == Kind::Each) {
                if (!args.problem.leaves_d(steps)) finish_totals(slot.tile);
                __syncwarp();
                if (read_thread() % 32 == 0) arrive(shared.tile_free[slots.at()]);
            }
        }
        if (kept) store_totals();
        wait_stores_read<0>();
    }
};

// ---- A CTA -----------------------------------------------------------------------------------------------------------

template <Kind kind>
__device__ __forceinline__ void init_barriers(Shared<kind>& shared) {
    for (Barrier& barrier : shared.full) init_barrier(barrier, 1);
    for (Barrier& barrier : shared.free) init_barrier(barrier, kCluster * kConsumerWarps);
    for (Barrier& barrier : shared.landed) init_barrier(barrier, 1);
    for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
    for (Barrier& barrier : shared.scales_full) init_barrier(barrier, 32);  // a warp's lanes
    for (Barrier& barrier : shared.scales_free) init_barrier(barrier, kConsumerWarps);
    for (Barrier& barrier : shared.tile_free) init_barrier(barrier, (kind == Kind::Each ? 3 : kind == Kind::Any ? 2 : 1) + kConsumerWarps);
    publish_barriers();
}

template <Kind kind>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    multiply(const __grid_constant__ ProductArguments args) {
    extern __shared__ __align__(1024) uint8_t memory[];
    auto& shared = *reinterpret_cast<Shared<kind>*>(memory);
    if (threadIdx.x == 0) init_barriers(shared);
    __syncwarp();
    sync_cluster();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegistersOf<kind>>();
        const uint32_t warp = threadIdx.x / 32;
        if (warp == 0 && elect_lane()) load_operands(args, shared);
        if (warp == 1) find_tiles(args, shared);
        if constexpr (kind != Kind::Whole)
            if (warp == 2) load_scales(args, shared);
        if constexpr (kind == Kind::Each)
            if (warp == 3) clear_cut_steps(shared);
    } else {
        take_registers<kConsumerRegistersOf<kind>>();
        const uint32_t warp = threadIdx.x / 32 - 4, row = warp * kWarpRows + threadIdx.x % 32 / 4;
        Consumer<kind> consumer{
            args,
            shared,
            FirstTile(shared.stages[0].a + warp / 4 * kProductRows * kStepBytes),
            FirstTile(shared.stages[0].b),
            uint32_t(__cvta_generic_to_shared(shared.row_scales[0][row])),
            uint32_t(__cvta_generic_to_shared(shared.column_scales)) + threadIdx.x % 4 * uint32_t(sizeof(float2)),
            warp,
            address_in_cta(shared.free[0], threadIdx.x % kCluster)};
        consumer.run();
    }
    __syncwarp();
    sync_cluster();  // the other CTA may still load to this one, and arrive at its barriers
}

}  // namespace

template <Kind kind>
Kernel kernel() {
    return {reinterpret_cast<const void*>(multiply<kind>), sizeof(Shared<kind>)};
}

Kernel kernel_of(Kind kind) {
    return kind == Kind::Whole ? kernel<Kind::Whole>() : kind == Kind::Any ? kernel<Kind::Any>() : kernel<Kind::Each>();
}

}  // namespace mxq::cuda::sm90::squares
