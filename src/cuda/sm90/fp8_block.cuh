// A block of 384 threads of wgmma_fp8_sm90 or wgmma_blocks_sm90: its barriers, and which warp does what.
//
//     warps 0, 1          load a step of the lines of A, and of B
//     warp 2              loads words; warp 3 finds tiles
//     warps 4..7, 8..11   consumers
#pragma once
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/sm90/fp8_consumers.cuh"

namespace mxq::cuda::sm90 {

constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
// A block starts with 168 registers a thread, 65536 / 384 in eights. What the producer's warpgroup gives the consumers must
// be enough for them, or they wait for ever.
constexpr int kStartRegisters = 168, kProducerRegisters = 56, kConsumerRegisters = 224;
static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= (1 + kConsumers) * kStartRegisters);

template <class A, class B, Columns columns>
__device__ __forceinline__ void multiply_tiles(const ProductArguments& args, ProductShared& shared) {
    if (threadIdx.x == 0) {
        for (Barrier& barrier : shared.full) init_barrier(barrier, 2);  // codes of both sides
        for (Barrier& barrier : shared.free) init_barrier(barrier, kCluster * kConsumerWarps);
        for (Barrier& barrier : shared.landed) init_barrier(barrier, 2);
        init_barrier(shared.words_full, 32);  // each lane's
        for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
        for (Barrier& barrier : shared.tile_free) init_barrier(barrier, kLoaders + kConsumerWarps);
        publish_barriers();
    }
    __syncwarp();
    sync_cluster();
    if (threadIdx.x < kWarpgroup) {
        give_registers<kProducerRegisters>();
        const uint32_t warp = threadIdx.x / 32;
        wait_for_previous_kernel();  // which moves operands; consumers read nothing before these warps have
        if (warp == 0 && elect_lane()) load_a(args, shared);
        if (warp == 1 && elect_lane()) load_b(args, shared);
        if (warp == 2) load_words<columns>(args, shared);
        if (warp == 3) scout(args, shared);
    } else {
        take_registers<kConsumerRegisters>();
        consume<A, B, columns>(args, shared);
    }
    __syncwarp();
    sync_cluster();  // the other block may still load to this one, and arrive at its barriers
}

}  // namespace mxq::cuda::sm90
