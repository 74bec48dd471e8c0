// Codes of weights as the copy engine leaves them in shared memory, line after line, on their way to the matrix instruction:
//
//     a line      | 16 codes, an instruction's  | 16 | 16 | ...     a thread gives its lines' codes 2 q, 2 q + 1
//                 | 8          | 8            |                     of either 8, q being lane % 4
//
// Two instructions' codes are brought together, 32 of a line. 64 or 128 bytes of a line lie under the swizzle of as many.
#pragma once
#include "cuda/memory/weights.cuh"

namespace mxq::cuda::sm90 {

constexpr int kBatch = 2;  // instructions of the 32 codes that are brought together

// Returns where 16 bytes of a line lie, number `piece` of it.
template <int line_bytes>
__device__ __forceinline__ uint32_t place_in_lines(uint32_t line, uint32_t piece) {
    const uint32_t moved = line_bytes == 128 ? piece ^ line % 8 : line_bytes == 64 ? piece ^ line / 2 % 4 : piece;
    return line * line_bytes + moved * 16;
}

// Holds the codes that a thread gives to two instructions, of one line of `line_codes`. Eight 4-bit codes are a word: this
// thread's two are byte q of it.
template <Weights kind, int line_codes>
struct Codes {
    struct Four {
        uint32_t pairs[2];  // of codes, in both halves
    };
    uint4 words;

    __device__ __forceinline__ void load(const uint8_t* codes, uint32_t line, int batch) {
        words = *reinterpret_cast<const uint4*>(codes + place_in_lines<line_codes / 2>(line, batch));
    }
    // Brings a byte's low nibble to the low half and its high one to the high half; four bytes are what two instructions
    // take.
    __device__ __forceinline__ void bring(Four (&to)[kBatch]) const {
        const uint32_t both = 0x11 * (threadIdx.x % 4) + 0x40;  // byte q of either
        const uint32_t all =
            permute_bytes(permute_bytes(words.x, words.y, both), permute_bytes(words.z, words.w, both), 0x5410);
        const uint32_t low = all & 0x0F0F0F0Fu, high = all >> 4 & 0x0F0F0F0Fu;
#pragma unroll
        for (uint32_t i = 0; i < 2 * kBatch; i++) to[i / 2].pairs[i % 2] = permute_bytes(low, high, 0xC480 + 0x1111 * i);
    }
    static __device__ __forceinline__ EvenOddBf16 move(const Bf16DecodeRule&, const Four& codes) {
        return {move_pair(codes.pairs[0]), move_pair(codes.pairs[1])};
    }
};

// Sixteen 6-bit codes are 12 bytes, and a thread's two of either eight 12 bits.
template <int line_codes>
struct Codes<Weights::Bits6, line_codes> {
    using Four = uint32_t;
    uint32_t words[kBatch];

    __device__ __forceinline__ void load(const uint8_t* codes, uint32_t line, int batch) {
        const uint32_t q = threadIdx.x % 4, shift = q == 3 ? 4 : 12 * q, shift_high = (16 + 12 * q) % 32;
        const auto apart = [](uint32_t two) { return (two & 0x3F) | (two & 0xFC0) << 10; };
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
            const uint32_t* const from =
                reinterpret_cast<const uint32_t*>(codes + line * (line_codes / 8 * 6) + (batch * kBatch + i) * 12);
            const uint32_t low = __funnelshift_r(q == 3 ? from[1] : from[0], from[1], shift);
            const uint32_t high = __funnelshift_r(q < 2 ? from[1] : from[2], from[2], shift_high);
            words[i] = apart(low) | apart(high) << 8;
        }
    }
    __device__ __forceinline__ void bring(Four (&to)[kBatch]) const {
#pragma unroll
        for (int i = 0; i < kBatch; i++) to[i] = words[i];
    }
    static __device__ __forceinline__ EvenOddBf16 move(const Bf16DecodeRule& rule, uint32_t codes) {
        return move_codes_to_bf16(rule, codes + 3 * (codes & 0x20202020u));
    }
};

// Sixteen 8-bit codes are the 16 bytes that a swizzle moves as one.
template <int line_codes>
struct Codes<Weights::Bits8, line_codes> {
    using Four = uint32_t;
    uint32_t words[kBatch];

    __device__ __forceinline__ void load(const uint8_t* codes, uint32_t line, int batch) {
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
            const uint8_t* const of = codes + place_in_lines<line_codes>(line, batch * kBatch + i) + threadIdx.x % 4 * 2;
            words[i] =
                permute_bytes(*reinterpret_cast<const uint16_t*>(of), *reinterpret_cast<const uint16_t*>(of + 8), 0x5140);
        }
    }
    __device__ __forceinline__ void bring(Four (&to)[kBatch]) const {
#pragma unroll
        for (int i = 0; i < kBatch; i++) to[i] = words[i];
    }
    static __device__ __forceinline__ EvenOddBf16 move(const Bf16DecodeRule& rule, uint32_t codes) {
        return move_codes_to_bf16(rule, codes);
    }
};

// Returns four codes of 8 bits, which alone may be Inf or NaN.
template <Weights kind, class Four>
__device__ __forceinline__ uint32_t special_word(const Four& codes) {
    if constexpr (kind == Weights::Bits8)
        return codes;
    else
        return 0;
}

}  // namespace mxq::cuda::sm90
