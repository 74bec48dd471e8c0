// The way of requantize_wide for MXFP8 E4M3 to MXFP4. Units and factors of lines are those of wide_mxfp8.cuh. Pairs are two
// neighbouring positions of a line, so that codes are decoded as they lie, and integers put what they become together:
//
//     word of a line    p0 p1 p2 p3 --> F16 pairs (p0 p1) (p2 p3) over units, without signs
//     16 lines          maxima of either pair, with the neighbour's 16 --> scales of two positions a lane, then of all four
//     codes             F16 numbers 1024 + code: the code is the low byte of a half
//     two lines         + 16 codes of the next line; + 256 of the other pair, signs added: bytes of p0 p2 p1 p3
//     eight such words  turned by bytes --> 8 bytes of each position
//
// The codes of one half of the tile's positions are made while those of the other one are on their way.
#pragma once
#include "cuda/requantize/wide_mxfp8.cuh"

namespace mxq::cuda {

constexpr int kMxfp4Parts = 2;  // of the positions of a tile, in which codes come and go

// Multiplies F16 numbers by one of the halves of a word, which the instruction picks.
template <bool upper>
__device__ __forceinline__ uint32_t multiply_by_half(uint32_t pair, uint32_t halves) {
    uint32_t product;
    if constexpr (upper)
        asm("{\n.reg .b16 low, high;\n.reg .b32 both;\nmov.b32 {low, high}, %2;\nmov.b32 both, {high, high};\n"
            "mul.rn.f16x2 %0, %1, both;\n}"
            : "=r"(product)
            : "r"(pair), "r"(halves));
    else
        asm("{\n.reg .b16 low, high;\n.reg .b32 both;\nmov.b32 {low, high}, %2;\nmov.b32 both, {low, low};\n"
            "mul.rn.f16x2 %0, %1, both;\n}"
            : "=r"(product)
            : "r"(pair), "r"(halves));
    return product;
}

// Returns the larger magnitude in both halves, NaN if one is; no sign may be set. Two of these become one instruction.
__device__ __forceinline__ uint32_t larger_magnitudes_of(uint32_t a, uint32_t b) {
    uint32_t larger;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
}

// The magnitudes of 4 positions of 16 lines, over units: pairs of positions, by line.
struct WideMagnitudes {
    uint32_t low[kChunk], high[kChunk];

    __device__ __forceinline__ explicit WideMagnitudes(const WideCodes& of) {
#pragma unroll
        for (int i = 0; i < kChunk; i++) {
            uint32_t magnitudes = of.lines[i] & 0x7F7F7F7Fu;
            asm("" : "+r"(magnitudes));  // once: else each half is masked by itself
            decode_word_to_f16<E4M3>(magnitudes, low[i], high[i]);
            low[i] = i % 2 ? multiply_by_half<true>(low[i], of.factors[i / 2])
                           : multiply_by_half<false>(low[i], of.factors[i / 2]);
            high[i] = i % 2 ? multiply_by_half<true>(high[i], of.factors[i / 2])
                            : multiply_by_half<false>(high[i], of.factors[i / 2]);
        }
    }
    static __device__ __forceinline__ uint32_t largest(const uint32_t (&pairs)[kChunk]) {
        uint32_t even = pairs[0], odd = pairs[1];
#pragma unroll
        for (int i = 2; i < kChunk; i += 4) {
            even = larger_magnitudes_of(larger_magnitudes_of(even, pairs[i]), pairs[i + 1]);
            if (i + 2 < kChunk) odd = larger_magnitudes_of(larger_magnitudes_of(odd, pairs[i + 2]), pairs[i + 3]);
        }
        return larger_magnitudes_of(even, odd);
    }
};

// Holds what magnitudes of two neighbouring positions are multiplied by.
struct Mxfp4Factors {
    uint32_t once, twice, half;
    uint32_t limit;  // of magnitudes, where products may be 7 or more

    __device__ __forceinline__ Mxfp4Factors(uint32_t once, uint32_t limit)
        : once(once),
          twice(multiply_f16_pairs(once, 0x40004000)),
          half(multiply_f16_pairs(once, 0x38003800)),
          limit(limit) {}
    // Returns codes, 0x6400 more in each half.
    template <bool clamps>
    __device__ __forceinline__ uint32_t encode(uint32_t magnitudes) const {
        E2m1Factors factors(1.0f);
        factors.once = once, factors.twice = twice, factors.half = half;
        return encode_e2m1_from_f16(clamps ? min_f16_pairs(magnitudes, limit) : magnitudes, factors);
    }
};

// Makes and stores the scales of the lane's two of four positions, of 32 lines over their unit, and gives the factors of
// both pairs of them; false: these do not serve.
template <bool clamps>
__device__ __forceinline__ bool make_mxfp4_scales(const WideArguments& a, const WideUnit& unit, uint32_t of_both, bool odd,
                                                  uint8_t* scales, uint32_t (&once)[2], uint32_t (&limits)[2]) {
    bool plain = true;
    float factors[2];
    uint32_t limit[2] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float largest = multiply_rn(to_float(F16{uint16_t(of_both >> (16 * i))}), unit.value);
        const uint32_t scale = scale_of(float_bits(largest), a.steps);
        scales[i * sizeof(uint32_t[2])] = uint8_t(scale);
        const float factor = multiply_rn(scale_reciprocal(scale), unit.value);
        plain = plain && takes_factor(float_bits(largest), unit, factor);
        factors[i] = fminf(factor, 64.0f);
        if (clamps) limit[i] = e2m1_limit(factors[i]);
    }
    const auto both = [&](uint32_t(&of)[2], uint32_t mine) {
        const uint32_t others = __shfl_xor_sync(kAllLanes, mine, 1);
        of[0] = odd ? others : mine, of[1] = odd ? mine : others;
    };
    both(once, __builtin_bit_cast(uint32_t, static_cast<__half2_raw>(__floats2half2_rn(factors[0], factors[1]))));
    if (clamps) both(limits, __byte_perm(limit[0], limit[1], 0x5410));
    return plain;
}

