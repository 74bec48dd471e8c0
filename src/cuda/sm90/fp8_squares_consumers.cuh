// The warpgroups of fp8_squares.cu that multiply: 64 rows of either half of a tile each.
//
//     a step     half 0: m64n128k128, its sums times their scales to the totals; half 1 likewise
//     a tile     its first step, then sets of four steps without an exit, then the rest
#pragma once
#include "cuda/sm90/fp8_squares_tiles.cuh"

namespace mxq::cuda::sm90::squares {

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
    // Adds alpha, beta D and bias to the totals of a tile, and stores them.
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

}  // namespace mxq::cuda::sm90::squares
