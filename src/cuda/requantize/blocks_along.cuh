// The way of requantize_chunks for MXFP8 to MXFP4 along the source's lines alone: every block of 32 by itself, a lane each,
// from registers to registers. No tile, no shared memory and no barrier: what lies across lines is not asked for.
//
//     32 codes of a line, their scale -> F16 pairs -> maximum -> scale -> 16 bytes of codes        (chunks_along.cuh)
//
// Which blocks a lane takes: memory/segments.cuh, one lane a block, four requests a lane, all loaded before the first use.
// Bytes an element: 1.03 read, 0.53 written; 7 instructions an element (ncu), with swizzled scales 2 more, which find places.
// An H100 is bound by memory.
#pragma once
#include "cuda/memory/scale_words.cuh"
#include "cuda/memory/segments.cuh"
#include "cuda/requantize/chunks_along.cuh"

namespace mxq::cuda {

struct BlockArguments {
    Segments segments;
    const uint8_t *codes, *scales;
    uint8_t *out_codes, *out_scales;
    ScaleLayout from, to;
    ScaleSteps steps;
    bool clamps;  // products may be 7 or more
    Nonfinite nonfinite;
    int64_t blocks;  // of all lines; 0: they do not lie one after the other
};

// The 32 codes of a block.
struct BlockCodes {
    uint4 chunks[2];
};

template <class S>
__device__ __forceinline__ float block_value(const BlockCodes& codes, int i, float scale) {
    const uint32_t byte = reinterpret_cast<const uint8_t*>(codes.chunks)[i];
    return multiply_rn(decode_pair<typename S::Bytes>(byte).x, scale);
}

// Returns the largest magnitude of a block, as bits. Out of line: for blocks with NaN or Inf.
template <class S>
__device__ __noinline__ uint32_t any_maximum(BlockCodes codes, Nonfinite policy, float scale) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kMxBlock; i++) {
        const float value = block_value<S>(codes, i, scale);
        largest = max(largest, policy == Nonfinite::Saturate ? amax_bits<Nonfinite::Saturate>(value)
                                                             : amax_bits<Nonfinite::Propagate>(value));
    }
    return largest;
}

// Makes the codes of a block under any factor. Out of line: few need it.
template <class S>
__device__ __noinline__ uint4 any_block_codes(BlockCodes codes, float scale, float factor) {
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float values[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; i++) values[i] = block_value<S>(codes, j * kChunk + i, scale);
        const ChunkCodes<E2M1> of_chunk = quantize_values<E2M1>(values, factor);
        words[2 * j] = of_chunk.words[0], words[2 * j + 1] = of_chunk.words[1];
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// Makes a block's codes, and gives its scale.
template <class S>
__device__ __forceinline__ uint4 requantize_block(const BlockArguments& a, bool clamps, const BlockCodes& codes,
                                                  uint32_t scale_byte, uint32_t& scale) {
    const LineChunks<S, E2M1> values(codes.chunks);
    const float source = scale_value(scale_byte);
    uint32_t largest = float_bits(multiply_rn(values.largest(), source));
    const bool plain = largest < kInfinityBits;
    if (!plain) largest = any_maximum<S>(codes, a.nonfinite, source);
    scale = scale_of(largest, a.steps);
    const float reciprocal = scale_reciprocal(scale), factor = multiply_rn(source, reciprocal);
    if (!plain || !can_requantize_via_f16<typename S::Bytes, E2M1>(factor))
        return any_block_codes<S>(codes, source, reciprocal);
    ChunkCodes<E2M1> out[2];
    values.quantize(factor, clamps, out);
    return make_uint4(out[0].words[0], out[0].words[1], out[1].words[0], out[1].words[1]);
}

// Four lanes have the four blocks of a segment. Lane k moves the scale word of request k, since a warp's words neighbour each
// other in memory where its bytes do not; in registers a lane has the scales of its own block, one of each request:
//
//     lane k, request k:  s0 s1 s2 s3   <->   lane k, block k:  r0 r1 r2 r3
//
// Goes either way: byte i of lane k and byte k of lane i change places.
__device__ __forceinline__ uint32_t transpose_scales(uint32_t word) {
    const uint32_t lane = threadIdx.x;
    word = __byte_perm(word, __shfl_xor_sync(kAllLanes, word, 1), lane & 1 ? 0x3715 : 0x6240);
    return __byte_perm(word, __shfl_xor_sync(kAllLanes, word, 2), lane & 2 ? 0x3276 : 0x5410);
}

// A lane's scale word in a layout of 1x32: where it begins, and how many of its bytes are there.
struct ScaleWordPlace {
    int64_t index, count;

    __device__ __forceinline__ ScaleWordPlace(ScaleLayout layout, int64_t rows, const Requests<kMxBlock>& requests) {
        layout.tile_rows = 1, layout.column_stride = 1;  // known here
        const int request = threadIdx.x % kRequests;
        const int64_t row = requests.row + request * requests.row_step, column = requests.first_scale(request);
        index = layout.offset(requests.matrix, row, column);
        count = stored_scales(layout, rows, row, column);
    }
};

// The blocks of lines that lie one after the other, scales too, as one row: its places take few instructions. A warp has 128
// blocks, a lane the same of a segment as below.
template <class S, bool clamps>
__global__ void __launch_bounds__(kSegmentThreads, 3)
    requantize_row_of_blocks_kernel(const __grid_constant__ BlockArguments a) {
    const int lane = threadIdx.x % 32;
    const int64_t first = (block_index() * (kSegmentThreads / 32) + threadIdx.x / 32) * (32 * kRequests);
    const int left = int(min(a.blocks - first, int64_t(32 * kRequests)));
    if (left <= 0) return;
    const auto* const from = reinterpret_cast<const BlockCodes*>(a.codes) + first + lane;
    BlockCodes codes[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++) codes[i] = i * 32 + lane < left ? from[i * 32] : BlockCodes{};
    const int word = (lane % kRequests * 8 + lane / kRequests) * 4;
    const uint32_t source_scales = transpose_scales(load_scale_word(a.scales + first + word, left - word));
    auto* const to = reinterpret_cast<uint4*>(a.out_codes) + first + lane;
    uint32_t scales = 0;
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        uint32_t scale;
        const uint4 out = requantize_block<S>(a, clamps, codes[i], source_scales >> (i * 8) & 0xFF, scale);
        scales |= scale << (i * 8);
        if (i * 32 + lane < left) to[i * 32] = out;
    }
    store_scale_word(a.out_scales + first + word, transpose_scales(scales), left - word);
}

