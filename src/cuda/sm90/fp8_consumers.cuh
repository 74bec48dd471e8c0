// The warpgroups of wgmma_fp8_sm90 that multiply: 64 x 192 of a tile each.
//
//     warpgroup 0 | multiply | add       | multiply | add       a step of 128 codes: the tensor cores multiply for one
//     warpgroup 1 | add      | multiply  | add      | multiply  warpgroup while the threads of the other add
//
// FP8 tensor cores keep 14 bits of a sum, hence totals in fp32 every 128 codes, times a factor: that of the row, times that of
// its columns where they have some. BF16 numbers, which wgmma_blocks_sm90 has, need totals for their factors alone; 64 of them
// are a step, which takes as long as 128 codes.
//
// Totals that D takes directly are stored under the first product of the next tile.
#pragma once
#include "cuda/sm90/fp8_epilogue.cuh"
#include "cuda/sm90/fp8_producers.cuh"
#include "numerics/rebase_guard.h"

namespace mxq::cuda::sm90 {

constexpr int kParts = kWideAccumulators;  // sums of a step

// Says how sums of 128 codes become part of the totals.
enum class Adding {
    Rows,    // times the references of rows
    Floats,  // times fp32 scales of rows
    Pieces,  // times the products of two fp32 scales, those of columns by pieces
    Scales,  // times the products of two fp32 scales
    Words,   // times the references of columns, then times what rows have: their product may be too small
};

constexpr int kPieces = kTileColumns / kPieceColumns;

// Adds sums to the totals of as many columns from accumulator `first` on, times the factors of the thread's two rows.
template <int count>
__device__ __forceinline__ void add_rows(float (&totals)[2][kSums], const float (&part)[kParts], int first,
                                         const float2& factors) {
#pragma unroll
    for (int h = 0; h < 2; h++)  // a factor after the other, so that the register that has it need not be read each time
#pragma unroll
        for (int i = first + 2 * h; i < first + count; i += 4)
#pragma unroll
            for (int at = i; at < i + 2; at++) {
                float& total = totals[at / kSums][at % kSums];
                total = __fmaf_rn(part[at], h ? factors.y : factors.x, total);
            }
}

// Adds sums whose columns have words of their own; `columns`: those of the thread's first two. References are those `shift`
// bits up.
template <Adding adding>
__device__ __forceinline__ void add_columns(float (&totals)[2][kSums], const float (&part)[kParts], const float2& rows,
                                            const uint32_t* columns, int shift = 0) {
#pragma unroll
    for (int i = 0; i < kParts; i += 4) {
        if (i % 24 == 0) __syncwarp();  // else the compiler loads more ahead than there are registers for
        float* const four = &totals[i / kSums][i % kSums];
        float2 of = load_factors(reinterpret_cast<const float*>(columns + 2 * i));
        if constexpr (adding == Adding::Scales) {
            four[0] = __fmaf_rn(part[i], multiply_rn(rows.x, of.x), four[0]);
            four[1] = __fmaf_rn(part[i + 1], multiply_rn(rows.x, of.y), four[1]);
            four[2] = __fmaf_rn(part[i + 2], multiply_rn(rows.y, of.x), four[2]);
            four[3] = __fmaf_rn(part[i + 3], multiply_rn(rows.y, of.y), four[3]);
        } else {
            of = {relative_factor(float_bits(of.x) >> shift & 0xFF), relative_factor(float_bits(of.y) >> shift & 0xFF)};
            four[0] = __fmaf_rn(multiply_rn(part[i], of.x), rows.x, four[0]);
            four[1] = __fmaf_rn(multiply_rn(part[i + 1], of.y), rows.x, four[1]);
            four[2] = __fmaf_rn(multiply_rn(part[i + 2], of.x), rows.y, four[2]);
            four[3] = __fmaf_rn(multiply_rn(part[i + 3], of.y), rows.y, four[3]);
        }
    }
}

// Keeps additions here: behind the next products they would need registers that there are not.
__device__ __forceinline__ void hold_totals(float (&totals)[2][kSums]) {
    hold_accumulators(totals[0]);
    hold_accumulators(totals[1]);
}

// Multiplies a warpgroup's 64 rows of one tile. Both warpgroups run one copy of the instructions, since two copies do not fit
// the nearest instruction caches.
template <class A, class B, Columns columns>
struct Consumer {
    const ProductArguments& args;
    ProductShared& shared;
    int32_t warpgroup;  // uniform
    const TileSlot& slot;
    uint32_t other_slot;  // of the tile before
    uint32_t& parity;     // of the round through the ring
    float (&totals)[2][kSums];
    bool& kept;                // totals are still those of the tile before
    bool met_unusual = false;  // a scale; BF16 numbers alone need to know

