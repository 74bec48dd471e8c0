// Sums of parts of a tile (weights_schedule.cuh), by way of the workspace. A CTA leaves those of each part but the last
// there. Who has the last one adds up those before it, in their order. Each warp does so for its lines, without a look at
// the others.
#pragma once
#include "cuda/sm90/weights_tiles.cuh"

namespace mxq::cuda::sm90::weights {

__device__ __forceinline__ uint64_t* flag_of_warp(const Arguments& args, uint32_t place) {
    return args.left + place * kConsumerWarps + bf16::consumer_warp();
}

// Returns where a lane's sums of a part lie: by fours, each 32 fours behind the one before.
template <int count>
__device__ __forceinline__ float4* part_of_lane(const Arguments& args, uint32_t place) {
    return reinterpret_cast<float4*>(args.left_sums) + (place * kConsumerWarps + bf16::consumer_warp()) * (count / 4 * 32) +
           read_thread() % 32;
}

// Leaves the sums of a warp, and which of its lines are to be made again, for the CTA that has the end of the tile. `own`:
// this one has it.
template <int count>
__device__ __forceinline__ void leave_part(const Arguments& args, uint32_t place, bool own, const float* sums,
                                           uint32_t repair) {
    float4* const to = part_of_lane<count>(args, place);
#pragma unroll
    for (int i = 0; i < count; i += 4) __stcg(to + 8 * i, float4{sums[i], sums[i + 1], sums[i + 2], sums[i + 3]});
    __syncwarp();
    if (read_thread() % 32 != 0) return;
    uint64_t* const flag = flag_of_warp(args, place);
    if (own)
        __stcg(flag, args.mark + repair);
    else
        asm volatile("fence.acq_rel.gpu;\nst.release.gpu.global.u64 [%0], %1;" ::"l"(flag), "l"(args.mark + repair)
                     : "memory");
}

// Waits for a warp's parts at places from `first` to `end`, a lane for each, so that it takes as long as for one. Returns
// which lines are to be made again. Flags become what they were, since a graph launches with the same mark again.
__device__ __forceinline__ uint32_t wait_for_parts(const Arguments& args, uint32_t first, uint32_t end) {
    uint32_t repair = 0;
#pragma unroll 1
    for (uint32_t place = first + read_thread() % 32; place < end; place += 32) {
        uint64_t* const flag = flag_of_warp(args, place);
        uint64_t found;
        do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(flag) : "memory");
        while ((found ^ args.mark) > kMostRepair);
        repair |= uint32_t(found ^ args.mark);
        *flag = ~args.mark;
    }
    __syncwarp();
    return __reduce_or_sync(kAllLanes, repair);
}

// Adds this part to those at places from `first_place` to `end`, one after the other. Returns which lines are to be made
// again. Loads of a batch do not wait for one another.
template <int count>
__device__ __forceinline__ uint32_t add_parts(const Arguments& args, uint32_t first_place, uint32_t end, float* sums) {
    constexpr int batch = count < kMostTokens / 2 ? 1 : count % 32 == 0 ? 8 : 6;  // of four sums
    static_assert(count % (4 * batch) == 0);
    const uint32_t repair = wait_for_parts(args, first_place, end);
#pragma unroll
    for (int first = 0; first < count; first += 4 * batch) {
        float4 before[batch] = {};
#pragma unroll 1
        for (uint32_t place = first_place; place < end; place++) {
            float4 part[batch];
#pragma unroll
            for (int i = 0; i < batch; i++) part[i] = __ldcg(part_of_lane<count>(args, place) + 8 * first + 32 * i);
#pragma unroll
            for (int i = 0; i < batch; i++) {
                before[i].x = add_rn(before[i].x, part[i].x), before[i].y = add_rn(before[i].y, part[i].y);
                before[i].z = add_rn(before[i].z, part[i].z), before[i].w = add_rn(before[i].w, part[i].w);
            }
        }
#pragma unroll
        for (int i = 0; i < batch; i++) {
            float* const own = sums + first + 4 * i;
            own[0] = add_rn(before[i].x, own[0]), own[1] = add_rn(before[i].y, own[1]);
            own[2] = add_rn(before[i].z, own[2]), own[3] = add_rn(before[i].w, own[3]);
        }
    }
    return repair;
}

}  // namespace mxq::cuda::sm90::weights
