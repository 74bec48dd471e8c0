// Says what a test of products runs on, and who must take a product there: docs/blackwell.md says it in words, chips_test.cpp
// asks the library itself.
#ifndef MXQ_TESTS_MACHINE_H
#define MXQ_TESTS_MACHINE_H

#include "formats.h"

#include <cstdio>

namespace testing {

// Names a chip and its cuBLASLt: 90 for 9.0, and 130100 for 13.1.0; 0: there is none.
struct Machine {
    int capability = 0, version = 0;

    explicit Machine(const Device& device) {
        const std::string chip = mxq_context_description(device.context);
        const size_t at = chip.find("sm_");
        if (at == std::string::npos || std::sscanf(chip.c_str() + at, "sm_%d", &capability) != 1) return;
        int major = 0, minor = 0, patch = 0;
        if (std::sscanf(mxq_context_cublaslt(device.context), "cuBLASLt %d.%d.%d", &major, &minor, &patch) >= 2)
            version = major * 10000 + minor * 100 + patch;
    }
    bool is_hopper() const { return capability == 90; }
    bool has_blackwell() const {
        return capability >= 100 && version >= 130300;
    }  // from there on without a known fault of products
    bool groups_on_blackwell() const {
        return capability >= 100 && capability < 120 && version >= 130400 && version < 130700;
    }
};

// Returns whether block-scaled tensor cores take both operands of a product where they are, or after a pass. Codes of MX
// have 8 bits then, and a line whole blocks of 32.
inline bool lies_right(const oracle::Spec& a, const oracle::Spec& b, bool swizzled, int64_t k) {
    const auto is_wide_enough = [](const oracle::Spec& spec) {
        return spec.format == MXQ_FORMAT_NVFP4 || oracle::code_bits(spec.format) == 8;
    };
    return swizzled && is_wide_enough(a) && is_wide_enough(b) && k % 32 == 0;
}
inline const char* block_scaled(const oracle::Spec& a, const oracle::Spec& b, bool swizzled, int64_t k) {
    return lies_right(a, b, swizzled, k) ? "cublaslt" : "cublaslt_swizzle";
}
inline const char* block_scaled_groups(const oracle::Spec& a, const oracle::Spec& b, bool swizzled, int64_t k) {
    return lies_right(a, b, swizzled, k) ? "cublaslt_grouped" : "cublaslt_grouped_swizzle";
}

}  // namespace testing

#endif
