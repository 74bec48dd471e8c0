#include "cuda/device.h"

#include "cuda/backend.h"
#include "cuda/cublaslt/session.h"
#include "cuda/launch.h"

namespace mxq::cuda {
namespace {

constexpr int kOldestCapability = 80;

void require_driver() {
    int version = 0;
    if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
        fail(MXQ_STATUS_NO_DEVICE,
             "no NVIDIA driver is installed, expected one for CUDA %d.0; install it, or use MXQ_DEVICE_CPU",
             CUDART_VERSION / 1000);
    if (version / 1000 < CUDART_VERSION / 1000)
        fail(MXQ_STATUS_NO_DEVICE,
             "the NVIDIA driver is for CUDA %d.%d, expected %d.0 or later; update it, or use MXQ_DEVICE_CPU", version / 1000,
             version % 1000 / 10, CUDART_VERSION / 1000);
}

// Names the kernel as the linker does, where CUDA tells its name.
void check_kernel(cudaError_t status, const char* what, const void* kernel) {
    if (status == cudaSuccess) return;
    const char* name = nullptr;
    const bool is_named = cudaFuncGetName(&name, kernel) == cudaSuccess && name;
    check(status, format_text("%s a kernel (%s)", what, is_named ? name : "its name is unknown").c_str());
}

// Returns whether work that is enqueued becomes part of a graph. True as well of the default stream while another stream is
// captured, as CUDA does not tell then.
bool is_capturing(const Context& context, void* stream) {
    const CurrentDevice current(*context.cuda);
    cudaStreamCaptureStatus status;
    const cudaError_t asked = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
    if (asked == cudaErrorStreamCaptureImplicit) return true;
    check(asked, "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
}

}  // namespace

Device::Device(int ordinal, const std::string& cublaslt_path) : ordinal_(ordinal) {
    require_driver();
    int count = 0;
    const cudaError_t counted = cudaGetDeviceCount(&count);
    if (counted != cudaSuccess || count == 0)
        fail(MXQ_STATUS_NO_DEVICE, "there is no CUDA device (CUDA says \"%s\"), expected one; use MXQ_DEVICE_CPU",
             counted == cudaSuccess ? "0 devices" : cudaGetErrorString(counted));
    if (ordinal >= count)
        fail(MXQ_STATUS_NO_DEVICE, "ordinal is %d, expected less than %d, the number of CUDA devices", ordinal, count);

    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    name = properties.name;
    compute_capability = properties.major * 10 + properties.minor;
    multiprocessors = properties.multiProcessorCount;
    if (compute_capability < kOldestCapability)
        fail(MXQ_STATUS_NO_DEVICE, "CUDA device %d (%s) has compute capability %d.%d, expected at least 8.0", ordinal,
             properties.name, properties.major, properties.minor);

    CUcontext primary = nullptr;
    check_driver(driver().primary_retain(&primary, ordinal), "cuDevicePrimaryCtxRetain");
    driver_context_ = primary;
    try {
        const CurrentDevice current(*this);
        open_cublaslt(cublaslt_path);
    } catch (...) {
        close_cublaslt();
        driver().primary_release(ordinal_);
        throw;
    }
}

Device::Device(int compute_capability, std::shared_ptr<lt::Session> cublaslt)
    : compute_capability(compute_capability),
      cublaslt(std::move(cublaslt)),
      cublaslt_missing("needs a cuBLASLt, found none") {}

// Opens cuBLASLt while the context is created: its handle allocates device memory, which no later call may do.
void Device::open_cublaslt(const std::string& path) {
    const lt::Library library = path.empty() ? lt::library() : lt::open_library(path.c_str(), "the path in the options");
    cublaslt_text = cublaslt_missing = library.missing;
    if (!cublaslt_missing.empty()) return;
    try {
        check(cudaStreamCreateWithFlags(&heuristic_stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        cublaslt = std::make_shared<lt::Session>(
            library.api, lt::Machine{compute_capability, library.version, library.path}, heuristic_stream_);
        cublaslt_text = lt::description(library);
    } catch (const Error& error) {
        cublaslt_text = cublaslt_missing = format_text("needs a cuBLASLt that opens, found that %s", error.what());
    }
}

void Device::close_cublaslt() noexcept {
    const auto close = [&] {
        cublaslt.reset();
        if (heuristic_stream_) cudaStreamDestroy(heuristic_stream_);
    };
    try {
        const CurrentDevice current(*this);
        close();
    } catch (...) {
        close();  // the driver refuses; or CUDA has shut down, as it does at the end of a process, and refuses what follows too
    }
}

Device::~Device() {
    if (!driver_context_) return;
    close_cublaslt();
    driver().primary_release(ordinal_);
}

CurrentDevice::CurrentDevice(const Device& device) {
    if (!device.driver_context_) return;
    CUcontext current = nullptr;
    check_driver(driver().get_current(&current), "cuCtxGetCurrent");
    if (current == device.driver_context_) return;
    check_driver(driver().push_current(static_cast<CUcontext>(device.driver_context_)), "cuCtxPushCurrent");
    pushed_ = true;
}

CurrentDevice::~CurrentDevice() {
    CUcontext popped;
    if (pushed_) driver().pop_current(&popped);
}

Start overlapped_start(const Context& context) {
    return context.cuda->code_capability >= 90 ? Start::WithPrevious : Start::AfterAll;
}

bool has_clusters(const Context& context) { return context.cuda->code_capability >= 90; }

void launch_kernel(const Context& context, const void* kernel, const char* name, dim3 grid, dim3 block, size_t shared_bytes,
                   void* stream, void** arguments, Start start, uint32_t cluster) {
    const CurrentDevice current(*context.cuda);
    cudaLaunchAttribute attributes[2]{};
    uint32_t count = 0;
    if (start == Start::WithPrevious) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count++].val.clusterDim = {cluster, 1, 1};
    }
    const cudaLaunchConfig_t config{grid, block, shared_bytes, static_cast<cudaStream_t>(stream), attributes, count};
    check(cudaLaunchKernelExC(&config, kernel, arguments), name);
}

void clear(const Context& context, void* at, size_t bytes, const char* what, void* stream) {
    const CurrentDevice current(*context.cuda);
    check(cudaMemsetAsync(at, 0, bytes, static_cast<cudaStream_t>(stream)), what);
}

Reason needs_cuda(const Context& context) {
    return context.is_cuda() ? "" : "needs a CUDA context, found a CPU one";
}

int load_kernel(const void* kernel, size_t shared_bytes) {
    cudaFuncAttributes attributes;
    check_kernel(cudaFuncGetAttributes(&attributes, kernel), "loading", kernel);
    if (shared_bytes > 0)
        check_kernel(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)),
                     "reserving shared memory for", kernel);
    return attributes.ptxVersion;
}

void prefer_shared_memory(const void* kernel) {
    check_kernel(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
                 "dividing the shared memory of", kernel);
}

int compute_capability(const Context& context) { return context.cuda ? context.cuda->compute_capability : 0; }
int multiprocessors(const Context& context) { return context.cuda ? context.cuda->multiprocessors : 0; }

void open(Context& context, int ordinal, const std::string& cublaslt_path, void (*load)(const Context&)) {
    context.cuda = std::make_shared<Device>(ordinal, cublaslt_path);
    context.capturing = is_capturing;
    context.description = format_text("CUDA %d, %s, sm_%d", ordinal, context.cuda->name.c_str(),
                                      context.cuda->compute_capability);
    context.cublaslt = context.cuda->cublaslt_text;
    const CurrentDevice current(*context.cuda);
    load(context);
}

}  // namespace mxq::cuda
