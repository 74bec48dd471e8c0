#include "calls.h"

#include "allocations.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "cuda/cublaslt/library.h"

namespace fault {

namespace {

// ---- Counting ----------------------------------------------------------------------------------------------------------

bool is_counting = false;
long live_at_begin = 0;
long calls_until_failure = -1;
Counted counted;
std::set<std::string> unknown;

bool is_work(std::string_view name) {
    return name == "cudaLaunchKernelExC" || name == "cudaMemsetAsync" || name == "cudaMemcpy2DAsync" ||
           name == "cublasLtMatmul";
}
bool ends_something(std::string_view name) {
    return name.find("Destroy") != name.npos || name.find("Release") != name.npos || name.find("Pop") != name.npos;
}

bool fails(const char* name) {
    if (!is_counting) return false;
    counted.calls.emplace_back(name);
    const bool failing = calls_until_failure-- == 0;
    if (failing) counted.failed = name;
    if (calls_until_failure >= 0) counted.work_before += is_work(name);
    return failing;
}

template <class Status>
constexpr Status failure = Status(-1);
template <>
constexpr cudaError_t failure<cudaError_t> = cudaErrorUnknown;
template <>
constexpr CUresult failure<CUresult> = CUDA_ERROR_UNKNOWN;
template <>
constexpr cublasStatus_t failure<cublasStatus_t> = CUBLAS_STATUS_INTERNAL_ERROR;
template <>
constexpr void* failure<void*> = nullptr;

template <class Result, class... Parameters, class... Arguments>
Result through(const char* name, Result (*real)(Parameters...), Arguments... arguments) {
    const bool was_armed = fault::armed.exchange(false);  // what is allocated here does not fail, and does not count
    const long live_before = fault::live;
    const bool failing = fails(name);
    const Result result = failing && !ends_something(name) ? failure<Result> : real(arguments...);
    fault::armed = was_armed;
    fault::live = live_before;
    errno = EIO;  // as system calls of a driver may leave it
    return failing ? failure<Result> : result;
}

// ---- Functions that are found at run time --------------------------------------------------------------------------------

template <size_t length>
struct Name {
    char text[length];
    constexpr Name(const char (&from)[length]) { std::copy_n(from, length, text); }
};

template <Name name, class Function>
struct Entry;
template <Name name, class Result, class... Parameters>
struct Entry<name, Result (*)(Parameters...)> {
    static inline Result (*real)(Parameters...) = nullptr;
    static Result call(Parameters... parameters) { return through(name.text, real, parameters...); }
};

struct Interposed {
    const char* name;
    void* function;
    void* (*exchange)(void* real);  // remembers the real one
};

template <Name name, class Function>
Interposed entry() {
    using Of = Entry<name, Function>;
    return {name.text, reinterpret_cast<void*>(&Of::call), [](void* real) {
                Of::real = reinterpret_cast<Function>(real);
                return real;
            }};
}

const std::vector<Interposed>& driver_entries() {
    static const std::vector<Interposed> entries{
        entry<"cuDevicePrimaryCtxRetain", decltype(&cuDevicePrimaryCtxRetain)>(),
        entry<"cuDevicePrimaryCtxRelease", decltype(&cuDevicePrimaryCtxRelease)>(),
        entry<"cuCtxGetCurrent", decltype(&cuCtxGetCurrent)>(),
        entry<"cuCtxPushCurrent", decltype(&cuCtxPushCurrent)>(),
        entry<"cuCtxPopCurrent", decltype(&cuCtxPopCurrent)>(),
        entry<"cuTensorMapEncodeTiled", decltype(&cuTensorMapEncodeTiled)>(),
    };
    return entries;
}

const std::vector<Interposed>& cublaslt_entries() {
    static const std::vector<Interposed> entries{
        entry<"cublasLtCreate", decltype(&cublasLtCreate)>(),
        entry<"cublasLtDestroy", decltype(&cublasLtDestroy)>(),
        entry<"cublasLtMatmulDescCreate", decltype(&cublasLtMatmulDescCreate)>(),
        entry<"cublasLtMatmulDescDestroy", decltype(&cublasLtMatmulDescDestroy)>(),
        entry<"cublasLtMatmulDescSetAttribute", decltype(&cublasLtMatmulDescSetAttribute)>(),
        entry<"cublasLtMatrixLayoutCreate", decltype(&cublasLtMatrixLayoutCreate)>(),
        entry<"cublasLtMatrixLayoutDestroy", decltype(&cublasLtMatrixLayoutDestroy)>(),
        entry<"cublasLtMatmulPreferenceCreate", decltype(&cublasLtMatmulPreferenceCreate)>(),
        entry<"cublasLtMatmulPreferenceDestroy", decltype(&cublasLtMatmulPreferenceDestroy)>(),
        entry<"cublasLtMatmulPreferenceSetAttribute", decltype(&cublasLtMatmulPreferenceSetAttribute)>(),
        entry<"cublasLtMatmulAlgoGetHeuristic", decltype(&cublasLtMatmulAlgoGetHeuristic)>(),
        entry<"cublasLtMatmulAlgoConfigGetAttribute", decltype(&cublasLtMatmulAlgoConfigGetAttribute)>(),
        entry<"cublasLtMatmul", decltype(&cublasLtMatmul)>(),
        entry<"cublasLtGroupedMatrixLayoutCreate", mxq::cuda::lt::GroupedLayoutCreate*>(),
        entry<"cublasLtMatmulAlgoGetHeuristicForStream", mxq::cuda::lt::HeuristicForStream*>(),
    };
    return entries;
}

// Those that cannot fail.
constexpr const char* harmless[] = {"cuGetErrorString", "cublasLtGetVersion", "cublasLtGetStatusName"};

void* interpose(const std::vector<Interposed>& entries, const char* name, void* real) {
    if (!real || std::strncmp(name, "cu", 2) != 0) return real;
    for (const Interposed& one : entries)
        if (std::strcmp(one.name, name) == 0) return one.exchange(real), one.function;
    if (std::find_if(std::begin(harmless), std::end(harmless),
                     [&](const char* other) { return !std::strcmp(other, name); }) == std::end(harmless))
        unknown.insert(name);
    return real;
}

constexpr const char* runtime_entries[] = {"cudaDriverGetVersion",
                                           "cudaFuncGetAttributes",
                                           "cudaFuncSetAttribute",
                                           "cudaGetDeviceCount",
                                           "cudaGetDeviceProperties",
                                           "cudaGetDriverEntryPointByVersion",
                                           "cudaGetSymbolAddress",
                                           "cudaLaunchKernelExC",
                                           "cudaMemcpy2DAsync",
                                           "cudaMemsetAsync",
                                           "cudaStreamCreateWithFlags",
                                           "cudaStreamDestroy",
                                           "cudaStreamIsCapturing",
                                           "cudaThreadExchangeStreamCaptureMode",
                                           "dlopen",
                                           "dlsym"};

}  // namespace

long held = 0;

void begin_calls(long failing) {
    counted = {};
    calls_until_failure = failing;
    is_counting = true;
    live_at_begin = live;
}

Counted end_calls() {
    is_counting = false;
    held += live - live_at_begin;
    return std::exchange(counted, {});
}

std::vector<std::string> entry_points() {
    std::vector<std::string> names(std::begin(runtime_entries), std::end(runtime_entries));
    for (const auto* entries : {&driver_entries(), &cublaslt_entries()})
        for (const Interposed& one : *entries) names.emplace_back(one.name);
    return names;
}

std::vector<std::string> unknown_entry_points() { return {unknown.begin(), unknown.end()}; }

}  // namespace fault

