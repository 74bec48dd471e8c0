#include "cuda/device.h"

#include <cuda.h>

#include "cuda/backend.h"
#include "cuda/cublaslt_session.h"

namespace mxq::cuda {
namespace {

constexpr int kOldestCapability = 80;

// The few driver calls that the runtime does not offer, found at run time: the library links no libcuda.
struct Driver {
    decltype(&cuDevicePrimaryCtxRetain) primary_retain;
    decltype(&cuDevicePrimaryCtxRelease) primary_release;
    decltype(&cuCtxGetCurrent) get_current;
    decltype(&cuCtxPushCurrent) push_current;
    decltype(&cuCtxPopCurrent) pop_current;
    decltype(&cuGetErrorString) error_string;
};

void* driver_entry(const char* symbol) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    check(cudaGetDriverEntryPointByVersion(symbol, &entry, 12000, cudaEnableDefault, &result), symbol);
    if (!entry) fail(MXQ_STATUS_NO_DEVICE, "the CUDA driver has no %s; install a driver for CUDA 12 or later", symbol);
    return entry;
}

const Driver& driver() {
    static const Driver entries = [] {
        Driver d;
        d.primary_retain = reinterpret_cast<decltype(d.primary_retain)>(driver_entry("cuDevicePrimaryCtxRetain"));
        d.primary_release = reinterpret_cast<decltype(d.primary_release)>(driver_entry("cuDevicePrimaryCtxRelease"));
        d.get_current = reinterpret_cast<decltype(d.get_current)>(driver_entry("cuCtxGetCurrent"));
        d.push_current = reinterpret_cast<decltype(d.push_current)>(driver_entry("cuCtxPushCurrent"));
        d.pop_current = reinterpret_cast<decltype(d.pop_current)>(driver_entry("cuCtxPopCurrent"));
        d.error_string = reinterpret_cast<decltype(d.error_string)>(driver_entry("cuGetErrorString"));
        return d;
    }();
    return entries;
}

void check_driver(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    const char* words = nullptr;
    driver().error_string(result, &words);
    fail(MXQ_STATUS_CUDA_ERROR, "%s failed: CUDA says \"%s\" (driver error %d)", what, words ? words : "unknown", int(result));
}

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

void load_all_kernels() {
    load_quantize_rowwise();
    load_quantize_tile();
    load_quantize_fp4();
    load_quantize_fp4_pairs();
    load_requantize_tile();
    load_amax();
    load_pad_groups();
    load_dequantize_rowwise();
    load_dequantize_columnwise();
    load_swizzle_scales();
    load_mma_bf16();
    load_cublaslt_arrays();
    load_rebase();
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
    if (compute_capability < kOldestCapability)
        fail(MXQ_STATUS_NO_DEVICE, "CUDA device %d (%s) has compute capability %d.%d, expected at least 8.0", ordinal,
             properties.name, properties.major, properties.minor);

    CUcontext primary = nullptr;
    check_driver(driver().primary_retain(&primary, ordinal), "cuDevicePrimaryCtxRetain");
    driver_context_ = primary;
    try {
        const CurrentDevice current(*this);
        load_all_kernels();
        open_cublaslt(cublaslt_path);
    } catch (...) {
        driver().primary_release(ordinal_);
        throw;
    }
}

// Its handle takes device memory, which no later call may.
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
    try {
        const CurrentDevice current(*this);
        cublaslt.reset();
        if (heuristic_stream_) cudaStreamDestroy(heuristic_stream_);
    } catch (const Error&) {
        // CUDA is gone already, as at the end of a process.
    }
}

Device::~Device() {
    close_cublaslt();
    driver().primary_release(ordinal_);
}

CurrentDevice::CurrentDevice(const Device& device) {
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

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    fail(MXQ_STATUS_CUDA_ERROR, "%s failed: CUDA says \"%s\" (error %d)", what, cudaGetErrorString(status), int(status));
}

void load_kernel(const void* kernel, size_t shared_bytes) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel), "loading a kernel");
    if (shared_bytes > 0)
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)),
              "reserving shared memory");
}

void open(Context& context, int ordinal, const std::string& cublaslt_path) {
    context.cuda = std::make_shared<Device>(ordinal, cublaslt_path);
    context.description = format_text("CUDA %d, %s, sm_%d", ordinal, context.cuda->name.c_str(),
                                      context.cuda->compute_capability);
    context.cublaslt = context.cuda->cublaslt_text;
}

bool is_capturing(const Context& context, void* stream) {
    const CurrentDevice current(*context.cuda);
    cudaStreamCaptureStatus status;
    return cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) != cudaSuccess ||
           status != cudaStreamCaptureStatusNone;
}

}  // namespace mxq::cuda
