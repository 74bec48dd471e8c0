// The warps of wgmma_fp8_sm90 that multiply nothing, and where all its warps meet:
//
//     slots    scout -> everybody     two of them: tiles, found one ahead
//     ring     loaders -> consumers   four stages: codes by the copy engine, references of rows by 4-byte copies
//
// A stage is full when the boxes of both blocks of the cluster and each lane's words are there; it is free when the
// consumers of both blocks have left it, since each block loads for the other.
#pragma once
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/fp8_tiles.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90 {

constexpr int kLaneWords = kTileRows / 32;

// Loads the block's own half or halves of a step: of what the cluster shares, the half with its number, for both blocks.
__device__ __forceinline__ void load_step(const ProductArguments& args, const ProductTile& tile, int32_t step, Stage& stage,
                                          Barrier& full) {
    constexpr uint32_t both = (1u << kCluster) - 1;
    const int32_t code = tile.code + step * kStepCodes, rank = int32_t(blockIdx.x % kCluster);
    const auto rows = [&](int half, auto load) {
        load(stage.a + half * kHalfRows * kStepCodes, args.a_map, {code, tile.a_line + half * kHalfRows});
    };
    const auto columns = [&](int half, auto load) {
        load(stage.b + half * kHalfColumns * kStepCodes, args.b_map,
             {code, tile.b_line + half * kHalfColumns, tile.b_matrix});
    };
    arrive_expecting(full, sizeof(Stage::a) + sizeof(Stage::b));
    const auto own = [&]<int dimensions>(void* to, const CUtensorMap& map, const int32_t(&at)[dimensions]) {
        load_tile(to, map, at, full);
    };
    const auto shared = [&]<int dimensions>(void* to, const CUtensorMap& map, const int32_t(&at)[dimensions]) {
        load_tile_to(both, to, map, at, full);
    };
    if (tile.shares_a)
        rows(rank, shared), columns(0, own), columns(1, own);
    else
        columns(rank, shared), rows(0, own), rows(1, own);
}

// The words of a lane's rows in a tile, which are those number lane, lane + 32, ...
struct RowWords {
    uint32_t rows[kLaneWords];  // numbers of the first

    __device__ __forceinline__ RowWords(const ProductArguments& args, const ProductTile& tile) {
#pragma unroll
        for (int i = 0; i < kLaneWords; i++) {
            const int64_t line = min(int64_t(tile.a_line) + threadIdx.x % 32 + 32 * i, args.a.lines - 1);
            rows[i] = uint32_t(line * args.a.word_stride) + uint32_t(tile.code / kStepCodes);
        }
    }
    // Brings those of a step to shared memory; each lane arrives when its own are there.
    __device__ __forceinline__ void load(const ProductArguments& args, int32_t step, Stage& stage, Barrier& full) const {
#pragma unroll
        for (int i = 0; i < kLaneWords; i++)
            copy_word(&stage.words[threadIdx.x % 32 + 32 * i], args.a.words + (rows[i] + uint32_t(step)));
        arrive_after_copies(full);
    }
};

// Where a warp is: how many tiles it took, of which two bits matter, and above them how many rounds through the ring. One
// number, since registers are short.
struct Progress {
    uint32_t bits = 0;
    __device__ __forceinline__ uint32_t slot() const { return bits % kTileSlots; }
    __device__ __forceinline__ uint32_t slot_parity() const { return bits / kTileSlots % 2; }
    __device__ __forceinline__ uint32_t round_parity() const { return bits / (2 * kTileSlots) % 2; }
    __device__ __forceinline__ void next_tile() { bits ^= bits % kTileSlots == 0 ? 1 : 3; }  // 0, 1, 2, 3, 0
    __device__ __forceinline__ void next_round() { bits ^= 2 * kTileSlots; }
};
static_assert(kTileSlots == 2);

// Calls `take` with the tile of each slot, in turn, as it is ready, and gives the slot back. All lanes of a warp call it.
template <class Take>
__device__ __forceinline__ void each_tile(ProductShared& shared, const Take& take) {
    Progress progress;
#pragma unroll 1
    for (;; progress.next_tile()) {
        const uint32_t slot = progress.slot();
        wait(shared.tile_full[slot], progress.slot_parity());
        if (shared.tiles[slot].tile.steps < 0) return;
        take(shared.tiles[slot], progress);
        __syncwarp();
        if (read_thread() % 32 == 0) arrive(shared.tile_free[progress.slot()]);
    }
}

// Finds tiles, one warp. A barrier counts as complete before its first phase, so that slots are free at first.
__device__ __forceinline__ void scout(const ProductArguments& args, ProductShared& shared) {
    int32_t steps = 0;
    uint32_t index = blockIdx.x / kCluster;
    for (uint32_t number = 0; steps >= 0; number++) {
        const uint32_t slot = number % kTileSlots;
        wait(shared.tile_free[slot], (number / kTileSlots + 1) % 2);
        scout_tile(args, index, shared.tiles[slot]);
        __syncwarp();
        steps = shared.tiles[slot].tile.steps;
        if (threadIdx.x % 32 == 0) arrive(shared.tile_full[slot]);
    }
}

// Calls `load` with each step of a tile and its stage, once it is free. A tile takes whole rounds through the ring, so that
// the consumers' addresses are constants; `load` gets the steps that fill up the last round too.
template <class Load>
__device__ __forceinline__ void each_step(ProductShared& shared, const ProductTile& tile, Progress& progress,
                                          const Load& load) {
#pragma unroll 1
    for (int32_t step = 0; step < tile.steps; progress.next_round())
#pragma unroll 1
        for (int32_t stage = 0; stage < kStages; stage++, step++) {
            wait(shared.free[stage], progress.round_parity() ^ 1);
            load(step, shared.stages[stage], shared.full[stage]);
        }
}

// Loads codes, one warp, of which one lane does it all.
__device__ __forceinline__ void load_codes(const ProductArguments& args, ProductShared& shared) {
    each_tile(shared, [&](const TileSlot& slot, Progress& progress) {
        each_step(shared, slot.tile, progress, [&](int32_t step, Stage& stage, Barrier& full) {
            if (threadIdx.x % 32 != 0) return;
            if (step < slot.tile.steps)
                load_step(args, slot.tile, step, stage, full);
            else
                arrive(full);
        });
    });
}

// Loads words, one warp.
__device__ __forceinline__ void load_words(const ProductArguments& args, ProductShared& shared) {
    each_tile(shared, [&](const TileSlot& slot, Progress& progress) {
        const RowWords words(args, slot.tile);
        each_step(shared, slot.tile, progress, [&](int32_t step, Stage& stage, Barrier& full) {
            if (step < slot.tile.steps)
                words.load(args, step, stage, full);
            else
                arrive(full);
        });
    });
}

}  // namespace mxq::cuda::sm90
