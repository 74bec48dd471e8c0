// The way of requantize_chunks for NVFP4 to MXFP8 and MXFP4 along the source's lines alone: 16 codes a lane, from registers
// to registers, so that two neighbouring lanes have the two blocks of the source that are one of the output.
//
//     16 codes -> the largest, times their scales, of two lanes -> scale of the output
//     scale of the block over that of the output: a quotient -> a table of 8 codes, of a magnitude each -> 16 codes
//
// A block has but eight magnitudes, and quotients that make a difference are few: each block of threads makes the tables of
// all of them under the scale above the blocks', and a lane looks its codes up, four at a time, by their low three bits.
// Where a lane of a warp has what tables do not serve, or a NaN, the warp makes codes value by value and out of line.
//
// Where scales are compact, the blocks of a matrix lie one after the other, and a warp takes 256 of them; else a block of
// threads takes a tile of 128 lines x 256 positions. Bytes an element: 0.56 read, 0.53 or 1.03 written.
#pragma once
#include "cuda/memory/decode.cuh"
#include "cuda/requantize/blocks_along.cuh"
#include "cuda/requantize/chunks_across.cuh"

namespace mxq::cuda {

constexpr int kNvfp4Sets = 2;  // of as many requests as a scale word has bytes

// Blocks of threads that share an SM: 64 registers a thread, of which code for sm_120 takes a few more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr int kNvfp4Blocks = 3;
#else
constexpr int kNvfp4Blocks = 4;
#endif

struct Nvfp4Arguments {
    QuantizedPart from, to;
    WordSteps from_words, to_words;
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

// The codes of the eight magnitudes of a block, for every quotient of the scales that they stand under and the scale of the
// output: the leading bits of the block's scale make it, since the scale above is the same for all.
template <class E>
struct Nvfp4Tables {
    // Exponents of quotients. Under the least, which stands for all below too, codes are zeros; under the most, which stands
    // for all above, magnitudes that are not zero are the largest code.
    static constexpr int least = -(E::bias + E::mantissa_bits) - 5, most = E::emax + 2, count = (most - least + 1) * 8;
    uint2 tables[count];  // of a byte each
    uint2 bits;           // 1 << code, of a byte each

    // Makes the tables of a scale above, by all threads. A barrier must follow.
    __device__ __forceinline__ void make(float global) {
        if (threadIdx.x == 0) bits = make_uint2(0x08040201u, 0x80402010u);
        const float fraction = bits_float((float_bits(global) & 0x807FFFFFu) | 0x3F800000u);
        for (int i = threadIdx.x; i < count; i += kBlockThreads)
            tables[i] = table_of(bits_float(uint32_t((127 + least) * 8 + i) << 20), fraction);
    }
    static __device__ __forceinline__ uint2 table_of(float scale, float global) {
        constexpr float all[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
        const auto product = [&](int i) { return multiply_rn(multiply_rn(all[i], scale), global); };
        uint32_t table[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if constexpr (E::bits == 8) {
                table[i] = encode_pair<E>(product(4 * i), product(4 * i + 1)) |
                           encode_pair<E>(product(4 * i + 2), product(4 * i + 3)) << 16;
            } else {
                const uint32_t low = encode_e2m1_floats(product(4 * i), product(4 * i + 1));
                table[i] = __byte_perm(low, encode_e2m1_floats(product(4 * i + 2), product(4 * i + 3)), 0x6420);
            }
        }
        return make_uint2(table[0], table[1]);
    }
};

// Holds the scale of a matrix above those of its blocks, as the tables take it.
struct QuotientBase {
    float value;
    int place;    // what it adds to the place of a quotient
    bool serves;  // normal