// ---- Functions that the library links ------------------------------------------------------------------------------------

using fault::through;

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names.
extern "C" {

decltype(cudaDriverGetVersion) __real_cudaDriverGetVersion;
decltype(cudaFuncSetAttribute) __real_cudaFuncSetAttribute;
decltype(cudaGetDeviceCount) __real_cudaGetDeviceCount;
decltype(cudaGetDeviceProperties) __real_cudaGetDeviceProperties;
decltype(cudaLaunchKernelExC) __real_cudaLaunchKernelExC;
decltype(cudaMemcpy2DAsync) __real_cudaMemcpy2DAsync;
decltype(cudaMemsetAsync) __real_cudaMemsetAsync;
decltype(cudaStreamDestroy) __real_cudaStreamDestroy;
decltype(cudaStreamIsCapturing) __real_cudaStreamIsCapturing;
decltype(cudaThreadExchangeStreamCaptureMode) __real_cudaThreadExchangeStreamCaptureMode;
decltype(dlopen) __real_dlopen;
decltype(dlsym) __real_dlsym;
// The headers overload these in C++.
cudaError_t __real_cudaFuncGetAttributes(cudaFuncAttributes*, const void*);
cudaError_t __real_cudaGetSymbolAddress(void**, const void*);
cudaError_t __real_cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
cudaError_t __real_cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                                    cudaDriverEntryPointQueryResult*);

