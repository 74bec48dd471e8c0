// Operands of mma_bf16 from global memory to shared: 16 codes of a K-major row at a time ("a chunk") in registers, then as
// BF16 numbers in a buffer.
//
//     8 bits      16 bytes    one load        converted by moving bits and one multiplication
//     4 bits       8 bytes    one load        the same with two
//     16 bits     32 bytes    two loads       put into the order of the others
//     any width    8 words, fewer at the end of a row, or byte by byte; the width is known at run time (6 bits are only here)
//     MN-major    16 codes of as many stored rows, one by one, and their scales: in registers they are BF16 or F16 already
//     split       16 bits of F16, of which a step stores the low parts or the high ones (numerics/split_f16.h)
//
// A buffer has kStep numbers of every K-major row of the tile, A's rows first. Row L: 8 x 16 bytes, the j-th at j ^ (L %
// 8). Four numbers are stored in the order 0, 2, 1, 3.
#pragma once
#include "cuda/mma_bf16/instructions.cuh"
#include "cuda/mma_bf16/tile.cuh"
#include "numerics/split_f16.h"

namespace mxq::cuda::mma {

constexpr int kChunkCodes = 16;
constexpr int kChunkLines = kThreads / 4;  // from a thread's row to its next
constexpr int kAChunks = kTileRows / kChunkLines;
constexpr int kLineBytes = 2 * kStep;

// Widths that are known at run time: all of them, K-major; 8 and 16, for scales of 128; all of them, K-major or MN-major.
constexpr int kAny = 0, kAnyWide = 1, kAcross = 2;
template <int kBits>
constexpr bool is_any = kBits <= kAcross;

template <int kBits>
__device__ __forceinline__ int32_t bits_of(const LoopOperand& operand) {
    return is_any<kBits> ? operand.bits : kBits;
}

// The scale that is read for operands without block scales.
__device__ const uint8_t kScaleOfOne = 127;

// A step: 64 of the contraction. `high`: the parts of A's numbers, where A is split.
struct Step {
    int32_t number;
    bool high;
};

// What one thread reads in the current step.
template <class Kind>
struct Reader {
    const uint8_t *a_codes, *b_codes;    // its first chunk of A and of B
    const uint8_t *a_scales, *b_scales;  // its first scale of A and of B
    uint32_t present;  // bit c: the row of chunk c exists
    int32_t step;
    int32_t left;      // codes from its first one to the end of the contraction
    bool high = false;  // where A is split: its parts
    Step before{};      // where A is split: the step before this one

    __device__ Reader(const Arguments& args, const Tile& tile) {
        const GemmProblem& p = args.problem;
        const int quarter = threadIdx.x % 4, line = threadIdx.x / 4;
        const int64_t row = tile.row + line, column = tile.column + line;
        a_codes = first_codes(p.a, tile.a, row, quarter);
        b_codes = first_codes(p.b, tile.b, column, quarter);
        a_scales = first_scale(args.a, tile.a, row, quarter);
        b_scales = first_scale(args.b, tile.b, column, quarter);
        present = 0;
        for (int c = 0; c < Kind::chunks; c++) {
            const bool exists = c < kAChunks ? row + c * kChunkLines < tile.m : column + (c - kAChunks) * kChunkLines < p.n;
            present |= uint32_t(exists) << c;
        }
        keep(present);
        step = 0;
        left = int32_t(min(tile.k, int64_t(MXQ_MAX_DIM))) - kChunkCodes * quarter;
    }