    template <class E>
    static __device__ __forceinline__ QuotientBase of(float value) {
        const int exponent = float_bits(value) >> 23 & 0xFF;
        return {value, (exponent - 15 - Nvfp4Tables<E>::least) * 8, exponent != 0 && exponent != 0xFF};
    }
};

// 16 codes of a line.
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
    // Returns the largest magnitude in F16, in the lower half. `bits` are those of Nvfp4Tables.
    __device__ __forceinline__ uint32_t largest(const uint2& bits) const {
        uint32_t seen = 0;  // bit c of a byte: code c is there
#pragma unroll
        for (const uint32_t four : magnitudes) seen |= permute_bytes(bits.x, bits.y, four);
        seen |= seen >> 16;
        uint32_t code;
        asm("bfind.u32 %0, %1;" : "=r"(code) : "r"((seen | seen >> 8) & 0xFF));
        return permute_bytes(0x3E3C3800u, 0x46444240u,
                             code << 4);  // the upper bytes of 0 to 6, one of them as the second byte
    }
    // Looks codes up.
    template <class E>
    __device__ __forceinline__ ChunkCodes<E> look_up(const uint2& table) const {
        ChunkCodes<E> out;
#pragma unroll
        for (int w = 0; w < 2; w++) {
            const uint32_t low = permute_bytes(table.x, table.y, magnitudes[2 * w]);
            const uint32_t high = permute_bytes(table.x, table.y, magnitudes[2 * w + 1]);
            if constexpr (E::bits == 8) {
                const uint32_t even = words[w] << 4, odd = words[w];  // with signs where codes have theirs
                out.words[2 * w] = low ^ (__byte_perm(even, odd, 0x5140) & 0x80808080u);
                out.words[2 * w + 1] = high ^ (__byte_perm(even, odd, 0x7362) & 0x80808080u);
            } else {
                out.words[w] = __byte_perm(low + (low >> 4), high + (high >> 4), 0x6420) ^ (words[w] & 0x88888888u);
            }
        }
        return out;
    }
};

// Makes and stores the codes of a lane's block of the source value by value, and returns the scale. Out of line: few need
// it.
template <class E>
__device__ __noinline__ uint32_t requantize_any_nvfp4(const Nvfp4Arguments& a, uint2 codes, uint32_t byte, float global,
                                                      bool exists, uint8_t* to) {
    const uint32_t largest = any_nvfp4_maximum(codes, a.nonfinite, byte, global);
    const uint32_t scale = scale_of(max(largest, __shfl_xor_sync(kAllLanes, largest, 1)), a.steps);
    if (!exists) return 0;
    store_chunk(to, any_nvfp4_block<E>(codes, byte, global, scale_reciprocal(scale)));
    return scale;
}

// Makes and stores the codes of a lane's blocks of the source, of which its neighbour has the other halves of blocks of the
// output, and returns the scales, a byte each. exists(i) and to(i) are of block i.
template <class E, class Exists, class To>
__device__ __forceinline__ uint32_t requantize_nvfp4_blocks(const Nvfp4Arguments& a, const Nvfp4Tables<E>& tables,
                                                            const uint2 (&codes)[kBlockRequests], uint32_t bytes,
                                                            const QuotientBase& global, const Exists& exists, const To& to) {
    bool served = global.serves;
    uint32_t of_blocks[kBlockRequests / 2], scales = 0;
    decode_word_to_f16<E4M3>(bytes, of_blocks[0], of_blocks[1]);
    const uint2 bits = tables.bits;
#pragma unroll
    for (int i = 0; i < kBlockRequests; i++) {
        const Nvfp4Codes values(codes[i]);
        const uint32_t scale = i % 2 ? of_blocks[i / 2] >> 16 : of_blocks[i / 2] & 0xFFFF;
        const F16 product{uint16_t(multiply_f16_pairs(values.largest(bits), scale))};  // exact
        const uint32_t mine = float_bits(multiply_rn(to_float(product), fabsf(global.value)));
        const uint32_t largest = max(mine, __shfl_xor_sync(kAllLanes, mine, 1));
        const uint32_t of_block = scale_of(largest, a.steps);
        // Factors from 2^-100 to 2^107 change no product that is not far below any code. NaN and Inf have a larger scale, and so
        // has a block of the source whose scale is negative: the sign is the highest bit of its maximum.
        served = served && (largest == 0 || of_block - 20 <= 227 - 20);
        const int place = mine == 0 ? 0 : int(scale >> 7) + global.place - int(of_block) * 8;
        if (exists(i)) {
            store_chunk(to(i), values.look_up<E>(tables.tables[min(max(place, 0), tables.count - 1)]));
            scales |= of_block << (i * 8);
        }
    }
    if (__all_sync(kAllLanes, served)) return scales;
    scales = 0;
    for (int i = 0; i < kBlockRequests; i++)
        scales |= requantize_any_nvfp4<E>(a, codes[i], bytes >> (i * 8) & 0xFF, global.value, exists(i), to(i)) << (i * 8);
    return scales;
}

// The blocks of a matrix one after the other, scales too: a lane has every 32nd of 256.
template <class E>
__global__ void __launch_bounds__(kBlockThreads, kNvfp4Blocks)
    requantize_row_of_nvfp4_kernel(const __grid_constant__ Nvfp4Arguments a) {
    constexpr int of_set = 32 * kBlockRequests;  // blocks of as many requests as a scale word has bytes
    __shared__ Nvfp4Tables<E> tables;
    const int64_t matrix = row_of_blocks();
    const int64_t first = (int64_t(blockIdx.x) * (kBlockThreads / 32) + threadIdx.x / 32) * (kNvfp4Sets * of_set);
    if (matrix >= a.from.matrices) return;
    const int left = int(max(min(a.blocks - first, int64_t(kNvfp4Sets * of_set)), int64_t(0))), lane = threadIdx.x % 32;
    const uint8_t* const codes_at = a.from.codes + matrix * a.from.matrix_bytes + (first + lane) * (kNvBlock / 2);
    const uint8_t* const scales_at = a.from.scales + matrix * a.from.layout.matrix_scales + first;
    const int word = (lane % kBlockRequests * 8 + lane / kBlockRequests) * 4;
    uint2 codes[kNvfp4Sets][kBlockRequests];
    uint32_t words[kNvfp4Sets];
#pragma unroll
    for (int set = 0; set < kNvfp4Sets; set++) {
#pragma unroll
        for (int i = 0; i < kBlockRequests; i++) {
            const int block = set * of_set + i * 32;
            codes[set][i] =
                block + lane < left ? *reinterpret_cast<const uint2*>(codes_at + block * (kNvBlock / 2)) : uint2{};
        }
        words[set] = load_scale_word(scales_at + set * of_set + word, left - set * of_set - word);
    }
    const auto global = QuotientBase::of<E>(global_scale(a.from, matrix));
    tables.make(global.value);
    __syncthreads();
    uint8_t* to = a.to.codes + matrix * a.to.matrix_bytes + (first + lane) * (2 * E::bits);
    asm("" : "+l"(to));  // kept: else it is made again for every block
    uint8_t* const scales_to = a.to.scales + matrix * a.to.layout.matrix_scales + first / 2;
    const int to_word = lane / 2 % kBlockRequests * 16 + lane / 8 * 4;
#pragma unroll
    for (int set = 0; set < kNvfp4Sets; set++) {
        const auto exists = [&](int i) { return set * of_set + i * 32 + lane < left; };
        const auto to_block = [&](int i) { return to + (set * of_set + i * 32) * (2 * E::bits); };
        const uint32_t scales = transpose_scales<2>(
            requantize_nvfp4_blocks(a, tables, codes[set], transpose_scales(words[set]), global, exists, to_block));
        const int before = set * of_set / 2 + to_word;
        if (lane % 2 == 0) store_scale_word(scales_to + before, scales, left / 2 - before);
    }
}

// A tile of 128 lines x 256 positions where scales are swizzled, a block of threads each, so that a warp has whole sectors
// of them:
//
//     lane     16 codes of a line, 16 lanes side by side; twice four lines, 32 apart
//     words    of four blocks of the source: lane k of four moves that of request k; of the output: two of eight lanes
template <class E>
__global__ void __launch_bounds__(kBlockThreads, kNvfp4Blocks)
    requantize_nvfp4_tile_kernel(const __grid_constant__ Nvfp4Arguments a) {
    constexpr int side = 16, between = 32 / kNvfp4Sets;  // lanes of a line; lines from a set to the next
    __shared__ Nvfp4Tables<E> tables;
    const BlockLines lines(a.from, a.down);
    if (lines.existing <= 0) return;
    const int lane = threadIdx.x % 32, line = threadIdx.x / side;
    const int64_t position = int64_t(blockIdx.x) * (side * kNvBlock) + lane % side * kNvBlock;
    const int existing = position < a.from.length ? lines.existing : 0;
    const uint8_t* const codes_at = a.from.line(lines.matrix, lines.first + line) + position / 2;
    uint2 codes[kNvfp4Sets][kBlockRequests];
    uint32_t words[kNvfp4Sets];
    TileScaleWord from(a.from, a.from_words, lines, line, lane % kBlockRequests, blockIdx.x * 4 + lane % side / 4);
#pragma unroll
    for (int set = 0; set < kNvfp4Sets; set++, from.go_down(a.from_words, between)) {
#pragma unroll
        for (int i = 0; i < kBlockRequests; i++) {
            const int below = set * between + i * 32;
            codes[set][i] =
                line + below < existing ? *reinterpret_cast<const uint2*>(codes_at + below * a.from.line_bytes) : uint2{};
        }
        words[set] = load_scale_word(from.at, from.count());
    }
    const auto global = QuotientBase::of<E>(global_scale(a.from, lines.matrix));
    tables.make(global.value);
    __syncthreads();
    uint8_t* to = a.to.line(lines.matrix, lines.first + line) + position / 8 * E::bits;
    asm("" : "+l"(to));  // kept: else it is made again for every block
    TileScaleWord word(a.to, a.to_words, lines, line, lane / 2 % kBlockRequests, blockIdx.x * 2 + lane % side / 8);
#pragma unroll
    for (int set = 0; set < kNvfp4Sets; set++, word.go_down(a.to_words, between)) {
        const auto exists = [&](int i) { return line + set * between + i * 32 < existing; };
        const auto to_block = [&](int i) { return to + (set * between + i * 32) * a.to.line_bytes; };
        const uint32_t scales = transpose_scales<2>(
            requantize_nvfp4_blocks(a, tables, codes[set], transpose_scales(words[set]), global, exists, to_block));
        if (lane % 2 == 0) store_scale_word(word.at, scales, word.count());
    }
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
    const uint32_t down = uint32_t(ceil_div(from.lines, int64_t(kTile)));
    return {from, to, WordSteps(from.layout), WordSteps(to.layout), blocks, down, steps, p.nonfinite};
}

inline dim3 nvfp4_grid(const Nvfp4Arguments& a) {
    constexpr int64_t of_block = kBlockThreads * kBlockRequests * kNvfp4Sets;  // blocks of the source
    if (a.blocks != 0) return grid_of_rows(ceil_div(a.blocks, of_block), a.from.matrices);
    return grid_of_rows(ceil_div(a.from.length, int64_t(2 * kTile)), a.from.matrices * a.down);
}

}  // namespace mxq::cuda