cudaError_t __wrap_cudaDriverGetVersion(int* version) {
    return through("cudaDriverGetVersion", __real_cudaDriverGetVersion, version);
}
cudaError_t __wrap_cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
    return through("cudaFuncGetAttributes", __real_cudaFuncGetAttributes, attributes, kernel);
}
cudaError_t __wrap_cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    return through("cudaFuncSetAttribute", __real_cudaFuncSetAttribute, kernel, attribute, value);
}
cudaError_t __wrap_cudaGetDeviceCount(int* count) { return through("cudaGetDeviceCount", __real_cudaGetDeviceCount, count); }
cudaError_t __wrap_cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return through("cudaGetDeviceProperties", __real_cudaGetDeviceProperties, properties, device);
}
cudaError_t __wrap_cudaGetSymbolAddress(void** address, const void* symbol) {
    return through("cudaGetSymbolAddress", __real_cudaGetSymbolAddress, address, symbol);
}
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
    return through("cudaLaunchKernelExC", __real_cudaLaunchKernelExC, config, kernel, arguments);
}
cudaError_t __wrap_cudaMemcpy2DAsync(void* to, size_t pitch, const void* from, size_t from_pitch, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    return through("cudaMemcpy2DAsync", __real_cudaMemcpy2DAsync, to, pitch, from, from_pitch, width, height, kind, stream);
}
cudaError_t __wrap_cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    return through("cudaMemsetAsync", __real_cudaMemsetAsync, to, value, bytes, stream);
}
cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return through("cudaStreamCreateWithFlags", __real_cudaStreamCreateWithFlags, stream, flags);
}
cudaError_t __wrap_cudaStreamDestroy(cudaStream_t stream) {
    return through("cudaStreamDestroy", __real_cudaStreamDestroy, stream);
}
cudaError_t __wrap_cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    return through("cudaStreamIsCapturing", __real_cudaStreamIsCapturing, stream, status);
}
cudaError_t __wrap_cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    return through("cudaThreadExchangeStreamCaptureMode", __real_cudaThreadExchangeStreamCaptureMode, mode);
}
cudaError_t __wrap_cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned version,
                                                    unsigned long long flags, cudaDriverEntryPointQueryResult* result) {
    const cudaError_t status = through("cudaGetDriverEntryPointByVersion", __real_cudaGetDriverEntryPointByVersion, name,
                                       entry, version, flags, result);
    if (status == cudaSuccess) *entry = fault::interpose(fault::driver_entries(), name, *entry);
    return status;
}
// Those of played_cuda.cpp, where the program has it.
[[gnu::weak]] decltype(dlopen) played_dlopen;
[[gnu::weak]] decltype(dlsym) played_dlsym;
void* __wrap_dlopen(const char* path, int flags) {
    return through("dlopen", played_dlopen ? played_dlopen : __real_dlopen, path, flags);
}
void* __wrap_dlsym(void* library, const char* name) {
    void* const found = through("dlsym", played_dlsym ? played_dlsym : __real_dlsym, library, name);
    return fault::interpose(fault::cublaslt_entries(), name, found);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
