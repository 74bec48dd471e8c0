// Barriers in shared memory ("mbarriers"), on which the copy engine and threads meet.
//
// A phase of a barrier completes when as many threads have arrived as `init_barrier` said and all bytes that they expect are
// there. The next phase then begins by itself. Who waits names the parity of the phase: 0 for the first, then 1, 0, 1, ...
//
//     thread 0     init_barrier, publish_barriers      arrive_expecting(bytes), load_tile ...
//     all threads  __syncthreads                       wait(parity)                             read the tile
#pragma once
#include <cuda/ptx>

#include <cstdint>

namespace mxq::cuda::sm90 {

namespace ptx = ::cuda::ptx;

// An mbarrier; lives in shared memory.
struct Barrier {
    uint64_t state;
};

// Prepares a barrier whose phases take so many arrivals. One thread calls it, then publish_barriers.
__device__ __forceinline__ void init_barrier(Barrier& barrier, uint32_t arrivals) {
    ptx::mbarrier_init(&barrier.state, arrivals);
}

// Shows new barriers to the copy engine and to the blocks of a cluster. A barrier of the block or cluster must follow,
// before anyone uses them.
__device__ __forceinline__ void publish_barriers() {
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::fence_proxy_async(ptx::space_shared);
}

__device__ __forceinline__ void arrive(Barrier& barrier) { ptx::mbarrier_arrive(&barrier.state); }

// Arrives, and makes the phase wait for so many bytes of loads too: those of whole boxes, also where a box reaches past its
// matrix. One thread calls it, and starts the loads after it.
__device__ __forceinline__ void arrive_expecting(Barrier& barrier, uint32_t bytes) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier.state, bytes);
}

// Makes the phase wait for so many bytes of loads, too, before this thread arrives.
__device__ __forceinline__ void expect(Barrier& barrier, uint32_t bytes) {
    ptx::mbarrier_expect_tx(ptx::sem_relaxed, ptx::scope_cta, ptx::space_shared, &barrier.state, bytes);
}

// Arrives at the same barrier of another block of the cluster.
__device__ __forceinline__ void arrive_at(Barrier& barrier, uint32_t block) {
    const uint32_t own = uint32_t(__cvta_generic_to_shared(&barrier.state));
    asm volatile(
        "{\n"
        ".reg .b32 other;\n"
        "mapa.shared::cluster.u32 other, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [other];\n"
        "}" ::"r"(own),
        "r"(block)
        : "memory");
}

// Does so in two steps: the address of a barrier in another block of the cluster, which lies as far from those of other barriers
// as in this block, and the arrival.
__device__ __forceinline__ uint32_t address_in_cta(Barrier& barrier, uint32_t block) {
    uint32_t address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"(uint32_t(__cvta_generic_to_shared(&barrier.state))), "r"(block));
    return address;
}
__device__ __forceinline__ void arrive_at_address(uint32_t address) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory");
}

// Tells clusters, and blocks of a cluster, apart. A launch without clusters has those of one block.
__device__ __forceinline__ uint32_t cluster_index() { return ptx::get_sreg_clusterid_x(); }
__device__ __forceinline__ uint32_t cluster_count() { return ptx::get_sreg_nclusterid_x(); }
__device__ __forceinline__ uint32_t block_of_cluster() { return ptx::get_sreg_cluster_ctarank(); }

// Waits for all threads of the cluster's blocks.
__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Waits for all threads of the cluster's blocks, which need not see what others wrote, but have read what they needed.
__device__ __forceinline__ void sync_cluster_readers() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Copies a word from global to shared memory behind the thread's back.
__device__ __forceinline__ void copy_word(uint32_t* to, const uint32_t* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
}

// Arrives as soon as all words that this thread copies are there.
__device__ __forceinline__ void arrive_after_copies(Barrier& barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(uint32_t(__cvta_generic_to_shared(&barrier.state)))
                 : "memory");
}

// Waits until all words that this thread copies are there.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Waits until the phase of this parity is complete. What was loaded or written before it is then visible to the caller.
__device__ __forceinline__ void wait(Barrier& barrier, uint32_t parity) {
    while (!ptx::mbarrier_try_wait_parity(&barrier.state, parity)) {
    }
}

// Returns true in one lane of a warp that all of them call it in.
__device__ __forceinline__ bool elect_lane() {
    uint32_t elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected != 0;
}

// Shows what this thread wrote to shared memory to the copy engine and to wgmma, which read past the threads' own order.
// Each thread that wrote calls it; a barrier then tells whoever starts the store or the product.
__device__ __forceinline__ void publish_shared_writes() { ptx::fence_proxy_async(ptx::space_shared); }

}  // namespace mxq::cuda::sm90