    static constexpr bool is_bf16 = std::is_same_v<A, Bf16>;
    __device__ __forceinline__ void wait_for(int stage) const { wait(shared.full[stage], parity); }
    __device__ __forceinline__ void release(int stage) const {
        const uint32_t lane = read_thread() % 32;
        if (lane < kCluster) arrive_at(shared.free[stage], lane);
    }
    // Returns the words of the thread's two rows.
    __device__ __forceinline__ uint2 row_words(int stage) const {
        const uint32_t row = (threadIdx.x / 32 - 4) * 16 + threadIdx.x % 32 / 4;
        const uint32_t* const first = shared.row_words[parity].of_row[row] + stage;
        return {first[0], first[8 * kStages]};
    }
    template <Adding adding>
    __device__ __forceinline__ float2 row_factors(const uint2& words) const {
        if constexpr (adding == Adding::Rows || (adding == Adding::Words && columns == Columns::Marked))
            return {relative_factor(words.x & 0xFF), relative_factor(words.y & 0xFF)};
        else if constexpr (is_bf16)
            return {multiply_rn(bits_float(words.x), args.lift), multiply_rn(bits_float(words.y), args.lift)};
        else
            return {bits_float(words.x), bits_float(words.y)};
    }
    __device__ __forceinline__ const uint32_t* column_words(int stage) const {
        return shared.column_words[parity][stage].of_column;
    }
    // Returns the words of the thread's first two columns.
    __device__ __forceinline__ const uint32_t* own_columns(int stage) const {
        return column_words(stage) + 2 * (read_thread() % 4);
    }
    // Looks at the scales of a step: each thread at those of its rows, and all of a warp at those of all columns.
    template <Adding adding>
    __device__ __forceinline__ void look_at(int stage, const uint2& rows) {
        if constexpr (!is_bf16) return;
        met_unusual |= is_unusual_scale(rows.x) || is_unusual_scale(rows.y);
        constexpr int words = adding == Adding::Pieces ? kPieces : adding == Adding::Scales ? kTileColumns : 0;
#pragma unroll 1
        for (int i = 0; i < words; i += 32)
            met_unusual |= is_unusual_scale(column_words(stage)[min(i + int(read_thread() % 32), words - 1)]);
    }
    // Multiplies a step.
    __device__ __forceinline__ void multiply(float (&part)[kParts], int stage, bool adds = false) const {
        const TileDescriptor a = describe_tile(shared.stages[stage].a + warpgroup * kProductRows * kStepBytes);
        const TileDescriptor b = describe_tile(shared.stages[stage].b);
#pragma unroll
        for (int k = 0; k < kStepBytes; k += kProductBytes)
            if constexpr (is_bf16)
                multiply_bf16_wide(part, a.along(k), b.along(k), adds || k > 0);
            else
                multiply_fp8<A, B>(part, a.along(k), b.along(k), k > 0);
        commit_products();
    }
    // Stores the totals of the tile before.
    __device__ __forceinline__ void store_kept() {
        write_sums<true>(args, shared.tiles[other_slot], totals, shared);
        __syncwarp();
        if (read_thread() % 32 == 0) arrive(shared.tile_free[other_slot]);
        clear(totals);
        kept = false;
    }
    __device__ __forceinline__ static void clear(float (&totals)[2][kSums]) {
#pragma unroll
        for (int i = 0; i < kParts; i++) totals[i / kSums][i % kSums] = 0;
        hold_totals(totals);
    }
    // Multiplies and adds a step, or two steps of BF16 numbers, which have the same scales. `begins`: it may be a tile's first.
    // The totals of the tile before are then stored under its products.
    template <Adding adding, int steps = 1, bool begins = false>
    __device__ __forceinline__ void multiply_steps(int stage) {
        float part[kParts];
        wait_for(stage);
        begin_products(part);
        multiply(part, stage);
        if constexpr (steps > 1) {
            wait_for(stage + 1);
            order_products();
            multiply(part, stage + 1, true);
        }
        if constexpr (begins)
            if (kept) store_kept();
        if constexpr (steps > 1) wait_products_before<1>();
        // Once stage 0 is free, words of the next round may arrive: whoever waited for these then might miss their phase.
        if (stage == 0) wait(shared.words_full, parity);
        if constexpr (steps > 1) {
            release(stage);
            stage++;
        }
        const uint2 words = row_words(stage);
        look_at<adding>(stage, words);
        const float2 rows = row_factors<adding>(words);
        if constexpr (adding == Adding::Rows || adding == Adding::Floats) {
            wait_products<0>(part);
            release(stage);
            add_rows<kParts>(totals, part, 0, rows);
        } else if constexpr (adding == Adding::Pieces) {
            const float4 of = *reinterpret_cast<const float4*>(column_words(stage));
            const float pieces[kPieces] = {of.x, of.y, of.z};
            float2 factors[kPieces];
#pragma unroll
            for (int i = 0; i < kPieces; i++) factors[i] = {multiply_rn(rows.x, pieces[i]), multiply_rn(rows.y, pieces[i])};
            wait_products<0>(part);
            release(stage);
#pragma unroll
            for (int i = 0; i < kPieces; i++) add_rows<kParts / kPieces>(totals, part, i * (kParts / kPieces), factors[i]);
        } else {
            wait_products<0>(part);
            add_columns<adding>(totals, part, rows, own_columns(stage));
            release(stage);
        }
        hold_totals(totals);
    }
    // Takes a whole round.
    template <Adding adding>
    __device__ __forceinline__ void multiply_round() {
        constexpr int steps = is_bf16 ? 2 : 1;
        multiply_steps<adding, steps, true>(0);
#pragma unroll
        for (int stage = steps; stage < kStages; stage += steps) multiply_steps<adding, steps>(stage);
    }
    // Adds up a step every 32 codes, under the references of both sides.
    __device__ __forceinline__ void multiply_split(int stage) {
        wait_for(stage);
        if (stage == 0) wait(shared.words_full, parity);
        const TileDescriptor a = describe_tile(shared.stages[stage].a + warpgroup * kProductRows * kStepBytes);
        const TileDescriptor b = describe_tile(shared.stages[stage].b);
        const uint2 words = row_words(stage);
#pragma unroll 1
        for (int k = 0; k < kStepBytes; k += kProductBytes) {
            float part[kParts];
            begin_products(part);
            multiply_fp8<A, B>(part, a.along(k), b.along(k), false);
            commit_products();
            wait_products<0>(part);
            const int shift = k / kProductBytes * 8;
            const uint2 of_block = columns == Columns::Marked ? uint2{words.x >> shift, words.y >> shift} : words;
            const float2 of_rows = row_factors<Adding::Words>(of_block);
            add_columns<Adding::Words>(totals, part, of_rows, own_columns(stage), shift);
            hold_totals(totals);
        }
        release(stage);
    }
    // Takes a round that is not whole, or, of a tile with marks, one of which some steps have them.
    template <Adding adding>
    __device__ __forceinline__ void multiply_any_round(int32_t steps, RoundMarks marks = 0) {
#pragma unroll 1
        for (int i = 0; i < kStages; i++) {
            const int stage = uniform(i);
            if (stage >= steps) {
                wait_for(stage);
                release(stage);
                continue;
            }
            if constexpr (has_marks(columns)) {
                if (marks >> (kStages + stage) & 1) {
                    multiply_split(stage);
                    continue;
                }
                if (marks >> stage & 1) {
                    multiply_steps<Adding::Words>(stage);
                    continue;
                }
            }
            multiply_steps<adding>(stage);
        }
    }
    __device__ __forceinline__ void multiply_marked_tile(int32_t steps) {
        constexpr Adding adding = columns == Columns::Marked ? Adding::Rows : Adding::Floats;
        const RoundMarks* round = slot.rounds;
        RoundMarks next = *round;
#pragma unroll 1
        for (int32_t step = 0; step < steps; step += kStages, parity ^= 1) {
            const RoundMarks marks = next;
            next = *++round;  // early, so that nobody waits for it
            if (__builtin_expect(marks == 0 && step + kStages <= steps, true))
                multiply_round<adding>();
            else
                multiply_any_round<adding>(steps - step, marks);
        }
    }
    // Takes a tile all of whose steps are added alike.
    template <Adding adding>
    __device__ __forceinline__ void multiply_scaled_tile(int32_t steps) {
#pragma unroll 1
        for (int32_t step = 0; step < steps; step += kStages, parity ^= 1)
            if (step + kStages <= steps)
                multiply_round<adding>();
            else
                multiply_any_round<adding>(steps - step);
    }
    __device__ __forceinline__ void multiply_tile(int32_t steps) {
        const bool begins = steps >= kStages && (!has_marks(columns) || slot.rounds[0] == 0);
        if (kept && !begins) store_kept();
        if constexpr (has_marks(columns))
            multiply_marked_tile(steps);
        else
            multiply_scaled_tile<columns == Columns::Pieces ? Adding::Pieces
                                 : columns == Columns::Each ? Adding::Scales
                                                            : Adding::Floats>(steps);
    }
    // Stores the totals of the tile, or keeps them for the next one's first product.
    __device__ __forceinline__ void end_tile(int32_t steps) {
        const GemmProblem& p = args.problem;
        bool again = false;
        if constexpr (is_bf16) again = needs_again(p, totals, met_unusual);
        kept = args.late && !again;
        if (again)
            write_again(args, slot, totals, met_unusual, shared);
        else if (!kept && !p.leaves_d(steps))
            write_sums<false>(args, slot, totals, shared);
        clear_padding(p, slot.tile, (int(read_thread()) / 32 - 4) * kWarpRows);
        if (!kept) clear(totals);
    }
};

template <class A, class B, Columns columns>
__device__ __forceinline__ void consume(const ProductArguments& args, ProductShared& shared) {
    static_assert(kTileSlots == 2, "the slot of the tile before is the other one");
    const int32_t warpgroup = uniform(int32_t(threadIdx.x / kWarpgroup) - 1);
    uint32_t parity = 0;
    bool kept = false;
    float totals[2][kSums] = {};
    Ring<kTileSlots> slots;
#pragma unroll 1
    for (;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        const TileSlot& slot = shared.tiles[slots.at()];
        const int32_t steps = uniform(slot.tile.steps);
        Consumer<A, B, columns> consumer{args, shared, warpgroup, slot, slots.at() ^ 1, parity, totals, kept};
        consumer.multiply_tile(steps);
        if (steps < 0) break;
        consumer.end_tile(steps);
        slots.recompute();
        __syncwarp();
        if (!kept && read_thread() % 32 == 0) arrive(shared.tile_free[slots.at()]);
    }
    wait_stores_read<0>();
}

}  // namespace mxq::cuda::sm90
