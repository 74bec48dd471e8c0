// The codes of a tile of 128 x 128 in shared memory, and a table of their scales, for requantize_chunks.
#pragma once
#include "cuda/memory/async_copy.cuh"
#include "cuda/tile/code_patch.cuh"
#include "cuda/tile/shared_tile.cuh"
#include "numerics/requantize_via_f16.h"

namespace mxq::cuda {

constexpr int kRequantizeThreads = 128;
constexpr int kRequantizeWarps = kRequantizeThreads / 32;

// Blocks that share an SM: 64 registers a thread. Below sm_89 codes are converted in software, which takes more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kRequantizeBlocks = 4;
#else
constexpr int kRequantizeBlocks = 8;
#endif

struct ChunkArguments {
    Tiles tiles;
    ScaleSteps steps;
    bool clamps;  // products may be 7 or more, to E2M1
    QuantizeProblem problem;
};

// The tile's scales by block and line, each 16 lines moved by 16 bytes more, and blocks as well: fp32 values; those of
// NVFP4 as F16, 64 times the value, which makes up for what shrunk_e4m3 leaves.
template <class S>
struct ScaleTable {
    using Value = std::conditional_t<S::has_global, uint16_t, float>;
    static constexpr int blocks = S::bits == 4 ? kTile / kNvBlock : kTile / kMxBlock, skew = 16 / sizeof(Value);
    static constexpr int stride = kTile + skew * kSideChunks + skew;
    alignas(16) Value values[blocks][stride];

    static __device__ __forceinline__ int place(int line) { return line + line / kChunk * skew; }
    __device__ __forceinline__ Value& at(int block, int line) { return values[block][place(line)]; }
    static __device__ __forceinline__ Value value(uint32_t byte) {
        if constexpr (!S::has_global) return scale_value(byte);
        else return uint16_t(multiply_f16_pairs(decode_pair_to_f16<E4M3>(byte), 0x54005400u));
    }
};

// Turns E2M1 codes in the upper halves of bytes into E4M3's of 1/64 of the value.
__device__ __forceinline__ uint32_t shrunk_e4m3(uint32_t codes) {
    return (codes & 0x80808080u) | (codes >> 2 & 0x1C1C1C1Cu);
}

// Where the codes of a tile lie, in so many pieces of 16 bytes a line. Each 16 lines change pieces about in a way of their
// own, so that lanes that read the same positions of eight chunks meet eight bank groups. Pieces stay in their 128 bytes,
// which begin at multiples of 128: copies that move lines by a piece for each 16 take longer (docs/performance.md).
template <int line_pieces>
struct CodeSlots {
    static constexpr int pieces = line_pieces;

    static __device__ __forceinline__ uint32_t slot(uint32_t line, uint32_t piece) {
        return (line * pieces + piece) ^ line / kChunk % 8;
    }
    // Returns the slot of the line below one with an even number.
    static __device__ __forceinline__ uint32_t next(uint32_t slot) {
        return pieces % 8 == 0 ? slot + pieces : slot ^ pieces;
    }
    // Returns the slot so many lines below that of a line: a multiple of n below one of the first n, n being 8, 16 or 32.
    static __device__ __forceinline__ uint32_t below(uint32_t slot, uint32_t lines) {
        return (slot ^ lines / kChunk % 8) + lines * pieces;
    }
};

template <class S>
struct RequantizeShared : CodeSlots<S::bits> {
    using CodeSlots<S::bits>::pieces;
    static constexpr int line_words = 4 * pieces;

