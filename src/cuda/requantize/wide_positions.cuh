// Four positions of 16 lines at a time, the way of requantize_wide in F16 to scales of blocks: from MXFP8 E4M3 here, from
// NVFP4 in wide_nvfp4_in_f16.cuh. Pairs are two neighbouring positions of a line, so that codes are decoded as they lie:
//
//     word of a line    p0 p1 p2 p3 --> F16 pairs (p0 p1) (p2 p3), without signs, times what the line is multiplied by
//     16 lines          maxima of either pair, with the neighbour's 16 --> scales of two positions a lane, then of all four
//     to E4M3           codes of (p0 p1) and (p2 p3) are bytes of a word; signs added
//     to E2M1           F16 numbers 1024 + code: the code is the low byte of a half; two lines: + 16 codes of the next line,
//                       + 256 of the other pair, signs added: bytes of p0 p2 p1 p3
//     four such words   turned by bytes: four or eight codes in a row of each position
//
// To E2M1 instructions count, and tiles are half as high: the first and the last ones of a multiprocessor take half as long.
#pragma once
#include "cuda/requantize/wide_mxfp8.cuh"

namespace mxq::cuda {

// Multiplies magnitudes of F16 numbers by one of the halves of a word, which the instruction picks, as it clears signs.
template <bool upper>
__device__ __forceinline__ uint32_t multiply_magnitudes(uint32_t pair, uint32_t halves) {
    uint32_t product;
    if constexpr (upper)
        asm("{\n.reg .b16 low, high;\n.reg .b32 both, magnitudes;\nmov.b32 {low, high}, %2;\nmov.b32 both, {high, high};\n"
            "abs.f16x2 magnitudes, %1;\nmul.rn.f16x2 %0, magnitudes, both;\n}"
            : "=r"(product)
            : "r"(pair), "r"(halves));
    else
        asm("{\n.reg .b16 low, high;\n.reg .b32 both, magnitudes;\nmov.b32 {low, high}, %2;\nmov.b32 both, {low, low};\n"
            "abs.f16x2 magnitudes, %1;\nmul.rn.f16x2 %0, magnitudes, both;\n}"
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

    WideMagnitudes() = default;
    __device__ __forceinline__ explicit WideMagnitudes(const WideCodes& of) {
#pragma unroll
        for (int i = 0; i < kChunk; i++) set(i, of.lines[i], of.factors[i / 2]);
    }
    // Takes four codes of line i, and what they are multiplied by in one of the halves of a word.
    __device__ __forceinline__ void set(int i, uint32_t codes, uint32_t factors) {
        decode_word_to_f16<E4M3>(codes, low[i], high[i]);
        low[i] = i % 2 ? multiply_magnitudes<true>(low[i], factors) : multiply_magnitudes<false>(low[i], factors);
        high[i] = i % 2 ? multiply_magnitudes<true>(high[i], factors) : multiply_magnitudes<false>(high[i], factors);
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

__device__ __forceinline__ uint32_t f16_of_two(float low, float high) {
    return __builtin_bit_cast(uint32_t, static_cast<__half2_raw>(__floats2half2_rn(low, high)));
}

// Gives what the lane has for its pair of four positions, and what its neighbour has for the other pair.
__device__ __forceinline__ void exchange_pairs(bool odd, uint32_t mine, uint32_t (&of)[2]) {
    const uint32_t others = __shfl_xor_sync(kAllLanes, mine, 1);
    of[0] = odd ? others : mine, of[1] = odd ? mine : others;
}

// Makes and stores the scales of the lane's two of four positions, of 32 lines over their unit, and gives the factors of
// both pairs of them; false: these do not serve.
template <bool clamps, int line_scales>
__device__ __forceinline__ bool make_wide_scales(const WideArguments& a, const WideUnit& unit, uint32_t of_both, bool odd,
                                                 uint8_t* scales, uint32_t (&once)[2], uint32_t (&limits)[2]) {
    constexpr uint32_t most = 127 + 6;  // of WideSource<E4M3>::factor<E4M3>
    uint32_t largest[2], made[2], factors[2], limit[2] = {};
    bool plain = true;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        largest[i] = float_bits(multiply_rn(to_float(F16{uint16_t(of_both >> (16 * i))}), unit.value));
        made[i] = scale_of(largest[i], a.steps);
        scales[i * line_scales] = uint8_t(made[i]);
        const uint32_t exponent = unit.exponent - made[i];
        plain = plain & ((exponent <= most) | ((largest[i] == 0) & (unit.whole != 0)));
        factors[i] = min(exponent, most) << 23;
        if (clamps) limit[i] = e2m1_limit(bits_float(factors[i]));
    }
    plain = plain & (max(largest[0], largest[1]) < kInfinityBits) & (max(made[0], made[1]) < kScaleNan);
    exchange_pairs(odd, f16_of_two(bits_float(factors[0]), bits_float(factors[1])), once);
    if (clamps) exchange_pairs(odd, __byte_perm(limit[0], limit[1], 0x5410), limits);
    return plain;
}

// Turns the bytes of four words.
__device__ __forceinline__ void turn_bytes(uint32_t (&words)[4]) {
    const uint32_t a = __byte_perm(words[0], words[1], 0x5140), b = __byte_perm(words[2], words[3], 0x5140);
    const uint32_t c = __byte_perm(words[0], words[1], 0x7362), d = __byte_perm(words[2], words[3], 0x7362);
    words[0] = __byte_perm(a, b, 0x5410), words[1] = __byte_perm(a, b, 0x7632);
    words[2] = __byte_perm(c, d, 0x5410), words[3] = __byte_perm(c, d, 0x7632);
}

// Makes the codes of four positions of eight lines, whose signs are those of bytes: a word of each, positions 0 2 1 3.
template <bool clamps>
__device__ __forceinline__ void encode_mxfp4_lines(const uint32_t (&signs)[kChunk], const WideMagnitudes& values, int first,
                                                   const Mxfp4Factors& low, const Mxfp4Factors& high, uint32_t (&words)[4]) {
    constexpr uint32_t base = 0x64006400u * 17 * 257;  // of four codes in each half
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int line = first + 2 * i;
        const uint32_t of_low = low.encode<clamps>(values.low[line]) + 16 * low.encode<clamps>(values.low[line + 1]);
        const uint32_t of_high = high.encode<clamps>(values.high[line]) + 16 * high.encode<clamps>(values.high[line + 1]);
        const uint32_t both = (signs[line + 1] & 0x80808080u) + ((signs[line] & 0x80808080u) >> 4);
        words[i] = of_low + 256 * of_high + (__byte_perm(both, 0, 0x3120) - base);
    }
    turn_bytes(words);
}

// Makes codes of E of four positions of 16 lines, pairs of positions under a factor each, and stores them.
template <class E, bool clamps>
struct PositionsEncoder;

template <bool clamps>
struct PositionsEncoder<E2M1, clamps> {
    Mxfp4Factors low, high;

    __device__ __forceinline__ PositionsEncoder(const uint32_t (&factors)[2], const uint32_t (&limits)[2])
        : low(factors[0], limits[0]), high(factors[1], limits[1]) {}
    // Stores the codes of a position each `step` bytes; `signs` are those of bytes.
    __device__ __forceinline__ void store(const uint32_t (&signs)[kChunk], const WideMagnitudes& values, uint8_t* at,
                                          uint32_t step, bool exists) const {
        uint32_t words[2][4];
        encode_mxfp4_lines<clamps>(signs, values, 0, low, high, words[0]);
        encode_mxfp4_lines<clamps>(signs, values, 8, low, high, words[1]);
        if (!exists) return;
#pragma unroll
        for (int position = 0; position < 4; position++, at += step) {
            const int word = position % 2 * 2 + position / 2;
            store_chunk(at, ChunkCodes<E2M1>{words[0][word], words[1][word]});
        }
    }
};

template <bool clamps>
struct PositionsEncoder<E4M3, clamps> {
    uint32_t low, high;

    __device__ __forceinline__ PositionsEncoder(const uint32_t (&factors)[2], const uint32_t (&)[2])
        : low(factors[0]), high(factors[1]) {}
    __device__ __forceinline__ void store(const uint32_t (&signs)[kChunk], const WideMagnitudes& values, uint8_t* at,
                                          uint32_t step, bool exists) const {
        uint32_t words[4][4];  // of four lines a position each
#pragma unroll
        for (int line = 0; line < kChunk; line++)
            words[line / 4][line % 4] = encode_pair_from_f16<E4M3>(multiply_f16_pairs(values.low[line], low)) |
                                        encode_pair_from_f16<E4M3>(multiply_f16_pairs(values.high[line], high)) << 16 |
                                        (signs[line] & 0x80808080u);
#pragma unroll
        for (int four = 0; four < 4; four++) turn_bytes(words[four]);
        if (!exists) return;
#pragma unroll
        for (int position = 0; position < 4; position++, at += step)
            store_chunk(at,
                        ChunkCodes<E4M3>{words[0][position], words[1][position], words[2][position], words[3][position]});
    }
};

// Makes and stores the codes of a tile, and leaves its scales in shared memory.
template <class E, bool clamps, int tile_lines>
__device__ __forceinline__ void emit_wide_positions(const WideArguments& a, const WidePlace& place,
                                                    WideMxfp8Shared<tile_lines>& shared) {
    using Lane = WideLane<tile_lines>;
    const Lane lane;
    uint32_t chunk = lane.chunk;
    uint8_t* to = a.to.line(place.matrix, place.position) + (place.line + chunk * kChunk) * E::bits / 8;
    asm("" : "+r"(chunk), "+l"(to));  // kept: else they are made again for every four positions
    const uint32_t line_bytes = uint32_t(a.to.line_bytes);
    const bool odd = chunk % 2;
    constexpr int line_scales = sizeof(shared.to_scales[0]);
    auto* const scales = reinterpret_cast<uint8_t*>(shared.to_scales[2 * odd]) + chunk / 2;
    const uint32_t length = int(chunk * kChunk) < place.lines ? place.length : 0;
#pragma unroll 1
    for (uint32_t first = lane.unit * 4; first < kWide; first += Lane::at_once * 4) {
        const WideCodes codes(shared, chunk, first);
        const WideMagnitudes values(codes);
        // Two lanes have the 32 lines of a block: each makes the scales of two positions.
        const uint32_t of_low = values.largest(values.low), of_high = values.largest(values.high);
        const uint32_t others = __shfl_xor_sync(kAllLanes, odd ? of_low : of_high, 1);
        uint32_t factors[2], limits[2] = {};
        const WideUnit unit = shared.units[first / kMxBlock][chunk / 2];
        const bool plain = make_wide_scales<clamps, line_scales>(a, unit, larger_magnitudes_of(odd ? of_high : of_low, others),
                                                                 odd, scales + first * line_scales, factors, limits);
        PositionsEncoder<E, clamps>(factors, limits)
            .store(codes.lines, values, to + uint64_t(first) * line_bytes, line_bytes, first < length);
        if (!__all_sync(kAllLanes, plain)) emit_any_wide<E>(a, shared, to, chunk, first, length);
    }
}

}  // namespace mxq::cuda
