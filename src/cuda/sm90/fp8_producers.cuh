// The warps of wgmma_fp8_sm90 that multiply nothing, and where all its warps meet:
//
//     slots    scout -> everybody     two of them: tiles, found one ahead
//     ring     loaders -> consumers   five stages: codes by the copy engine, references of rows by 4-byte copies
//
// A stage is full when the boxes of both blocks of the cluster and each lane's words are there; it is free when the
// consumers of both blocks have left it, since each block loads for the other.
#pragma once
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/fp8_tiles.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90 {

constexpr int kLaneWords = kTileRows / 32;

// A place in a ring of `count`, at most 8, and the parity of the round above it. One number, since registers are short.
template <int count>
struct Ring {
    uint32_t bits = 0;
    __device__ __forceinline__ uint32_t at() const { return bits % 8; }
    __device__ __forceinline__ uint32_t parity() const { return bits / 8; }
    __device__ __forceinline__ void next() { bits = bits % 8 == count - 1 ? 8 - bits / 8 * 8 : bits + 1; }
    // Forgets what the compiler computed from it, so that it need not be kept over a loop.
    __device__ __forceinline__ void recompute() { asm volatile("" : "+r"(bits)); }
};
using StageRing = Ring<kStages>;

// Returns a number that all lanes of a warp have, as one that the compiler knows to be the same in all of them: addresses and
// loops that depend on it are then computed once a warp.
__device__ __forceinline__ int32_t uniform(int32_t value) { return __reduce_max_sync(kAllLanes, value); }

// Loads the lines of one side of a step, of which there are two halves. Of what the cluster shares, a block loads the half
// with its number, for both blocks; of the rest both halves, for itself.
template <int lines, class At>
__device__ __forceinline__ void load_lines(uint8_t* to, const CUtensorMap& map, bool shared, Barrier& full, const At& at) {
    constexpr int half = lines / 2;
    arrive_expecting(full, lines * kStepCodes);
    if (shared) {
        const int32_t rank = int32_t(blockIdx.x % kCluster);
        load_tile_to((1u << kCluster) - 1, to + rank * half * kStepCodes, map, at(rank * half).values, full);
    } else {
        load_tile(to, map, at(0).values, full);
        load_tile(to + half * kStepCodes, map, at(half).values, full);
    }
}

template <int rank>
struct Coordinates {
    int32_t values[rank];
};

// Copies the words of a tile's rows number lane, lane + 32, ... to shared memory, for each lane of a warp.
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

// Calls `take` with the tile of each slot, in turn, as it is ready, and gives the slot back. All of so many lanes of a warp
// call it.
template <int lanes, class Take>
__device__ __forceinline__ void each_tile(ProductShared& shared, const Take& take) {
    Ring<kTileSlots> slots;
#pragma unroll 1
    for (;; slots.next()) {
        wait(shared.tile_full[slots.at()], slots.parity());
        TileSlot& slot = shared.tiles[slots.at()];
        const int32_t steps = lanes == 32 ? uniform(slot.tile.steps) : slot.tile.steps;
        if (steps < 0) return;
        take(slot, steps);
        slots.recompute();
        if constexpr (lanes == 32) __syncwarp();
        if (lanes == 1 || read_thread() % 32 == 0) arrive(shared.tile_free[slots.at()]);
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

// Calls `load` with each step of each tile and its stage, once it is free. A barrier counts as complete before its first
// phase, so that stages are free at first. A tile takes whole rounds through the ring, so that the consumers' addresses are
// constants; stages that fill up the last round have nothing in them.
template <int lanes, class Load>
__device__ __forceinline__ void each_step(ProductShared& shared, const Load& load) {
    StageRing ring;
    each_tile<lanes>(shared, [&](const TileSlot& slot, int32_t steps) {
        const auto load_step = load(slot.tile);
#pragma unroll 1
        for (int32_t step = 0; step < steps || ring.at() != 0; step++, ring.next()) {
            wait(shared.free[ring.at()], ring.parity() ^ 1);
            if (step < steps)
                load_step(step, shared.stages[ring.at()], shared.full[ring.at()]);
            else
                arrive(shared.full[ring.at()]);
        }
    });
}

// Loads codes of A, one thread.
__device__ __forceinline__ void load_a(const ProductArguments& args, ProductShared& shared) {
    each_step<1>(shared, [&](const ProductTile& tile) {
        return [&args, code = tile.code, line = tile.a_line, shares = tile.shares_a](int32_t step, Stage& stage,
                                                                                      Barrier& full) {
            load_lines<kTileRows>(stage.a, args.a_map, shares, full, [&](int32_t at) {
                return Coordinates<2>{code + step * kStepCodes, line + at};
            });
        };
    });
}

// Loads codes of B, one thread.
__device__ __forceinline__ void load_b(const ProductArguments& args, ProductShared& shared) {
    each_step<1>(shared, [&](const ProductTile& tile) {
        return [&args, code = tile.code, line = tile.b_line, matrix = tile.b_matrix, shares = !tile.shares_a](
                   int32_t step, Stage& stage, Barrier& full) {
            load_lines<kTileColumns>(stage.b, args.b_map, shares, full, [&](int32_t at) {
                return Coordinates<3>{code + step * kStepCodes, line + at, matrix};
            });
        };
    });
}

// Sets the words of all stages to the reference of the line, for an operand that has none.
__device__ __forceinline__ void clear_words(ProductShared& shared) {
    for (Stage& stage : shared.stages)
        for (int row = int(threadIdx.x % 32); row < kTileRows; row += 32) stage.words[row] = kNoReferences;
}

// Loads words, one warp.
__device__ __forceinline__ void load_words(const ProductArguments& args, ProductShared& shared) {
    if (!args.a.words) {
        clear_words(shared);
        each_step<32>(shared, [](const ProductTile&) { return [](int32_t, Stage&, Barrier& full) { arrive(full); }; });
        return;
    }
    each_step<32>(shared, [&](const ProductTile& tile) {
        return [&args, words = RowWords(args, tile)](int32_t step, Stage& stage, Barrier& full) {
            words.load(args, step, stage, full);
        };
    });
}

}  // namespace mxq::cuda::sm90
