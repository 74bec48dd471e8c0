// Writes what getters give out; each output may be NULL.
#pragma once
#include "core/tensor.h"

namespace mxq {

template <class T, class Value>
void put(T* output, const Value& value) {
    if (output) *output = T(value);
}

// Pointers that are not set have 0 bytes, whatever extent came with them.
template <class T>
void put(T** pointer, uint64_t* bytes, const Buffer& buffer) {
    put(pointer, static_cast<T*>(buffer.pointer));
    put(bytes, buffer.pointer ? buffer.bytes : 0);
}

inline void put(int32_t* format, const void** numbers, uint64_t* bytes, const Numbers& given) {
    put(format, given.format);
    put(numbers, bytes, given.values);
}

}  // namespace mxq
