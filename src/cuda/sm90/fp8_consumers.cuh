// The warpgroups of wgmma_fp8_sm90 that multiply: 64 x 192 of a tile each, as two halves that take turns.
//
//     step s        left  | multiply  | add       | multiply  | add
//     (of 128)      right |    add    | multiply  | add       | multiply     so that the tensor cores seldom wait
//
// FP8 tensor cores keep 14 bits of a sum, hence totals in fp32 every 128 codes, times the factor of each row.
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
template <class A, class B>
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
        const uint32_t* const first = shared.stages[stage].words + (threadIdx.x / 32 - 4) * 16 + threadIdx.x % 32 / 4;
        return {first[0], first[8]};
    }
    __device__ __forceinline__ static void multiply_half(float (&part)[kSums], TileDescriptor a, TileDescriptor b) {
        begin_products(part);
#pragma unroll
        for (int k = 0; k < kStepCodes; k += kProductBytes) multiply_fp8<A, B>(part, a.along(k), b.along(k), k > 0);
        commit_products();
    }
    __device__ __forceinline__ void multiply_step(int stage) {
        const StageTiles tiles(shared.stages[stage], warpgroup);
        const uint2 words = row_words(stage);
        float left[kSums], right[kSums];
        multiply_half(left, tiles.a, tiles.left);
        multiply_half(right, tiles.a, tiles.right);
        const float2 factors = {relative_factor(words.x & 0xFF), relative_factor(words.y & 0xFF)};
        wait_products<1>(left);
        add_part(totals[0], left, factors);
        wait_products<0>(right);
        release(stage);
        add_part(totals[1], right, factors);
    }
    // Takes a whole round without marks: products run across its steps, but not past the last, since ptxas follows
    // accumulators through straight code alone.
    __device__ __forceinline__ void multiply_round() {
        float left[kSums], right[kSums];
        float2 before{};
#pragma unroll
        for (int stage = 0; stage < kStages; stage++) {
            wait_for(stage);
            const StageTiles tiles(shared.stages[stage], warpgroup);
            const uint2 words = row_words(stage);
            multiply_half(left, tiles.a, tiles.left);
            if (stage > 0) {
                wait_products<1>(right);
                release(stage - 1);
                add_part(totals[1], right, before);
            }
            multiply_half(right, tiles.a, tiles.right);
            before = {relative_factor(words.x & 0xFF), relative_factor(words.y & 0xFF)};
            wait_products<1>(left);
            add_part(totals[0], left, before);
        }
        wait_products<0>(right);
        release(kStages - 1);
        add_part(totals[1], right, before);
    }
    // Adds up half of a step every 32 codes, under the references of both sides.
    __device__ __forceinline__ void multiply_exactly(int stage, int32_t step, int half, TileDescriptor a, TileDescriptor b) {
        const ProductTile& tile = slot.tile;
        const int column = half * kHalfColumns + 2 * int(read_thread() % 4);
        const uint32_t* const of_columns =
            args.b.words + (tile.b_word_line + column) * args.b.word_stride + tile.code / kStepCodes + step;
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
#pragma unroll
            for (int i = 0; i < kSums; i += 4)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const bool exists = column + 2 * i + c < tile.columns;
                    uint32_t word = kNoReferences;
                    if (exists && args.b.words) word = __ldg(of_columns + (2 * i + c) * args.b.word_stride);
                    const float factor = relative_factor(word >> shift & 0xFF);
                    part[i + c] = multiply_rn(part[i + c], factor);
                    part[i + 2 + c] = multiply_rn(part[i + 2 + c], factor);
                }
            add_part(totals[half], part, of_rows);
        }
    }
    // Takes a round that has marks, a bit for each step, or that is not whole.
    __device__ __forceinline__ void multiply_marked_round(int32_t first, int32_t steps, uint32_t marked) {
#pragma unroll 1
        for (int i = 0; i < kStages; i++) {
            const int stage = uniform(i);
            wait_for(stage);
            const StageTiles tiles(shared.stages[stage], warpgroup);
            if (stage < steps && (marked >> stage & 1)) {
                multiply_exactly(stage, first + stage, 0, tiles.a, tiles.left);
                multiply_exactly(stage, first + stage, 1, tiles.a, tiles.right);
                release(stage);
            } else if (stage < steps) {
                multiply_step(stage);
            } else {
                release(stage);
            }
        }
    }
    __device__ __forceinline__ void multiply_tile(int32_t steps) {
        uint32_t next = slot.marked_steps(0);
#pragma unroll 1
        for (int32_t step = 0; step < steps; step += kStages, parity ^= 1) {
            const uint32_t marked = next;
            next = slot.marked_steps(step + kStages);  // early, so that nobody waits for it
            if (marked == 0 && step + kStages <= steps)
                multiply_round();
            else
                multiply_marked_round(step, steps - step, marked);
        }
    }
};

template <class A, class B>
__device__ __forceinline__ void consume(const ProductArguments& args, ProductShared& shared) {
    const int32_t warpgroup = uniform(int32_t(threadIdx.x / kWarpgroup) - 1);
    uint32_t parity = 0;
    each_tile<32>(shared, [&](const TileSlot& slot, int32_t steps) {
        float totals[2][kSums] = {};
        Consumer<A, B>{args, shared, warpgroup, slot, parity, totals}.multiply_tile(steps);
        if (!args.problem.leaves_d(steps)) write_sums(args, slot, totals, shared);
    });
}

}  // namespace mxq::cuda::sm90
