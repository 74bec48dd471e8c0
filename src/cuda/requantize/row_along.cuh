// The way of requantize_chunks for MXFP8 to MXFP8 with one scale for a line, along the source's lines alone: a warp has a
// line, and reads it twice, the second time from a cache.
//
//     lane     16 codes of each 512, four such loads in flight
//     first    codes -> F16 pairs -> maximum times the block's scale -> maximum of the line -> its scale
//     then     codes -> F16 pairs times one factor a block -> codes                                   (chunks_along.cuh)
//
// Bytes an element: 1.03 read from memory once, 1 written.
#pragma once
#include "cuda/memory/grid.cuh"
#include "cuda/requantize/chunks_along.cuh"

namespace mxq::cuda {

constexpr int kRowThreads = 256, kRowLoads = 4;

struct RowArguments {
    QuantizedPart from, to;
    ScaleSteps steps;
    Nonfinite nonfinite;
};

// A line as a warp takes it.
struct RowLine {
    const QuantizedPart& from;
    int64_t matrix, line;
    const uint8_t* codes;
    int shift;

    __device__ __forceinline__ RowLine(const QuantizedPart& part, int64_t number)
        : from(part),
          matrix(number / part.lines),
          line(number - matrix * part.lines),
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

template <class S, class E>
__global__ void __launch_bounds__(kRowThreads) requantize_row_kernel(const __grid_constant__ RowArguments a) {
    const int64_t number = block_index() * (kRowThreads / 32) + threadIdx.x / 32;
    if (number >= a.from.matrices * a.from.lines) return;
    const RowLine line(a.from, number);
    uint32_t largest = 0;
    line.each_chunk([&](int64_t, const uint4& chunk, float scale) {
        largest = max(largest, float_bits(multiply_rn(LineChunks<S, E>(&chunk).largest(), scale)));
    });
    largest = __reduce_max_sync(kAllLanes, largest);
    const bool plain = largest < kInfinityBits;
    if (!plain) {
        largest = 0;
        line.each_chunk([&](int64_t code, const uint4&, float scale) {
            largest = max(largest, any_maximum_of<S, kChunk>(line.codes + code, a.nonfinite, scale));
        });
        largest = __reduce_max_sync(kAllLanes, largest);
    }
    const uint32_t of_line = scale_of(largest, a.steps);
    const float reciprocal = scale_reciprocal(of_line);
    if (threadIdx.x % 32 == 0) a.to.scales[a.to.layout.offset(line.matrix, line.line, 0)] = uint8_t(of_line);
    uint8_t* const to = a.to.line(line.matrix, line.line);
    line.each_chunk([&](int64_t code, const uint4& chunk, float scale) {
        const float factor = multiply_rn(scale, reciprocal);
        ChunkCodes<E> out[1];
        if (plain && can_requantize_via_f16<typename S::Bytes, E>(factor))
            LineChunks<S, E>(&chunk).quantize(factor, false, out);
        else
            out[0] = any_chunk_codes<S, E>(line.codes + code, scale, reciprocal);
        store_chunks(to + code, out);
    });
}

// Returns whether a problem that requantize_chunks could take gives lines one scale each, and nothing across them.
inline bool takes_row(const QuantizeProblem& p) {
    const QuantizedPart &from = p.source.quantized, &to = from.columnwise ? p.columnwise : p.rowwise;
    const bool along_alone = from.columnwise ? p.has_columnwise && !p.has_rowwise : p.has_rowwise && !p.has_columnwise;
    return p.tile.is_row() && along_alone && !p.grouped.set() && from.bits == 8 && p.format->is_mx() &&
           p.format->bits == 8 && from.scale_type == ScaleType::E8M0 && from.layout.block != MXQ_MAX_DIM &&
           !to.layout.swizzled;
}

}  // namespace mxq::cuda
