// The way of requantize_chunks for NVFP4 to MXFP8 and MXFP4 along the source's lines alone: 16 codes a lane, from registers to
// registers, so that two neighbouring lanes have the two blocks of the source that are one of the output.
//
//     16 codes -> the largest, times their scales, of two lanes -> scale of the output
//     8 magnitudes, times their scales and the factor -> 8 codes of the output, a table -> 16 codes
//
// A block has but eight magnitudes, so that codes are looked up, four at a time, by their low three bits. The scale above the
// blocks' and the factor of a block are one product (is_plain_product); codes that it does not serve, or a NaN, are made value
// by value and out of line.
//
// Where scales are compact, the blocks of a matrix lie one after the other, and a warp takes 256 of them; else a block of threads
// takes a tile of 128 x 128.
// Bytes an element: 0.56 read, 0.53 or 1.03 written.
#pragma once
#include "cuda/memory/decode.cuh"
#include "cuda/requantize/blocks_along.cuh"
#include "cuda/requantize/chunks_across.cuh"

namespace mxq::cuda {

struct Nvfp4Arguments {
    QuantizedPart from, to;
    int64_t blocks;  // of a matrix, where scales are not swizzled
    uint32_t down;   // tiles of 128 lines of a matrix, where they are
    ScaleSteps steps;
    Nonfinite nonfinite;
};

// Returns the value of a code of NVFP4, one of the 16 in two words.
__device__ __forceinline__ float nvfp4_value(const uint2& codes, int i, float scale, float global) {
    const uint32_t code = (i < 8 ? codes.x : codes.y) >> (i % 8 * 4) & 0xF;
    return multiply_rn(multiply_rn(decode<E2M1>(code), scale), global);
}

// Returns the largest magnitude of 16 codes, as bits. Out of line: for blocks with NaN or Inf.
__device__ __noinline__ uint32_t any_nvfp4_maximum(uint2 codes, Nonfinite policy, uint32_t scale, float global) {
    uint32_t largest = 0;
#pragma unroll 1
    for (int i = 0; i < kNvBlock; i++) {
        const float value = nvfp4_value(codes, i, decode<E4M3>(scale), global);
        largest = max(largest, policy == Nonfinite::Saturate ? amax_bits<Nonfinite::Saturate>(value)
                                                             : amax_bits<Nonfinite::Propagate>(value));
    }
    return largest;
}

// Makes 16 codes under any factors. Out of line: few need it.
template <class E>
__device__ __noinline__ ChunkCodes<E> any_nvfp4_block(uint2 codes, uint32_t scale, float global, float factor) {
    float values[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; i++) values[i] = nvfp4_value(codes, i, decode<E4M3>(scale), global);
    return quantize_values<E>(values, factor);
}

// 16 codes of a line, and the table that they are looked up in.
struct Nvfp4Codes {
    uint32_t words[2];
    uint32_t magnitudes[4];  // of four codes each, as permute_bytes takes them: in the lower half

