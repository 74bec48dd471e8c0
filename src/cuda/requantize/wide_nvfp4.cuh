// The way of requantize_wide for NVFP4, to E4M3 and E2M1, under any scales; wide_nvfp4_in_f16.cuh has the one for nearly
// all.
//
//     codes ---cp.async, 128 bytes a line---> shared memory --16 lines x 8 positions a lane, a word each--> F16 pairs
//     scales --16 bytes a line, a thread each--> table in F16, by block of 16 positions --------------------^
//     F16 pairs --two lanes, 32 lines--> maxima --> scales, by way of shared memory; factors --> codes, 256 bytes a line
//
// Codes times block scales are exact in F16. The scale above them and the factor of a block come last, as one product in
// fp32 (is_plain_product); a warp where that does not serve, or that has a NaN, makes its codes again, value by value and
// out of line.
//
// Bytes an element: 0.56 read, 0.53 or 1.03 written.
#pragma once
#include "cuda/memory/decode.cuh"
#include "cuda/requantize/chunks_across.cuh"
#include "cuda/requantize/wide_tile.cuh"
#include "numerics/nvfp4_via_f16.h"

namespace mxq::cuda {

struct WideNvfp4Shared : WideCodeTile<4> {
    static constexpr int blocks = kWide / kNvBlock;
    alignas(16) uint16_t scales[blocks][kWideChunks][kChunk + 8];  // in F16, 64 times the value; by block and line
    alignas(8) uint32_t to_scales[kWide][2];                       // bytes of a line
    float global;                                                  // above the source's scales
    int step;                                                      // F16Step of the number that stands for it
};

// Loads the scale above all, and finds which F16 number stands for it where the output has elements E, by the first warp. A
// barrier must follow.
template <class E>
__device__ __forceinline__ void load_wide_global(const WideArguments& a, const WidePlace& place, WideNvfp4Shared& shared) {
    if (threadIdx.x >= 32) return;
    constexpr uint32_t all = (1u << kNvfp4Products) - 1;
    const float global = global_scale(a.from, place.matrix);
    const int product = threadIdx.x % kNvfp4Products, upper = threadIdx.x / kNvfp4Products;
    const uint32_t near = __ballot_sync(kAllLanes, nvfp4_product_serves_in_f16<E>(global, product, upper));
    const uint32_t below = __ballot_sync(kAllLanes, nvfp4_product_serves_in_f16<E>(global, product, kBelowNearest));
    if (threadIdx.x != 0) return;
    const int step = (near & all) == all             ? kNearest
                     : near >> kNvfp4Products == all ? kAboveNearest
                     : (below & all) == all          ? kBelowNearest
                                                     : kNoF16;
    const bool is_normal = fabsf(global) >= 0x1p-126f && float_bits(fabsf(global)) < kInfinityBits;
    shared.global = global, shared.step = is_normal ? step : kNoF16;
}

// Loads the scales of the thread's line into the table, zeros where there are none, and returns whether one is negative. A
// barrier must follow.
__device__ __forceinline__ bool load_wide_scales(const WideArguments& a, const WidePlace& place, WideNvfp4Shared& shared) {
    static_assert(kWideThreads == kWide);
    const ScaleLayout& layout = a.from.layout;
    const int line = int(threadIdx.x) / kTile * kTile + line_of_word(layout, int(threadIdx.x) % kTile);
    const int64_t column = place.position / kNvBlock, left = line < place.lines ? layout.columns - column : 0;
    const uint8_t* const from = a.from.scales + layout.offset(place.matrix, place.line + line, column);
    const int64_t next = layout.swizzled ? kSwizzleBytes : 4;
    constexpr int count = WideNvfp4Shared::blocks / 4;
    uint32_t words[count] = {};
    static_assert(count == 4);
    if (left >= WideNvfp4Shared::blocks && !layout.swizzled && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
        const uint4 four = *reinterpret_cast<const uint4*>(from);
        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    } else if (left >= WideNvfp4Shared::blocks && reinterpret_cast<uintptr_t>(from) % 4 == 0) {
#pragma unroll
        for (int i = 0; i < count; i++) words[i] = *reinterpret_cast<const uint32_t*>(from + i * next);
    } else {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int64_t rest = left - i * 4;
            if (rest > 0) words[i] = load_scale_word(from + i * next, rest) & (rest < 4 ? ~0u >> (32 - 8 * rest) : ~0u);
        }
    }
#pragma unroll
    for (int i = 0; i < count; i++) {
        uint32_t pairs[2];
        decode_word_to_f16<E4M3>(words[i], pairs[0], pairs[1]);
#pragma unroll
        for (int block = 0; block < 4; block++) {
            const uint32_t pair = multiply_f16_pairs(pairs[block / 2], 0x54005400u);  // 64 times the values
            shared.scales[4 * i + block][line / kChunk][line % kChunk] = uint16_t(block % 2 == 0 ? pair : pair >> 16);
        }
    }
    return ((words[0] | words[1] | words[2] | words[3]) & 0x80808080u) != 0;
}

// A word of 16 lines: the codes of 8 positions of each, and the lines' scales there.
struct WideWords {
    uint32_t lines[kChunk], scales[kChunk / 2];

