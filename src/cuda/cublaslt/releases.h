// Two tables: what each release of cuBLASLt offers on which chip, and its faults there. README.md in this folder has the
// same rows with sources.
#pragma once
#include "cuda/cublaslt/description.h"

namespace mxq::cuda::lt {

// Describes how an algorithm of the library is configured, by the library's own numbers.
struct AlgorithmConfig {
    uint32_t id, splits, stages;  // splits: parts of the contraction that are summed apart, 0 or 1: none
};

// Returns why the library has no product under these scales on the chip, one by one or in groups; empty where it has.
Reason check_offer(ScaleMode mode, bool grouped, const Machine& machine);

// Returns which fault of the library keeps it from the product; empty where none is known.
Reason check_faults(const MatmulDescription& p, const Machine& machine);

// Returns whether pointers, rows and strides of A, B and D are multiples of 16 bytes, which some faults depend on.
bool has_whole_lines(const MatmulDescription& p);

// Returns whether the library's sums may be wrong by an algorithm that it proposes for the product.
bool is_faulty(const AlgorithmConfig& algorithm, const MatmulDescription& p, const Machine& machine);

}  // namespace mxq::cuda::lt