// Turns the bytes of four words.
__device__ __forceinline__ void turn_bytes(uint32_t (&words)[4]) {
    const uint32_t a = __byte_perm(words[0], words[1], 0x5140), b = __byte_perm(words[2], words[3], 0x5140);
    const uint32_t c = __byte_perm(words[0], words[1], 0x7362), d = __byte_perm(words[2], words[3], 0x7362);
    words[0] = __byte_perm(a, b, 0x5410), words[1] = __byte_perm(a, b, 0x7632);
    words[2] = __byte_perm(c, d, 0x5410), words[3] = __byte_perm(c, d, 0x7632);
}

// Makes the codes of four positions of eight lines: a word of each, positions 0 2 1 3.
template <bool clamps>
__device__ __forceinline__ void encode_mxfp4_lines(const WideCodes& codes, const WideMagnitudes& values, int first,
                                                   const Mxfp4Factors& low, const Mxfp4Factors& high, uint32_t (&words)[4]) {
    constexpr uint32_t base = 0x64006400u * 17 * 257;  // of four codes in each half
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int line = first + 2 * i;
        const uint32_t of_low = low.encode<clamps>(values.low[line]) + 16 * low.encode<clamps>(values.low[line + 1]);
        const uint32_t of_high = high.encode<clamps>(values.high[line]) + 16 * high.encode<clamps>(values.high[line + 1]);
        const uint32_t signs = (codes.lines[line + 1] & 0x80808080u) + ((codes.lines[line] & 0x80808080u) >> 4);
        words[i] = of_low + 256 * of_high + (__byte_perm(signs, 0, 0x3120) - base);
    }
    turn_bytes(words);
}

// Makes and stores the codes of a part, and leaves its scales in shared memory.
template <bool clamps>
__device__ __forceinline__ void emit_mxfp4_part(const WideArguments& a, const WidePlace& place, int part,
                                                WideMxfp8Shared& shared) {
    constexpr int of_part = kWide / kMxfp4Parts, at_once = kWideThreads / 32 * 8;  // positions
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunk = lane % 8 + lane / 16 * 8;
    const int own = warp / 2 * kChunk + lane / 8 % 2 * 8 + warp % 2 * 4;
    uint8_t* const to = a.to.line(place.matrix, place.position) + (place.line + chunk * kChunk) / 2;
    const uint32_t line_bytes = uint32_t(a.to.line_bytes);
    const bool odd = chunk % 2;
    auto* const scales = reinterpret_cast<uint8_t*>(shared.to_scales[2 * odd]) + chunk / 2;
    const int length = chunk * kChunk < place.lines ? place.length : 0;
#pragma unroll 1
    for (int first = part * of_part + own; first < (part + 1) * of_part; first += at_once) {
        const WideCodes codes(shared, chunk, first);
        const WideMagnitudes values(codes);
        // Two lanes have the 32 lines of a block: each makes the scales of two positions.
        const uint32_t of_low = values.largest(values.low), of_high = values.largest(values.high);
        const uint32_t others = __shfl_xor_sync(kAllLanes, odd ? of_low : of_high, 1);
        uint32_t once[2], limits[2] = {};
        const bool plain = make_mxfp4_scales<clamps>(a, shared.units[first / kMxBlock][chunk / 2],
                                                     larger_magnitudes_of(odd ? of_high : of_low, others), odd,
                                                     scales + first * sizeof(shared.to_scales[0]), once, limits);
        const Mxfp4Factors low(once[0], limits[0]), high(once[1], limits[1]);
        uint32_t words[2][4];
        encode_mxfp4_lines<clamps>(codes, values, 0, low, high, words[0]);
        encode_mxfp4_lines<clamps>(codes, values, 8, low, high, words[1]);
        if (first < length) {
            uint8_t* at = to + uint64_t(uint32_t(first)) * line_bytes;
#pragma unroll
            for (int position = 0; position < 4; position++, at += line_bytes) {
                const int word = position % 2 * 2 + position / 2;
                store_chunk(at, ChunkCodes<E2M1>{words[0][word], words[1][word]});
            }
        }
        if (!__all_sync(kAllLanes, plain)) emit_any_wide<E2M1>(a, shared, to, chunk, first, length);
    }
}

}  // namespace mxq::cuda