    __device__ __forceinline__ WideWords(const WideNvfp4Shared& shared, uint32_t chunk, uint32_t word) {
        const uint32_t* words = shared.word(chunk, word);
#pragma unroll
        for (int i = 0; i < kChunk; i++) lines[i] = words[i * WideNvfp4Shared::line_words];
        const auto* eight = reinterpret_cast<const uint4*>(shared.scales[word / 2][chunk]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 of = eight[i];
            scales[4 * i] = of.x, scales[4 * i + 1] = of.y, scales[4 * i + 2] = of.z, scales[4 * i + 3] = of.w;
        }
    }
    // Returns the values of two neighbouring positions, but for the scale above the blocks'.
    __device__ __forceinline__ WidePairs pairs(int pair) const {
        const uint32_t select = 0x40 + 0x11 * pair;
        WidePairs values;
#pragma unroll
        for (int i = 0; i < kChunk; i += 4) {
            const uint32_t codes = __byte_perm(__byte_perm(lines[i], lines[i + 1], select),
                                               __byte_perm(lines[i + 2], lines[i + 3], select), 0x5410);
            const int at = i / 2;
            decode_word_to_f16<E4M3>(shrunk_e4m3(codes << 4), values.first[at], values.first[at + 1]);
            decode_word_to_f16<E4M3>(shrunk_e4m3(codes), values.second[at], values.second[at + 1]);
#pragma unroll
            for (int k = at; k < at + 2; k++) {
                values.first[k] = multiply_f16_pairs(values.first[k], scales[k]);
                values.second[k] = multiply_f16_pairs(values.second[k], scales[k]);
            }
        }
        return values;
    }
};

// Makes and stores the codes and scales of a lane's 8 positions value by value, for all lanes of a warp. Out of line: few
// need it.
template <class E>
__device__ __noinline__ void emit_any_wide(const WideArguments& a, WideNvfp4Shared& shared, uint8_t* to, int chunk, int word,
                                           float global, int length) {
#pragma unroll 1
    for (int position = word * 8; position < word * 8 + 8; position++) {
        const auto* codes = reinterpret_cast<const uint8_t*>(shared.word(chunk, word)) + position % 8 / 2;
        float values[kChunk];
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < kChunk; i++) {
            const uint32_t code = codes[i * (WideNvfp4Shared::line_words * 4)] << (position % 2 == 0 ? 4 : 0) & 0xF0;
            const float scale = to_float(F16{shared.scales[position / kNvBlock][chunk][i]});
            values[i] = multiply_rn(multiply_rn(decode_pair<E4M3>(shrunk_e4m3(code)).x, scale), global);
            largest = max(largest, a.nonfinite == Nonfinite::Saturate ? amax_bits<Nonfinite::Saturate>(values[i])
                                                                      : amax_bits<Nonfinite::Propagate>(values[i]));
        }
        const uint32_t scale = scale_of(max(largest, __shfl_xor_sync(kAllLanes, largest, 1)), a.steps);
        if (chunk % 2 == position % 2) reinterpret_cast<uint8_t*>(shared.to_scales[position])[chunk / 2] = uint8_t(scale);
        const ChunkCodes<E> out = quantize_values<E>(values, scale_reciprocal(scale));
        if (position < length) store_chunk(to + position * a.to.line_bytes, out);
    }
}

// Makes and stores the codes of the tile, and leaves their scales in shared memory.
template <class E>
__device__ __forceinline__ void emit_wide_nvfp4(const WideArguments& a, const WidePlace& place, WideNvfp4Shared& shared) {
    const WideLane<kWide> lane;
    const int chunk = lane.chunk;
    const bool odd = chunk % 2, exists = chunk * kChunk < place.lines, block_exists = (chunk - odd) * kChunk < place.lines;
    uint8_t* const to = a.to.line(place.matrix, place.position) + (place.line + chunk * kChunk) / 8 * E::bits;
    const uint32_t line_bytes = uint32_t(a.to.line_bytes);
    const float global = block_exists ? shared.global : 0.0f;
    const int length = exists ? place.length : 0;
#pragma unroll 1
    for (int word = lane.unit; word < WideNvfp4Shared::line_words; word += lane.at_once) {
        const WideWords words(shared, chunk, word);
        uint8_t* at = to + uint64_t(uint32_t(word * 8)) * line_bytes;
        auto* scales = reinterpret_cast<uint8_t*>(shared.to_scales[word * 8 + odd]) + chunk / 2;
        bool plain = true;
#pragma unroll 1
        for (int pair = 0; pair < 4; pair++) {
            const WidePairs values = words.pairs(pair);
            // Two lanes have the 32 lines of a block: each makes the scale of one position.
            const uint32_t of_both = values.block_maxima();
            const F16 mine{uint16_t(odd ? of_both >> 16 : of_both)};
            const uint32_t largest = float_bits(multiply_rn(to_float(mine), fabsf(global)));
            const uint32_t scale = scale_of(largest, a.steps);
            *scales = uint8_t(scale), scales += 2 * sizeof(shared.to_scales[0]);
            float factor;
            plain = is_plain_product(largest, global, scale_reciprocal(scale), factor) && plain;
            const float other = __shfl_xor_sync(kAllLanes, factor, 1);
            if (word * 8 < length) {
                store_chunk(at, TwoHalfChunks::codes_of<E, false>(values.first, 1, odd ? other : factor));
                store_chunk(at + line_bytes, TwoHalfChunks::codes_of<E, false>(values.second, 1, odd ? factor : other));
            }
            at += 2 * line_bytes;
        }
        if (!__all_sync(kAllLanes, plain)) emit_any_wide<E>(a, shared, to, chunk, word, exists ? global : 0.0f, length);
    }
}

}  // namespace mxq::cuda
