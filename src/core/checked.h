// Sizes that come from the caller: arithmetic that refuses to wrap.
#pragma once
#include <cstdint>

#include "core/error.h"

namespace mxq {

inline int64_t checked_multiply(int64_t a, int64_t b) {
    int64_t result;
    if (__builtin_mul_overflow(a, b, &result))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "a size of %lld x %lld overflows 64 bits; use smaller tensors or strides",
             (long long)a, (long long)b);
    return result;
}

inline int64_t checked_add(int64_t a, int64_t b) {
    int64_t result;
    if (__builtin_add_overflow(a, b, &result))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "a size of %lld + %lld overflows 64 bits; use smaller tensors or strides",
             (long long)a, (long long)b);
    return result;
}

}  // namespace mxq
