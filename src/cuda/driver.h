// Functions of the CUDA driver that the runtime does not offer. They are found at run time: the library links no libcuda.
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

// Returns the process's table of driver functions, filled at the first call. Throws NO_DEVICE where the driver lacks one.
const Driver& driver();

// Throws CUDA_ERROR with the driver's own words unless a driver call succeeded. `what` names the call.
void check_driver(CUresult result, const char* what);

// Throws CUDA_ERROR with the runtime's own words unless a runtime call succeeded. `what` names the call.
void check(cudaError_t status, const char* what);

}  // namespace mxq::cuda
