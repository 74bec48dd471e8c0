#include "memory.hpp"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace {

void check(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

class CudaMemory final : public Memory {
public:
    CudaMemory() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    ~CudaMemory() override { cudaStreamDestroy(stream_); }
    void* allocate(size_t bytes) override {
        void* pointer = nullptr;
        check(cudaMalloc(&pointer, bytes));
        return pointer;
    }
    void release(void* pointer) override { cudaFree(pointer); }
    void upload(void* to, const void* from, size_t bytes) override { copy(to, from, bytes, cudaMemcpyHostToDevice); }
    void download(void* to, const void* from, size_t bytes) override { copy(to, from, bytes, cudaMemcpyDeviceToHost); }
    void synchronize() override { check(cudaStreamSynchronize(stream_)); }
    void* stream() override { return stream_; }

private:
    void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
        check(cudaMemcpyAsync(to, from, bytes, kind, stream_));
        synchronize();
    }
    cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Memory> cuda_memory() { return std::make_unique<CudaMemory>(); }
