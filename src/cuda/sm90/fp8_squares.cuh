// The kernel of wgmma_fp8_sm90 for weights with one scale for 128 x 128 codes, where D takes boxes of the sums alone:
//
//     warp 0, one lane    loads a step of A and B, and the scales of A for four steps
//     warp 1              finds tiles, one ahead, and leaves all scales of B for the tile
//     warps 4..7, 8..11   consumers, 64 x 192 each
//
// A consumer has one group of products in flight, m64n192k128. While it adds the sums to its totals, the tensor cores have the
// other warpgroup's. Its totals become elements of D under the first product of the next tile. Sums are those of
// fp8_consumers.cuh, bit for bit.
#pragma once
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/fp8_epilogue.cuh"
#include "cuda/sm90/ring.cuh"

namespace mxq::cuda::sm90::squares {

constexpr int kPieces = kTileColumns / kPieceColumns;
constexpr int32_t kMostTileSteps = 128;  // whose scales a slot has room for

// A tile, and for each step the scales of its pieces of columns.
struct Slot {
    ProductTile tile;
    int32_t words_line;  // of A's scales
    float4 scales[kMostTileSteps];
};

struct Shared {
    Stage stages[kStages];
    RoundWords row_words[kWordRounds];
    alignas(1024) uint8_t out[kConsumerWarps][kBoxesBytes];
    Slot slots[kTileSlots];
    Barrier full[kStages], free[kStages], tile_full[kTileSlots], tile_free[kTileSlots];
};
static_assert(sizeof(Shared) <= 227 * 1024, "what a CTA may have");

// ---- Finding tiles ---------------------------------------------------------------------------------------------------

// Copies the scales of B for all steps of a tile to its slot. All lanes of a warp call it.
__device__ __forceinline__ void load_scales(const ProductArguments& args, const WordPlaces& words, Slot& slot,
                                            const ProductTile& tile) {
    if (tile.columns == 0) return;
    const SideView& b = args.b;
    const uint32_t* of_piece[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
        const int32_t line = words.b_line + min(i * kPieceColumns, tile.columns - 1);
        of_piece[i] = b.words + words.b + (line >> b.lines_log2) * b.word_stride;
    }
#pragma unroll 1
    for (int32_t step = int32_t(threadIdx.x % 32); step < tile.steps; step += 32) {
        const auto scale = [&](int piece) { return bits_float(__ldg(of_piece[piece] + step * b.step_stride)); };
        slot.scales[step] = {scale(0), scale(1), scale(2), 0};
    }
}

// Finds tiles, one warp. A barrier counts as complete before its first phase, so that slots are free at first.
__device__ __forceinline__ void find_tiles(const ProductArguments& args, Shared& shared) {
    uint32_t index = blockIdx.x / kCluster;
#pragma unroll 1
    for (Ring<kTileSlots> slots;; slots.next(), index += gridDim.x / kCluster) {
        WordPlaces words;
        const ProductTile tile = product_tile(args, index, words);
        Slot& slot = shared.slots[slots.at()];
        wait(shared.tile_free[slots.at()], slots.parity() ^ 1);
        load_scales(args, words, slot, tile);
        if (threadIdx.x % 32 == 0) slot.tile = tile, slot.words_line = words.a_line;
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(shared.tile_full[slots.at()]);
        if (tile.steps < 0) return;
    }
}

// ---- Loads -----------------------------------------------------------------------------------------------------------

// Loads the lines of a side, `half` of them by each box. Of what the cluster shares, a CTA loads the half with its number, for
// both CTAs; of the rest both halves, for itself.
template <int half, int rank>
__device__ __forceinline__ void load_side(uint8_t* to, const CUtensorMap& map, bool shared, Barrier& done,
                                          const int32_t (&at)[rank]) {
    const int32_t first = shared ? int32_t(block_of_cluster()) * half : 0;
    int32_t place[rank];
#pragma unroll
    for (int i = 0; i < rank; i++) place[i] = at[i] + (i == 1 ? first : 0);
    if (shared) {
        load_tile_to((1u << kCluster) - 1, to + first * kStepBytes, map, place, done);
    } else {
        load_tile(to, map, place, done);
        place[1] += half;
        load_tile(to + half * kStepBytes, map, place, done);
    }
}

// Loads the operands of all tiles, one lane. A tile takes whole rounds of the ring, so that addresses are constants; stages
// behind its last step have nothing in them.
__device__ __forceinline__ void load_operands(const ProductArguments& args, Shared& shared) {
    uint32_t round = 0;
#pragma unroll 1
    for (Ring<kTileSlots> slots;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        const Slot& slot = shared.slots[slots.at()];
        const int32_t steps = slot.tile.steps, words_line = slot.words_line, matrix = slot.tile.b_matrix;
        const int32_t a_line = slot.tile.a_line, b_line = slot.tile.b_line;
        const bool shares_a = slot.tile.shares_a;
        arrive(shared.tile_free[slots.at()]);
        if (steps < 0) return;
#pragma unroll 1
        for (int32_t first = 0; first < steps; first += kStages, round ^= 1)
#pragma unroll
            for (int stage = 0; stage < kStages; stage++) {
                const int32_t step = first + stage;
                Barrier& full = shared.full[stage];
                wait(shared.free[stage], round ^ 1);
                if (step >= steps) {
                    arrive(full);
                    continue;
                }
                RoundWords& words = shared.row_words[round];
                arrive_expecting(full, (kTileRows + kTileColumns) * kStepBytes + (stage == 0 ? sizeof(words) : 0));
                load_side<kHalfColumns>(shared.stages[stage].b, args.b_map, !shares_a, full, {step * kStepBytes, b_line, matrix});
                load_side<kHalfRows>(shared.stages[stage].a, args.a_map, shares_a, full, {step * kStepBytes, a_line});
                if (stage == 0) load_tile(&words, args.a_words, {step * int32_t(sizeof(uint32_t)), words_line}, full);
            }
    }
}

// ---- Products --------------------------------------------------------------------------------------------------------

// The descriptor of a tile in stage 0, whose lower half is the same in all threads of a warp, so that those of other tiles
// are sums of uniform registers and constants.
struct FirstTile {
    uint32_t low, high;

