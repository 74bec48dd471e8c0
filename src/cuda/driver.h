// The driver's functions that the runtime does not offer, found at run time: the library links no libcuda.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace mxq::cuda {

struct Driver {
    decltype(&cuDevicePrimaryCtxRetain) primary_retain;
    decltype(&cuDevicePrimaryCtxRelease) primary_release;
    decltype(&cuCtxGetCurrent) get_current;
    decltype(&cuCtxPushCurrent) push_current;
    decltype(&cuCtxPopCurrent) pop_current;
    decltype(&cuGetErrorString) error_string;
    decltype(&cuTensorMapEncodeTiled) encode_tiled;  // describes a tensor to the copy engine of sm_90 and later
};

// The one table of the process, filled at the first call. Throws NO_DEVICE where the driver lacks a function.
const Driver& driver();

// Throws CUDA_ERROR with the driver's own words.
void check_driver(CUresult result, const char* what);

// Throws CUDA_ERROR with the runtime's own words.
void check(cudaError_t status, const char* what);

}  // namespace mxq::cuda
