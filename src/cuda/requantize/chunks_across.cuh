// Codes across the source's lines: a lane reads a word of 16 lines, two positions of it at a time.
//
//     word of 16 lines -> values of two positions -> maxima of two lanes -> a scale each -> 16 codes of either position
//
// Eight lanes have 128 codes in a row.
#pragma once
#include "cuda/requantize/codes_tile.cuh"
#include "cuda/requantize/output_codes.cuh"

namespace mxq::cuda {

// Where a lane reads two positions: 16 lines of a word.
template <class S>
struct ChunkPlaceOf {
    const uint32_t* words[2];  // of the first line and the second, from where even and odd ones follow
    const typename ScaleTable<S>::Value* scales;
    int pair;

    __device__ __forceinline__ ChunkPlaceOf(const RequantizeShared<S>& shared, uint32_t chunk, uint32_t word, int block,
                                            int pair)
        : scales(&shared.scales.values[block][ScaleTable<S>::place(chunk * kChunk)]), pair(pair) {
        const uint32_t slot = shared.slot(chunk * kChunk, word / 4), in_piece = word % 4;
        words[0] = reinterpret_cast<const uint32_t*>(&shared.codes[slot]) + in_piece;
        words[1] = reinterpret_cast<const uint32_t*>(&shared.codes[shared.next(slot)]) + in_piece;
    }
    __device__ __forceinline__ uint32_t line(int i) const {
        return words[i % 2][(i - i % 2) * RequantizeShared<S>::line_words];
    }
    __device__ __forceinline__ void four_scales(int i, float (&of_line)[4]) const {
        const float4 four = *reinterpret_cast<const float4*>(scales + i);
        of_line[0] = four.x, of_line[1] = four.y, of_line[2] = four.z, of_line[3] = four.w;
    }
};

template <Nonfinite policy>
__device__ __forceinline__ uint32_t largest_of_chunk(const float (&values)[kChunk]) {
    uint32_t even = 0, odd = 0;
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
        even = larger_magnitudes<float, policy>(even, float_bits(values[i]));
        odd = larger_magnitudes<float, policy>(odd, float_bits(values[i + 1]));
    }
    return larger_magnitudes<float, policy>(even, odd);
}

// The largest magnitudes of two positions, as bits.
struct TwoMaxima {
    uint32_t first, second;
};

// The values of two positions of 16 lines, from codes of 8 bits.
template <class S>
struct TwoChunks {
    float first[kChunk], second[kChunk];

    __device__ __forceinline__ explicit TwoChunks(const ChunkPlaceOf<S>& place) {
#pragma unroll
        for (int i = 0; i < kChunk; i += 4) {
            float scales[4];
            place.four_scales(i, scales);
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                const uint32_t codes =
                    __byte_perm(place.line(i + j), place.line(i + j + 1), place.pair == 0 ? 0x5140 : 0x7362);
                uint32_t of_first, of_second;
                decode_word_to_f16<typename S::Bytes>(codes, of_first, of_second);
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    first[i + j + k] = multiply_rn(to_float(F16{uint16_t(of_first >> (16 * k))}), scales[j + k]);
                    second[i + j + k] = multiply_rn(to_float(F16{uint16_t(of_second >> (16 * k))}), scales[j + k]);
                }
            }
        }
    }
    template <Nonfinite policy>
    __device__ __forceinline__ TwoMaxima maxima(float) const {
        return {largest_of_chunk<policy>(first), largest_of_chunk<policy>(second)};
    }
};

// The values of two positions of 16 lines of NVFP4: codes times block scales are exact in F16, two lines to a word. The scale
// above them comes last, and mostly together with the factor: a power of two from 2^-100 to 2^107, which changes no product
// that is not far below any code.
struct TwoHalfChunks {
    using S = SourceCodes<E2M1>;
    static constexpr int count = kChunk / 2;
    uint32_t first[count], second[count];

    __device__ __forceinline__ explicit TwoHalfChunks(const ChunkPlaceOf<S>& place) {
#pragma unroll
        for (int i = 0; i < kChunk; i += 8) {
            const uint4 eight = *reinterpret_cast<const uint4*>(place.scales + i);
            const uint32_t scales[] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (int j = 0; j < 8; j += 4) {
                const uint32_t select = 0x40 + 0x11 * place.pair;
                const uint32_t codes = __byte_perm(__byte_perm(place.line(i + j), place.line(i + j + 1), select),
                                                   __byte_perm(place.line(i + j + 2), place.line(i + j + 3), select), 0x5410);
                const uint32_t low = shrunk_e4m3(codes << 4), high = shrunk_e4m3(codes);
                const int at = (i + j) / 2;
                decode_word_to_f16<E4M3>(low, first[at], first[at + 1]);
                decode_word_to_f16<E4M3>(high, second[at], second[at + 1]);
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    first[at + k] = multiply_f16_pairs(first[at + k], scales[j / 2 + k]);
                    second[at + k] = multiply_f16_pairs(second[at + k], scales[j / 2 + k]);
                }
            }
        }
    }
    template <Nonfinite policy>
    static __device__ __forceinline__ uint32_t maximum(const uint32_t (&pairs)[count], float global) {
        uint32_t even = pairs[0], odd = pairs[1];
#pragma unroll
        for (int i = 2; i < count; i += 2) {
            even = max_abs_f16_pairs<policy>(even, pairs[i]);
            odd = max_abs_f16_pairs<policy>(odd, pairs[i + 1]);
        }
        const float largest = multiply_rn(max_abs_of_f16_pair(max_abs_f16_pairs<policy>(even, odd)), fabsf(global));
        return policy == Nonfinite::Saturate && is_nan(largest) ? 0 : float_bits(largest);  // all are NaN
    }
    template <Nonfinite policy>
    __device__ __forceinline__ TwoMaxima maxima(float global) const {
        return {maximum<policy>(first, global), maximum<policy>(second, global)};
    }
    // Makes codes under two factors, or under their product alone, the second being 1.
    template <class E, bool twice>
    static __device__ __forceinline__ ChunkCodes<E> codes_of(const uint32_t (&pairs)[count], float global, float factor) {
        float values[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; i++) {
            const float value = to_float(F16{uint16_t(pairs[i / 2] >> (i % 2 * 16))});
            values[i] = twice ? multiply_rn(value, global) : value;
        }
        return quantize_values<E>(values, factor);
    }
};

