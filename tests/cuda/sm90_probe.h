// The smallest kernel that uses all of src/cuda/sm90: sm90_probe.cu runs it, sm90_probe_test.cpp checks what it makes.
#ifndef MXQ_TESTS_CUDA_SM90_PROBE_H
#define MXQ_TESTS_CUDA_SM90_PROBE_H

#include <cstdint>

namespace testing {

enum class ProbeElement { E4M3, Bf16 };

// d[e] = a * b[e]^T for each of `matrices` b; all row after row without gaps, in device memory. The bytes of a row of a and b,
// and of one of d, are multiples of 16.
struct ProbeProblem {
    ProbeElement element;
    int matrices, rows, cols, depth;  // a: rows x depth, b: cols x depth, d: rows x cols
    const void* a;
    const void* b;
    float* d;
};

// Whether the current device runs code for sm_90a.
bool is_sm90();

// Multiplies and waits. Throws where CUDA fails.
void run_probe(const ProbeProblem& problem);

}  // namespace testing

#endif