template <class S>
__global__ void __launch_bounds__(kSegmentThreads, 3) requantize_blocks_kernel(const __grid_constant__ BlockArguments a) {
    const int64_t task = block_index() * (kSegmentThreads / 32) + threadIdx.x / 32;
    if (task >= a.segments.tasks) return;
    const Requests<kMxBlock> requests(a.segments, task);
    BlockCodes codes[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        const auto* at = reinterpret_cast<const uint4*>(a.codes + requests.offset(i, a.segments.cols));
        codes[i] = requests.exists(i) ? BlockCodes{at[0], at[1]} : BlockCodes{};
    }
    const ScaleWordPlace from(a.from, a.segments.rows, requests), to(a.to, a.segments.rows, requests);
    const uint32_t source_scales = transpose_scales(load_scale_word(a.scales + from.index, from.count));
    uint32_t scales = 0;
#pragma unroll
    for (int i = 0; i < kRequests; i++) {
        uint32_t scale;
        const uint4 out = requantize_block<S>(a, a.clamps, codes[i], source_scales >> (i * 8) & 0xFF, scale);
        if (!requests.exists(i)) continue;
        scales |= scale << (i * 8);
        *reinterpret_cast<uint4*>(a.out_codes + requests.offset(i, a.segments.cols) / 2) = out;
    }
    store_scale_word(a.out_scales + to.index, transpose_scales(scales), to.count);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns whether a problem that requantize_chunks takes can be taken block by block.
inline bool takes_blocks(const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    const bool across = from.columnwise ? p.has_rowwise : p.has_columnwise;
    return !across && !p.grouped.set() && from.bits == 8 && p.format->bits == 4 && from.scale_type == ScaleType::E8M0 &&
           from.layout.block == kMxBlock && from.layout.tile_rows == 1 && from.layout.repeat == 1 && from.length % kMxBlock == 0 &&
           p.tile.id == MXQ_SCALING_1X32;
}

inline BlockArguments block_arguments(const QuantizeProblem& p, const ScaleSteps& steps, bool clamps) {
    const QuantizedPart &from = p.source.quantized, &to = from.columnwise ? p.columnwise : p.rowwise;
    BlockArguments a{{}, from.codes, from.scales, to.codes, to.scales, from.layout, to.layout, steps, clamps, p.nonfinite, 0};
    const PlainMatrix lines{nullptr, 0, from.matrices, from.lines, from.length, from.length, 1, Addresses::Dense};
    constexpr int parallel = Requests<kMxBlock>::parallel;
    a.segments = divide(lines, a.from.swizzled ? a.from : a.to, parallel);
    if (!a.from.swizzled) a.from.columns = a.to.columns;  // of one long row where both are compact
    if (!a.segments.down) a.blocks = a.segments.cols / kMxBlock;
    return a;
}

}  // namespace mxq::cuda
