// The context behind mxq_context: one device and what belongs to it. It never changes after its creation.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "core/context_type.h"
#include "core/handle.h"
#include "mxq/mxq.h"

namespace mxq::cpu {
class Engine;  // cpu/engine.h: threads and the instruction set
}
namespace mxq::cuda {
class Device;  // cuda/device.h
}

struct mxq_context_s : mxq::Handle<mxq::Kind::Context> {
    int32_t device_type = 0;
    std::string description;
    std::string cublaslt;  // returned by mxq_context_cublaslt; set by the backend that opens cuBLASLt
    std::map<std::string, std::string, std::less<>> forced;  // the implementation that MXQ_IMPL asks for, by verb
    std::shared_ptr<mxq::cpu::Engine> cpu;     // NULL on a CUDA context
    std::shared_ptr<mxq::cuda::Device> cuda;   // NULL on a CPU context

    // Asks the backend whether a stream is under graph capture; NULL where the backend has no graphs.
    bool (*capturing)(const mxq_context_s&, void* stream) = nullptr;

    // Returns whether work that is enqueued on the stream becomes part of a graph.
    bool is_capturing(void* stream) const { return capturing && capturing(*this, stream); }
    bool is_cpu() const { return device_type == MXQ_DEVICE_CPU; }
    bool is_cuda() const { return device_type == MXQ_DEVICE_CUDA; }
};
