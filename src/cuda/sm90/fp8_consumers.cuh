// The warpgroups of wgmma_fp8_sm90 that multiply: 64 x 192 of a tile each, as two halves that take turns.
//
//     step s        left  | multiply  | add       | multiply  | add
//     (of 128)      right |    add    | multiply  | add       | multiply     so that the tensor cores seldom wait
//
// FP8 tensor cores keep 14 bits of a sum, hence totals in fp32 every 128 codes, times a factor: that of the row, times that of
// its columns where they have some.
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
    Rows,    // times the factors of rows
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
        : a(describe_tile(stage.a + warpgroup * kProductRows * kStepCodes)),
          left(describe_tile(stage.b)),
          right(describe_tile(stage.b + kHalfColumns * kStepCodes)) {}
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
    __device__ __forceinline__ static float2 row_factors(const uint2& words) {
        if constexpr (adding == Adding::Rows || adding == Adding::Words)
            return {relative_factor(words.x & 0xFF), relative_factor(words.y & 0xFF)};
        else
            return {bits_float(words.x), bits_float(words.y)};
    }
    // Returns the words of the thread's first two columns of a half.
    __device__ __forceinline__ const uint32_t* column_words(int stage, int half) const {
        return shared.column_words[stage].of_column + half * kHalfColumns + 2 * (read_thread() % 4);
    }
    template <Adding adding>
    __device__ __forceinline__ void add(int stage, int half, const float (&part)[kSums], const float2& rows) {
        if constexpr (adding == Adding::Rows)
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
        if constexpr (adding == Adding::Rows) release(stage);
        add<adding>(stage, 1, part, rows);
        if constexpr (adding != Adding::Rows) release(stage);
    }
    __device__ __forceinline__ static void multiply_half(float (&part)[kSums], TileDescriptor a, TileDescriptor b) {
        begin_products(part);
#pragma unroll
        for (int k = 0; k < kStepCodes; k += kProductBytes) multiply_fp8<A, B>(part, a.along(k), b.along(k), k > 0);
        commit_products();
    }
    template <Adding adding>
    __device__ __forceinline__ void multiply_step(int stage) {
        const StageTiles tiles(shared.stages[stage], warpgroup);
        const uint2 words = row_words(stage);
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
            wait_products<1>(left);
            add<adding>(stage, 0, left, before);
        }
        wait_products<0>(right);
        add_last<adding>(kStages - 1, right, before);
    }
    // Adds up half of a step every 32 codes, under the references of both sides.
    __device__ __forceinline__ void multiply_split(int stage, int half, TileDescriptor a, TileDescriptor b) {
        const uint2 words = row_words(stage);
#pragma unroll 1
        for (int k = 0; k < kStepCodes; k += kProductBytes) {
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
            if (__builtin_expect(marks == 0 && step + kStages <= steps, true))
                multiply_round<Adding::Rows>();
            else if (marks >> kStages == 0 && step + kStages <= steps)
                multiply_round<Adding::Words>();
            else
                multiply_marked_round(steps - step, marks);
        }
    }
    // Takes a tile all of whose steps are added alike.
    template <Adding adding>
    __device__ __forceinline__ void multiply_scaled_tile(int32_t steps) {
        for (int32_t step = 0; step < steps; step += kStages, parity ^= 1) {
            if (step + kStages <= steps) {
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
            multiply_scaled_tile<columns == Columns::Pieces ? Adding::Pieces : Adding::Scales>(steps);
    }
};

template <class A, class B, Columns columns>
__device__ __forceinline__ void consume(const ProductArguments& args, ProductShared& shared) {
    const int32_t warpgroup = uniform(int32_t(threadIdx.x / kWarpgroup) - 1);
    uint32_t parity = 0;
    each_tile<32>(shared, [&](const TileSlot& slot, int32_t steps) {
        float totals[2][kSums] = {};
        Consumer<A, B, columns>{args, shared, warpgroup, slot, parity, totals}.multiply_tile(steps);
        if (!args.problem.leaves_d(steps)) write_sums(args, slot, totals, shared);
    });
    wait_stores_read<0>();
}

}  // namespace mxq::cuda::sm90
