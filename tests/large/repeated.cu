#include "repeated.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

namespace {

constexpr unsigned kBlocks = 132 * 16, kThreads = 256;

void cuda_ok(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Calls visit(place of a byte, place in `from`) for each byte of this thread.
template <class Visit>
__device__ void each_byte(const testing::Repetition& r, Visit visit) {
    const uint64_t step = uint64_t(gridDim.x) * blockDim.x, first = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    for (uint64_t line = 0; line < r.lines; line++)
        for (uint64_t i = first; i < r.length; i += step) visit(line * r.length + i, line * r.period + i % r.period);
}

// Lines by columns of blocks where they are many, since a line may be shorter than a grid.
template <class Visit>
__device__ void each_byte_of_many(const testing::Repetition& r, Visit visit) {
    for (uint64_t line = blockIdx.x; line < r.lines; line += gridDim.x)
        for (uint64_t i = threadIdx.x; i < r.length; i += blockDim.x) visit(line * r.length + i, line * r.period + i % r.period);
}

template <class Visit>
__device__ void visit_all(const testing::Repetition& r, Visit visit) {
    if (r.lines < 64)
        each_byte(r, visit);
    else
        each_byte_of_many(r, visit);
}

__global__ void repeat_kernel(uint8_t* to, const uint8_t* from, testing::Repetition r) {
    visit_all(r, [&](uint64_t at, uint64_t source) { to[at] = from[source]; });
}

__global__ void count_kernel(const uint8_t* lines, const uint8_t* from, testing::Repetition r, unsigned long long* count) {
    unsigned long long mine = 0;
    visit_all(r, [&](uint64_t at, uint64_t source) { mine += lines[at] != from[source]; });
    if (mine) atomicAdd(count, mine);
}

}  // namespace

namespace testing {

void repeat(uint8_t* to, const uint8_t* from, const Repetition& repetition) {
    repeat_kernel<<<kBlocks, kThreads>>>(to, from, repetition);
    cuda_ok(cudaGetLastError());
    cuda_ok(cudaDeviceSynchronize());
}

uint64_t count_differences(const uint8_t* lines, const uint8_t* from, const Repetition& repetition) {
    unsigned long long *count = nullptr, out = 0;
    cuda_ok(cudaMalloc(&count, sizeof *count));
    cuda_ok(cudaMemset(count, 0, sizeof *count));
    count_kernel<<<kBlocks, kThreads>>>(lines, from, repetition, count);
    const cudaError_t launched = cudaGetLastError(), copied = cudaMemcpy(&out, count, sizeof out, cudaMemcpyDeviceToHost);
    cudaFree(count);
    cuda_ok(launched);
    cuda_ok(copied);
    return out;
}

}  // namespace testing
