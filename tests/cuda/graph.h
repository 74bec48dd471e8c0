// A stream, and a CUDA graph that is captured from it, for tests.
#ifndef MXQ_TESTS_GRAPH_H
#define MXQ_TESTS_GRAPH_H

#include <cuda_runtime_api.h>

#include <stdexcept>

namespace testing {

inline void cuda_ok(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

struct Stream {
    Stream() { cuda_ok(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
    ~Stream() { cudaStreamDestroy(handle); }
    cudaStream_t handle = nullptr;
};

// Captures what `enqueue` does; replays it as often as asked.
class Graph {
public:
    template <class Enqueue>
    Graph(Stream& stream, Enqueue enqueue, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) : stream_(stream) {
        cuda_ok(cudaStreamBeginCapture(stream.handle, mode));
        try {
            enqueue();
        } catch (...) {
            cudaStreamEndCapture(stream.handle, &graph_);
            throw;
        }
        cuda_ok(cudaStreamEndCapture(stream.handle, &graph_));
        cuda_ok(cudaGraphInstantiate(&executable_, graph_, 0));
    }
    size_t nodes() const {
        size_t count = 0;
        cuda_ok(cudaGraphGetNodes(graph_, nullptr, &count));
        return count;
    }
    ~Graph() {
        cudaGraphExecDestroy(executable_);
        cudaGraphDestroy(graph_);
    }
    void replay() {
        cuda_ok(cudaGraphLaunch(executable_, stream_.handle));
        cuda_ok(cudaStreamSynchronize(stream_.handle));
    }

private:
    Stream& stream_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace testing

#endif
