// 8-bit codes of a vector of elements, and their stores.
#pragma once
#include "cuda/memory/elements.cuh"

namespace mxq::cuda {

// The codes of a vector, `count` bytes.
template <int count>
struct Codes {
    uint32_t words[count / 4];
};

// Stores all codes of access i (memory/elements.cuh), if it exists.
template <int count, class Accesses>
__device__ __forceinline__ void store_wide_codes(const Codes<count>& codes, uint8_t* to, int64_t stride,
                                                 const Accesses& accesses, int i) {
    to += accesses.offset(i, stride);
    if (!accesses.exists(i)) return;
    if constexpr (count == 8) *reinterpret_cast<uint2*>(to) = {codes.words[0], codes.words[1]};
    else *reinterpret_cast<uint32_t*>(to) = codes.words[0];
}

// Quantizes a Vector, or as many values, whose elements share a scale.
template <class E, class V>
__device__ __forceinline__ Codes<V::count> quantize_vector(const V& vector, float reciprocal) {
    Codes<V::count> codes{};
#pragma unroll
    for (int i = 0; i < V::count; i += 2)
        codes.words[i / 4] |=
            encode_pair<E>(multiply_rn(vector[i], reciprocal), multiply_rn(vector[i + 1], reciprocal)) << (i % 4 * 8);
    return codes;
}

}  // namespace mxq::cuda
