// The weights of skinny_sm90 on their way from memory to the matrix instruction, in registers all the way.
//
// A thread has two lines, 8 apart, and 32 codes of each in every 128 along the contraction, which have one scale, or two of
// NVFP4:
//
//     128 codes of a line   | lane 4 r       | lane 4 r + 1   | lane 4 r + 2   | lane 4 r + 3   |     4 bits: 16 bytes each
//
//     four of the 32        decoded to BF16 as two pairs, are what the thread gives to one instruction of 16 codes; the
//                           tokens lie in the order that follows (skinny_tokens.h)
#pragma once
#include "cuda/sm90/skinny_tokens.h"
#include "cuda/sm90/weights.cuh"

namespace mxq::cuda::sm90 {

constexpr int kLaneCodes = 32;

// 32 codes of two lines, and the scales of each.
template <Weights kind>
struct Fragment {
    static constexpr int words_of_line = weight_bits<kind>;
    uint32_t words[2][words_of_line];
    uint32_t scales[2][kind == Weights::Nvfp4 ? 2 : 1];
};

// Says where a thread's codes and scales of its two lines lie, in its first chunk.
struct WeightReader {
    const uint8_t *codes[2], *scales[2];
    int32_t scale_step;  // bytes from the scale of a chunk to that of the next
    uint32_t code, end;  // number of its first, and of the first that is not the block's
};

// Loads bytes that nobody reads again, and has the 256 around them brought to L2, which the next chunks are.
__device__ __forceinline__ uint4 load_ahead(const uint4* from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}
__device__ __forceinline__ uint2 load_ahead(const uint2* from) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
    return v;
}

template <int words>
__device__ __forceinline__ void load_codes(const uint8_t* from, uint32_t (&to)[words]) {
    if constexpr (words % 4 == 0) {
#pragma unroll
        for (int i = 0; i < words; i += 4) {
            const uint4 v = load_ahead(reinterpret_cast<const uint4*>(from) + i / 4);
            to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < words; i += 2) {
            const uint2 v = load_ahead(reinterpret_cast<const uint2*>(from) + i / 2);
            to[i] = v.x, to[i + 1] = v.y;
        }
    }
}

// Loads a thread's part of a chunk; what is past the end is zeros.
template <Weights kind>
__device__ __forceinline__ void load_fragment(const WeightReader& reader, uint32_t chunk, bool scaled, Fragment<kind>& to) {
    const bool exists = reader.code + chunk * kChunkCodes < reader.end;
#pragma unroll
    for (int l = 0; l < 2; l++) {
        if (exists) {
            load_codes(reader.codes[l] + chunk * uint32_t(kChunkCodes / 8 * weight_bits<kind>), to.words[l]);
            const uint8_t* const scales = reader.scales[l] + int64_t(chunk) * reader.scale_step;
            if constexpr (kind == Weights::Nvfp4)
                to.scales[l][0] = __ldg(scales), to.scales[l][1] = __ldg(scales + 1);
            else
                to.scales[l][0] = scaled ? __ldg(scales) : 127;
        } else {
#pragma unroll
            for (uint32_t& word : to.words[l]) word = 0;
#pragma unroll
            for (uint32_t& scale : to.scales[l]) scale = kind == Weights::Nvfp4 ? 0 : 127;
        }
    }
}

// Returns codes 4 four .. 4 four + 3 of a line, as they lie in its words; 4-bit codes in the low half.
template <Weights kind>
__device__ __forceinline__ uint32_t four_codes(const Fragment<kind>& fragment, int l, int four) {
    const auto& words = fragment.words[l];
    if constexpr (kind == Weights::Bits8) return words[four];
    if constexpr (kind == Weights::Bits6) {
        const int bit = four * 24, word = bit / 32;
        return unpack_4<6>(bit % 32 <= 8 ? words[word] >> bit % 32
                                         : __funnelshift_r(words[word], words[word + 1], bit % 32));
    }
    return words[four / 2];
}

// Returns whether a fragment has something that the fast way does not decode.
template <Weights kind>
__device__ __forceinline__ bool is_special(const Bf16DecodeRule& rule, const Fragment<kind>& fragment) {
    uint32_t marks = 0;
    bool special = false;
#pragma unroll
    for (int l = 0; l < 2; l++) {
        for (uint32_t scale : fragment.scales[l]) special |= needs_two_factors<kind>(rule, scale);
        if constexpr (kind == Weights::Bits8)
            for (uint32_t word : fragment.words[l]) marks |= mark_special_codes(rule, word);
    }
    return special || (marks & kSpecialMarks);
}

// Moves four codes of a line to where BF16 has them.
template <Weights kind>
__device__ __forceinline__ EvenOddBf16 move_four(const Bf16DecodeRule& rule, uint32_t codes, int four) {
    if constexpr (kind == Weights::Bits8) return move_codes_to_bf16(rule, codes);
    if constexpr (kind == Weights::Bits6) return move_codes_to_bf16(rule, codes + 3 * (codes & 0x20202020u));
    const int pair = four % 2 * 2;
    return {move_pair_of_word(codes, pair), move_pair_of_word(codes, pair + 1)};
}

// Decodes four codes of a line, under the one factor of their scale.
template <Weights kind>
__device__ __forceinline__ EvenOddBf16 decode_four(const Bf16DecodeRule& rule, uint32_t codes, int four, uint32_t factor) {
    return scale_four<kind>(rule, move_four<kind>(rule, codes, four), factor);
}

// Decodes the same whatever codes and scale are.
template <Weights kind>
__device__ __forceinline__ EvenOddBf16 decode_any_four(const Bf16DecodeRule& rule, uint32_t missing, uint32_t codes,
                                                       int four, uint32_t scale) {
    return scale_any_four<kind>(rule, missing, move_four<kind>(rule, codes, four), codes, scale);
}

}  // namespace mxq::cuda::sm90
