#include "cpu/gemm_repair.h"

#include <algorithm>
#include <cmath>

#include "mxq/mxq.h"
#include "numerics/bits.h"
#include "numerics/element.h"

namespace mxq::cpu {
namespace {

// Rounds to fp32 before a rounding to 16 bits, which then is as if from the double: inexact values get an odd last bit.
float round_to_odd(double value) {
    const float nearest = float(value);
    if (double(nearest) == value) return nearest;
    const bool away = std::abs(double(nearest)) > std::abs(value);
    return bits_float((float_bits(nearest) - away) | 1);
}

}  // namespace

int significant_bits(const QuantizedPart& part) {
    constexpr int of_bf16 = 8, of_f16 = 11, of_fp32 = 24;
    if (part.element == Element::Bf16) return of_bf16;
    if (part.element == Element::F16) return of_f16;
    if (part.scale_type != ScaleType::E8M0) return of_fp32;
    return with_element(part.element, []<class E>(E) { return E::mantissa_bits + 1; });
}

int code_bits(const QuantizedPart& part) {
    return with_element(part.element, []<class E>(E) { return E::mantissa_bits + 1; });
}

float sum_again(const GemmKernels& kernels, const OperandLines& a, const OperandLines& b, int64_t k, bool odd) {
    alignas(64) float row[kGemmDepth], column[kGemmDepth];
    double sum = 0;
    for (int64_t at = 0; at < k; at += kGemmDepth) {
        const int64_t depth = std::min(kGemmDepth, k - at);
        kernels.read(a, at, depth, row);
        kernels.read(b, at, depth, column);
        for (int64_t l = 0; l < depth; l++) sum += double(row[l]) * double(column[l]);
    }
    return odd ? round_to_odd(sum) : float(sum);
}

bool has_tiny(const float* sums, int64_t count, bool or_infinite) {
    const int32_t least = int32_t(float_bits(kTinySum)), most = int32_t(or_infinite ? 0x7F7FFFFF : kMagnitudeMask);
    int32_t any = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t magnitude = int32_t(float_bits(sums[i]) & kMagnitudeMask);
        any |= int32_t(magnitude < least) | int32_t(magnitude > most);
    }
    return any != 0;
}

}  // namespace mxq::cpu
