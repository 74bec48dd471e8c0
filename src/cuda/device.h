// The state of a CUDA context: the primary driver context of its device, and its cuBLASLt.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

#include "core/context.h"
#include "core/error.h"
#include "cuda/driver.h"
#include "dispatch/reason.h"

namespace mxq::cuda {

namespace lt {
class Session;  // cuda/cublaslt/session.h
}

class Device {
public:
    Device(int ordinal, const std::string& cublaslt_path);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    std::string name;
    int compute_capability = 0;  // 90 for 9.0

    std::shared_ptr<lt::Session> cublaslt;  // NULL where there is none
    std::string cublaslt_missing;           // why there is none
    std::string cublaslt_text;              // describes the cuBLASLt in use, or says why there is none

private:
    friend class CurrentDevice;
    void open_cublaslt(const std::string& path);
    void close_cublaslt() noexcept;
    int ordinal_ = 0;
    void* driver_context_ = nullptr;  // CUcontext
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

// Launches `kernel(arguments...)`; the argument types are the kernel's own.
template <class... Parameters>
void launch(const Context& context, void (*kernel)(Parameters...), const char* name, dim3 grid, dim3 block,
            size_t shared_bytes, void* stream, const Parameters&... arguments) {
    const CurrentDevice current(*context.cuda);
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers, shared_bytes,
                           static_cast<cudaStream_t>(stream)),
          name);
}

// Returns why an implementation that needs a CUDA context declines this one; empty where it is a CUDA context.
inline Reason needs_cuda(const Context& context) {
    return context.is_cuda() ? "" : "needs a CUDA context, found a CPU one";
}

// Loads a kernel, so that none is loaded under graph capture, and allows it this much dynamic shared memory.
void load_kernel(const void* kernel, size_t shared_bytes);

// A kernel in the one list of its file, from which it is both chosen by its key and loaded.
template <class Key, class Arguments>
struct KernelEntry {
    Key key;
    void (*function)(Arguments);
    int threads;
    size_t shared_bytes;  // dynamic
};

template <class Key, class Arguments, size_t count>
void load_kernels(const KernelEntry<Key, Arguments> (&list)[count]) {
    for (const auto& entry : list) load_kernel(reinterpret_cast<const void*>(entry.function), entry.shared_bytes);
}

// Launches the kernel of this key, which is in the list.
template <class Key, class Arguments, size_t count>
void launch(const Context& context, const KernelEntry<Key, Arguments> (&list)[count], const Key& key, const char* name,
            dim3 grid, void* stream, const Arguments& arguments) {
    for (const auto& entry : list)
        if (entry.key == key)
            return launch(context, entry.function, name, grid, dim3(unsigned(entry.threads)), entry.shared_bytes, stream,
                          arguments);
    fail(MXQ_STATUS_INTERNAL_ERROR, "%s has no kernel for a problem that it took", name);
}

}  // namespace mxq::cuda
