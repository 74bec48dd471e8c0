#include "backend.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "mxq_handles.hpp"

namespace {

constexpr int warmups = 3, repeats = 15;
constexpr size_t copied = size_t(1) << 30;
constexpr size_t flushed = size_t(256) << 20;  // beyond any L2

void check_cuda(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

class Event {
public:
    Event() { check_cuda(cudaEventCreate(&event_)); }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream)); }
    double ms_since(const Event& start) const {
        float ms = 0;
        check_cuda(cudaEventElapsedTime(&ms, start.event_, event_));
        return ms;
    }

private:
    cudaEvent_t event_ = nullptr;
};

class CudaBackend final : public Backend {
public:
    CudaBackend() : context_(mxq_handles::make<mxq_handles::Context>(mxq_context_create, MXQ_DEVICE_CUDA, 0, nullptr)) {
        check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        from_ = allocate(copied);
        to_ = allocate(copied);
        flush_ = allocate(flushed);
        upload(from_.get(), random_words(copied).data(), copied);
    }
    ~CudaBackend() override { cudaStreamDestroy(stream_); }
    mxq_context* context() override { return context_.get(); }
    void* stream() override { return stream_; }
    std::string machine() override {
        int driver = 0, runtime = 0;
        check_cuda(cudaDriverGetVersion(&driver));
        check_cuda(cudaRuntimeGetVersion(&runtime));
        const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
        return std::string(mxq_context_description(context_.get())) + "; driver for CUDA " + version(driver) +
               ", runtime " + version(runtime);
    }
    std::shared_ptr<void> allocate(size_t bytes) override {
        void* pointer = nullptr;
        check_cuda(cudaMalloc(&pointer, bytes));
        return {pointer, [](void* p) { cudaFree(p); }};
    }
    void upload(void* to, const void* from, size_t bytes) override {
        check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
        wait();
    }
    void wait() override { check_cuda(cudaStreamSynchronize(stream_)); }

    std::vector<double> median_ms(const std::vector<std::function<void()>>& calls) override {
        std::vector<std::vector<double>> times(calls.size());
        for (int repeat = -warmups; repeat < repeats; ++repeat) {
            std::vector<Event> starts(calls.size()), ends(calls.size());
            for (size_t i = 0; i < calls.size(); ++i) {
                // The flush also keeps the device busy while the host enqueues, so that no launch is waited for.
                check_cuda(cudaMemsetAsync(flush_.get(), repeat & 0xFF, flushed, stream_));
                starts[i].record(stream_);
                calls[i]();
                ends[i].record(stream_);
            }
            wait();
            for (size_t i = 0; repeat >= 0 && i < calls.size(); ++i) times[i].push_back(ends[i].ms_since(starts[i]));
        }
        std::vector<double> medians;
        for (auto& time : times) medians.push_back(median(time));
        return medians;
    }

    void copy() override {
        check_cuda(cudaMemcpyAsync(to_.get(), from_.get(), copied, cudaMemcpyDeviceToDevice, stream_));
    }
    double copy_bytes() const override { return 2.0 * copied; }

private:
    mxq_handles::Context context_;
    cudaStream_t stream_ = nullptr;
    std::shared_ptr<void> from_, to_, flush_;
};

}  // namespace

std::unique_ptr<Backend> cuda_backend() { return std::make_unique<CudaBackend>(); }
