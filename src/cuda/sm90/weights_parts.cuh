// Sums of tiles that CTAs share (weights_schedule.cuh), by way of the workspace. Each CTA but the last of a tile leaves its
// sums there. The last adds up those of the CTAs before it, in their order. Each warp does so for its lines, without a look
// at the others.
#pragma once
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

__device__ __forceinline__ uint64_t* flag_of_warp(const Arguments& args, uint32_t cta) {
    return args.left + cta * kConsumerWarps + bf16::consumer_warp();
}

// Returns where a lane's sums of a part lie: by fours, each 32 fours behind the one before.
template <int count>
__device__ __forceinline__ float4* part_of_lane(const Arguments& args, uint32_t cta) {
    return reinterpret_cast<float4*>(args.left_sums) + (cta * kConsumerWarps + bf16::consumer_warp()) * (count / 4 * 32) +
           read_thread() % 32;
}

// Leaves the sums of a warp, and which of its lines are to be made again, for the CTA that has the end of the tile.
template <int count>
__device__ __forceinline__ void leave_part(const Arguments& args, const float* sums, uint32_t repair) {
    float4* const to = part_of_lane<count>(args, blockIdx.x);
#pragma unroll
    for (int i = 0; i < count; i += 4) __stcg(to + 8 * i, float4{sums[i], sums[i + 1], sums[i + 2], sums[i + 3]});
    __syncwarp();
    if (read_thread() % 32 == 0)
        asm volatile("fence.acq_rel.gpu;\nst.release.gpu.global.u64 [%0], %1;" ::"l"(flag_of_warp(args, blockIdx.x)),
                     "l"(args.mark + repair)
                     : "memory");
}

// Waits for a warp's parts of the CTAs from `first` to this one, a lane for each, so that it takes as long as for one.
// Returns which lines are to be made again. Flags become what they were, since a graph launches with the same mark again.
__device__ __forceinline__ uint32_t wait_for_parts(const Arguments& args, uint32_t first) {
    uint32_t repair = 0;
#pragma unroll 1
    for (uint32_t cta = first + read_thread() % 32; cta < blockIdx.x; cta += 32) {
        uint64_t* const flag = flag_of_warp(args, cta);
        uint64_t found;
        do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(flag) : "memory");
        while ((found ^ args.mark) > kMostRepair);
        repair |= uint32_t(found ^ args.mark);
        *flag = ~args.mark;
    }
    __syncwarp();
    return __reduce_or_sync(kAllLanes, repair);
}

// Adds this part to those of the CTAs before it, one after the other. Returns which lines are to be made again.
template <int count>
__device__ __forceinline__ uint32_t add_parts(const Arguments& args, uint32_t first, float* sums) {
    const uint32_t repair = wait_for_parts(args, first);
#pragma unroll
    for (int i = 0; i < count; i += 4) {
        float4 before{};
#pragma unroll 1
        for (uint32_t cta = first; cta < blockIdx.x; cta++) {
            const float4 part = __ldcg(part_of_lane<count>(args, cta) + 8 * i);
            before.x = add_rn(before.x, part.x), before.y = add_rn(before.y, part.y);
            before.z = add_rn(before.z, part.z), before.w = add_rn(before.w, part.w);
        }
        sums[i] = add_rn(before.x, sums[i]), sums[i + 1] = add_rn(before.y, sums[i + 1]);
        sums[i + 2] = add_rn(before.z, sums[i + 2]), sums[i + 3] = add_rn(before.w, sums[i + 3]);
    }
    return repair;
}

}  // namespace mxq::cuda::sm90::weights
