// The way of requantize_chunks for MXFP8 to MXFP4 along the source's lines alone: every block of 32 by itself, a lane each,
// from registers to registers. No tile, no shared memory and no barrier: what lies across lines is not asked for.
//
//     32 codes of a line, their scale -> F16 pairs -> maximum -> scale -> 16 bytes of codes        (chunks_along.cuh)
//
// A lane has four blocks, all loaded before the first use. Compact blocks lie one after the other; where scales are
// swizzled, a block of threads takes a tile of 128 x 128, whose scales are 512 bytes in a row.
// Bytes an element: 1.03 read, 0.53 written. What bounds it on which GPU: docs/performance.md, "Places of scale words along
// lines".
#pragma once
#include "cuda/memory/scale_words.cuh"
#include "cuda/requantize/chunks_along.cuh"

namespace mxq::cuda {

constexpr int kBlockThreads = 256, kBlockRequests = 4;  // of a lane

// Blocks of threads with a tile that share an SM: 80 registers a thread, of which nothing spills, where seven would spill
// (docs/performance.md). Other chips than sm_90 were not measured, and keep what they had: 96 from 8.9 on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
constexpr int kBlockTiles = kRequantizeBlocks * 5 / 8;
#else
constexpr int kBlockTiles = kRequantizeBlocks * 6 / 8;
#endif

// How many bytes scale words of one-byte scales lie apart, whose layouts have one of each line and block: of matrices, of
// tiles of 128 lines, of 128 positions, of the first 32 lines of a tile, and of lines 32 below one another in it. Lines
// have whole units of 32 elements: at most 2^27 - 2 blocks of NVFP4's, of which 32 lines of compact ones just fit 32 bits.
struct WordSteps {
    int64_t matrix, tile;
    uint32_t column, line, request;

    explicit WordSteps(const ScaleLayout& layout)
        : matrix(layout.offset(1, 0, 0)),
          tile(layout.offset(0, kTile, 0)),
          column(uint32_t(layout.offset(0, 0, kSwizzleColumns))),
          line(uint32_t(layout.offset(0, 1, 0))),
          request(uint32_t(layout.offset(0, 32, 0))) {}
};

struct BlockArguments {
    QuantizedPart from, to;
    WordSteps from_words, to_words;
    int64_t blocks;  // of all lines, where scales are not swizzled
    uint32_t down;   // tiles of 128 lines of a matrix, where they are
    ScaleSteps steps;
    bool clamps;  // products may be 7 or more
    Nonfinite nonfinite;
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

// Four lanes have the four blocks of a segment. Lane k moves the scale word of request k, since a warp's words neighbour
// each other in memory where its bytes do not; in registers a lane has the scales of its own block, one of each request:
//
//     lane k, request k:  s0 s1 s2 s3   <->   lane k, block k:  r0 r1 r2 r3
//
// Goes either way: byte i of lane k and byte k of lane i change places. The lanes of a segment are `step` apart.
template <int step = 1>
__device__ __forceinline__ uint32_t transpose_scales(uint32_t word) {
    const uint32_t lane = threadIdx.x / step;
    word = __byte_perm(word, __shfl_xor_sync(kAllLanes, word, step), lane & 1 ? 0x3715 : 0x6240);
    return __byte_perm(word, __shfl_xor_sync(kAllLanes, word, 2 * step), lane & 2 ? 0x3276 : 0x5410);
}

// The lines of the tile that a block of threads takes: up to 128 of one matrix.
struct BlockLines {
    uint32_t matrix, tile;  // the matrix, and which of its rows of tiles, from the top
    int64_t first;          // line of the matrix
    int existing;           // lines that the matrix has from the first one on, 128 at most; none or fewer behind its last

    // A row of the grid stands for a row of tiles, and each matrix has `down` of them. A grid may have more rows than all
    // matrices have, whose lines do not exist.
    __device__ __forceinline__ BlockLines(const QuantizedPart& from, uint32_t down) {
        const uint32_t row = row_of_blocks();
        matrix = from.matrices == 1 ? 0 : row / down, tile = row - matrix * down;
        first = int64_t(tile) * kTile;
        existing = matrix < from.matrices ? int(min(from.lines - first, int64_t(kTile))) : 0;
    }
};

// A scale word of one of the lines of a tile of 128 lines that a lane has in its requests, 32 lines apart.
struct TileScaleWord {
    uint8_t* at;
    int line, existing, left;  // scales of the line from the word on
    bool swizzled;

