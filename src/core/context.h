// The context behind mxq_context: one device and what belongs to it. Never changes after its creation.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "mxq/mxq.h"

namespace mxq::cpu {
class Engine;  // cpu/engine.h: threads and the instruction set
}
namespace mxq::cuda {
class Device;  // cuda/device.h
}

struct mxq_context_s {
    int32_t device_type = 0;
    std::string description;
    std::string cublaslt;  // what mxq_context_cublaslt tells; the backend that opens cuBLASLt says it
    std::map<std::string, std::string, std::less<>> forced;  // MXQ_IMPL: verb to implementation
    std::shared_ptr<mxq::cpu::Engine> cpu;     // on a CPU context
    std::shared_ptr<mxq::cuda::Device> cuda;   // on a CUDA context

    bool (*capturing)(const mxq_context_s&, void* stream) = nullptr;  // of a backend that has graphs

    // Whether what is enqueued on the stream becomes part of a graph.
    bool is_capturing(void* stream) const { return capturing && capturing(*this, stream); }
    bool is_cpu() const { return device_type == MXQ_DEVICE_CPU; }
    bool is_cuda() const { return device_type == MXQ_DEVICE_CUDA; }
};

namespace mxq {
using Context = mxq_context_s;
}
