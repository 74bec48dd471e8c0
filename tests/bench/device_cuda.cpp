#include <cuda_runtime_api.h>

#include <stdexcept>

#include "device.h"
#include "streams.h"

namespace {

constexpr int warmups = 3;
constexpr size_t usual_copy = size_t(1) << 30;
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
    double us_since(const Event& start) const {
        float ms = 0;
        check_cuda(cudaEventElapsedTime(&ms, start.event_, event_));
        return 1e3 * ms;
    }

private:
    cudaEvent_t event_ = nullptr;
};

using Graph = std::shared_ptr<std::remove_pointer_t<cudaGraph_t>>;

Graph captured(cudaStream_t stream, const std::vector<Call>& calls) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
        for (const Call& call : calls) call();
    } catch (...) {
        cudaStreamEndCapture(stream, &graph);
        if (graph) cudaGraphDestroy(graph);
        cudaGetLastError();
        throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &graph));
    return {graph, [](cudaGraph_t made) { cudaGraphDestroy(made); }};
}

// A graph that can be launched again and again.
class Replay {
public:
    Replay(cudaStream_t stream, const std::vector<Call>& calls) : stream_(stream) {
        check_cuda(cudaGraphInstantiate(&graph_, captured(stream, calls).get(), 0));
    }
    ~Replay() { cudaGraphExecDestroy(graph_); }
    Replay(const Replay&) = delete;
    void operator()() const { check_cuda(cudaGraphLaunch(graph_, stream_)); }

private:
    cudaStream_t stream_;
    cudaGraphExec_t graph_ = nullptr;
};

class CudaDevice final : public Device {
public:
    CudaDevice(int repeats, size_t copied)
        : Device(repeats > 0 ? repeats : 15, warmups), copied_(copied ? copied : usual_copy) {
        check_cuda(cudaSetDevice(0));
        check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        from_ = allocate(copied_);
        to_ = allocate(copied_);
        flush_ = allocate(flushed);
        upload(from_.get(), random_words(copied_).data(), copied_);
    }
    ~CudaDevice() override { cudaStreamDestroy(stream_); }
    std::string machine() override {
        int driver = 0, runtime = 0;
        cudaDeviceProp properties{};
        check_cuda(cudaGetDeviceProperties(&properties, 0));
        check_cuda(cudaDriverGetVersion(&driver));
        check_cuda(cudaRuntimeGetVersion(&runtime));
        const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
        return std::string(properties.name) + ", driver for CUDA " + version(driver) + ", runtime " + version(runtime);
    }
    void* stream() override { return stream_; }
    std::shared_ptr<void> allocate(size_t bytes) override {
        void* pointer = nullptr;
        check_cuda(cudaMalloc(&pointer, bytes));
        return {pointer, [](void* p) { cudaFree(p); }};
    }
    void upload(void* to, const void* from, size_t bytes) override {
        check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
        wait();
    }
    void duplicate(void* to, const void* from, size_t bytes) override {
        check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
    }
    void wait() override { check_cuda(cudaStreamSynchronize(stream_)); }

    std::vector<double> turn_us(const std::vector<Call>& calls) override {
        std::vector<Event> starts(calls.size()), ends(calls.size());
        for (size_t i = 0; i < calls.size(); ++i) {
            // The flush also keeps the device busy while the host enqueues, so that no launch is waited for.
            check_cuda(cudaMemsetAsync(flush_.get(), 1, flushed, stream_));
            starts[i].record(stream_);
            calls[i]();
            ends[i].record(stream_);
        }
        wait();
        std::vector<double> times;
        for (size_t i = 0; i < calls.size(); ++i) times.push_back(ends[i].us_since(starts[i]));
        return times;
    }

    std::vector<double> graph_times_us(const std::vector<std::vector<Call>>& lists) override {
        std::vector<std::unique_ptr<Replay>> replays;
        std::vector<Call> calls;
        for (const auto& list : lists) {
            replays.push_back(std::make_unique<Replay>(stream_, list));
            calls.push_back([replay = replays.back().get()] { (*replay)(); });
        }
        std::vector<double> times = times_us(calls);
        for (size_t i = 0; i < lists.size(); ++i) times[i] /= double(lists[i].size());
        return times;
    }
    size_t rotated_bytes() override {
        int l2 = 0;
        check_cuda(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0));
        return 2 * size_t(l2);
    }

    int launches(const Call& call) override {
        size_t nodes = 0;
        check_cuda(cudaGraphGetNodes(captured(stream_, {call}).get(), nullptr, &nodes));
        return int(nodes);
    }
    void launch_nothing() override { check_cuda(enqueue_nothing(stream_)); }

    void copy() override { check_cuda(cudaMemcpyAsync(to_.get(), from_.get(), copied_, cudaMemcpyDeviceToDevice, stream_)); }
    double copied_bytes() const override { return double(copied_); }
    void stream_pass(Mix mix) override {
        check_cuda(enqueue_stream_pass(mix, from_.get(), to_.get(), size_t(streamed_bytes(mix)), stream_));
    }

private:
    const size_t copied_;
    cudaStream_t stream_ = nullptr;
    std::shared_ptr<void> from_, to_, flush_;
};

}  // namespace

std::unique_ptr<Device> cuda_device(int repeats, size_t copied) { return std::make_unique<CudaDevice>(repeats, copied); }
