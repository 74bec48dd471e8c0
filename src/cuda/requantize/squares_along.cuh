// The way of requantize_chunks for MXFP8 to 128x128 along the source's lines alone, of MX and of FP8: a tile is a block of the
// output, so that its codes wait in registers for the one scale, and only maxima cross the block of threads.
//
//     thread   16 codes (to E2M1 32) of every 16th (32nd) line, neighbouring lanes having neighbours: 8 x 16 bytes in flight
//     codes -> F16 pairs -> maximum times the line's scale -> maximum of the tile -> scale -> codes   (chunks_along.cuh)
//
// Codes become F16 twice, which takes half an operation an element; kept as F16 they would fill the registers of six blocks of
// threads. Under fp32 scales they go on from F16 in fp32. Where a tile has a NaN or a factor that F16 has not, codes are read
// again, out of line.
//
// Bytes an element: 1.03 read, 0.5 or 1 written.
#pragma once
#include "cuda/requantize/chunks_along.cuh"
#include "cuda/tile/store_scale_words.cuh"
#include "numerics/fp8_scale.h"

namespace mxq::cuda {

constexpr int kSquareBlocks = kRequantizeBlocks * 3 / 4;  // that share an SM: 80 registers a thread

template <class S>
struct SquareShared {
    ScaleTable<S> scales;
    uint32_t warp_maxima[kRequantizeWarps];
    uint4 zeros[2];  // the codes of lines that are not there
    Group group;
    TilePlace place;
    PartPlace parts[3];  // by PartIndex
    int lines, length;   // of the source, that exist in the tile
};

// Which codes of a tile a thread has, and where they lie.
template <class E>
struct SquareLines {
    static constexpr int count = kLaneChunks<E>, lanes = kSideChunks / count, at_once = kRequantizeThreads / lanes;
    static constexpr int steps = kTile / at_once;
    const uint8_t* from;
    uint64_t next;               // from a line to the thread's next
    int first, chunk, existing;  // lines that exist are those before `existing`

    __device__ __forceinline__ SquareLines(const QuantizeProblem& p, const TilePlace& place, const Group& group)
        : first(threadIdx.x / lanes), chunk(threadIdx.x % lanes * count) {
        const QuantizedPart& part = p.source.quantized;
        const int rows = min(int(place.rows) - int(place.row), kTile), cols = min(int(p.source.cols) - int(place.col), kTile);
        const int lines = part.columnwise ? cols : rows, length = part.columnwise ? rows : cols;
        const uint32_t row = uint32_t(place.row) + (p.grouped.groups.set ? group.starts[kSourceCodes] : 0);
        const uint32_t col = uint32_t(place.col), line_bytes = uint32_t(part.line_bytes);
        const uint64_t line = uint64_t(uint32_t(place.matrix)) * uint32_t(part.lines) + (part.columnwise ? col : row) + first;
        from = part.codes + line * line_bytes + (part.columnwise ? row : col) + chunk * kChunk;
        next = uint64_t(line_bytes) * at_once;
        existing = chunk * kChunk < length ? lines : 0;
    }
    __device__ __forceinline__ int line(int i) const { return first + i * at_once; }
    __device__ __forceinline__ const uint4* at(int i) const { return reinterpret_cast<const uint4*>(from + next * i); }
};

// A thread's codes of a tile, zeros where there are none.
template <class S, class E>
struct SquareCodes {
    uint4 lines[SquareLines<E>::steps][SquareLines<E>::count];

    __device__ __forceinline__ explicit SquareCodes(const SquareLines<E>& of) {
        const uint8_t* at = of.from;
#pragma unroll
        for (int i = 0; i < of.steps; i++, at += of.next)
#pragma unroll
            for (int j = 0; j < of.count; j++)
                lines[i][j] = of.line(i) < of.existing ? reinterpret_cast<const uint4*>(at)[j] : uint4{};
    }
    __device__ __forceinline__ LineChunks<S, E> values(int i) const { return LineChunks<S, E>(lines[i]); }
    // Keeps the codes, but nothing that was computed from them: else the compiler keeps values from one use to the next.
    __device__ __forceinline__ void forget_values() {
#pragma unroll
        for (auto& line : lines)
#pragma unroll
            for (uint4& four : line) asm volatile("" : "+r"(four.x), "+r"(four.y), "+r"(four.z), "+r"(four.w));
    }
};

// Where a thread finds the scales of its lines.
template <class S, class E>
struct SquareScales {
    const float* first;

