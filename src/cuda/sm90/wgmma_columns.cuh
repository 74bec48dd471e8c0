// Products of tiles in shared memory by a warpgroup, as in wgmma.cuh: 64 rows of A by as many rows of B as d has columns.
// wgmma.cuh has those with 64.
#pragma once
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90 {

// d = A * B^T over 32 E4M3 codes of the contraction, plus d where `adds`. Sums of FP8 products keep about 14 bits.
__device__ __forceinline__ void multiply_e4m3(float (&d)[16], TileDescriptor a, TileDescriptor b, bool adds) {
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, adds, 1, 1;\n"  // neither operand is negated
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(a.bits), "l"(b.bits), "r"(int(adds)));
}
__device__ __forceinline__ void multiply_e4m3(float (&d)[kHalfWideAccumulators], TileDescriptor a, TileDescriptor b, bool adds) {
    multiply_fp8<E4M3, E4M3>(d, a, b, adds);
}

}  // namespace mxq::cuda::sm90
