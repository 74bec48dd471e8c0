// The weights of skinny_sm90 on their way from memory to the matrix instruction, in registers all the way.
//
// A thread has two lines, 8 apart, and 32 codes of each in every 128 along the contraction, which have one scale, or two of
// NVFP4:
//
//     128 codes of a line   | lane 4 r       | lane 4 r + 1   | lane 4 r + 2   | lane 4 r + 3   |     4 bits: 16 bytes each
//
//     four of the 32        decoded to BF16 as two pairs, are what the thread gives to one instruction of 16 codes; the
//                           tokens lie in the order that follows (skinny_tokens.h)
//
// Logic operations are what decoding is bound by, and run at half the rate of others. So pairs of 4-bit codes are those that
// a mask leaves in both halves of a word, and one multiplication brings their signs and magnitudes to where BF16 has them:
//
//     word           c7 c6 c5 c4   c3 c2 c1 c0
//     masked               s e e m         s e e m          times 2^12 + 2^6, and masked again:
//     pair 0         s0000000.eem.....   s0000000.eem.....  BF16 numbers, code * 2^-126
//
// Inf, NaN and scales far above 1, which one factor does not serve, are rare: a warp that meets one takes two factors.
#pragma once
#include "cuda/memory/operand.cuh"
#include "cuda/sm90/skinny_tokens.h"

namespace mxq::cuda::sm90 {

constexpr int kLaneCodes = 32;

// Tells kinds of weights apart, as far as loading and decoding them differ.
enum class Weights { Bits4, Nvfp4, Bits6, Bits8 };

template <Weights kind>
constexpr int weight_bits = kind == Weights::Bits8   ? 8
                            : kind == Weights::Bits6 ? 6
                                                     : 4;

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

// E2M1 codes become BF16 numbers 2^126 too small. Up to this scale one factor makes up for that too.
constexpr int kE2m1Missing = 127 - E2M1::bias;
constexpr uint32_t kMostE2m1Scale = 254 - kE2m1Missing;

// A factor for both would be too large under scales of NVFP4, so their products are left that much too small.
constexpr int kNvfp4Below = 7;
template <Weights kind>
constexpr float unit_of_sums = kind == Weights::Nvfp4 ? float(1 << kNvfp4Below) : 1.0f;

// Returns the one factor of the codes of a scale, in both halves.
template <Weights kind>
__device__ __forceinline__ uint32_t scale_factor(const Bf16DecodeRule& rule, uint32_t scale) {
    if constexpr (kind == Weights::Nvfp4)
        return multiply_bf16_pairs(bf16_e4m3_factor(scale), bf16_power_pair(kE2m1Missing - kNvfp4Below));
    if constexpr (kind == Weights::Bits4) return scale * 0x00800080u + uint32_t(kE2m1Missing) * 0x00800080u;
    return bf16_e8m0_factor(rule, scale);
}

// Returns whether a fragment has something that the fast way does not decode.
template <Weights kind>
__device__ __forceinline__ bool is_special(const Bf16DecodeRule& rule, const Fragment<kind>& fragment) {
    uint32_t marks = 0;
    bool special = false;
#pragma unroll
    for (int l = 0; l < 2; l++) {
        for (uint32_t scale : fragment.scales[l])
            special |= kind == Weights::Bits4 ? scale > kMostE2m1Scale : is_special_scale(rule, scale);
        if constexpr (kind == Weights::Bits8)
            for (uint32_t word : fragment.words[l]) marks |= mark_special_codes(rule, word);
    }
    return special || (marks & kSpecialMarks);
}

// Returns the value of any scale as BF16, in both halves.
template <Weights kind>
__device__ __forceinline__ uint32_t any_scale(uint32_t scale) {
    constexpr uint32_t nan = 0x7FFF7FFF;
    if constexpr (kind == Weights::Nvfp4) {
        const uint32_t value = multiply_bf16_pairs(bf16_e4m3_factor(scale), bf16_power_pair(-kNvfp4Below));
        return (scale & 0x7F) == E4M3::nan_code ? nan : value;
    }
    return scale == kScaleNan ? nan : scale == 0 ? 0x00400040u : scale * 0x00800080u;
}

// Moves codes pair and pair + 4 of the eight in a word to where BF16 has them.
__device__ __forceinline__ uint32_t move_pair_of_word(uint32_t word, int pair) {
    const int shift = pair % 2 * 4;
    const uint32_t masked = (pair < 2 ? word : word >> 8) & (0x000F000Fu << shift);
    return masked * ((1u << (12 - shift)) + (1u << (6 - shift))) & 0x81C081C0u;
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
    const EvenOddBf16 moved = move_four<kind>(rule, codes, four);
    if constexpr (kind == Weights::Bits6) return multiply_twice(moved, rule.first_factor, factor);
    return {multiply_bf16_pairs(moved.even, factor), multiply_bf16_pairs(moved.odd, factor)};
}

// Decodes the same whatever codes and scale are. Inf and NaN get BF16's exponent of all ones beside their mantissas.
template <Weights kind>
__device__ __forceinline__ EvenOddBf16 decode_any_four(const Bf16DecodeRule& rule, uint32_t missing, uint32_t codes,
                                                       int four, uint32_t scale) {
    const EvenOddBf16 moved = move_four<kind>(rule, codes, four);
    uint32_t even = multiply_bf16_pairs(moved.even, missing), odd = multiply_bf16_pairs(moved.odd, missing);
    if constexpr (kind == Weights::Bits8) {
        const uint32_t special = (mark_special_codes(rule, codes) & kSpecialMarks) >> 7;  // a bit for each byte
        even |= (special & kOneInBothHalves) * 0x7F80u;
        odd |= (special >> 8 & kOneInBothHalves) * 0x7F80u;
    }
    const uint32_t factor = any_scale<kind>(scale);
    return {multiply_bf16_pairs(even, factor), multiply_bf16_pairs(odd, factor)};
}

}  // namespace mxq::cuda::sm90
