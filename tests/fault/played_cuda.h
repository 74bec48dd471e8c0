// CUDA played by the host, for tests of how the library calls it: memory is the host's, kernels do nothing, and all that is
// created is counted. cuBLASLt is the recorder of tests/cuda.
#ifndef MXQ_TESTS_FAULT_PLAYED_CUDA_H
#define MXQ_TESTS_FAULT_PLAYED_CUDA_H

#include <string>

namespace played {

// What there is. A test changes it, and puts it back.
struct Machine {
    int driver_version = 13000, devices = 1, capability = 90, cublaslt_version = 131000;
    bool has_cublaslt = true;
    std::string missing;  // a function that the driver or cuBLASLt has not
};
inline Machine machine;

// What is there now.
struct Live {
    int streams = 0;
    int retained = 0;  // of the device's primary context
    int pushed = 0;    // contexts on the stack of the calling thread
    int cublaslt = 0;  // handles, descriptors, preferences
    bool operator==(const Live&) const = default;
};
Live live();

// The kernels that were launched, and those of them that may start before the kernel before has ended.
struct Launched {
    int all = 0, early = 0;
};
inline Launched launched;

// Forgets what cuBLASLt was asked, so that it holds no memory.
void forget();

// Makes another context current, as a caller may, or none.
void make_current(void* context);
void* current();

}  // namespace played

#endif
