// The tiles of requantize_wide: where they lie, how codes and scales come into shared memory, how scales leave it; and what all
// of its sources do with values of lines, two to a word.
#pragma once
#include "cuda/memory/scale_words.cuh"
#include "cuda/requantize/codes_tile.cuh"
#include "cuda/requantize/output_codes.cuh"
#include "numerics/fp8_scale.h"

namespace mxq::cuda {

constexpr int kWide = 256;         // positions of a tile, and lines of all but low ones
constexpr int kWideThreads = 256;  // a line each, while scales are moved
constexpr int kWideBlocks = 3;     // of so many threads that share an SM
constexpr int kLowTile = 128;      // lines of a low tile, and threads of it (wide_positions.cuh)
constexpr uint32_t kWideStrip = 4;  // tiles across of those that run together
constexpr int kWideChunks = kWide / kChunk, kWideScales = kWide / kMxBlock;

struct WideArguments {
    QuantizedPart from, to;
    uint32_t across, down;  // tiles of a matrix
    uint32_t strips;        // of kWideStrip tiles across, of a matrix
    uint32_t multiprocessors;  // whose first blocks start one after another (start_in_turn); 0: all at once
    ScaleSteps steps;
    Nonfinite nonfinite;
    Fp8Rule rule;        // of fp32 scales
    float* maxima;       // of the output's lines, matrix after matrix, where each has one scale
    uint32_t* arrivals;  // of tiles across the output's lines: how many have raised these maxima
};

// The codes of a tile as they are stored, so many bits each, in slots as CodeSlots gives them. Each line has a thread.
template <int code_bits, int tile_lines = kWide>
struct WideCodeTile : CodeSlots<kWide * code_bits / 128> {
    using Slots = CodeSlots<kWide * code_bits / 128>;
    static constexpr int bits = code_bits, line_words = 4 * Slots::pieces, lines = tile_lines;
    static constexpr int blocks_at_once = kWideBlocks * kWideThreads / lines;  // that share an SM
    // Blocks that registers are shared out to. requantize_wide declines chips with 100 KiB in an SM, where fewer of them only
    // spare ptxas spills.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
    static constexpr int blocks_of_registers = blocks_at_once * 2 / 3;
#else
    static constexpr int blocks_of_registers = blocks_at_once;
#endif
    alignas(128) uint4 codes[lines * Slots::pieces];

    // Returns a word of the first line of a chunk; the next line has its own line_words later.
    __device__ __forceinline__ const uint32_t* word(uint32_t chunk, uint32_t index) const {
        return reinterpret_cast<const uint32_t*>(&codes[chunk * kChunk * Slots::pieces]) + (index ^ chunk % 8 * 4);
    }
    // Returns a position's byte of a line of codes of 8 bits.
    __device__ __forceinline__ const uint8_t* byte(uint32_t line, uint32_t position) const {
        return reinterpret_cast<const uint8_t*>(&codes[Slots::slot(line, position / 16)]) + position % 16;
    }
};

// Tells which tile of the source it is. Rows of blocks go down strips that are so many tiles wide and all of the lines high,
// row by row: of four tiles the scales of a line of the source are a sector, of four rows, of eight low ones, those of a line
// of the output.
struct WideIndex {
    uint32_t matrix, above, before;  // tiles

    // Takes block `number` of row `row` of blocks, of which each strip of each matrix has one.
    static __device__ __forceinline__ WideIndex in_strips(const WideArguments& a, uint32_t row, uint32_t number) {
        const uint32_t matrix = a.from.matrices == 1 ? 0 : row / a.strips, strip = row - matrix * a.strips;
        return {matrix, number / kWideStrip, strip * kWideStrip + number % kWideStrip};
    }
};

// Where a tile lies in the source, and how much of it exists.
struct WidePlace {
    int64_t matrix, line, position;
    int lines, length;

