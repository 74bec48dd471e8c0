// Codes along the source's lines: a lane reads 16 or 32 codes of a line, which share a scale of a power of two, so that
// their products stay in F16, two to a word (numerics/requantize_via_f16.h). What that does not serve, few chunks, is made
// out of line.
#pragma once
#include "cuda/requantize/codes_tile.cuh"
#include "cuda/requantize/output_codes.cuh"

namespace mxq::cuda {

// Returns the largest magnitude of neighbouring codes, as bits. Out of line: for blocks with NaN or Inf.
template <class S, int count>
__device__ __noinline__ uint32_t any_maximum_of(const uint8_t* codes, Nonfinite policy, float scale) {
    uint32_t largest = 0;
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        const float value = multiply_rn(decode_pair<typename S::Bytes>(codes[i]).x, scale);
        const uint32_t bits = policy == Nonfinite::Saturate ? amax_bits<Nonfinite::Saturate>(value)
                                                            : amax_bits<Nonfinite::Propagate>(value);
        largest = max(largest, bits);
    }
    return largest;
}

// Makes 16 codes of a line under any factor. Out of line: few need it.
template <class S, class E>
__device__ __noinline__ ChunkCodes<E> any_chunk_codes(const uint8_t* codes, float scale, float factor) {
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; i++) values[i] = multiply_rn(decode_pair<typename S::Bytes>(codes[i]).x, scale);
    return quantize_values<E>(values, factor);
}

// How many chunks of a line a lane has at once: to E2M1 those of a whole block.
template <class E>
constexpr int kLaneChunks = E::bits == 8 ? 1 : 2;

// Chunks of a line as codes and as F16 pairs. Pairs keep the sign, except for E2M1, which takes its signs from the codes.
template <class S, class E>
struct LineChunks {
    static constexpr int count = kLaneChunks<E>, pairs_each = kChunk / 2;
    uint32_t words[count][4];
    uint32_t pairs[count * pairs_each];

    __device__ __forceinline__ explicit LineChunks(const uint4* codes) : LineChunks(codes, 1) {}
    // Takes chunks so many pieces apart.
    __device__ __forceinline__ LineChunks(const uint4* codes, int apart) {
#pragma unroll
        for (int j = 0; j < count; j++) {
            const uint4 four = codes[j * apart];
            words[j][0] = four.x, words[j][1] = four.y, words[j][2] = four.z, words[j][3] = four.w;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t kept = words[j][i];
                if constexpr (E::bits == 4) {
                    kept &= 0x7F7F7F7Fu;
                    asm("" : "+r"(kept));  // once: else each half is masked by itself
                }
                const int pair = j * pairs_each + 2 * i;
                decode_word_to_f16<typename S::Bytes>(kept, pairs[pair], pairs[pair + 1]);
            }
        }
    }
    // Returns the largest magnitude, NaN where there is one.
    __device__ __forceinline__ float largest() const {
        uint32_t even = pairs[0], odd = pairs[1];
#pragma unroll
        for (int i = 2; i < count * pairs_each; i += 2) {
            even = max_abs_f16_pairs(even, pairs[i]);
            odd = max_abs_f16_pairs(odd, pairs[i + 1]);
        }
        return max_abs_of_f16_pair(max_abs_f16_pairs(even, odd));
    }
    // Makes codes of 8 bits under any factor, in fp32.
    __device__ __forceinline__ ChunkCodes<E> quantize_floats(float factor) const {
        float values[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; i++) values[i] = to_float(F16{uint16_t(pairs[i / 2] >> (i % 2 * 16))});
        return quantize_values<E>(values, factor);
    }
    // Makes codes under a factor that can_requantize_via_f16. Of codes of 8 bits NaN becomes NaN; to others all elements are
    // numbers.
    __device__ __forceinline__ void quantize(float factor, bool clamps, ChunkCodes<E> (&to)[count]) const {
        if constexpr (E::bits == 8) {
            const uint32_t both = f16_pair_of(factor);
#pragma unroll
            for (int w = 0; w < 4; w++)
                to[0].words[w] = encode_pair_from_f16<E>(multiply_f16_pairs(pairs[2 * w], both)) |
                                 encode_pair_from_f16<E>(multiply_f16_pairs(pairs[2 * w + 1], both)) << 16;
        } else {
            const E2m1Encoder encoder(factor, clamps);
#pragma unroll
            for (int j = 0; j < count; j++)
#pragma unroll
                for (int w = 0; w < 2; w++)
                    to[j].words[w] = encoder.eight(pairs + j * pairs_each + 4 * w, words[j][2 * w], words[j][2 * w + 1]);
        }
    }
};

