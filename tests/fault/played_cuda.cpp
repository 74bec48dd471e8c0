#include "played_cuda.h"

#include "../cuda/cublaslt_recorder.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>

namespace played {

namespace {

int streams = 0, retained = 0;
int primary_context = 0, cublaslt_library = 0;
thread_local std::vector<CUcontext> stack;
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
std::string error_text;

recorder::Recording& recording() {
    static recorder::Recording now;
    return now;
}

template <class T, class U>
cudaError_t give(T* to, U value) {
    *to = value;
    return cudaSuccess;
}

// ---- The driver --------------------------------------------------------------------------------------------------------

CUresult retain(CUcontext* context, CUdevice) {
    ++retained;
    *context = reinterpret_cast<CUcontext>(&primary_context);
    return CUDA_SUCCESS;
}
CUresult release(CUdevice) { return --retained, CUDA_SUCCESS; }
CUresult get_current(CUcontext* context) { return *context = stack.empty() ? nullptr : stack.back(), CUDA_SUCCESS; }
CUresult push(CUcontext context) { return stack.push_back(context), CUDA_SUCCESS; }
CUresult pop(CUcontext* context) {
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
}
CUresult words(CUresult, const char** text) { return *text = "played failure", CUDA_SUCCESS; }

struct Named {
    const char* name;
    void* function;
};
template <class Function>
Named named(const char* name, Function function) {
    return {name, reinterpret_cast<void*>(function)};
}

void* find(const std::vector<Named>& all, const char* name) {
    for (const Named& one : all)
        if (machine.missing != name && !std::strcmp(one.name, name)) return one.function;
    return nullptr;
}

void* driver_function(const char* name) {
    const auto encode = [](auto... ignored) { return ((void)ignored, ...), CUDA_SUCCESS; };
    static const std::vector<Named> all{
        named("cuDevicePrimaryCtxRetain", retain),
        named("cuDevicePrimaryCtxRelease", release),
        named("cuCtxGetCurrent", get_current),
        named("cuCtxPushCurrent", push),
        named("cuCtxPopCurrent", pop),
        named("cuGetErrorString", words),
        named("cuTensorMapEncodeTiled", static_cast<decltype(&cuTensorMapEncodeTiled)>(encode)),
    };
    return find(all, name);
}

// ---- cuBLASLt ------------------------------------------------------------------------------------------------------------

void* cublaslt_function(const char* name) {
    static const mxq::cuda::lt::Api api = recorder::api();
    static const std::vector<Named> all{
        named(
            "cublasLtGetVersion", +[] { return static_cast<size_t>(machine.cublaslt_version); }),
        named("cublasLtGetStatusName", api.status_name),
        named("cublasLtCreate", api.create),
        named("cublasLtDestroy", api.destroy),
        named("cublasLtMatmulDescCreate", api.desc_create),
        named("cublasLtMatmulDescDestroy", api.desc_destroy),
        named("cublasLtMatmulDescSetAttribute", api.desc_set),
        named("cublasLtMatrixLayoutCreate", api.layout_create),
        named("cublasLtMatrixLayoutDestroy", api.layout_destroy),
        named("cublasLtMatmulPreferenceCreate", api.preference_create),
        named("cublasLtMatmulPreferenceDestroy", api.preference_destroy),
        named("cublasLtMatmulPreferenceSetAttribute", api.preference_set),
        named("cublasLtMatmulAlgoGetHeuristic", api.heuristic),
        named("cublasLtMatmulAlgoConfigGetAttribute", api.config_get),
        named("cublasLtMatmul", api.matmul),
        named("cublasLtGroupedMatrixLayoutCreate", api.grouped_layout_create),
        named("cublasLtMatmulAlgoGetHeuristicForStream", api.heuristic_for_stream),
    };
    recording();
    return find(all, name);
}

}  // namespace

Live live() { return {streams, retained, static_cast<int>(stack.size()), recording().live}; }

void forget() {
    recording().heuristics = {};
    recording().matmuls = {};
    recording().sets = {};
}

void make_current(void* context) {
    stack.clear();
    if (context) stack.push_back(static_cast<CUcontext>(context));
}
void* current() { return stack.empty() ? nullptr : stack.back(); }

}  // namespace played

using namespace played;

namespace {

// Returns what a call has that works on the current device: a failure where another one, or none, is current.
cudaError_t here() { return current() == &primary_context ? cudaSuccess : cudaErrorInvalidDevice; }

}  // namespace

// ---- The runtime ---------------------------------------------------------------------------------------------------------

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) { return give(version, machine.driver_version); }
cudaError_t cudaGetDeviceCount(int* count) {
    return give(count, machine.devices), machine.devices ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {};
    std::strcpy(properties->name, "played by the host");
    properties->major = machine.capability / 10, properties->minor = machine.capability % 10;
    properties->multiProcessorCount = 132;
    return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) { return error == cudaErrorNoDevice ? "no device" : "played failure"; }
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
    *entry = driver_function(name);
    return give(result, *entry ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    *attributes = {};
    attributes->ptxVersion = 90;
    return here();
}
cudaError_t cudaFuncGetName(const char** name, const void*) { return give(name, "a_kernel"); }
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return here(); }
cudaError_t cudaGetSymbolAddress(void** address, const void*) {
    static float one = 1;
    return *address = &one, here();
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
    const dim3 grid = config->gridDim;
    ++launched.all;
    for (unsigned i = 0; i < config->numAttrs; ++i)
        launched.early += config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization;
    return kernel && arguments && grid.x && grid.y && grid.z ? here() : cudaErrorInvalidConfiguration;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
    return std::memset(to, value, bytes), here();
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind, cudaStream_t) {
    for (size_t i = 0; i < height; ++i)
        std::memcpy(static_cast<uint8_t*>(to) + i * pitch, static_cast<const uint8_t*>(from) + i * from_pitch, width);
    return here();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return ++streams, give(stream, reinterpret_cast<cudaStream_t>(new int));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return --streams, delete reinterpret_cast<int*>(stream), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
    return *status = cudaStreamCaptureStatusNone, here();
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* other) {
    return std::swap(mode, *other), cudaSuccess;
}

// Of the tests alone.
cudaError_t cudaMalloc(void** data, size_t bytes) { return give(data, std::aligned_alloc(256, (bytes + 255) / 256 * 256)); }
cudaError_t cudaFree(void* data) { return std::free(data), cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
    return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

// What nvcc writes into objects with kernels.
void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 0; }
unsigned __cudaPopCallConfiguration(void*, void*, size_t*, void*) { return 0; }
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaErrorNotSupported; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaErrorNotSupported; }

// ---- The loader
// ------------------------------------------------------------------------------------------------------------

// calls.cpp asks these before the loader.
// NOLINTNEXTLINE(bugprone-reserved-identifier): the linker's names.
decltype(dlopen) __real_dlopen;
decltype(dlsym) __real_dlsym;  // NOLINT(bugprone-reserved-identifier)
void* played_dlopen(const char* path, int flags) {
    if (!path || !std::strstr(path, "cublasLt")) return __real_dlopen(path, flags);
    return machine.has_cublaslt ? &cublaslt_library : nullptr;
}
void* played_dlsym(void* library, const char* name) {
    return library == &cublaslt_library ? cublaslt_function(name) : __real_dlsym(library, name);
}

}  // extern "C"
