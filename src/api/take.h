// Takes what setters are given.
#pragma once
#include <cfloat>

#include "core/error.h"
#include "core/tensor.h"

namespace mxq {

// Returns a buffer of the caller's. NULL with bytes is memory that could not be allocated.
inline Buffer buffer_of(const void* pointer, uint64_t bytes, const char* name) {
    if (!pointer && bytes != 0)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "%s is NULL with %llu bytes, expected an address, or NULL with 0 bytes for none; was it allocated?", name,
             (unsigned long long)bytes);
    return {const_cast<void*>(pointer), bytes};
}

// Takes numbers of a plain format, or none.
inline void take_numbers(int32_t format, const void* numbers, uint64_t bytes, const char* name, int32_t& format_to,
                         Buffer& to) {
    const Format* known = find_format(format);
    const bool clears = format == 0 && !numbers;
    if (!clears && (!known || known->quantized()))
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "format is %d, expected MXQ_FORMAT_F32 (1), F16 (2) or BF16 (3), or 0 with NULL for no %s", format, name);
    to = buffer_of(numbers, bytes, name);
    format_to = format;
}

inline void require_finite(float value, const char* name) {
    if (!(value >= -FLT_MAX && value <= FLT_MAX))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is %g, expected a finite number", name, double(value));
}

}  // namespace mxq