    __device__ __forceinline__ FirstTile(const void* tile) {
        const uint64_t bits = describe_tile(tile).bits;
        low = uint32_t(uniform(int32_t(bits)));
        high = uint32_t(bits >> 32);
    }
    __device__ __forceinline__ TileDescriptor behind(int bytes) const {
        return {uint64_t(high) << 32 | (low + uint32_t(bytes >> 4))};
    }
};

struct Consumer {
    const ProductArguments& args;
    Shared& shared;
    FirstTile a, b;
    uint32_t row_words;  // address of those of the thread's first row, in the first round
    uint32_t warp;       // of the consumers
    uint32_t parity = 0;
    bool kept = false;  // totals are those of the tile before
    Ring<kTileSlots> slots = {};
    float totals[2][kSums];

    __device__ __forceinline__ void clear_totals() {
#pragma unroll
        for (int i = 0; i < 2 * kSums; i++) totals[i / kSums][i % kSums] = 0;
        hold_accumulators(totals[0]);
        hold_accumulators(totals[1]);
    }
    // Stores the totals of the tile before, which lies in the other slot.
    __device__ __forceinline__ void store_totals() {
        const uint32_t at = slots.at() ^ 1;
        const RowsOfWarp of = rows_of_warp(args.problem, shared.slots[at].tile, int(warp) * kWarpRows, true);
        wait_stores_read<0>();
        __syncwarp();
        write_boxes(args, of, totals, shared.out[warp]);
        __syncwarp();
        if (read_thread() % 32 == 0) arrive(shared.tile_free[at]);
        clear_totals();
        kept = false;
    }
    __device__ __forceinline__ void release(int stage) const {
        const uint32_t lane = read_thread() % 32;
        if (lane < kCluster) arrive_at(shared.free[stage], lane);
    }
    // Returns the scale of A for a step, in the thread's first row or 8 rows further on.
    __device__ __forceinline__ float row_scale(int stage, int rows) const {
        float scale;
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(scale)
                     : "r"(row_words + parity * uint32_t(sizeof(RoundWords)) + uint32_t((rows * kStages + stage) * 4)));
        return scale;
    }
    __device__ __forceinline__ void multiply_step(int stage, const float4& scales) {
        float part[kWideAccumulators];
        wait(shared.full[stage], parity);
        begin_products(part);
#pragma unroll
        for (int k = 0; k < kStepBytes; k += kProductBytes)
            multiply_fp8<E4M3, E4M3>(part, a.behind(stage * int(sizeof(Stage)) + k), b.behind(stage * int(sizeof(Stage)) + k),
                                     k > 0);
        commit_products();
        if (stage == 0 && kept) store_totals();
        const float rows[2] = {row_scale(stage, 0), row_scale(stage, 8)}, pieces[kPieces] = {scales.x, scales.y, scales.z};
        float factors[kPieces][2];
#pragma unroll
        for (int i = 0; i < 2 * kPieces; i++) factors[i / 2][i % 2] = multiply_rn(rows[i % 2], pieces[i / 2]);
        wait_products<0>(part);
        release(stage);
#pragma unroll
        for (int i = 0; i < kWideAccumulators; i++) {
            float& total = totals[i / kSums][i % kSums];
            total = __fmaf_rn(part[i], factors[i / (kPieceColumns / 2)][i / 2 % 2], total);
        }
        hold_accumulators(totals[0]);
        hold_accumulators(totals[1]);
    }
    __device__ __forceinline__ void multiply_tile(const Slot& slot, int32_t steps) {
        const float4* scales = slot.scales;
#pragma unroll 1
        for (int32_t step = 0; step < steps; step += kStages, parity ^= 1, scales += kStages)
#pragma unroll
            for (int stage = 0; stage < kStages; stage++) {
                if (step + stage < steps) {
                    multiply_step(stage, scales[stage]);
                } else {
                    wait(shared.full[stage], parity);
                    release(stage);
                }
            }
    }
    __device__ __forceinline__ void run() {
        clear_totals();
#pragma unroll 1
        for (;; slots.next()) {
            wait(shared.tile_full[slots.at()], slots.parity());
            const Slot& slot = shared.slots[slots.at()];
            const int32_t steps = uniform(slot.tile.steps);
            if (steps < 0) break;
            multiply_tile(slot, steps);
            clear_padding(args.problem, slot.tile, int(warp) * kWarpRows);
            kept = true;
        }
        if (kept) store_totals();
        wait_stores_read<0>();
    }
};

