#include "cuda/driver.h"

#include "core/error.h"

namespace mxq::cuda {
namespace {

constexpr unsigned kDriverVersion = 12000;  // the CUDA version whose driver functions are asked for

template <class Function>
void find(Function& function, const char* symbol) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    check(cudaGetDriverEntryPointByVersion(symbol, &entry, kDriverVersion, cudaEnableDefault, &result), symbol);
    if (!entry) fail(MXQ_STATUS_NO_DEVICE, "the CUDA driver has no %s; install a driver for CUDA 12 or later", symbol);
    function = reinterpret_cast<Function>(entry);
}

}  // namespace

const Driver& driver() {
    static const Driver entries = [] {
        Driver d;
        find(d.primary_retain, "cuDevicePrimaryCtxRetain");
        find(d.primary_release, "cuDevicePrimaryCtxRelease");
        find(d.get_current, "cuCtxGetCurrent");
        find(d.push_current, "cuCtxPushCurrent");
        find(d.pop_current, "cuCtxPopCurrent");
        find(d.error_string, "cuGetErrorString");
        find(d.encode_tiled, "cuTensorMapEncodeTiled");
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

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    fail(MXQ_STATUS_CUDA_ERROR, "%s failed: CUDA says \"%s\" (error %d)", what, cudaGetErrorString(status), int(status));
}

}  // namespace mxq::cuda
