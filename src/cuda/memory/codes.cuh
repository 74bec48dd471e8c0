// Codes of eight bits, as many as a vector of elements has, to and from memory.
#pragma once
#include "cuda/memory/elements.cuh"

namespace mxq::cuda {

// The codes of a vector, `count` bytes.
template <int count>
struct Codes {
    uint32_t words[count / 4];
};

template <int count, class Accesses>
__device__ __forceinline__ Codes<count> load_codes(bool wide, const uint8_t* from, int64_t stride, const Accesses& accesses,
                                                   int i) {
    Codes<count> codes{};
    from += accesses.offset(i, stride);
    if (wide) {
        if (!accesses.exists(i)) return codes;
        if constexpr (count == 8) {
            const uint2 v = *reinterpret_cast<const uint2*>(from);
            return {{v.x, v.y}};
        } else {
            return {{*reinterpret_cast<const uint32_t*>(from)}};
        }
    }
#pragma unroll
    for (int j = 0; j < count; j++)
        if (j < accesses.valid(i)) codes.words[j / 4] |= uint32_t(from[j]) << (j % 4 * 8);
    return codes;
}

template <int count, class Accesses>
__device__ __forceinline__ void store_codes(const Codes<count>& codes, bool wide, uint8_t* to, int64_t stride,
                                            const Accesses& accesses, int i) {
    to += accesses.offset(i, stride);
    if (wide) {
        if (!accesses.exists(i)) return;
        if constexpr (count == 8) *reinterpret_cast<uint2*>(to) = {codes.words[0], codes.words[1]};
        else *reinterpret_cast<uint32_t*>(to) = codes.words[0];
        return;
    }
#pragma unroll
    for (int j = 0; j < count; j++)
        if (j < accesses.valid(i)) to[j] = uint8_t(codes.words[j / 4] >> (j % 4 * 8));
}

// Makes the codes of a vector that lies in one block.
template <class E, class T>
__device__ __forceinline__ Codes<Vector<T>::count> quantize_vector(const Vector<T>& vector, float reciprocal) {
    Codes<Vector<T>::count> codes{};
#pragma unroll
    for (int i = 0; i < Vector<T>::count; i += 2)
        codes.words[i / 4] |=
            encode_pair<E>(multiply_rn(vector[i], reciprocal), multiply_rn(vector[i + 1], reciprocal)) << (i % 4 * 8);
    return codes;
}

}  // namespace mxq::cuda