// Reads a lane's chunks of lines, neighbouring lanes having neighbours; step i has lines i * at_once after the lane's first.
template <class S, class E>
struct LineReader {
    using Chunks = LineChunks<S, E>;
    static constexpr int lanes = kSideChunks / Chunks::count, at_once = kRequantizeThreads / lanes, steps = kTile / at_once;
    static constexpr int scale_stride = at_once + at_once / kChunk * 4;
    const uint4* codes;
    const float* scales;
    uint32_t slot;
    int first, chunk;
    int apart;  // 1 where the lane's second chunk is the piece behind its first one, -1 where it is the one before

    __device__ __forceinline__ LineReader(const RequantizeShared<S>& shared, const QuantizedPart& from)
        : codes(shared.codes), first(threadIdx.x / lanes), chunk(threadIdx.x % lanes * Chunks::count) {
        slot = shared.slot(first, chunk), apart = slot % 2 == 0 ? 1 : -1;
        scales = &shared.scales.values[chunk * kChunk >> source_shift(from.layout)][ScaleTable<S>::place(first)];
        asm("" : "+r"(slot), "+r"(apart), "+l"(scales));  // kept: else they are made again for every step
    }
    __device__ __forceinline__ int line(int i) const { return first + i * at_once; }
    __device__ __forceinline__ Chunks read(int i) const {
        return Chunks(codes + RequantizeShared<S>::below(slot, i * at_once), apart);
    }
    __device__ __forceinline__ float scale(int i) const { return scales[i * scale_stride]; }
};

// Returns where a chunk of a line lies.
template <class S>
__device__ __forceinline__ const uint8_t* chunk_codes(const RequantizeShared<S>& shared, int line, int chunk) {
    return reinterpret_cast<const uint8_t*>(&shared.codes[shared.slot(line, chunk)]);
}

// Returns the scale of the lane's block of 32, half of which its neighbour may have. `plain`: the block has neither NaN nor
// Inf.
template <class S, class E>
__device__ __forceinline__ uint32_t line_scale(const ChunkArguments& a, const RequantizeShared<S>& shared,
                                               const LineReader<S, E>& reader, const LineChunks<S, E>& values, int i,
                                               bool& plain) {
    const float scale = reader.scale(i);
    uint32_t largest = float_bits(multiply_rn(values.largest(), scale));
    if constexpr (kLaneChunks<E> == 1) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    plain = largest < kInfinityBits;
    if (!plain) {
        const uint4* const block = &shared.codes[shared.slot(reader.line(i), reader.chunk) & ~1];  // in any order
        largest = any_maximum_of<S, kMxBlock>(reinterpret_cast<const uint8_t*>(block), a.problem.nonfinite, scale);
    }
    return scale_of(largest, a.steps);
}

// Makes codes and scales of the part along the source's lines: 0 rowwise, 1 columnwise.
template <class S, class E>
__device__ __forceinline__ void emit_along(const ChunkArguments& a, int part, RequantizeShared<S>& shared) {
    const CodeTile& to = shared.parts[kRowwisePart + part].codes;
    const LineReader<S, E> reader(shared, a.problem.source.quantized);
    const int lines = reader.chunk * kChunk < to.length ? to.lines : 0;
    const uint32_t line_bytes = uint32_t(to.line_bytes);
    uint8_t* codes = to.codes + reader.chunk * (kChunk * E::bits / 8) + uint64_t(uint32_t(reader.first)) * line_bytes;
    auto* const bytes = reinterpret_cast<uint8_t*>(&shared.words[part][reader.first]) + reader.chunk / 2;
#pragma unroll 1
    for (int i = 0; i < reader.steps; i++) {
        const LineChunks<S, E> values = reader.read(i);
        bool plain;
        const uint32_t scale = line_scale<S, E>(a, shared, reader, values, i, plain);
        bytes[i * reader.at_once * 4] = uint8_t(scale);
        const float reciprocal = scale_reciprocal(scale), factor = multiply_rn(reader.scale(i), reciprocal);
        ChunkCodes<E> out[kLaneChunks<E>];
        if (plain && can_requantize_via_f16<typename S::Bytes, E>(factor)) {
            values.quantize(factor, a.clamps, out);
        } else {
#pragma unroll
            for (int j = 0; j < kLaneChunks<E>; j++)
                out[j] = any_chunk_codes<S, E>(chunk_codes(shared, reader.line(i), reader.chunk + j), reader.scale(i),
                                               reciprocal);
        }
        if (reader.line(i) < lines) store_chunks(codes, out);
        codes += uint64_t(line_bytes) * reader.at_once;
    }
}

}  // namespace mxq::cuda
