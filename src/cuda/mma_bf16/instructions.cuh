// Warp-wide matrix instructions of sm_80 and later, and the loads that feed them.
#pragma once
#include <cstdint>

namespace mxq::cuda {

// Four 8x8 matrices of 16-bit values; lane l names row l % 8 of matrix l / 8 by its address in shared memory. Lane l
// receives from each the values 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
__device__ __forceinline__ void load_matrices(uint32_t (&out)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
}

// d (16 x 8, fp32) += a (16 x 16) b (8 x 16)^T. d[0], d[1]: row lane / 4, columns 2 (lane % 4) and the next; d[2], d[3]:
// eight rows below.
__device__ __forceinline__ void multiply_add_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Multiplies as multiply_add_bf16 does, with F16 numbers in a and b.
__device__ __forceinline__ void multiply_add_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads 16 bytes, or 8, that this SM reads once. It reads the rest of their 128-byte cache line next.
__device__ __forceinline__ uint4 load_once(const void* address) {
    uint4 out;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "l"(address));
    return out;
}

__device__ __forceinline__ uint2 load_once_8(const void* address) {
    uint2 out;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(out.x), "=r"(out.y)
                 : "l"(address));
    return out;
}

}  // namespace mxq::cuda
