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

// Returns numbers of a plain format, or none.
inline Numbers numbers_of(int32_t format, const void* numbers, uint64_t bytes, const char* name) {
    const Format* known = find_format(format);
    const bool clears = format == 0 && !numbers;
    if (!clears && (!known || known->quantized()))
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "format is %d, expected MXQ_FORMAT_F32 (1), F16 (2) or BF16 (3), or 0 with NULL for no %s", format, name);
    return {format, buffer_of(numbers, bytes, name)};
}

// Refuses memory that is too small, or not aligned; a message names the function that tells the size.
inline void require_block(const void* memory, uint64_t bytes, uint64_t need, const char* query) {
    if (bytes < need)
        fail(MXQ_STATUS_BUFFER_TOO_SMALL, "memory holds %llu bytes, expected at least %llu; ask %s",
             (unsigned long long)bytes, (unsigned long long)need, query);
    if (reinterpret_cast<uintptr_t>(memory) % kMemoryAlignment != 0)
        fail(MXQ_STATUS_MISALIGNED, "memory is at %p, expected a multiple of %llu bytes; move it", memory,
             (unsigned long long)kMemoryAlignment);
}

inline void require_type(int32_t type, const char* name) {
    if (type != MXQ_TYPE_INT32 && type != MXQ_TYPE_INT64)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is %d, expected MXQ_TYPE_INT32 (1) or MXQ_TYPE_INT64 (2)", name, type);
}

inline void require_finite(float value, const char* name) {
    if (!(value >= -FLT_MAX && value <= FLT_MAX))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is %g, expected a finite number", name, double(value));
}

}  // namespace mxq
