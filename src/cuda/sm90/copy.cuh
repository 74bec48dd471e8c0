// Tiles by the copy engine ("TMA"): one thread starts a copy of a whole box (sm90/tensor_map.h), and nobody moves its bytes.
//
//     load    global --box--> shared    its bytes count on a barrier (sm90/barrier.cuh)
//     store   shared --box--> global    its thread commits stores to groups and waits for those
//
// A box lies in shared memory row after row without gaps, at a multiple of 128 bytes. Under the 128-byte swizzle rows have 128
// bytes and the box lies at a multiple of 1024: of row r, the 16 bytes number c lie at number c ^ (r % 8).
//
//     row 0  | 0 1 2 3 4 5 6 7 |
//     row 1  | 1 0 3 2 5 4 7 6 |     so that 8 rows of one column lie in 8 different groups of banks
//     row 2  | 2 3 0 1 6 7 4 5 |
#pragma once
#include <cuda.h>

#include "cuda/sm90/barrier.cuh"

namespace mxq::cuda::sm90 {

// Brings what describes a matrix and its boxes to where the copy engine reads it, ahead of the first load.
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Starts a load of the box at {column, row} or {column, row, matrix}. Coordinates may be negative or past the end.
template <int rank>
__device__ __forceinline__ void load_tile(void* to, const CUtensorMap& map, const int32_t (&at)[rank], Barrier& barrier) {
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, &map, at, &barrier.state);
}

// Starts a load of the box into the same place of several blocks of the cluster, a bit of `blocks` each; its bytes count on the
// same barrier in each of them.
template <int rank>
__device__ __forceinline__ void load_tile_to(uint32_t blocks, void* to, const CUtensorMap& map, const int32_t (&at)[rank],
                                             Barrier& barrier) {
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, &map, at, &barrier.state, uint16_t(blocks));
}

// Starts a load of bytes that lie one after the other: a multiple of 16, at multiples of 16.
__device__ __forceinline__ void load_bytes(void* to, const void* from, uint32_t bytes, Barrier& barrier) {
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, to, from, bytes, &barrier.state);
}

// Starts a store of the box at {column, row} or {column, row, matrix}. publish_shared_writes and a barrier come before it.
template <int rank>
__device__ __forceinline__ void store_tile(const CUtensorMap& map, const int32_t (&at)[rank], const void* from) {
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map, at, from);
}

// Stores four 8 x 8 matrices of 16-bit elements, the fragments of a product, to shared memory. Lane l gives the address of row
// l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// Makes one group of this thread's stores since the last.
__device__ __forceinline__ void commit_stores() { ptx::cp_async_bulk_commit_group(); }

// Waits until at most `groups` of this thread's groups still read shared memory, which the others leave free to be written. A
// block must not end before its stores have read.
template <int groups>
__device__ __forceinline__ void wait_stores_read() {
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<groups>{});
}

}  // namespace mxq::cuda::sm90
