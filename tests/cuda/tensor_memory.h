// A kernel that uses Tensor Memory beside the products of a test, as one of somebody else's would.
#ifndef MXQ_TESTS_TENSOR_MEMORY_H
#define MXQ_TESTS_TENSOR_MEMORY_H

#include <cuda_runtime_api.h>

#include <cstdint>

namespace testing {

// Holds what the kernel has found, in device memory: how many blocks have run, and how many numbers were not what they had been
// written as.
struct TensorMemoryReport {
    uint32_t ran, wrong;
};

// Enqueues `blocks` blocks. Each takes 128 columns of Tensor Memory, writes them, waits so many clocks, and reads them back.
// Where the build or the chip has no Tensor Memory, `ran` stays as it is.
void use_tensor_memory(cudaStream_t stream, int blocks, int64_t clocks, TensorMemoryReport* report);

}  // namespace testing

#endif
