// The weights of skinny_sm90 on their way from shared memory to the matrix instruction.
//
// A thread has two lines, 8 apart, and 32 codes of each in every 128 along the contraction, which have one scale, or two of
// NVFP4:
//
//     128 codes of a line   | lane 4 r       | lane 4 r + 1   | lane 4 r + 2   | lane 4 r + 3   |     4 bits: 16 bytes each
//
//     four of the 32        decoded to BF16 as two pairs, are what the thread gives to one instruction of 16 codes; the
//                           tokens lie in the order that follows (skinny_tokens.h)
#pragma once
#include "cuda/memory/weights.cuh"
#include "cuda/sm90/skinny_tokens.h"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90 {

// The scales of four chunks of a line are four words, or four pairs of NVFP4. Each of the four lanes that have the line
// loads those of one chunk, and gives them to the others when its turn comes:
//
//     lane       4 r        4 r + 1    4 r + 2    4 r + 3
//     loads      chunk 0    chunk 1    chunk 2    chunk 3      then: chunk c from lane 4 r + c, and of it the lane's byte
constexpr int kScaleChunks = 4;

template <Weights kind>
constexpr int kScaleFours = kind == Weights::Nvfp4 ? 2 : 1;  // blocks of a chunk, by fours

template <Weights kind>
constexpr uint32_t kBlockCodes = kind == Weights::Nvfp4 ? 16 : 32;

// Says how many bytes it is along a line to the scales of the next four chunks, four blocks, and block.
struct ScaleSteps {
    int64_t of_chunks, of_four, of_block;
};

__device__ __forceinline__ ScaleSteps scale_steps(const ScaleLayout& layout, uint32_t block) {
    return {scale_in_line(layout, kScaleChunks * kChunkCodes), scale_in_line(layout, 4 * block),
            scale_in_line(layout, block)};
}

// Says where the scales of a thread's two lines lie, in the chunk of the four that it loads next: the words that have the
// first, and how many bits of them come before it. Registers are short, so the steps stay in shared memory.
struct ScaleReader {
    const uint8_t* words;  // of the first line
    int32_t to_second;     // bytes from there to those of the second
    uint32_t bits;         // of the first line, and 8 bits up of the second
    const ScaleSteps& steps;
    int32_t blocks;  // from there to the end of the line
    bool adjacent;   // scales of four blocks lie one after the other
};

// Returns how many of the four blocks number i exist.
__device__ __forceinline__ int32_t existing_blocks(int32_t blocks, int i) { return max(min(blocks - 4 * i, 4), 0); }

// Holds the words of memory that have a lane's scales, as they were loaded, and how many blocks they are for.
template <Weights kind>
struct LoadedScales {
    uint32_t low[2][kScaleFours<kind>], high[2][kScaleFours<kind>];
    int32_t blocks;
};

// Loads a lane's scales of the next four chunks, which nobody looks at before their turn comes.
template <Weights kind>
__device__ __forceinline__ void load_scales(ScaleReader& reader, LoadedScales<kind>& to) {
    constexpr int32_t blocks_of_chunks = kScaleChunks * kChunkCodes / kBlockCodes<kind>;
    to.blocks = reader.blocks;
#pragma unroll
    for (int l = 0; l < 2; l++) {
#pragma unroll
        for (int i = 0; i < kScaleFours<kind>; i++) {
            const int32_t blocks = existing_blocks(reader.blocks, i);
            const uint8_t* const at = reader.words + (l > 0 ? reader.to_second : 0) + (i > 0 ? i * reader.steps.of_four : 0);
            if (reader.adjacent) {
                if (blocks > 0) to.low[l][i] = __ldg(reinterpret_cast<const uint32_t*>(at));
                if (int32_t(reader.bits >> 8 * l & 0xFF) + 8 * blocks > 32)
                    to.high[l][i] = __ldg(reinterpret_cast<const uint32_t*>(at) + 1);
            } else {
                to.low[l][i] = 0;
#pragma unroll 1
                for (int32_t b = 0; b < blocks; b++)
                    to.low[l][i] |= uint32_t(__ldg(at + b * reader.steps.of_block)) << 8 * b;
            }
        }
    }
    reader.words += reader.steps.of_chunks;
    reader.blocks -= blocks_of_chunks;
}

// Holds a lane's scales of four chunks, a byte each.
template <Weights kind>
struct ScaleWords {
    uint32_t words[2][kScaleFours<kind>];
};

