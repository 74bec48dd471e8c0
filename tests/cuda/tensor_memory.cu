#include "tensor_memory.h"

namespace {

constexpr int kThreads = 128;  // a warp reaches 32 of the 128 lanes

// Tensor Memory is a feature of compute capability 10.x and 11.0, in code for these chips alone.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200 && \
    (defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__))
#define MXQ_HAS_TENSOR_MEMORY 1

constexpr uint32_t kColumns = 128;

__device__ __forceinline__ uint32_t pattern(uint32_t column) { return threadIdx.x * 4096 + column + blockIdx.x * 77; }
#endif

__global__ void use_tensor_memory_kernel(int64_t clocks, testing::TensorMemoryReport* report) {
#ifdef MXQ_HAS_TENSOR_MEMORY
    __shared__ uint32_t allocated;
    const uint32_t warp = threadIdx.x / 32;
    if (warp == 0) {
        const uint32_t to = uint32_t(__cvta_generic_to_shared(&allocated));
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(to), "r"(kColumns) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
    }
    __syncthreads();
    const uint32_t base = allocated + (warp * 32 << 16);
    for (uint32_t column = 0; column < kColumns; column++)
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(base + column), "r"(pattern(column)) : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    for (const int64_t begin = clock64(); clock64() - begin < clocks;) {
    }
    uint32_t wrong = 0;
    for (uint32_t column = 0; column < kColumns; column++) {
        uint32_t found;
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(found) : "r"(base + column) : "memory");
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
        wrong += found != pattern(column);
    }
    if (wrong) atomicAdd(&report->wrong, wrong);
    __syncthreads();
    if (warp == 0)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(allocated), "r"(kColumns) : "memory");
    if (threadIdx.x == 0) atomicAdd(&report->ran, 1);
#endif
}

}  // namespace

namespace testing {

void use_tensor_memory(cudaStream_t stream, int blocks, int64_t clocks, TensorMemoryReport* report) {
    use_tensor_memory_kernel<<<unsigned(blocks), kThreads, 0, stream>>>(clocks, report);
}

}  // namespace testing
