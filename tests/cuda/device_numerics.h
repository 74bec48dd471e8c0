// What device_numerics.cu finds out: conversions of numerics/ on the device against the same on the host, bit for bit.
#ifndef MXQ_TESTS_CUDA_DEVICE_NUMERICS_H
#define MXQ_TESTS_CUDA_DEVICE_NUMERICS_H

#include <cstdint>
#include <string>
#include <vector>

namespace testing {

struct NumericsOutcome {
    std::string name;
    uint64_t ran, wrong, first_wrong;
};

std::vector<NumericsOutcome> device_numerics();             // as kernels have them
std::vector<NumericsOutcome> device_numerics_of_toolkit();  // with the toolkit's conversions, instructions or not

}  // namespace testing

#endif