    alignas(128) uint4 codes[kTile * pieces];
    ScaleTable<S> scales;
    uint32_t words[2][kTile];  // scale bytes of each part, by line
    Group group;
    PartPlace parts[3];  // by PartIndex
    int lines, length;  // of the source, that exist in the tile
    float global;       // above the source's scales
};

// ---- The tile --------------------------------------------------------------------------------------------------------

// Describes the source and the parts for all threads, by three lanes of a warp at once, and what stands above the source's
// scales by one of another. A barrier must follow.
template <class S>
__device__ __forceinline__ void describe_parts(const QuantizeProblem& p, const TilePlace& place, RequantizeShared<S>& shared) {
    if (threadIdx.x < 3) describe_part(p, place, shared.group, int(threadIdx.x), shared.parts);
    if (threadIdx.x == 32) shared.global = S::has_global ? global_scale(p.source.quantized, place.scope) : 1.0f;
}

// Starts to copy the tile's codes, zeros where there are none.
template <class S>
__device__ __forceinline__ void copy_codes(const QuantizeProblem& p, const TilePlace& place, RequantizeShared<S>& shared) {
    using Shared = RequantizeShared<S>;
    constexpr int pieces = Shared::pieces, step = kRequantizeThreads / pieces;
    const QuantizedPart& from = p.source.quantized;
    const bool columnwise = from.columnwise;
    const int rows = min(int(place.rows) - int(place.row), kTile), cols = min(int(p.source.cols) - int(place.col), kTile);
    const int lines = columnwise ? cols : rows, length = columnwise ? rows : cols;
    if (threadIdx.x == 64) shared.lines = lines, shared.length = length;
    const uint32_t row = uint32_t(place.row) + (p.grouped.groups.set ? shared.group.starts[kSourceCodes] : 0);
    const int line = threadIdx.x / pieces, piece = threadIdx.x % pieces;
    const uint32_t col = uint32_t(place.col), line_bytes = uint32_t(from.line_bytes);
    const uint64_t first = uint64_t(uint32_t(place.matrix)) * uint32_t(from.lines) + (columnwise ? col : row) + line;
    const uint8_t* at = from.codes + first * line_bytes + (columnwise ? row : col) / 8 * S::bits + piece * 16;
    const uint32_t slot = Shared::slot(line, piece);
    const int existing = piece * (128 / S::bits) < length ? lines - line : 0;
    const auto to = [&](uint32_t lines_below) { return &shared.codes[Shared::below(slot, lines_below)]; };
    const uint64_t next = uint64_t(line_bytes) * step;
    if (existing + line == kTile) {
#pragma unroll
        for (int i = 0; i < kTile; i += step, at += next) copy_piece(to(i), at, true);
    } else {
#pragma unroll 1
        for (int i = 0; i < kTile; i += step, at += next) copy_piece(to(i), i < existing ? at : from.codes, i < existing);
    }
}

// Loads a line's scales one by one, all on their way before the first is needed. Out of line: for ragged lines, and layouts
// other than whole aligned words.
template <class S, class Shared>
__device__ __noinline__ void load_line_scales(const QuantizedPart& part, int line, Shared& shared) {
    const ScaleTile& tile = shared.parts[kSourcePart].scales;
    const int shift = source_shift(part.layout), blocks = kTile >> shift, count = (shared.length + (1 << shift) - 1) >> shift;
    const int existing = line < shared.lines ? count : 0;
    uint32_t scales[ScaleTable<S>::blocks];  // bytes, or bits of fp32 values
#pragma unroll
    for (int block = 0; block < ScaleTable<S>::blocks; block++) {
        const int64_t at = tile.offset(line, tile.column + block);
        if (block >= existing) scales[block] = 0;
        else if (part.scale_type != ScaleType::F32) scales[block] = part.scales[at];
        else scales[block] = reinterpret_cast<const uint32_t*>(part.scales)[at];
    }
#pragma unroll
    for (int block = 0; block < ScaleTable<S>::blocks; block++) {
        typename ScaleTable<S>::Value scale = 0;
        if (block < existing && part.scale_type != ScaleType::F32) scale = ScaleTable<S>::value(scales[block]);
        else if constexpr (!S::has_global) scale = bits_float(scales[block]);
        if (block < blocks) shared.scales.at(block, line) = scale;
    }
}

// Loads the table, by all threads, a line each. A barrier must follow.
template <class S, class Shared>
__device__ __forceinline__ void load_scale_table(const QuantizedPart& part, Shared& shared) {
    static_assert(kRequantizeThreads == kTile);
    const PartPlace& from = shared.parts[kSourcePart];
    const int line = line_of_word(part.layout, int(threadIdx.x));
    if (!from.line_words || shared.length < kTile) return load_line_scales<S>(part, line, shared);
    const uint8_t* at = from.scale_bytes + (part.layout.swizzled ? int64_t(threadIdx.x * 4) : line * from.scale_step);
    const int64_t next = part.layout.swizzled ? kSwizzleBytes : 4;
    uint32_t words[ScaleTable<S>::blocks / 4];
#pragma unroll
    for (uint32_t& word : words) {
        word = line < shared.lines ? __ldg(reinterpret_cast<const uint32_t*>(at)) : 0;
        at += next;
    }
    auto* const to = &shared.scales.at(0, line);
#pragma unroll
    for (int i = 0; i < ScaleTable<S>::blocks; i++)
        to[i * ScaleTable<S>::stride] = ScaleTable<S>::value(words[i / 4] >> (i % 4 * 8) & 0xFF);
}

}  // namespace mxq::cuda