    // Goes on to the next step. Where A is split, the end of K with low parts is followed by its beginning with high parts.
    __device__ __forceinline__ void advance(const Arguments& args, const Tile& tile) {
        const Step at{step, high};
        a_codes += bits_of<Kind::a_bits>(args.a) * (kStep / 8);
        b_codes += bits_of<Kind::b_bits>(args.b) * (kStep / 8);
        a_scales += step % 2 ? args.a.scale_advance[1] : args.a.scale_advance[0];
        b_scales += step % 2 ? args.b.scale_advance[1] : args.b.scale_advance[0];
        step++;
        left -= kStep;
        if constexpr (Kind::splits) {
            if (!high && step * int64_t(kStep) >= tile.k) *this = Reader(args, tile), high = true;
            before = at;
        }
    }
    // Returns the step whose chunks are being converted.
    __device__ __forceinline__ Step previous() const {
        if constexpr (Kind::splits) return before;
        return {step - 1, false};
    }

private:
    __device__ static const uint8_t* first_codes(const GemmOperand& operand, const TileOperand& at, int64_t line, int quarter) {
        return at.codes + line * operand.line_bytes + 2 * operand.bits * quarter;
    }
    __device__ static const uint8_t* first_scale(const LoopOperand& operand, const TileOperand& at, int64_t line, int quarter) {
        if (!operand.scaled) return &kScaleOfOne;
        return at.scales + scale_line(at.layout, line) + scale_in_line(at.layout, kChunkCodes * quarter);
    }
};

// ---- From global memory --------------------------------------------------------------------------------------------------

template <int kBits>
struct Chunk {
    uint32_t words[is_any<kBits> ? 8 : kBits / 2];
    uint32_t scale;
};

template <class Kind>
struct Chunks {
    Chunk<Kind::a_bits> a[kAChunks];
    Chunk<Kind::b_bits> b[Kind::chunks - kAChunks];
};

__device__ __forceinline__ uint32_t load_bytes(const uint8_t* from, int32_t count) {
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < count) word |= uint32_t(__ldg(from + i)) << (8 * i);
    return word;
}

__device__ __forceinline__ void load_words(uint32_t (&words)[4], const uint8_t* from) {
    const uint4 v = load_once(from);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
}

__device__ __forceinline__ void load_words(uint32_t (&words)[2], const uint8_t* from) {
    const uint2 v = load_once_8(from);
    words[0] = v.x, words[1] = v.y;
}

// Loads both halves of a 32-byte sector, by way of the L1 cache.
__device__ __forceinline__ void load_words(uint32_t (&words)[8], const uint8_t* from) {
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(from)), w = __ldg(reinterpret_cast<const uint4*>(from) + 1);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    words[4] = w.x, words[5] = w.y, words[6] = w.z, words[7] = w.w;
}

// Loads 16 codes of any width. `codes`: how many there are from here on.
__device__ __forceinline__ void load_any_words(uint32_t (&words)[8], const uint8_t* from, int32_t bits, bool aligned,
                                               int32_t codes) {
    const int32_t count = bits / 2, bytes = (min(codes, kChunkCodes) * bits + 7) / 8;
    if (aligned) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < count) words[i] = __ldg(reinterpret_cast<const uint32_t*>(from) + i);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < count) words[i] = load_bytes(from + 4 * i, bytes - 4 * i);
    }
}

template <int kBits>
__device__ __forceinline__ Chunk<kBits> load_chunk(const Arguments& args, const LoopOperand& operand, const uint8_t* codes,
                                                   const uint8_t* scale, int32_t left) {
    Chunk<kBits> chunk{};
    chunk.scale = __ldg(scale);
    if constexpr (is_any<kBits>) load_any_words(chunk.words, codes, operand.bits, args.aligned, left);
    else load_words(chunk.words, codes);
    return chunk;
}

// Returns a number as tensor cores take it: BF16 or F16 as it is, a code times the scale of its block as BF16.
__device__ __forceinline__ uint32_t number_at(const GemmOperand& operand, const TileOperand& at, const Stored& stored) {
    if (operand.scale_type == ScaleType::None) return code_at(16, at.codes + stored.line * operand.line_bytes, stored.code);
    return decode_to_bf16_exactly(element_at(operand, operand.bits, at, stored.line, stored.code),
                                  block_scale_at(operand, operand.bits, at, stored.line, stored.code));
}

// Loads 16 numbers of an MN-major operand from number k on. `left`: how many there are.
__device__ __noinline__ Chunk<kAcross> load_across(const GemmOperand& operand, const TileOperand& at, uint32_t line,
                                                   uint32_t k, int32_t left) {
    Chunk<kAcross> chunk{{}, kScaleOfOne};
#pragma unroll
    for (int i = 0; i < kChunkCodes; i++)
        if (i < left) chunk.words[i / 2] |= number_at(operand, at, stored_at(true, line, k + i)) << (16 * (i % 2));
    return chunk;
}

