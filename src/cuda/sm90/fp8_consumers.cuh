// The warpgroups of wgmma_fp8_sm90 that multiply: 64 x 192 of a tile each, as two halves that take turns.
//
//     step s        left  | multiply  | add       | multiply  | add
//     (of 128)      right |    add    | multiply  | add       | multiply     so that the tensor cores seldom wait
//
// FP8 tensor cores keep 14 bits of a sum, hence totals in fp32 every 128 codes, times a factor: that of the row, times that of
// its columns where they have some. BF16 numbers, which wgmma_blocks_sm90 has, need totals for their factors alone; 64 of them
// are a step, which takes as long as 128 codes.
#pragma once
#include "cuda/sm90/fp8_epilogue.cuh"
#include "cuda/sm90/fp8_producers.cuh"
#include "numerics/rebase_guard.h"

namespace mxq::cuda::sm90 {

// totals += part, times the factor of each row. Totals are held, so that the compiler adds here and not behind the next
// products, where it would need a third set of registers.
__device__ __forceinline__ void add_part(float (&totals)[kSums], const float (&part)[kSums], const float2& factors) {
#pragma unroll
    for (int h = 0; h < 2; h++)  // a factor after the other, so that the register that has it need not be read each time
#pragma unroll
        for (int i = 2 * h; i < kSums; i += 4) {
            totals[i] = __fmaf_rn(part[i], h ? factors.y : factors.x, totals[i]);
            totals[i + 1] = __fmaf_rn(part[i + 1], h ? factors.y : factors.x, totals[i + 1]);
        }
    hold_accumulators(totals);
}

// Says how sums of 128 codes become part of the totals.
enum class Adding {
    Rows,    // times the references of rows
    Floats,  // times fp32 scales of rows
    Pieces,  // times the products of two fp32 scales, those of columns by pieces
    Scales,  // times the products of two fp32 scales
    Words,   // times the references of columns, and of rows: one after the other, since their product may be too small
};

constexpr int kHalfPieces = kHalfColumns / kPieceColumns;

// Adds sums of the columns of a piece.
__device__ __forceinline__ void add_piece(float (&totals)[kSums], const float (&part)[kSums], int piece, const float2& factors) {
    constexpr int sums = kSums / kHalfPieces;
#pragma unroll
    for (int i = piece * sums; i < (piece + 1) * sums; i += 4) {
        totals[i] = __fmaf_rn(part[i], factors.x, totals[i]);
        totals[i + 1] = __fmaf_rn(part[i + 1], factors.x, totals[i + 1]);
        totals[i + 2] = __fmaf_rn(part[i + 2], factors.y, totals[i + 2]);
        totals[i + 3] = __fmaf_rn(part[i + 3], factors.y, totals[i + 3]);
    }
}

__device__ __forceinline__ void add_pieces(float (&totals)[kSums], const float (&part)[kSums], const float2& rows,
                                           const float* pieces) {
#pragma unroll
    for (int piece = 0; piece < kHalfPieces; piece++)
        add_piece(totals, part, piece, {multiply_rn(rows.x, pieces[piece]), multiply_rn(rows.y, pieces[piece])});
    hold_accumulators(totals);
}

// Adds sums whose columns have words of their own; `columns`: those of the thread's first two. References are those `shift`
// bits up.
template <Adding adding>
__device__ __forceinline__ void add_columns(float (&totals)[kSums], const float (&part)[kSums], const float2& rows,
                                            const uint32_t* columns, int shift = 0) {
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
        if (i % 12 == 0) __syncwarp();  // else the compiler loads more ahead than there are registers for
        float2 of = load_factors(reinterpret_cast<const float*>(columns + 2 * i));
        if constexpr (adding == Adding::Scales) {
            totals[i] = __fmaf_rn(part[i], multiply_rn(rows.x, of.x), totals[i]);
            totals[i + 1] = __fmaf_rn(part[i + 1], multiply_rn(rows.x, of.y), totals[i + 1]);
            totals[i + 2] = __fmaf_rn(part[i + 2], multiply_rn(rows.y, of.x), totals[i + 2]);
            totals[i + 3] = __fmaf_rn(part[i + 3], multiply_rn(rows.y, of.y), totals[i + 3]);
        } else {
            of = {relative_factor(float_bits(of.x) >> shift & 0xFF), relative_factor(float_bits(of.y) >> shift & 0xFF)};
            totals[i] = __fmaf_rn(multiply_rn(part[i], of.x), rows.x, totals[i]);
            totals[i + 1] = __fmaf_rn(multiply_rn(part[i + 1], of.y), rows.x, totals[i + 1]);
            totals[i + 2] = __fmaf_rn(multiply_rn(part[i + 2], of.x), rows.y, totals[i + 2]);
            totals[i + 3] = __fmaf_rn(multiply_rn(part[i + 3], of.y), rows.y, totals[i + 3]);
        }
    }
    hold_accumulators(totals);
}