    __device__ __forceinline__ explicit Nvfp4Codes(const uint2& codes) : words{codes.x, codes.y} {
#pragma unroll
        for (int w = 0; w < 2; w++) {
            magnitudes[2 * w] = words[w] & 0x77777777u;
            magnitudes[2 * w + 1] = magnitudes[2 * w] >> 16;
        }
    }
    // Returns the largest magnitude, as a code.
    __device__ __forceinline__ uint32_t largest() const {
        uint32_t seen = 0;  // bit c of a byte: code c is there
#pragma unroll
        for (const uint32_t four : magnitudes) seen |= permute_bytes(0x08040201u, 0x80402010u, four);
        seen |= seen >> 16;
        return 31 - __clz((seen | seen >> 8) & 0xFF);
    }
    // Makes codes of values under their scale and a factor.
    template <class E>
    __device__ __forceinline__ ChunkCodes<E> quantize(float scale, float factor) const {
        constexpr float all[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
        const auto product = [&](int i) { return multiply_rn(multiply_rn(all[i], scale), factor); };
        uint32_t table[2];  // of a byte each
        ChunkCodes<E> out;
        if constexpr (E::bits == 8) {
#pragma unroll
            for (int i = 0; i < 2; i++)
                table[i] = encode_pair<E>(product(4 * i), product(4 * i + 1)) |
                           encode_pair<E>(product(4 * i + 2), product(4 * i + 3)) << 16;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                // A negative code picks 0xFF, another one 0x80.
                const uint32_t signs =
                    permute_bytes(0x80808080u, 0x80808080u, i % 2 == 0 ? words[i / 2] : words[i / 2] >> 16);
                out.words[i] = permute_bytes(table[0], table[1], magnitudes[i]) ^ (signs << 1 & 0x80808080u);
            }
        } else {
            uint32_t pairs[4];
#pragma unroll
            for (int i = 0; i < 4; i++) pairs[i] = encode_e2m1_floats(product(2 * i), product(2 * i + 1));
            const uint32_t packed = mask_nibbles(pack_nibble_pairs(pairs), factor);
            const uint32_t even = packed & 0x0F0F0F0Fu, odd = packed >> 4 & 0x0F0F0F0Fu;
            table[0] = __byte_perm(even, odd, 0x5140), table[1] = __byte_perm(even, odd, 0x7362);
#pragma unroll
            for (int w = 0; w < 2; w++) {
                const uint32_t low = permute_bytes(table[0], table[1], magnitudes[2 * w]);
                const uint32_t high = permute_bytes(table[0], table[1], magnitudes[2 * w + 1]);
                out.words[w] = __byte_perm(low | low >> 4, high | high >> 4, 0x6420) ^ (words[w] & 0x88888888u);
            }
        }
        return out;
    }
};

// Makes and stores the codes of a lane's block of the source, whose other half its neighbour has, and returns the scale.
template <class E>
__device__ __forceinline__ uint32_t requantize_nvfp4_block(const Nvfp4Arguments& a, const uint2& codes, uint32_t byte,
                                                           float global, bool exists, uint8_t* to) {
    const float scale = decode_pair<E4M3>(byte).x;
    const Nvfp4Codes values(codes);
    uint32_t largest = float_bits(fabsf(multiply_rn(multiply_rn(decode<E2M1>(values.largest()), scale), global)));
    const bool finite = largest < kInfinityBits;
    if (!finite) largest = any_nvfp4_maximum(codes, a.nonfinite, byte, global);
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    const uint32_t of_block = scale_of(largest, a.steps);
    const float reciprocal = scale_reciprocal(of_block);
    float product;
    const bool plain = is_plain_product(largest, global, reciprocal, product) && finite;
    if (!exists) return 0;
    store_chunk(to, plain ? values.quantize<E>(scale, product) : any_nvfp4_block<E>(codes, byte, global, reciprocal));
    return of_block;
}

// The blocks of a matrix one after the other, scales too: a lane has every 32nd of 256.
template <class E>
__global__ void __launch_bounds__(kBlockThreads, 4)
    requantize_row_of_nvfp4_kernel(const __grid_constant__ Nvfp4Arguments a) {
    constexpr int sets = 2, of_set = 32 * kRequests;  // blocks of as many requests as a scale word has bytes
    const int64_t matrix = row_of_blocks(), lane = threadIdx.x % 32;
    const int64_t first = (int64_t(blockIdx.x) * (kBlockThreads / 32) + threadIdx.x / 32) * (sets * of_set);
    if (matrix >= a.from.matrices || first >= a.blocks) return;
    const int left = int(min(a.blocks - first, int64_t(sets * of_set)));
    const uint8_t* const codes_at = a.from.codes + matrix * a.from.matrix_bytes + (first + lane) * (kNvBlock / 2);
    const uint8_t* const scales_at = a.from.scales + matrix * a.from.layout.matrix_scales + first;
    const int word = (lane % kRequests * 8 + lane / kRequests) * 4;
    uint2 codes[sets][kRequests];
    uint32_t words[sets];
#pragma unroll
    for (int set = 0; set < sets; set++) {
#pragma unroll
        for (int i = 0; i < kRequests; i++) {
            const int block = set * of_set + i * 32;
            codes[set][i] =
                block + lane < left ? *reinterpret_cast<const uint2*>(codes_at + block * (kNvBlock / 2)) : uint2{};
        }
        words[set] = load_scale_word(scales_at + set * of_set + word, left - set * of_set - word);
    }
    const float global = global_scale(a.from, matrix);
    uint8_t* const to = a.to.codes + matrix * a.to.matrix_bytes + (first + lane) * (2 * E::bits);
    uint8_t* const scales_to = a.to.scales + matrix * a.to.layout.matrix_scales + first / 2;
    const int to_word = lane / 2 % kRequests * 16 + lane / 8 * 4;
#pragma unroll
    for (int set = 0; set < sets; set++) {
        const uint32_t bytes = transpose_scales(words[set]);
        uint32_t scales = 0;
#pragma unroll
        for (int i = 0; i < kRequests; i++) {
            const int block = set * of_set + i * 32;
            scales |= requantize_nvfp4_block<E>(a, codes[set][i], bytes >> (i * 8) & 0xFF, global, block + lane < left,
                                                to + block * (2 * E::bits))
                      << (i * 8);
        }
        scales = transpose_scales<2>(scales);
        const int before = set * of_set / 2 + to_word;
        if (lane % 2 == 0) store_scale_word(scales_to + before, scales, left / 2 - before);
    }
}

// A tile of 128 x 128 where scales are swizzled, a block of threads each, so that a warp has whole sectors of them:
//
//     lane     16 codes of a line, eight lanes side by side; four lines, 32 apart
//     words    of four blocks of the source: lane k of four moves that of request k; of the output: two of eight lanes
template <class E>
__global__ void __launch_bounds__(kBlockThreads, 4) requantize_nvfp4_tile_kernel(const __grid_constant__ Nvfp4Arguments a) {
    const uint32_t matrix = row_of_blocks() / a.down, tile = row_of_blocks() - matrix * a.down;
    if (matrix >= a.from.matrices) return;
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32 * 4 + lane / 8;
    const int64_t tile_line = int64_t(tile) * kSwizzleRows, first = int64_t(blockIdx.x) * kTile;
    const int64_t position = first + lane % 8 * kNvBlock;
    const int existing = position < a.from.length ? int(min(a.from.lines - tile_line, int64_t(kTile))) : 0;
    const uint8_t* const codes_at = a.from.line(matrix, tile_line + line) + position / 2;
    uint2 codes[kRequests];
#pragma unroll
    for (int i = 0; i < kRequests; i++)
        codes[i] =
            line + i * 32 < existing ? *reinterpret_cast<const uint2*>(codes_at + i * 32 * a.from.line_bytes) : uint2{};
    const TileScaleWord from(a.from, matrix, tile_line, line, lane % kRequests, first / kNvBlock + lane % 8 / 4 * 4);
    const uint32_t bytes = transpose_scales(load_scale_word(a.from.scales + from.index, from.count));
    const float global = global_scale(a.from, matrix);
    uint8_t* const to = a.to.line(matrix, tile_line + line) + position / 8 * E::bits;
    uint32_t scales = 0;
#pragma unroll
    for (int i = 0; i < kRequests; i++)
        scales |= requantize_nvfp4_block<E>(a, codes[i], bytes >> (i * 8) & 0xFF, global, line + i * 32 < existing,
                                            to + i * 32 * a.to.line_bytes)
                  << (i * 8);
    scales = transpose_scales<2>(scales);
    const TileScaleWord word(a.to, matrix, tile_line, line, lane / 2 % kRequests, first / kMxBlock);
    if (lane % 2 == 0) store_scale_word(a.to.scales + word.index, scales, word.count);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns whether a problem that requantize_chunks could take leaves NVFP4 in its lines, and wants nothing across them.
inline bool takes_nvfp4_along(const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    const bool along_alone = from.columnwise ? p.has_columnwise && !p.has_rowwise : p.has_rowwise && !p.has_columnwise;
    return along_alone && !p.grouped.set() && from.bits == 4 && from.scale_type == ScaleType::E4M3 &&
           from.layout.block == kNvBlock && from.layout.tile_rows == 1 && from.layout.repeat == 1 &&
           from.length % kMxBlock == 0 && p.tile.id == MXQ_SCALING_1X32;
}

inline Nvfp4Arguments nvfp4_arguments(const QuantizeProblem& p, const ScaleSteps& steps) {
    const QuantizedPart &from = p.source.quantized, &to = from.columnwise ? p.columnwise : p.rowwise;
    const bool swizzled = from.layout.swizzled || to.layout.swizzled;
    const int64_t blocks = swizzled ? 0 : from.lines * (from.length / kNvBlock);
    return {from, to, blocks, uint32_t(ceil_div(from.lines, int64_t(kTile))), steps, p.nonfinite};
}

inline dim3 nvfp4_grid(const Nvfp4Arguments& a) {
    constexpr int64_t of_block = kBlockThreads * kRequests * 2;  // blocks of the source
    if (a.blocks != 0) return grid_of_rows(ceil_div(a.blocks, of_block), a.from.matrices);
    return grid_of_rows(ceil_div(a.from.length, int64_t(kTile)), a.from.matrices * a.down);
}

}  // namespace mxq::cuda