// Loads chunk c of the reader's step; zeros where there are no codes.
template <class Kind>
__device__ __forceinline__ void load_chunk(const Arguments& args, const Tile& tile, const Reader<Kind>& reader, int c,
                                           Chunks<Kind>& chunks) {
    const int i = c < kAChunks ? c : c - kAChunks;
    const uint32_t present = reader.left > 0 ? reader.present : 0;
    const bool exists = present & (1u << c);
    if constexpr (Kind::across) {
        const uint32_t line = threadIdx.x / 4 + i * kChunkLines, k = reader.step * kStep + threadIdx.x % 4 * kChunkCodes;
        if (exists && c < kAChunks && args.a.across) {
            chunks.a[i % kAChunks] = load_across(args.problem.a, tile.a, uint32_t(tile.row) + line, k, reader.left);
            return;
        }
        if (exists && c >= kAChunks && args.b.across) {
            chunks.b[i] = load_across(args.problem.b, tile.b, uint32_t(tile.column) + line, k, reader.left);
            return;
        }
    }
    if (c < kAChunks) {
        Chunk<Kind::a_bits>& chunk = chunks.a[i % kAChunks];
        chunk = {};
        if (exists)
            chunk = load_chunk<Kind::a_bits>(args, args.a, reader.a_codes + args.a.code_steps[i],
                                             reader.a_scales + args.a.scale_steps[i % 2], reader.left);
    } else {
        Chunk<Kind::b_bits>& chunk = chunks.b[i];
        chunk = {};
        if (exists)
            chunk = load_chunk<Kind::b_bits>(args, args.b, reader.b_codes + args.b.code_steps[i],
                                             reader.b_scales + (i < 2 ? 0 : tile.b_far_scale) + args.b.scale_steps[i % 2],
                                             reader.left);
    }
}

// ---- BF16 into shared memory ---------------------------------------------------------------------------------------------

// Returns where this thread's first chunk lies in a buffer; the second half of each chunk is 16 bytes before or after the
// first.
__device__ __forceinline__ uint32_t first_offset() {
    const uint32_t line = threadIdx.x / 4, quarter = threadIdx.x % 4;
    return line * kLineBytes + ((2 * quarter) ^ (line % 8)) * 16;
}

__device__ __forceinline__ uint32_t half_offset(uint32_t first, int c, int h) {
    return (first ^ (16 * h)) + c * kChunkLines * kLineBytes;
}

// What a thread found: bits of kSpecialMarks in `special` where a conversion was not right, and other bits in `tiny` where
// products may be below fp32's range.
struct Met {
    uint32_t special, tiny;
};

__device__ __forceinline__ uint4 together(const EvenOddBf16& low, const EvenOddBf16& high) {
    return {low.even, low.odd, high.even, high.odd};
}

__device__ __forceinline__ uint4 convert_8(const LoopOperand& operand, uint32_t first, uint32_t second, uint32_t scale,
                                           Met& met) {
    const uint32_t multiplier = bf16_e8m0_factor(operand.rule, scale);
    met.special |= mark_special_codes(operand.rule, first) | mark_special_codes(operand.rule, second);
    if (scale < operand.tiny_below) met.tiny |= first | second;
    return together(decode_8_bits_to_bf16(operand.rule, first, multiplier),
                    decode_8_bits_to_bf16(operand.rule, second, multiplier));
}

__device__ __forceinline__ uint4 convert_6(const LoopOperand& operand, uint32_t first, uint32_t second, uint32_t scale,
                                           Met& met) {
    const uint32_t multiplier = bf16_e8m0_factor(operand.rule, scale);
    if (scale < operand.tiny_below) met.tiny |= (first | second) & 0x1F1F1F1Fu;
    return together(decode_6_bits_to_bf16(operand.rule, first, multiplier),
                    decode_6_bits_to_bf16(operand.rule, second, multiplier));
}

__device__ __forceinline__ uint4 convert_4(const LoopOperand& operand, uint32_t word, uint32_t scale, Met& met) {
    const uint32_t multiplier = bf16_scale_factor(operand.rule, scale);
    if (scale < operand.tiny_below) met.tiny |= word & 0x77777777u;
    return together(decode_4_bits_to_bf16(operand.rule, word, 0, multiplier),
                    decode_4_bits_to_bf16(operand.rule, word, 1, multiplier));
}

__device__ __forceinline__ uint4 convert_16(const LoopOperand& operand, const uint32_t* words, Met& met) {
    uint32_t tiny = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) tiny |= mark_tiny_bf16(words[i], operand.tiny_below);
    met.tiny |= (tiny & kSignsOfBothHalves) >> 9;
    return together(split_even_odd_bf16(words[0], words[1]), split_even_odd_bf16(words[2], words[3]));
}

