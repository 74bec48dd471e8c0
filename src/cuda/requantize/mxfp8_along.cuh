// The way of requantize_chunks for MXFP8 to MXFP8 along the source's lines alone, without groups: 16 codes a lane, from
// registers to registers, so that two neighbouring lanes have a block.
//
//     16 codes of a line -> F16 pairs -> maximum times their scale, of two lanes -> scale -> 16 codes   (chunks_along.cuh)
//
// Where scales are compact, the blocks of all lines lie one after the other, and a warp takes 128 of them; else a block of
// threads takes a tile of 128 lines x 256 positions. A lane loads eight times before the first use.
// Bytes an element: 1.03 read, 1.03 written. Bound by memory.
#pragma once
#include "cuda/requantize/blocks_along.cuh"

namespace mxq::cuda {

constexpr int kMxfp8Sets = 2;  // of as many loads as a scale word has bytes

// Blocks of threads that share an SM: 80 registers a thread. Below sm_89 codes are converted in software, which takes more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kMxfp8Blocks = 2;
#else
constexpr int kMxfp8Blocks = 3;
#endif

// Makes and stores the codes of a lane's half of a block, whose other half its neighbour has, and returns the scale.
template <class S, class E>
__device__ __forceinline__ uint32_t requantize_half_block(const BlockArguments& a, const uint4& codes, const uint8_t* from,
                                                          uint32_t scale_byte, bool exists, uint8_t* to) {
    const float source = scale_value(scale_byte);
    const LineChunks<S, E> values(&codes);
    uint32_t largest = float_bits(multiply_rn(values.largest(), source));
    const bool finite = largest < kInfinityBits;
    if (!finite) largest = exists ? any_maximum_of<S, kChunk>(from, a.nonfinite, source) : 0;
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    const uint32_t scale = scale_of(largest, a.steps);
    if (!exists) return 0;
    const float reciprocal = scale_reciprocal(scale), factor = multiply_rn(source, reciprocal);
    ChunkCodes<E> out[1];
    if (finite && can_requantize_via_f16<typename S::Bytes, E>(factor))
        values.quantize(factor, false, out);
    else
        out[0] = any_chunk_codes<S, E>(from, source, reciprocal);
    store_chunks(to, out);
    return scale;
}

// The blocks of all lines one after the other, scales too.
template <class S, class E>
__global__ void __launch_bounds__(kBlockThreads, kMxfp8Blocks)
    requantize_row_of_halves_kernel(const __grid_constant__ BlockArguments a) {
    constexpr int of_set = 32 * kBlockRequests;  // halves of blocks
    const int lane = threadIdx.x % 32;
    const int64_t first = (block_index() * (kBlockThreads / 32) + threadIdx.x / 32) * (kMxfp8Sets * of_set);
    const int left = int(min(2 * a.blocks - first, int64_t(kMxfp8Sets * of_set)));
    if (left <= 0) return;
    const uint8_t* const from = a.from.codes + (first + lane) * kChunk;
    const int word = lane / 2 % kBlockRequests * 16 + lane / 8 * 4;  // which lane moves which scales
    uint4 codes[kMxfp8Sets][kBlockRequests];
    uint32_t words[kMxfp8Sets];
#pragma unroll
    for (int set = 0; set < kMxfp8Sets; set++) {
#pragma unroll
        for (int i = 0; i < kBlockRequests; i++) {
            const int half = set * of_set + i * 32;
            codes[set][i] = half + lane < left ? *reinterpret_cast<const uint4*>(from + half * kChunk) : uint4{};
        }
        const int before = set * of_set / 2 + word;
        words[set] = load_scale_word(a.from.scales + first / 2 + before, left / 2 - before);
    }
    uint8_t* const to = a.to.codes + (first + lane) * kChunk;
#pragma unroll
    for (int set = 0; set < kMxfp8Sets; set++) {
        const uint32_t bytes = transpose_scales<2>(words[set]);
        uint32_t scales = 0;
#pragma unroll
        for (int i = 0; i < kBlockRequests; i++) {
            const int half = set * of_set + i * 32;
            scales |= requantize_half_block<S, E>(a, codes[set][i], from + half * kChunk, bytes >> (i * 8) & 0xFF,
                                                  half + lane < left, to + half * kChunk)
                      << (i * 8);
        }
        scales = transpose_scales<2>(scales);
        const int before = set * of_set / 2 + word;
        if (lane % 2 == 0) store_scale_word(a.to.scales + first / 2 + before, scales, left / 2 - before);
    }
}

// A tile of 128 lines x 256 positions, a block of threads each:
//
//     lane     half a block of a line, 16 lanes side by side; twice four lines, 32 apart
//     words    of four blocks, two of eight lanes each: those of a request
template <class S, class E>
__global__ void __launch_bounds__(kBlockThreads, kMxfp8Blocks)
    requantize_tile_of_halves_kernel(const __grid_constant__ BlockArguments a) {
    constexpr int side = 2 * kTile / kChunk, between = 32 / kMxfp8Sets;
    const BlockLines lines(a.from, a.down);
    if (lines.existing <= 0) return;
    const int lane = threadIdx.x % 32, line = threadIdx.x / side, request = lane / 2 % kBlockRequests;
    const int64_t position = int64_t(blockIdx.x) * (2 * kTile) + lane % side * kChunk;
    const uint32_t column = blockIdx.x * 2 + lane % side / 8;  // of words
    const int existing = position < a.from.length ? lines.existing : 0;
    const uint8_t* const from = a.from.line(lines.matrix, lines.first + line) + position;
    uint4 codes[kMxfp8Sets][kBlockRequests];
    uint32_t words[kMxfp8Sets];
    TileScaleWord from_word(a.from, a.from_words, lines, line, request, column);
#pragma unroll
    for (int set = 0; set < kMxfp8Sets; set++, from_word.go_down(a.from_words, between)) {
#pragma unroll
        for (int i = 0; i < kBlockRequests; i++) {
            const int below = set * between + i * 32;
            codes[set][i] =
                line + below < existing ? *reinterpret_cast<const uint4*>(from + below * a.from.line_bytes) : uint4{};
        }
        words[set] = load_scale_word(from_word.at, from_word.count());
    }
    uint8_t* const to = a.to.line(lines.matrix, lines.first + line) + position;
    TileScaleWord word(a.to, a.to_words, lines, line, request, column);
#pragma unroll
    for (int set = 0; set < kMxfp8Sets; set++, word.go_down(a.to_words, between)) {
        const uint32_t bytes = transpose_scales<2>(words[set]);
        uint32_t scales = 0;
#pragma unroll
        for (int i = 0; i < kBlockRequests; i++) {
            const int below = set * between + i * 32;
            scales |=
                requantize_half_block<S, E>(a, codes[set][i], from + below * a.from.line_bytes, bytes >> (i * 8) & 0xFF,
                                            line + below < existing, to + below * a.to.line_bytes)
                << (i * 8);
        }
        scales = transpose_scales<2>(scales);
        if (lane % 2 == 0) store_scale_word(word.at, scales, word.count());
    }
}

// ---- On the host -----------------------------------------------------------------------------------------------------

inline dim3 half_block_grid(const BlockArguments& a) {
    constexpr int64_t of_block = kBlockThreads * kBlockRequests * kMxfp8Sets / 2;
    if (a.blocks != 0) return grid_of(ceil_div(a.blocks, of_block));
    return grid_of_rows(ceil_div(a.from.length, int64_t(2 * kTile)), a.from.matrices * a.down);
}

}  // namespace mxq::cuda
