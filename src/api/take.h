// Takes what setters are given.
#pragma once
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

}  // namespace mxq