// Returns them; those of blocks that do not exist become scales of finite numbers, since the codes there are zeros.
template <Weights kind>
__device__ __forceinline__ ScaleWords<kind> scale_words(const ScaleReader& reader, const LoadedScales<kind>& of) {
    constexpr uint32_t none = kind == Weights::Nvfp4 ? 0 : 0x7F7F7F7Fu;
    ScaleWords<kind> scales;
#pragma unroll
    for (int l = 0; l < 2; l++)
#pragma unroll
        for (int i = 0; i < kScaleFours<kind>; i++)
            scales.words[l][i] = __funnelshift_r(of.low[l][i], of.high[l][i], reader.bits >> 8 * l);
    if (of.blocks < 4 * kScaleFours<kind>) {
#pragma unroll
        for (int i = 0; i < kScaleFours<kind>; i++) {
            const uint32_t exist = first_bytes(existing_blocks(of.blocks, i));
#pragma unroll
            for (int l = 0; l < 2; l++) scales.words[l][i] = (scales.words[l][i] & exist) | (none & ~exist);
        }
    }
    return scales;
}

// Returns whether one factor does not serve some of a lane's scales.
template <Weights kind>
__device__ __forceinline__ bool any_special(const Bf16DecodeRule& rule, const ScaleWords<kind>& of) {
    constexpr uint32_t in_each_byte = 0x01010101u, mask = kind == Weights::Nvfp4 ? 0x7F7F7F7Fu : ~0u;
    const uint32_t most = kind == Weights::Bits4 ? kMostE2m1Scale : rule.scale_limit;
    uint32_t above = 0;
#pragma unroll
    for (int l = 0; l < 2; l++)
        for (uint32_t word : of.words[l]) above |= __vcmpgtu4(word & mask, most * in_each_byte);
    return above != 0;
}

// Takes the scales of a chunk from the lane that has loaded them.
template <Weights kind>
__device__ __forceinline__ void take_scales(const ScaleWords<kind>& of, uint32_t chunk, Fragment<kind>& fragment) {
    const uint32_t lane = read_thread() % 32, quarter = lane % 4, from = (lane & ~3u) | chunk % kScaleChunks;
#pragma unroll
    for (int l = 0; l < 2; l++) {
        uint32_t word = __shfl_sync(kAllLanes, of.words[l][0], from);
        if constexpr (kind == Weights::Nvfp4) {
            const uint32_t second = __shfl_sync(kAllLanes, of.words[l][1], from);
            word = (quarter < 2 ? word : second) >> quarter % 2 * 16;
            fragment.scales[l][0] = word & 0xFF, fragment.scales[l][1] = word >> 8 & 0xFF;
        } else {
            fragment.scales[l][0] = permute_bytes(word, 0, 0x4440 | quarter);
        }
    }
}

// Returns how many bytes of a line a step of so many chunks has. 128 lie as the copy engine swizzles them, fewer one line after
// the other.
template <Weights kind, int chunks>
constexpr int kRowBytes = chunks * kChunkCodes / 8 * weight_bits<kind>;

// Returns which of eight lines a lane has. Lanes 0 to 7 read from all banks: halves of the rows of lines 0 and 1, or where two
// chunks share a row under the swizzle, of lines 0 and 4.
template <int chunks>
__device__ __forceinline__ uint32_t line_of_lane() {
    const uint32_t eighth = read_thread() % 32 / 4;
    return chunks == 1 ? eighth : eighth / 2 + eighth % 2 * 4;
}

// Returns where in the codes of a step's first chunk a thread's first line and quarter lie.
template <Weights kind, int chunks>
__device__ __forceinline__ uint32_t first_code_of_thread() {
    constexpr int row_bytes = kRowBytes<kind, chunks>, quarter_bytes = row_bytes / chunks / 4;
    const uint32_t thread = read_thread(), line = thread / 32 * 16 + line_of_lane<chunks>(), at = thread % 4 * quarter_bytes;
    return line * row_bytes + (row_bytes == 128 ? at ^ line % 8 * 16 : at);
}

// Reads 16 bytes of a thread's codes of a chunk, number `piece`, or all 24 of 6 bits; `place` is where its first are.
template <Weights kind, int chunks>
__device__ __forceinline__ void read_piece(const uint8_t* codes, uint32_t place, int piece, Fragment<kind>& to) {
#pragma unroll
    for (int l = 0; l < 2; l++) {
        auto& words = to.words[l];
        const uint8_t* const from = codes + 8 * l * kRowBytes<kind, chunks>;
        if constexpr (kind == Weights::Bits6) {
#pragma unroll
            for (int i = 0; i < 3; i++) {
                const uint2 v = *reinterpret_cast<const uint2*>(from + place + 8 * i);
                words[2 * i] = v.x, words[2 * i + 1] = v.y;
            }
        } else {
            const uint4 v = *reinterpret_cast<const uint4*>(from + (place ^ 16 * piece));
            words[4 * piece] = v.x, words[4 * piece + 1] = v.y, words[4 * piece + 2] = v.z, words[4 * piece + 3] = v.w;
        }
    }
}

template <Weights kind, int chunks>
__device__ __forceinline__ void read_codes(const uint8_t* codes, uint32_t place, Fragment<kind>& to) {
#pragma unroll
    for (int piece = 0; piece < (kind == Weights::Bits8 ? 2 : 1); piece++) read_piece<kind, chunks>(codes, place, piece, to);
}

}  // namespace mxq::cuda::sm90
