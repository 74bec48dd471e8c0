// Sums of products that are made again where roundings below fp32's normal range could show in D.
#pragma once
#include <cmath>

#include "cpu/gemm_kernels.h"

namespace mxq::cpu {

// Returns how many significant bits values have: products of 24 and fewer are exact in fp32.
int significant_bits(const QuantizedPart& part);

// Returns how many significant bits codes have without any scale.
int code_bits(const QuantizedPart& part);

// Returns whether the sum of an extreme K-major row is so small that it is made again. At 2^-90 and above the bound's (L +
// 1) 2^-24 |a||b| covers the roundings at 2^-150 of any length L of the contraction.
constexpr float kTinySum = 0x1p-90f;
inline bool is_tiny(float sum) { return std::abs(sum) < kTinySum; }

// Tells whether one of the sums is tiny, or, where that counts, not finite.
bool has_tiny(const float* sums, int64_t count, bool or_infinite);

// Returns the sum of one row of A and one of B once more, in double. `odd` tells that a rounding to 16 bits is the next
// thing that happens to it.
float sum_again(const GemmKernels& kernels, const OperandLines& a, const OperandLines& b, int64_t k, bool odd);

}  // namespace mxq::cpu