    __device__ __forceinline__ WidePlace(const WideArguments& a, const WideIndex& index, int of_tile = kWide)
        : matrix(index.matrix), line(int64_t(index.above) * of_tile), position(int64_t(index.before) * kWide) {
        lines = int(min(a.from.lines - line, int64_t(of_tile))), length = int(min(a.from.length - position, int64_t(kWide)));
    }
    __device__ __forceinline__ bool exists(const WideArguments& a) const { return matrix < a.from.matrices && length > 0; }
};

// Holds the first blocks of each multiprocessor but one back where a kernel begins, so that one of them loads while another
// one computes. Else they stay in step for most of a grid of a few waves, and memory waits with them (docs/performance.md).
template <int blocks_at_once>
__device__ __forceinline__ void start_in_turn(const WideArguments& a) {
    constexpr uint32_t turn = 15000 / blocks_at_once;  // clocks, in which memory loads a tile for each multiprocessor
    const uint32_t number = row_of_blocks() * gridDim.x + blockIdx.x;
    if (number >= blocks_at_once * a.multiprocessors || number < a.multiprocessors) return;
    const uint32_t clocks = number / a.multiprocessors * turn, start = clock();
    while (uint32_t(clock()) - start < clocks) __nanosleep(100);
}

// Starts to copy the tile's codes, zeros where there are none.
template <class Shared>
__device__ __forceinline__ void copy_wide_codes(const WideArguments& a, const WidePlace& place, Shared& shared) {
    constexpr int pieces = Shared::pieces, lines = Shared::lines, step = lines / pieces;
    static_assert(step == kChunk / 2 || step == kChunk || step == 2 * kChunk);  // as CodeSlots::below wants it
    const int line = threadIdx.x / pieces, piece = threadIdx.x % pieces;
    const uint8_t* at = a.from.line(place.matrix, place.line + line) + place.position / 8 * Shared::bits + piece * 16;
    const uint32_t slot = Shared::slot(line, piece);
    const auto to = [&](uint32_t below) { return &shared.codes[Shared::below(slot, below)]; };
    const int existing = piece * (128 / Shared::bits) < place.length ? place.lines - line : 0;
    const uint64_t next = uint64_t(a.from.line_bytes) * step;
    if (existing + line == lines) {
#pragma unroll
        for (int i = 0; i < lines; i += step, at += next) copy_piece(to(i), at, true);
    } else {
#pragma unroll 1
        for (int i = 0; i < lines; i += step, at += next) copy_piece(to(i), i < existing ? at : a.from.codes, i < existing);
    }
}

// Stores the scales that a tile has of a line of a compact layout: up to four bytes, or up to eight.
__device__ __forceinline__ void store_wide_line(uint8_t* to, const uint32_t (&words)[1], int64_t left) {
    store_shared_scale_word(to, words[0], min(left, int64_t(4)));
}

__device__ __forceinline__ void store_wide_line(uint8_t* to, const uint32_t (&words)[2], int64_t left) {
    if (left >= 8 && reinterpret_cast<uintptr_t>(to) % 8 == 0)
        return store_kept(reinterpret_cast<uint2*>(to), make_uint2(words[0], words[1]));
    store_shared_scale_word(to, words[0], min(left, int64_t(4)));
    if (left > 4) store_shared_scale_word(to + 4, words[1], min(left - 4, int64_t(4)));
}

// Stores the scales of a line of the output. Swizzled tiles are written in full, zeros where nothing has a scale.
template <class Shared>
__device__ __forceinline__ void store_wide_scales_of(const WideArguments& a, const WidePlace& place, const Shared& shared,
                                                     int in_order) {
    const ScaleLayout& layout = a.to.layout;
    const int line = in_order / kTile * kTile + line_of_word(layout, in_order % kTile);
    const int stored = layout.swizzled ? (place.length + kTile - 1) / kTile * kTile : place.length;
    if (line >= stored) return;
    const int64_t column = place.line / kMxBlock, left = layout.columns - column;
    uint8_t* const to = a.to.scales + layout.offset(place.matrix, place.position + line, column);
    const auto& words = shared.to_scales[line];
    if (!layout.swizzled) return store_wide_line(to, words, left);
#pragma unroll
    for (int i = 0; i < Shared::lines / kTile; i++) {
        const int64_t rest = min(left - i * 4, int64_t(4));
        if (rest <= 0) return;
        store_scale_word(to + i * kSwizzleBytes, line < place.length ? words[i] & (~0u >> (32 - 8 * rest)) : 0, 4);
    }
}

// Stores the scales of the output's lines, by all threads.
template <class Shared>
__device__ __forceinline__ void store_wide_scales(const WideArguments& a, const WidePlace& place, const Shared& shared) {
#pragma unroll
    for (int first = 0; first < kWide; first += Shared::lines)
        store_wide_scales_of(a, place, shared, first + int(threadIdx.x));
}

// Tells which 16 lines a lane has, and which of so many units of positions that all warps have at once. Eight lanes side by
// side have eight chunks of lines.
template <int lines>
struct WideLane {
    static constexpr uint32_t chunks = lines / kChunk, of_warp = 32 / chunks, at_once = lines / 32 * of_warp;
    uint32_t chunk, unit;

    __device__ __forceinline__ WideLane() {
        const uint32_t lane = threadIdx.x % 32;
        chunk = lane % 8 + (chunks == 16 ? lane / 16 * 8 : 0);
        unit = threadIdx.x / 32 * of_warp + lane / 8 % of_warp;
    }
};

// The values of two neighbouring positions of 16 lines, two lines to a word.
struct WidePairs {
    static constexpr int count = kChunk / 2;
    uint32_t first[count], second[count];

    static __device__ __forceinline__ uint32_t maxima(const uint32_t (&pairs)[count]) {
        uint32_t even = pairs[0], odd = pairs[1];
#pragma unroll
        for (int i = 2; i < count; i += 2) {
            even = max_abs_f16_pairs(even, pairs[i]);
            odd = max_abs_f16_pairs(odd, pairs[i + 1]);
        }
        return max_abs_f16_pairs(even, odd);
    }
    // Returns the largest magnitudes of both positions, of the 32 lines that two neighbouring lanes have.
    __device__ __forceinline__ uint32_t block_maxima() const {
        const uint32_t of_first = maxima(first), of_second = maxima(second);
        const uint32_t low = __byte_perm(of_first, of_second, 0x5410), high = __byte_perm(of_first, of_second, 0x7632);
        const uint32_t both = max_abs_f16_pairs(low, high);
        return max_abs_f16_pairs(both, __shfl_xor_sync(kAllLanes, both, 1)) & 0x7FFF7FFFu;
    }
};

}  // namespace mxq::cuda