// ---- A CTA -----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void init_barriers(Shared& shared) {
    for (Barrier& barrier : shared.full) init_barrier(barrier, 1);
    for (Barrier& barrier : shared.free) init_barrier(barrier, kCluster * kConsumerWarps);
    for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
    for (Barrier& barrier : shared.tile_free) init_barrier(barrier, 1 + kConsumerWarps);
    publish_barriers();
}

template <int give, int take>
__device__ __forceinline__ void multiply_tiles(const ProductArguments& args, Shared& shared) {
    if (threadIdx.x == 0) init_barriers(shared);
    __syncwarp();
    sync_cluster();
    if (threadIdx.x < kWarpgroup) {
        give_registers<give>();
        const uint32_t warp = threadIdx.x / 32;
        if (warp == 0 && elect_lane()) load_operands(args, shared);
        if (warp == 1) find_tiles(args, shared);
    } else {
        take_registers<take>();
        const uint32_t warp = threadIdx.x / 32 - 4, row = warp * kWarpRows + threadIdx.x % 32 / 4;
        Consumer consumer{args, shared, FirstTile(shared.stages[0].a + warp / 4 * kProductRows * kStepBytes),
                          FirstTile(shared.stages[0].b),
                          uint32_t(__cvta_generic_to_shared(shared.row_words[0].of_row[row])), warp};
        consumer.run();
    }
    __syncwarp();
    sync_cluster();  // the other CTA may still load to this one, and arrive at its barriers
}

}  // namespace mxq::cuda::sm90::squares