// Describes what a warpgroup multiplies of a stage.
struct StageTiles {
    TileDescriptor a, left, right;
    __device__ __forceinline__ StageTiles(const Stage& stage, int warpgroup)
        : a(describe_tile(stage.a + warpgroup * kProductRows * kStepBytes)),
          left(describe_tile(stage.b)),
          right(describe_tile(stage.b + kHalfColumns * kStepBytes)) {}
};

// Multiplies a warpgroup's 64 rows of one tile. Both warpgroups run one copy of the instructions, since two copies do not fit
// the nearest instruction caches.
template <class A, class B, Columns columns>
struct Consumer {
    const ProductArguments& args;
    ProductShared& shared;
    int32_t warpgroup;  // uniform
    const TileSlot& slot;
    uint32_t& parity;  // of the round through the ring
    float (&totals)[2][kSums];
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
        if constexpr (adding == Adding::Rows || adding == Adding::Words)
            return {relative_factor(words.x & 0xFF), relative_factor(words.y & 0xFF)};
        else if constexpr (is_bf16)
            return {multiply_rn(bits_float(words.x), args.lift), multiply_rn(bits_float(words.y), args.lift)};
        else
            return {bits_float(words.x), bits_float(words.y)};
    }
    // Returns the words of the thread's first two columns of a half.
    __device__ __forceinline__ const uint32_t* column_words(int stage, int half) const {
        return shared.column_words[stage].of_column + half * kHalfColumns + 2 * (read_thread() % 4);
    }
    template <Adding adding>
    __device__ __forceinline__ void add(int stage, int half, const float (&part)[kSums], const float2& rows) {
        if constexpr (adding == Adding::Rows || adding == Adding::Floats)
            add_part(totals[half], part, rows);
        else if constexpr (adding == Adding::Pieces)
            add_pieces(totals[half], part, rows,
                       reinterpret_cast<const float*>(shared.column_words[stage].of_column) + half * kHalfPieces);
        else
            add_columns<adding>(totals[half], part, rows, column_words(stage, half));
    }
    // Adds the right half, the last that a step needs of its stage. What columns have is read by then, so that a stage is
    // released before where they have nothing.
    template <Adding adding>
    __device__ __forceinline__ void add_last(int stage, const float (&part)[kSums], const float2& rows) {
        constexpr bool of_rows_alone = adding == Adding::Rows || adding == Adding::Floats;
        if constexpr (of_rows_alone) release(stage);
        add<adding>(stage, 1, part, rows);
        if constexpr (!of_rows_alone) release(stage);
    }
    // Looks at the scales of a step: each thread at those of its rows, and all of a warp at those of all columns.
    template <Adding adding>
    __device__ __forceinline__ void look_at(int stage, const uint2& rows) {
        if constexpr (!is_bf16) return;
        met_unusual |= is_unusual_scale(rows.x) || is_unusual_scale(rows.y);
        constexpr int words = adding == Adding::Pieces ? 2 * kHalfPieces : adding == Adding::Scales ? kTileColumns : 0;
#pragma unroll 1
        for (int i = 0; i < words; i += 32)
            met_unusual |= is_unusual_scale(shared.column_words[stage].of_column[min(i + int(read_thread() % 32), words - 1)]);
    }
    // Multiplies half of a step; `adds`: to the part, whose products may be on their way.
    __device__ __forceinline__ static void multiply_half(float (&part)[kSums], TileDescriptor a, TileDescriptor b,
                                                         bool adds = false) {
        if (adds)
            order_products();
        else
            begin_products(part);
#pragma unroll
        for (int k = 0; k < kStepBytes; k += kProductBytes)
            if constexpr (is_bf16)
                multiply_bf16_wide(part, a.along(k), b.along(k), adds || k > 0);
            else
                multiply_fp8<A, B>(part, a.along(k), b.along(k), k > 0);
        commit_products();
    }
    template <Adding adding>
    __device__ __forceinline__ void multiply_step(int stage) {
        const StageTiles tiles(shared.stages[stage], warpgroup);
        const uint2 words = row_words(stage);
        look_at<adding>(stage, words);
        float left[kSums], right[kSums];
        multiply_half(left, tiles.a, tiles.left);
        multiply_half(right, tiles.a, tiles.right);
        const float2 factors = row_factors<adding>(words);
        wait_products<1>(left);
        add<adding>(stage, 0, left, factors);
        wait_products<0>(right);
        add_last<adding>(stage, right, factors);
    }
    // Takes a whole round: products run across its steps, but not past the last, since ptxas follows accumulators through
    // straight code alone.
    template <Adding adding>
    __device__ __forceinline__ void multiply_round() {
        float left[kSums], right[kSums];
        float2 before{};
#pragma unroll
        for (int stage = 0; stage < kStages; stage++) {
            wait_for(stage);
            const StageTiles tiles(shared.stages[stage], warpgroup);
            uint2 words;
            if constexpr (adding == Adding::Rows) words = row_words(stage);
            multiply_half(left, tiles.a, tiles.left);
            if (stage > 0) {
                wait_products<1>(right);
                add_last<adding>(stage - 1, right, before);
            }
            multiply_half(right, tiles.a, tiles.right);
            if constexpr (adding != Adding::Rows) words = row_words(stage);  // late, since registers are short
            before = row_factors<adding>(words);
            look_at<adding>(stage, words);
            wait_products<1>(left);
            add<adding>(stage, 0, left, before);
        }
        wait_products<0>(right);
        add_last<adding>(kStages - 1, right, before);
    }
    // Takes a round of BF16 numbers, whose scales are those of two steps: half as many additions.
    template <Adding adding>
    __device__ __forceinline__ void multiply_round_of_pairs() {
        float left[kSums], right[kSums];
        float2 before{};
#pragma unroll
        for (int stage = 0; stage < kStages; stage += 2) {
            wait_for(stage);
            const StageTiles first(shared.stages[stage], warpgroup), second(shared.stages[stage + 1], warpgroup);
            multiply_half(left, first.a, first.left);
            if (stage > 0) {
                wait_products<1>(right);
                add_last<adding>(stage - 1, right, before);
            }
            multiply_half(right, first.a, first.right);
            wait_for(stage + 1);
            multiply_half(left, second.a, second.left, true);
            wait_products_before<1>();
            release(stage);
            multiply_half(right, second.a, second.right, true);
            const uint2 words = row_words(stage + 1);
            before = row_factors<adding>(words);
            look_at<adding>(stage + 1, words);
            wait_products<1>(left);
            add<adding>(stage + 1, 0, left, before);
        }
        wait_products<0>(right);
        add_last<adding>(kStages - 1, right, before);
    }
    // Adds up half of a step every 32 codes, under the references of both sides.
    __device__ __forceinline__ void multiply_split(int stage, int half, TileDescriptor a, TileDescriptor b) {
        const uint2 words = row_words(stage);
#pragma unroll 1
        for (int k = 0; k < kStepBytes; k += kProductBytes) {
            float part[kSums];
            begin_products(part);
            multiply_fp8<A, B>(part, a.along(k), b.along(k), false);
            commit_products();
            wait_products<0>(part);
            const int shift = k / kProductBytes * 8;
            const float2 of_rows = {relative_factor(words.x >> shift & 0xFF), relative_factor(words.y >> shift & 0xFF)};
            add_columns<Adding::Words>(totals[half], part, of_rows, column_words(stage, half), shift);
        }
    }
    // Takes a round of which some steps have marks, or that is not whole.
    __device__ __forceinline__ void multiply_marked_round(int32_t steps, RoundMarks marks) {
#pragma unroll 1
        for (int i = 0; i < kStages; i++) {
            const int stage = uniform(i);
            wait_for(stage);
            if (stage >= steps) {
                release(stage);
            } else if (marks >> (kStages + stage) & 1) {
                const StageTiles tiles(shared.stages[stage], warpgroup);
                multiply_split(stage, 0, tiles.a, tiles.left);
                multiply_split(stage, 1, tiles.a, tiles.right);
                release(stage);
            } else if (marks >> stage & 1) {
                multiply_step<Adding::Words>(stage);
            } else {
                multiply_step<Adding::Rows>(stage);
            }
        }
    }
    __device__ __forceinline__ void multiply_marked_tile(int32_t steps) {
        const RoundMarks* round = slot.rounds;
        RoundMarks next = *round;
#pragma unroll 1
        for (int32_t step = 0; step < steps; step += kStages, parity ^= 1) {
            const RoundMarks marks = next;
            next = *++round;  // early, so that nobody waits for it
            const bool whole = step + kStages <= steps;
            if (__builtin_expect(marks == 0 && whole, true)) {
                multiply_round<Adding::Rows>();
            } else if (marks >> kStages == 0 && whole) {
                multiply_round<Adding::Words>();
            } else {
                multiply_marked_round(steps - step, marks);
            }
        }
    }
    // Takes a tile all of whose steps are added alike.
    template <Adding adding>
    __device__ __forceinline__ void multiply_scaled_tile(int32_t steps) {
        for (int32_t step = 0; step < steps; step += kStages, parity ^= 1) {
            if (step + kStages <= steps) {
                if constexpr (is_bf16)
                    multiply_round_of_pairs<adding>();
                else
                    multiply_round<adding>();
                continue;
            }
#pragma unroll 1
            for (int i = 0; i < kStages; i++) {
                const int stage = uniform(i);
                wait_for(stage);
                if (stage < steps - step)
                    multiply_step<adding>(stage);
                else
                    release(stage);
            }
        }
    }
    __device__ __forceinline__ void multiply_tile(int32_t steps) {
        if constexpr (columns == Columns::Marked)
            multiply_marked_tile(steps);
        else
            multiply_scaled_tile<columns == Columns::Pieces ? Adding::Pieces
                                 : columns == Columns::Each ? Adding::Scales
                                                            : Adding::Floats>(steps);
    }
};

template <class A, class B, Columns columns>
__device__ __forceinline__ void consume(const ProductArguments& args, ProductShared& shared) {
    const int32_t warpgroup = uniform(int32_t(threadIdx.x / kWarpgroup) - 1);
    uint32_t parity = 0;
    each_tile<32>(shared, [&](const TileSlot& slot, int32_t steps) {
        float totals[2][kSums] = {};
        Consumer<A, B, columns> consumer{args, shared, warpgroup, slot, parity, totals};
        consumer.multiply_tile(steps);
        if (args.problem.leaves_d(steps)) return;
        if constexpr (std::is_same_v<A, Bf16>)
            if (needs_again(args.problem, totals, consumer.met_unusual))
                return write_again(args, slot, totals, consumer.met_unusual, shared);
        write_sums(args, slot, totals, shared);
    });
    wait_stores_read<0>();
}

}  // namespace mxq::cuda::sm90