// Takes the low or the high parts of F16 numbers.
__device__ __forceinline__ uint4 convert_split(const uint32_t* words, bool high) {
    return together(split_even_odd_bf16(parts_of_pair(words[0], high), parts_of_pair(words[1], high)),
                    split_even_odd_bf16(parts_of_pair(words[2], high), parts_of_pair(words[3], high)));
}

// Converts half h of a chunk.
template <int kBits>
__device__ __forceinline__ uint4 convert_half(const LoopOperand& operand, const Chunk<kBits>& chunk, int h, Met& met) {
    const auto& w = chunk.words;
    if constexpr (kBits == 8) {
        return convert_8(operand, w[2 * h], w[2 * h + 1], chunk.scale, met);
    } else if constexpr (kBits == 4) {
        return convert_4(operand, w[h], chunk.scale, met);
    } else if constexpr (kBits == 16) {
        return convert_16(operand, w + 4 * h, met);
    } else {
        if (operand.bits == 8) return convert_8(operand, w[2 * h], w[2 * h + 1], chunk.scale, met);
        if (kBits == kAnyWide || operand.bits == 16) return convert_16(operand, w + 4 * h, met);
        if (operand.bits == 4) return convert_4(operand, w[h], chunk.scale, met);
        const uint32_t first = h == 0 ? w[0] : w[1] >> 16 | w[2] << 16;
        const uint32_t second = h == 0 ? w[0] >> 24 | w[1] << 8 : w[2] >> 8;
        return convert_6(operand, unpack_4<6>(first), unpack_4<6>(second), chunk.scale, met);
    }
}

template <int kBits>
__device__ __forceinline__ void store_half(const LoopOperand& operand, const Chunk<kBits>& chunk, int h, uint8_t* to,
                                           Met& met) {
    *reinterpret_cast<uint4*>(to) = convert_half<kBits>(operand, chunk, h, met);
    if (kBits != 16 && h == 0 && is_special_scale(operand.rule, chunk.scale)) met.special = ~0u;
    keep(met.special);
}

// Converts this thread's part of a step again, for any codes and scales. It reads one code at a time again, since few
// registers are free here.
template <class Kind>
__device__ __forceinline__ void convert_exactly(const Arguments& args, const Tile& tile, const Step& step, uint8_t* buffer) {
#pragma unroll 1
    for (uint32_t n = 0; n < Kind::chunks * kChunkCodes; n++) {
        const uint32_t c = n / kChunkCodes, i = n % kChunkCodes;
        const bool is_a = c < kAChunks;
        const uint32_t line = uint32_t(is_a ? tile.row : tile.column - kTileRows) + threadIdx.x / 4 + c * kChunkLines;
        const uint32_t k = step.number * kStep + threadIdx.x % 4 * kChunkCodes + i;
        uint32_t value = 0;
        if (k < tile.k && line < (is_a ? tile.m : args.problem.n)) {
            const GemmOperand& operand = is_a ? args.problem.a : args.problem.b;
            const TileOperand& at = is_a ? tile.a : tile.b;
            if constexpr (Kind::across) {
                value = number_at(operand, at, stored_at(operand.across, line, k));
                if (Kind::splits && is_a) value = parts_of_pair(value, step.high);
            } else {
                const int32_t bits = is_a ? bits_of<Kind::a_bits>(args.a) : bits_of<Kind::b_bits>(args.b);
                const float element = element_at(operand, bits, at, line, k);
                value = decode_to_bf16_exactly(element, block_scale_at(operand, bits, at, line, k));
            }
        }
        const uint32_t half = (i & 4) | (i & 1) << 1 | (i >> 1 & 1);
        reinterpret_cast<uint16_t*>(buffer + half_offset(first_offset(), c, i / 8))[half] = uint16_t(value);
    }
}

// The barrier after which a buffer is complete and right. The buffer holds the step before the reader's. The reader loads
// its own chunks again, so that they take no registers meanwhile.
template <class Kind>
__device__ __forceinline__ void complete(const Arguments& args, const Tile& tile, const Reader<Kind>& reader, uint8_t* buffer,
                                         Met& met, Chunks<Kind>& chunks) {
    if (__syncthreads_or(met.special & kSpecialMarks)) {
        convert_exactly<Kind>(args, tile, reader.previous(), buffer);
#pragma unroll
        for (int c = 0; c < Kind::chunks; c++) load_chunk(args, tile, reader, c, chunks);
        __syncthreads();
    }
    met.special = 0;
}

}  // namespace mxq::cuda::mma