// Gives global scale times factor, or for values that are all zero, by themselves or under the global scale, a zero of their
// sign; false: the product may not stand for the two factors, as with NaN or Inf, whose factor is NaN or 2^-127.
__device__ __forceinline__ bool is_plain_product(uint32_t maximum, float global, float factor, float& product) {
    const bool zeros = maximum == 0 && fabsf(global) < bits_float(kInfinityBits);
    product = zeros ? copysignf(0.0f, global) : multiply_rn(global, factor);
    return zeros ? !is_nan(factor) : factor >= 0x1p-100f && factor <= 0x1p107f;
}

// Makes the codes of one of the two positions under any factors. Out of line: few need it.
template <class E>
__device__ __noinline__ ChunkCodes<E> any_nvfp4_codes(ChunkPlaceOf<SourceCodes<E2M1>> place, bool second, float global,
                                                      float factor) {
    const TwoHalfChunks chunks(place);
    return second ? TwoHalfChunks::codes_of<E, true>(chunks.second, global, factor)
                  : TwoHalfChunks::codes_of<E, true>(chunks.first, global, factor);
}

template <class E>
__device__ __forceinline__ void quantize_two(const TwoHalfChunks& values, const ChunkPlaceOf<SourceCodes<E2M1>>& place,
                                             const TwoMaxima& maxima, float global, float2 factors,
                                             ChunkCodes<E> (&codes)[2]) {
    float first, second;
    const bool plain = is_plain_product(maxima.first, global, factors.x, first) &
                       is_plain_product(maxima.second, global, factors.y, second);
    if (plain) {
        codes[0] = TwoHalfChunks::codes_of<E, false>(values.first, 1, first);
        codes[1] = TwoHalfChunks::codes_of<E, false>(values.second, 1, second);
    } else {
        codes[0] = any_nvfp4_codes<E>(place, false, global, factors.x);
        codes[1] = any_nvfp4_codes<E>(place, true, global, factors.y);
    }
}

template <class E, class S>
__device__ __forceinline__ void quantize_two(const TwoChunks<S>& values, const ChunkPlaceOf<S>&, const TwoMaxima&, float,
                                             float2 factors, ChunkCodes<E> (&codes)[2]) {
    codes[0] = quantize_values<E>(values.first, factors.x);
    codes[1] = quantize_values<E>(values.second, factors.y);
}

template <class S>
using TwoChunksOf = std::conditional_t<S::has_global, TwoHalfChunks, TwoChunks<S>>;

// Makes and stores the scales of two positions, and returns their factors. Two neighbouring lanes have the 32 lines of a
// block: each makes the scale of one position.
__device__ __forceinline__ float2 put_block_scales(const ScaleSteps& steps, const TwoMaxima& maxima, int position, int chunk,
                                                   uint32_t (&words)[kTile]) {
    const bool odd = chunk & 1;
    const uint32_t mine = odd ? maxima.second : maxima.first, other = odd ? maxima.first : maxima.second;
    const uint32_t scale = scale_of(max(mine, __shfl_xor_sync(kAllLanes, other, 1)), steps);
    reinterpret_cast<uint8_t*>(&words[position + odd])[chunk / 2] = uint8_t(scale);
    const float factor = scale_reciprocal(scale), others = __shfl_xor_sync(kAllLanes, factor, 1);
    return odd ? make_float2(others, factor) : make_float2(factor, others);
}

// Makes codes and scales of the part across the source's lines: 0 rowwise, 1 columnwise.
template <class S, class E, Nonfinite policy>
__device__ __forceinline__ void emit_across(const ChunkArguments& a, int part, RequantizeShared<S>& shared) {
    constexpr int in_word = 32 / S::bits;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunk = lane % kSideChunks;
    const CodeTile& to = shared.parts[kRowwisePart + part].codes;
    const int shift = source_shift(a.problem.source.quantized.layout);
    const float global = chunk * kChunk < shared.lines ? shared.global : 0.0f;
    const int lines = chunk * kChunk < to.length ? to.lines : 0;
    uint8_t* const codes = to.codes + chunk * (kChunk * E::bits / 8);
    const uint32_t line_bytes = uint32_t(to.line_bytes);
#pragma unroll 1
    for (int step = 0; step < 4; step++) {
        const int word = (S::bits == 8 ? warp + step / 2 * 4 : warp) * 4 + lane / kSideChunks;
        const int pair = S::bits == 8 ? step % 2 : step, position = word * in_word + pair * 2;
        const ChunkPlaceOf<S> place(shared, chunk, word, position >> shift, pair);
        const TwoChunksOf<S> values(place);
        const TwoMaxima maxima = values.template maxima<policy>(global);
        const float2 factors = put_block_scales(a.steps, maxima, position, chunk, shared.words[part]);
        ChunkCodes<E> out[2];
        quantize_two<E>(values, place, maxima, global, factors, out);
        uint8_t* const at = codes + uint64_t(uint32_t(position)) * line_bytes;
        if (position < lines) store_chunk(at, out[0]);
        if (position + 1 < lines) store_chunk(at + line_bytes, out[1]);
    }
}

}  // namespace mxq::cuda
