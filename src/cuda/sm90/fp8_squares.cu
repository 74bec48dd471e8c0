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
// Kind::Whole has four steps in every set, whose scales come with the first, and a BF16 D: 1.04 to 1.07 times as
// fast as Kind::Any (H200, 2026-11-29, mxq_bench: 4096 rows of (4096,7168) and (7168,2048), 177 and 99 us for 185 and 107).
#include "cuda/sm90/fp8_squares.h"

#include "cuda/sm90/fp8_squares_consumers.cuh"

namespace mxq::cuda::sm90::squares {
namespace {

template <Kind kind>
__device__ __forceinline__ void init_barriers(Shared<kind>& shared) {
    for (Barrier& barrier : shared.full) init_barrier(barrier, 1);
    for (Barrier& barrier : shared.free) init_barrier(barrier, kCluster * kConsumerWarps);
    for (Barrier& barrier : shared.landed) init_barrier(barrier, 1);
    for (Barrier& barrier : shared.tile_full) init_barrier(barrier, 1);
    for (Barrier& barrier : shared.scales_full) init_barrier(barrier, 32);  // a warp's lanes
    for (Barrier& barrier : shared.scales_free) init_barrier(barrier, kConsumerWarps);
    constexpr uint32_t producers = kind == Kind::Each ? 3 : kind == Kind::Any ? 2 : 1;  // that read tiles
    for (Barrier& barrier : shared.tile_free) init_barrier(barrier, producers + kConsumerWarps);
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

template <Kind kind>
Kernel kernel() {
    return {reinterpret_cast<const void*>(multiply<kind>), sizeof(Shared<kind>)};
}

}  // namespace

Kernel kernel_of(Kind kind) {
    return kind == Kind::Whole ? kernel<Kind::Whole>() : kind == Kind::Any ? kernel<Kind::Any>() : kernel<Kind::Each>();
}

}  // namespace mxq::cuda::sm90::squares
