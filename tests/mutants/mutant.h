// Included before every source of the copy that mutants.py builds: tells which mutant the process runs. Without the environment
// variable MXQ_MUTANT it is none.
//
// Code for the device has the number in constant memory, of which every .cu file has its own. set_mutant_on_device, which the
// copy calls when a CUDA context is opened, sets them all.
#pragma once
#ifdef __cplusplus
#include <cstdlib>

#define MXQ_MUTANT_INLINE inline __attribute__((always_inline))

struct MutantUnit {
    void (*set)();
    MutantUnit* next;
};
inline MutantUnit* mutant_units = nullptr;

static const int mutant_on_host = [] {
    const char* number = std::getenv("MXQ_MUTANT");
    return number ? std::atoi(number) : 0;
}();

inline void set_mutant_on_device() {
    for (MutantUnit* unit = mutant_on_host == 0 ? nullptr : mutant_units; unit; unit = unit->next) unit->set();
}

#ifdef __CUDACC__
static __constant__ int mutant_on_device;

// Sets the constant of this file on the device. That fails in a file that is compiled for another chip alone, whose kernels are
// not there to be changed, so the error is dropped.
static MutantUnit mutant_unit{
    [] {
        cudaMemcpyToSymbol(mutant_on_device, &mutant_on_host, sizeof mutant_on_host);
        cudaGetLastError();
    },
    mutant_units};
[[maybe_unused]] static const bool mutant_unit_is_known = (mutant_units = &mutant_unit) != nullptr;

#undef MXQ_MUTANT_INLINE
#define MXQ_MUTANT_INLINE __host__ __device__ __forceinline__
#endif

MXQ_MUTANT_INLINE bool is_mutant(int number) {
#ifdef __CUDA_ARCH__
    return mutant_on_device == number;
#else
    return mutant_on_host == number;
#endif
}
#endif
