// The way of requantize_chunks for MXFP8 to MXFP8 and FP8 with one scale for a line, along the source's lines alone: a warp
// has a line, and reads it twice, the second time from a cache.
//
//     lane     16 codes of each 512, four such loads in flight
//     first    codes -> F16 pairs -> maximum times the block's scale -> maximum of the line -> its scale
//     then     codes -> F16 pairs times one factor a block, of FP8 in fp32 -> codes                   (chunks_along.cuh)
//     scales   compact, one by each warp; swizzled, a line's words lie among those of seven others, which other warps
//              have: line 2 i of a tile, those 32, 64 and 96 below it, and the line after each, so that sectors are whole
//
// Bytes an element: 1.03 read from memory once, 1 written.
#pragma once
#include "cuda/memory/grid.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/requantize/chunks_along.cuh"
#include "numerics/fp8_scale.h"

namespace mxq::cuda {

constexpr int kRowThreads = 256, kRowLoads = 4, kRowWarps = kRowThreads / 32;

// Blocks that share an SM: 64 registers a thread. Below sm_89 codes are converted in software, which takes more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kRowBlocks = 3;
#else
constexpr int kRowBlocks = 4;
#endif

struct RowArguments {
    QuantizedPart from, to;
    ScaleSteps steps;     // of MX
    Nonfinite nonfinite;  // of maxima
    Fp8Rule rule;         // of FP8
};

// Which lines a block of threads takes, a warp each.
struct RowPlace {
    int64_t matrix, first;
    bool swizzled;

    __device__ __forceinline__ explicit RowPlace(const QuantizedPart& to) : swizzled(to.layout.swizzled) {
        const int64_t all = swizzled ? round_up_to_power(to.lines, kSwizzleRows) : round_up_to_power(to.lines, kRowWarps);
        const int64_t block = block_index(), blocks = all / kRowWarps;
        matrix = block / blocks;
        first = (block - matrix * blocks) * kRowWarps;
        if (swizzled) first = first / kSwizzleRows * kSwizzleRows + first % kSwizzleRows / 4;
    }
    __device__ __forceinline__ int64_t line(int index) const {
        return first + (swizzled ? index / 4 + index % 4 * 32 : index);
    }
};

// A line as a warp takes it.
struct SourceLine {
    const QuantizedPart& from;
    int64_t matrix, line;
    const uint8_t* codes;
    int shift;

    __device__ __forceinline__ SourceLine(const QuantizedPart& part, int64_t matrix, int64_t line)
        : from(part),
          matrix(matrix),
          line(line),
          codes(part.line(matrix, line)),
          shift(log2_of(uint32_t(part.layout.block))) {}
    __device__ __forceinline__ float scale(int64_t code) const {
        return scale_value(from.scales[from.layout.offset(matrix, line, code >> shift)]);
    }
    // Calls take(code, its chunk, scale) for each of the lane's chunks.
    template <class Take>
    __device__ __forceinline__ void each_chunk(const Take& take) const {
#pragma unroll 1
        for (int64_t first = threadIdx.x % 32 * kChunk; first < from.length; first += 32 * kChunk * kRowLoads) {
            uint4 chunks[kRowLoads];
            float scales[kRowLoads];
#pragma unroll
            for (int i = 0; i < kRowLoads; i++) {
                const int64_t code = first + i * 32 * kChunk;
                const bool exists = code < from.length;
                chunks[i] = exists ? *reinterpret_cast<const uint4*>(codes + code) : uint4{};
                scales[i] = exists ? scale(code) : 0;
            }
#pragma unroll
            for (int i = 0; i < kRowLoads; i++)
                if (const int64_t code = first + i * 32 * kChunk; code < from.length) take(code, chunks[i], scales[i]);
        }
    }
};

// Returns the largest magnitude of a line, as bits, to all lanes of its warp.
template <class S, class E>
__device__ __forceinline__ uint32_t largest_of_line(const RowArguments& a, const SourceLine& line) {
    uint32_t largest = 0;
    line.each_chunk([&](int64_t, const uint4& chunk, float scale) {
        largest = max(largest, float_bits(multiply_rn(LineChunks<S, E>(&chunk).largest(), scale)));
    });
    largest = __reduce_max_sync(kAllLanes, largest);
    if (largest < kInfinityBits) return largest;
    largest = 0;
    line.each_chunk([&](int64_t code, const uint4&, float scale) {
        largest = max(largest, any_maximum_of<S, kChunk>(line.codes + code, a.nonfinite, scale));
    });
    return __reduce_max_sync(kAllLanes, largest);
}

// Holds the scale of a line of MX, a byte. Fp8RowScale holds that of a line of FP8, an fp32 number, and the maximum.
template <class S, class E>
struct MxRowScale {
    uint32_t scale = 0;
    float multiplier = 0;  // of values

    __device__ __forceinline__ MxRowScale() = default;
    __device__ __forceinline__ MxRowScale(const RowArguments& a, uint32_t largest)
        : scale(scale_of(largest, a.steps)), multiplier(scale_reciprocal(scale)) {}
    // Makes 16 codes; false: the factor, a scale of the source times the multiplier, does not serve.
    __device__ __forceinline__ bool quantize(const uint4& chunk, float factor, ChunkCodes<E> (&out)[1]) const {
        if (!can_requantize_via_f16<typename S::Bytes, E>(factor)) return false;
        LineChunks<S, E>(&chunk).quantize(factor, false, out);
        return true;
    }
};

template <class S, class E>
struct Fp8RowScale {
    float largest = 0, multiplier = 0;

