// Chunks of 16 codes of a K-major row: loaded as they are stored, and rebased to another scale.
#pragma once
#include "numerics/packing.h"
#include "numerics/rebase.h"

namespace mxq::cuda {

// Holds 16 codes as they are stored.
template <int bits>
struct Chunk {
    uint32_t words[bits / 2];
};

template <int bits>
__device__ __forceinline__ Chunk<bits> load_whole(const uint8_t* from) {
    Chunk<bits> chunk;
    if constexpr (bits == 8) {
        const uint4 v = *reinterpret_cast<const uint4*>(from);
        chunk.words[0] = v.x, chunk.words[1] = v.y, chunk.words[2] = v.z, chunk.words[3] = v.w;
    } else if constexpr (bits == 4) {
        const uint2 v = *reinterpret_cast<const uint2*>(from);
        chunk.words[0] = v.x, chunk.words[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < 3; i++) chunk.words[i] = reinterpret_cast<const uint32_t*>(from)[i];
    }
    return chunk;
}

// Loads `count` codes; the others become zero.
template <int bits>
__device__ __forceinline__ Chunk<bits> load_some(const uint8_t* from, int count) {
    Chunk<bits> chunk{};
    const int bytes = (count * bits + 7) / 8;
#pragma unroll
    for (int i = 0; i < 2 * bits; i++)
        if (i < bytes) chunk.words[i / 4] |= uint32_t(from[i]) << (i % 4 * 8);
    return chunk;
}

template <class E>
__device__ __forceinline__ uint4 rebase_chunk(const Chunk<E::bits>& chunk, const RebaseBlock<E>& block) {
    uint32_t codes[4];
    if constexpr (E::bits == 4) {
        rebase_e2m1(chunk.words, block, codes);
    } else {
        unpack_16<E::bits>(chunk.words, codes);
        if constexpr (E::bits == 6)
#pragma unroll
            for (uint32_t& word : codes) word = six_bits_to_e4m3<E>(word);
        rebase_16<E>(codes, block);
    }
    return {codes[0], codes[1], codes[2], codes[3]};
}

}  // namespace mxq::cuda
