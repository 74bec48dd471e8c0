// The state of a CUDA context: the primary driver context of its device, and its cuBLASLt.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

#include "core/context.h"
#include "cuda/driver.h"
#include "cuda/launch.h"

namespace mxq::cuda {

namespace lt {
class Session;  // cuda/cublaslt/session.h
}

class Device {
public:
    Device(int ordinal, const std::string& cublaslt_path);
    // Describes a device that is not here: its implementations can be asked what they take, and nothing can run.
    Device(int compute_capability, std::shared_ptr<lt::Session> cublaslt);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    std::string name;
    int compute_capability = 0;  // 90 for 9.0
    int code_capability = 0;     // what the portable kernels were compiled for that run here; less in a build for older chips
    int multiprocessors = 0;

    std::shared_ptr<lt::Session> cublaslt;  // NULL where there is none
    std::string cublaslt_missing;           // why there is none
    std::string cublaslt_text;              // describes the cuBLASLt in use, or says why there is none

private:
    friend class CurrentDevice;
    void open_cublaslt(const std::string& path);
    void close_cublaslt() noexcept;
    int ordinal_ = 0;
    void* driver_context_ = nullptr;           // CUcontext; NULL: the device is not here
    cudaStream_t heuristic_stream_ = nullptr;  // a stream of the library's own, which no caller can capture
};

// Makes a device current for the calling thread as long as the object lives. It asks the driver for this, so that the
// caller's CUDA runtime, and the device that is current in it, stay as they were.
class CurrentDevice {
public:
    explicit CurrentDevice(const Device& device);
    ~CurrentDevice();
    CurrentDevice(const CurrentDevice&) = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;

private:
    bool pushed_ = false;
};

}  // namespace mxq::cuda