    __device__ __forceinline__ SquareScales(const SquareShared<S>& shared, const SquareLines<E>& lines,
                                            const QuantizedPart& from)
        : first(&shared.scales.values[lines.chunk * kChunk >> source_shift(from.layout)][ScaleTable<S>::place(lines.first)]) {}
    __device__ __forceinline__ float operator[](int i) const {
        constexpr int at_once = SquareLines<E>::at_once;
        return first[i * ScaleTable<S>::place(at_once)];
    }
};

// Returns the largest of what the threads of a tile have, all of which call it.
template <class S>
__device__ __forceinline__ uint32_t square_maximum(SquareShared<S>& shared, uint32_t largest) {
    const uint32_t of_warp = __reduce_max_sync(kAllLanes, largest);
    if (threadIdx.x % 32 == 0) shared.warp_maxima[threadIdx.x / 32] = of_warp;
    __syncthreads();
#pragma unroll
    for (const uint32_t other : shared.warp_maxima) largest = max(largest, other);
    return largest;
}

// A tile's scale as MX has it: what values are multiplied by, and how it is stored. In a swizzled layout it fills the tile of
// scales.
template <class E>
struct MxSquare {
    uint32_t scale;
    float multiplier;

    __device__ __forceinline__ MxSquare(const ChunkArguments& a, uint32_t largest)
        : scale(scale_of(largest, a.steps)), multiplier(scale_reciprocal(scale)) {}
    static __device__ __forceinline__ Nonfinite policy(const ChunkArguments& a) { return a.problem.nonfinite; }
    // Makes the codes of a line's chunks under a factor that it returns true for.
    template <class S>
    static __device__ __forceinline__ bool quantize(const ChunkArguments& a, const LineChunks<S, E>& values, float factor,
                                                    ChunkCodes<E> (&out)[kLaneChunks<E>]) {
        values.quantize(factor, a.clamps, out);
        return can_requantize_via_f16<typename S::Bytes, E>(factor);
    }
    __device__ __forceinline__ void store(const QuantizedPart& part, const PartPlace& place) const {
        const uint32_t word = scale * 0x01010101u;
        if (part.layout.swizzled)
            return store_scale_words<kRequantizeThreads, 1>(part, place, [=](int, int) { return word; });
        if (threadIdx.x == 0 && place.scales.stores(0))
            store_kept(part.scales + place.scales.offset(0, place.scales.column), uint8_t(scale));
    }
};

// Holds the scale of a tile of FP8 codes, an fp32 number. Stores it, the maximum beside it where there is a place, and, where the
// tile is the last of a row, the padding of both.
template <class E>
struct Fp8Square {
    float largest, multiplier;

    __device__ __forceinline__ Fp8Square(const ChunkArguments& a, uint32_t of_tile)
        : largest(bits_float(of_tile)),
          multiplier(fp8_quantization_scale(largest, {E::max, a.problem.epsilon, a.problem.power_of_two})) {}
    static __device__ __forceinline__ Nonfinite policy(const ChunkArguments&) { return Nonfinite::Saturate; }
    template <class S>
    static __device__ __forceinline__ bool quantize(const ChunkArguments&, const LineChunks<S, E>& values, float factor,
                                                    ChunkCodes<E> (&out)[1]) {
        out[0] = values.quantize_floats(factor);
        // Returns whether products of zeros and the factor are sure to be zeros: larger factors may be infinite. A factor
        // below fp32's normal numbers leaves nothing but signs.
        return factor < 0x1p100f;
    }
    __device__ __forceinline__ void store(const QuantizedPart& part, const PartPlace& place) const {
        if (threadIdx.x != 0 || !place.scales.stores(0)) return;
        const int64_t at = place.scales.offset(0, place.scales.column);
        const bool last = place.scales.column + 1 == part.layout.columns;
        auto* const to = reinterpret_cast<float*>(part.scales) + at;
        store_kept(reinterpret_cast<uint32_t*>(to), float_bits(fp8_stored_scale(multiplier)));
        if (part.amax) part.amax[at] = largest;
        for (int64_t i = 1; last && i <= part.layout.line_stride - part.layout.columns; i++) {
            to[i] = 0;
            if (part.amax) part.amax[at + i] = 0;
        }
    }
};

// Where a thread's codes go.
template <class E>
struct SquareOutput {
    uint8_t* codes;
    uint64_t next;  // from a line to the thread's next
    int lines;      // those that are stored are before it