    // Takes word `column` of line of_tile + 32 * request.
    __device__ __forceinline__ TileScaleWord(const QuantizedPart& part, const WordSteps& steps, const BlockLines& lines,
                                             int of_tile, int request, uint32_t column)
        : at(part.scales + lines.matrix * steps.matrix + lines.tile * steps.tile),
          line(of_tile + request * 32),
          existing(lines.existing),
          left(int(part.layout.columns) - int(column * kSwizzleColumns)),
          swizzled(part.layout.swizzled) {
        at += uint64_t(column) * steps.column + uint64_t(uint32_t(of_tile)) * steps.line +
              uint64_t(uint32_t(request)) * steps.request;
    }
    // Goes to a line below, of the same tile and request.
    __device__ __forceinline__ void go_down(const WordSteps& steps, int lines) {
        line += lines, at += uint64_t(uint32_t(lines)) * steps.line;
    }
    // Returns how many bytes the layout has there. Swizzled tiles are written in full.
    __device__ __forceinline__ int count() const {
        if (swizzled) return left > 0 ? kSwizzleColumns : 0;
        return line < existing ? left : 0;
    }
};

// The blocks of lines that lie one after the other, scales too, as one row: its places take few instructions. A warp has 128
// blocks, a lane every 32nd.
template <class S, bool clamps>
__global__ void __launch_bounds__(kBlockThreads, 3)
    requantize_row_of_blocks_kernel(const __grid_constant__ BlockArguments a) {
    const int lane = threadIdx.x % 32;
    const int64_t first = (block_index() * (kBlockThreads / 32) + threadIdx.x / 32) * (32 * kBlockRequests);
    const int left = int(min(a.blocks - first, int64_t(32 * kBlockRequests)));
    if (left <= 0) return;
    const auto* const from = reinterpret_cast<const BlockCodes*>(a.from.codes) + first + lane;
    BlockCodes codes[kBlockRequests];
#pragma unroll
    for (int i = 0; i < kBlockRequests; i++) codes[i] = i * 32 + lane < left ? from[i * 32] : BlockCodes{};
    const int word = (lane % kBlockRequests * 8 + lane / kBlockRequests) * 4;
    const uint32_t source_scales = transpose_scales(load_scale_word(a.from.scales + first + word, left - word));
    auto* const to = reinterpret_cast<uint4*>(a.to.codes) + first + lane;
    uint32_t scales = 0;
#pragma unroll
    for (int i = 0; i < kBlockRequests; i++) {
        uint32_t scale;
        const uint4 out = requantize_block<S>(a, clamps, codes[i], source_scales >> (i * 8) & 0xFF, scale);
        scales |= scale << (i * 8);
        if (i * 32 + lane < left) to[i * 32] = out;
    }
    store_scale_word(a.to.scales + first + word, transpose_scales(scales), left - word);
}

// A tile of 128 x 128, a block of threads each:
//
//     lane     a block of a line, four lanes side by side; four lines, 32 apart
//     words    lane k of four moves the scales of request k
template <class S, bool clamps>
__global__ void __launch_bounds__(kRequantizeThreads, kBlockTiles)
    requantize_tile_of_blocks_kernel(const __grid_constant__ BlockArguments a) {
    const BlockLines lines(a.from, a.down);
    if (lines.existing <= 0) return;
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32 * 8 + lane / 4, request = lane % kBlockRequests;
    const int64_t position = int64_t(blockIdx.x) * kTile + lane % 4 * kMxBlock;
    const int existing = position < a.from.length ? lines.existing : 0;
    const uint8_t* from = a.from.line(lines.matrix, lines.first + line) + position;
    BlockCodes codes[kBlockRequests];
#pragma unroll
    for (int i = 0; i < kBlockRequests; i++, from += 32 * a.from.line_bytes)
        codes[i] = line + i * 32 < existing ? *reinterpret_cast<const BlockCodes*>(from) : BlockCodes{};
    const TileScaleWord source(a.from, a.from_words, lines, line, request, blockIdx.x);
    const uint32_t source_scales = transpose_scales(load_scale_word(source.at, source.count()));
    uint8_t* to = a.to.line(lines.matrix, lines.first + line) + position / 2;
    uint32_t scales = 0;
#pragma unroll
    for (int i = 0; i < kBlockRequests; i++, to += 32 * a.to.line_bytes) {
        uint32_t scale;
        const uint4 out = requantize_block<S>(a, clamps, codes[i], source_scales >> (i * 8) & 0xFF, scale);
        if (line + i * 32 >= existing) continue;
        scales |= scale << (i * 8);
        *reinterpret_cast<uint4*>(to) = out;
    }
    const TileScaleWord word(a.to, a.to_words, lines, line, request, blockIdx.x);
    store_scale_word(word.at, transpose_scales(scales), word.count());
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns whether a problem that requantize_chunks takes can be taken block by block, or by halves of blocks
// (mxfp8_along.cuh).
inline bool takes_blocks(const QuantizeProblem& p) {
    const QuantizedPart& from = p.source.quantized;
    const bool across = from.columnwise ? p.has_rowwise : p.has_columnwise;
    return !across && !p.grouped.set() && from.bits == 8 && p.format->bits != 6 && p.format->is_mx() &&
           from.scale_type == ScaleType::E8M0 && from.layout.block == kMxBlock && from.layout.tile_rows == 1 &&
           from.layout.repeat == 1 && from.length % kMxBlock == 0 && p.tile.id == MXQ_SCALING_1X32;
}

inline BlockArguments block_arguments(const QuantizeProblem& p, const ScaleSteps& steps, bool clamps) {
    const QuantizedPart &from = p.source.quantized, &to = from.columnwise ? p.columnwise : p.rowwise;
    const bool swizzled = from.layout.swizzled || to.layout.swizzled;
    const int64_t blocks = swizzled ? 0 : from.matrices * from.lines * (from.length / kMxBlock);
    const uint32_t down = uint32_t(ceil_div(from.lines, int64_t(kTile)));
    return {from, to, WordSteps(from.layout), WordSteps(to.layout), blocks, down, steps, clamps, p.nonfinite};
}

inline dim3 block_grid(const BlockArguments& a) {
    if (a.blocks != 0) return grid_of(ceil_div(a.blocks, int64_t(kBlockThreads * kBlockRequests)));
    return grid_of_rows(ceil_div(a.from.length, int64_t(kTile)), a.from.matrices * a.down);
}

}  // namespace mxq::cuda
