// Sixteen codes of an output, from fp32 values to memory.
#pragma once
#include "cuda/tile/pair_factors.cuh"
#include "cuda/tile/shared_tile.cuh"
#include "cuda/types.cuh"
#include "numerics/packing.h"
#include "numerics/requantize_via_f16.h"

namespace mxq::cuda {

// 16 codes of the output as they are stored.
template <class E>
struct ChunkCodes {
    uint32_t words[E::bits / 2];
};

template <class E>
__device__ __forceinline__ void store_chunk(uint8_t* to, const ChunkCodes<E>& codes) {
    const auto& words = codes.words;
    if constexpr (E::bits == 8) __stwb(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
    else __stwb(reinterpret_cast<uint2*>(to), make_uint2(words[0], words[1]));
}

template <class E>
__device__ __forceinline__ void store_chunks(uint8_t* to, const ChunkCodes<E> (&codes)[1]) {
    store_chunk(to, codes[0]);
}

__device__ __forceinline__ void store_chunks(uint8_t* to, const ChunkCodes<E2M1> (&codes)[2]) {
    __stwb(reinterpret_cast<uint4*>(to),
           make_uint4(codes[0].words[0], codes[0].words[1], codes[1].words[0], codes[1].words[1]));
}

template <class E>
__device__ __forceinline__ ChunkCodes<E> quantize_values(const float (&values)[kChunk], float factor) {
    ChunkCodes<E> codes;
    const auto product = [&](int i) { return multiply_rn(values[i], factor); };
    if constexpr (E::bits == 8) {
#pragma unroll
        for (int w = 0; w < 4; w++)
            codes.words[w] = encode_pair<E>(product(4 * w), product(4 * w + 1)) |
                             encode_pair<E>(product(4 * w + 2), product(4 * w + 3)) << 16;
    } else {
#pragma unroll
        for (int w = 0; w < 2; w++) {
            uint32_t pairs[4];
#pragma unroll
            for (int i = 0; i < 4; i++) pairs[i] = encode_e2m1_floats(product(8 * w + 2 * i), product(8 * w + 2 * i + 1));
            codes.words[w] = mask_nibbles(pack_nibble_pairs(pairs), factor);
        }
    }
    return codes;
}

// Encodes magnitudes in F16 to E2M1 under a factor that can_requantize_via_f16.
struct E2m1Encoder {
    E2m1Factors factors;
    uint32_t limit;
    bool clamps;  // products may be 7 or more

    __device__ __forceinline__ E2m1Encoder(float factor, bool clamps)
        : factors(factor), limit(clamps ? e2m1_limit(factor) : 0), clamps(clamps) {}
    __device__ __forceinline__ uint32_t pair(uint32_t magnitudes) const {
        return encode_e2m1_from_f16(clamps ? min_f16_pairs(magnitudes, limit) : magnitudes, factors);
    }
    // Returns eight codes as they are stored: four pairs, and the signs of the bytes of two words.
    __device__ __forceinline__ uint32_t eight(const uint32_t* pairs, uint32_t low_signs, uint32_t high_signs) const {
        const uint32_t codes[] = {pair(pairs[0]), pair(pairs[1]), pair(pairs[2]), pair(pairs[3])};
        return pack_signed_e2m1(codes, low_signs, high_signs);
    }
};

}  // namespace mxq::cuda