    __device__ __forceinline__ SquareOutput(const CodeTile& to, const SquareLines<E>& from)
        : codes(to.codes + from.chunk * (kChunk * E::bits / 8) + uint64_t(uint32_t(from.first)) * to.line_bytes),
          next(uint64_t(to.line_bytes) * from.at_once), lines(from.chunk * kChunk < to.length ? to.lines : 0) {}
};

// Makes a thread's codes under any factor. Out of line: few need it.
template <class S, class E>
__device__ __noinline__ void emit_any_square(const ChunkArguments& a, int part, const SquareShared<S>& shared,
                                             float multiplier) {
    const SquareLines<E> from(a.problem, shared.place, shared.group);
    const SquareOutput<E> to(shared.parts[kRowwisePart + part].codes, from);
    const SquareScales<S, E> scales(shared, from, a.problem.source.quantized);
#pragma unroll 1
    for (int i = 0; i < from.steps; i++) {
        if (from.line(i) >= to.lines) return;
        const uint4* const codes = from.line(i) < from.existing ? from.at(i) : shared.zeros;
        ChunkCodes<E> out[SquareLines<E>::count];
#pragma unroll
        for (int j = 0; j < from.count; j++)
            out[j] = any_chunk_codes<S, E>(reinterpret_cast<const uint8_t*>(codes + j), scales[i], multiplier);
        store_chunks(to.codes + to.next * i, out);
    }
}

// Returns the largest magnitude of a thread's codes, as bits. Out of line: for tiles with NaN or Inf.
template <class S, class E>
__device__ __noinline__ uint32_t any_square_maximum(const ChunkArguments& a, const SquareShared<S>& shared,
                                                    Nonfinite policy) {
    const SquareLines<E> from(a.problem, shared.place, shared.group);
    const SquareScales<S, E> scales(shared, from, a.problem.source.quantized);
    constexpr int count = SquareLines<E>::count * kChunk;
    uint32_t largest = 0;
#pragma unroll 1
    for (int i = 0; i < from.steps && from.line(i) < from.existing; i++) {
        const auto* const codes = reinterpret_cast<const uint8_t*>(from.at(i));
        largest = max(largest, any_maximum_of<S, count>(codes, policy, scales[i]));
    }
    return largest;
}

// Makes the codes of a tile and returns its scale.
template <class Scale, class S, class E>
__device__ __forceinline__ Scale emit_square(const ChunkArguments& a, int part, SquareShared<S>& shared,
                                             const SquareLines<E>& lines, SquareCodes<S, E>& codes) {
    const SquareScales<S, E> scales(shared, lines, a.problem.source.quantized);
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < lines.steps; i++) largest = max(largest, float_bits(multiply_rn(codes.values(i).largest(), scales[i])));
    codes.forget_values();
    bool plain = !__syncthreads_or(largest >= kInfinityBits);
    if (!plain) largest = any_square_maximum<S, E>(a, shared, Scale::policy(a));
    const Scale scale(a, square_maximum(shared, largest));
    if (plain) {
        const SquareOutput<E> to(shared.parts[kRowwisePart + part].codes, lines);
        uint8_t* at = to.codes;
#pragma unroll
        for (int i = 0; i < lines.steps; i++, at += to.next) {
            ChunkCodes<E> out[SquareLines<E>::count];
            const float factor = multiply_rn(scales[i], scale.multiplier);
            plain = Scale::quantize(a, codes.values(i), factor, out) && plain;
            if (lines.line(i) < to.lines) store_chunks(at, out);
        }
    }
    if (!plain) emit_any_square<S, E>(a, part, shared, scale.multiplier);
    return scale;
}

template <class S, class E, class Scale>
__global__ void __launch_bounds__(kRequantizeThreads, kSquareBlocks)
    requantize_squares_kernel(const __grid_constant__ ChunkArguments a) {
    __shared__ uint4 memory[(sizeof(SquareShared<S>) + sizeof(uint4) - 1) / sizeof(uint4)];
    auto& shared = *reinterpret_cast<SquareShared<S>*>(memory);
    const QuantizeProblem& p = a.problem;
    TilePlace place;
    if (!find_tile(a.tiles, p.grouped, shared.group, place)) return;
    const SquareLines<E> lines(p, place, shared.group);
    SquareCodes<S, E> codes(lines);
    if (threadIdx.x == 32) {
        const int rows = min(int(place.rows) - int(place.row), kTile), cols = min(int(p.source.cols) - int(place.col), kTile);
        shared.place = place, shared.zeros[0] = shared.zeros[1] = uint4{};
        shared.lines = p.source.quantized.columnwise ? cols : rows, shared.length = p.source.quantized.columnwise ? rows : cols;
    }
    if (threadIdx.x < 3) describe_part(p, place, shared.group, int(threadIdx.x), shared.parts);
    __syncthreads();
    load_scale_table<S>(p.source.quantized, shared);
    __syncthreads();
    const int part = p.source.quantized.columnwise ? 1 : 0;
    const Scale scale = emit_square<Scale>(a, part, shared, lines, codes);
    scale.store(part_of(p, part), shared.parts[kRowwisePart + part]);
}

}  // namespace mxq::cuda
