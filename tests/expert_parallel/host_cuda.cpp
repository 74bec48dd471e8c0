// CUDA's runtime played by the host, as far as examples/expert_parallel uses it: memory is the host's, and what is enqueued
// is done at once. It runs the layer's own logic, with ranks as threads, where there is no GPU.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

namespace {

cudaError_t copy(void* to, const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t set(void* to, int value, size_t bytes) {
    std::memset(to, value, bytes);
    return cudaSuccess;
}

template <class T>
cudaError_t give(T* to, T value) {
    *to = value;
    return cudaSuccess;
}

}  // namespace

extern "C" {

// The memory has a pattern, so that results show who reads what nobody wrote.
cudaError_t cudaMalloc(void** data, size_t bytes) {
    constexpr size_t alignment = 256;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    *data = std::aligned_alloc(alignment, bytes);
    return *data ? set(*data, 0xA5, bytes) : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* data) { return std::free(data), cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) { return copy(to, from, bytes); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
    return copy(to, from, bytes);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return set(to, value, bytes); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) { return set(to, value, bytes); }
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t) {
    for (size_t row = 0; row < height; ++row) set(static_cast<char*>(to) + row * pitch, value, width);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return give(stream, cudaStream_t{}); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) { return give(event, cudaEvent_t{}); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return give(ms, 0.0f); }

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaErrorNotSupported; }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorNotSupported; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) { return cudaErrorNotSupported; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaErrorNotSupported; }

cudaError_t cudaGetDevice(int* device) { return give(device, 0); }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return cudaErrorNotSupported; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "the host does not play this"; }

}  // extern "C"