    __device__ __forceinline__ Fp8RowScale() = default;
    __device__ __forceinline__ Fp8RowScale(const RowArguments& a, uint32_t largest)
        : largest(bits_float(largest)), multiplier(fp8_quantization_scale(bits_float(largest), a.rule)) {}
    // Makes 16 codes; false: the factor is 2^100 or more, or NaN. One below fp32's normal numbers leaves nothing but signs.
    __device__ __forceinline__ bool quantize(const uint4& chunk, float factor, ChunkCodes<E> (&out)[1]) const {
        out[0] = LineChunks<S, E>(&chunk).quantize_floats(factor);
        return factor < 0x1p100f;
    }
};

// Stores the codes of a line under its scale; `plain`: the line has neither NaN nor Inf.
template <class S, class E, class Scale>
__device__ __forceinline__ void emit_line(const RowArguments& a, const SourceLine& line, bool plain, const Scale& of_line) {
    uint8_t* const to = a.to.line(line.matrix, line.line);
    line.each_chunk([&](int64_t code, const uint4& chunk, float scale) {
        ChunkCodes<E> out[1];
        if (!plain || !of_line.quantize(chunk, multiply_rn(scale, of_line.multiplier), out))
            out[0] = any_chunk_codes<S, E>(line.codes + code, scale, of_line.multiplier);
        store_chunks(to + code, out);
    });
}

// Stores the scale of each warp's line, in a swizzled layout at every column; zeros where no line is.
__device__ __forceinline__ void store_row_scales(const QuantizedPart& to, const RowPlace& place, bool exists,
                                                 uint32_t scale) {
    const int warp = threadIdx.x / 32;
    if (!place.swizzled) {
        if (exists && threadIdx.x % 32 == 0) to.scales[to.layout.offset(place.matrix, place.line(warp), 0)] = uint8_t(scale);
        return;
    }
    __shared__ uint32_t words[kRowWarps];
    if (threadIdx.x % 32 == 0) words[warp] = exists ? scale * 0x01010101u : 0;
    __syncthreads();
    const int index = threadIdx.x % kRowWarps;
    const uint32_t word = words[index];
    uint8_t* const first = to.scales + to.layout.offset(place.matrix, place.line(index), 0);
    constexpr int step = kRowThreads / kRowWarps * int(kSwizzleColumns);
    for (int64_t column = threadIdx.x / kRowWarps * kSwizzleColumns; column < to.layout.columns; column += step) {
        const int left = int(min(to.layout.columns - column, kSwizzleColumns));
        store_scale_word(first + column / kSwizzleColumns * kSwizzleBytes, word & (~0u >> (32 - 8 * left)), kSwizzleColumns);
    }
}

// Stores the scale of each warp's line and the maximum, where there is a place for it.
template <class S, class E>
__device__ __forceinline__ void store_row_scale(const QuantizedPart& to, const RowPlace& place, bool exists,
                                                const Fp8RowScale<S, E>& scale) {
    if (!exists || threadIdx.x % 32 != 0) return;
    const int64_t at = to.layout.offset(place.matrix, place.line(threadIdx.x / 32), 0);
    reinterpret_cast<float*>(to.scales)[at] = fp8_stored_scale(scale.multiplier);
    if (to.amax) to.amax[at] = scale.largest;
}

template <class S, class E>
__device__ __forceinline__ void store_row_scale(const QuantizedPart& to, const RowPlace& place, bool exists,
                                                const MxRowScale<S, E>& scale) {
    store_row_scales(to, place, exists, scale.scale);
}

template <class S, class E, class Scale>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) requantize_row_kernel(const __grid_constant__ RowArguments a) {
    const RowPlace place(a.to);
    if (place.matrix >= a.from.matrices) return;
    const int64_t number = place.line(threadIdx.x / 32);
    const bool exists = number < a.from.lines;
    Scale of_line;
    if (exists) {
        const SourceLine line(a.from, place.matrix, number);
        const uint32_t largest = largest_of_line<S, E>(a, line);
        of_line = Scale(a, largest);
        emit_line<S, E>(a, line, largest < kInfinityBits, of_line);
    }
    store_row_scale(a.to, place, exists, of_line);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns how many blocks of threads take the lines of a part.
inline int64_t row_blocks(const QuantizedPart& to) {
    return to.matrices * (to.layout.swizzled ? round_up(to.lines, kSwizzleRows) / kRowWarps : ceil_div(to.lines, kRowWarps));
}

// Returns whether a problem that requantize_chunks could take gives lines one scale each, and nothing across them.
inline bool takes_row(const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    const bool along_alone = from.columnwise ? p.has_columnwise && !p.has_rowwise : p.has_rowwise && !p.has_columnwise;
    return p.tile.is_row() && along_alone && !p.grouped.set() && from.bits == 8 && p.format->bits == 8 &&
           (p.format->is_mx() || p.format->element == from.element) && from.scale_type == ScaleType::E8M0 &&
           from.layout.block != MXQ_MAX_DIM;
}

}  // namespace mxq::cuda
