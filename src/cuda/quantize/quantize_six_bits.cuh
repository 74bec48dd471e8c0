// The kernels of quantize_tile for BF16 to MXFP6 without squares: tiles in shared memory, elements that stay packed in pairs,
// as in quantize_fp4_pairs. Who reads what: tile/shared_tile.cuh.
//
//     without groups   to any parts; the rowwise part alone is asked of quantize_rowwise first, which leaves rows that are
//                      not aligned where they are short or scales are swizzled. Such rows come as shifted pieces
//                      (tile/shifted_tile.cuh), lines that begin anywhere leave as the aligned pieces that lie in them and
//                      the bytes beside those, eight lanes a line
//     with groups      aligned rows to the columnwise part or both: a tile is four bands of 32 rows of any groups, and a block
//                      takes up to four tiles side by side (tile/shared_bands.cuh)
//
//     rowwise      8 words of a row        -> maximum  -> scale    -> 16 codes, 3 words ---\     four lines of a warp, 24
//     columnwise   16 words of two columns -> 2 maxima -> 2 scales -> 16 codes of each  ---+-->  pieces of 16 bytes
//
//     a warp's     lane   0   1   2   3   4   5   6   7          8 ...
//     chunks       line 0 |12 |12 |12 |12 |12 |12 |12 |12 bytes| line 1 ...           put in shared memory by words,
//     pieces              |  16 |  16 |  16 |  16 |  16 |  16  | ...                  96 bytes a line, stored by 24 lanes
//     of groups           | 8| 8| 8| 8| 8| 8| 8| 8| 8| 8| 8| 8| ...                   where lines begin at 8 bytes: two lines
//                                                                                       at once, by 24 lanes
//
// Bytes an element: 2 read once, 0.78 written for each part. Columns of aligned rows without groups take as long as a
// kernel that only moves these bytes; both parts are bound by arithmetic, 7 operations an element in the loop of rows and 7.6
// in that of columns (machine code for sm_90a). Codes come from the conversion to E4M3 or E5M2, which have as many bits of
// mantissa. By RCEIL with NaN handed on ("usual") no product is above the largest code, and nothing is clamped.
#pragma once
#include "cuda/launch.h"
#include "cuda/quantize/fp4_pairs.cuh"
#include "cuda/tile/codes.cuh"
#include "cuda/tile/shared_bands.cuh"
#include "cuda/tile/shifted_tile.cuh"
#include "cuda/types.cuh"

namespace mxq::cuda {

namespace six_bits {

using fp4_pairs::kPairs;

constexpr int kWarps = kChunkThreads / 32, kWarpLines = 32 / kSideChunks;  // lines that a warp has chunks of
constexpr int kChunkWords = kChunk * 6 / 32, kLinePieces = kTile * 6 / 8 / 16, kWarpPieces = kWarpLines * kLinePieces;

struct Arguments {
    EarlyTiles early;
    QuantizeProblem problem;
    Tiles tiles;
    ScaleSteps steps;
    bool wide_in;
};

struct BandArguments {
    QuantizeProblem problem;
    BandTiles<kBand> tiles;
    ScaleSteps steps;
};

struct Shared {
    ChunkTile<Bf16> tile;
    union {
        SharedPlace place;
        TileBands<kBand> bands;
    };
    uint4 staged[kWarps][2][kWarpPieces];  // chunks of a warp's lines, in two halves that take turns
    uint32_t scales[2][kTile];             // scale words of each part by line
};

// ---- Scales ----------------------------------------------------------------------------------------------------------

// A block's stored scale, and what its elements are multiplied by.
struct Block {
    uint32_t scale;
    float factor;
    bool none;  // codes are zeros
};

// Returns the largest magnitudes of both halves of the words, over the two chunks of a block, which neighbouring lanes hold.
template <bool usual, class Arguments, int count>
__device__ __forceinline__ uint32_t block_maxima(const Arguments& a, const uint32_t (&words)[count]) {
    uint32_t largest;
    if constexpr (usual)
        largest = fp4_pairs::largest_pair<Nonfinite::Propagate>(words);
    else
        largest = fp4_pairs::largest_pair(a.problem.nonfinite, words);
    return larger<Bf16>(largest, __shfl_xor_sync(kAllLanes, largest, 1));
}

// Returns the block of a maximum, either half of the word. By RCEIL no scale is 254, which alone has a subnormal reciprocal,
// and under the NaN 255 any factor will do.
template <class E, bool usual, class Arguments>
__device__ __forceinline__ Block block_of(const Arguments& a, uint32_t maxima, int half) {
    const uint32_t amax = magnitude_bits<Bf16>(maxima, half);
    if constexpr (usual) {
        const uint32_t scale = scale_of(amax, scale_steps<E>(ScaleRounding::Rceil, Nonfinite::Propagate));
        return {scale, bits_float((254 - scale) << 23), scale == kScaleNan};
    } else {
        const uint32_t scale = scale_of(amax, a.steps);
        return {scale, scale_reciprocal(scale), scale == kScaleNan};
    }
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 && !MXQ_SMALL_FLOATS
constexpr bool kConvertsWide = true;  // by way of 8-bit types
#else
constexpr bool kConvertsWide = false;
#endif

// Whether the factor of the wider type's exponents is part of the blocks': products of both are BF16 numbers down to the
// smallest, 2^-127 times it.
template <class E>
constexpr bool joins_wide = kConvertsWide ? Conversion<E>::exponent <= 6 : false;

// Returns the factors of the two elements of a word.
template <class E>
__device__ __forceinline__ uint32_t word_factors(float first, float second) {
    constexpr float wide = joins_wide<E> ? Conversion<E>::to_wide : 1;
    return __byte_perm(float_bits(multiply_rn(first, wide)), float_bits(multiply_rn(second, wide)), 0x7632);
}

// Returns two elements as encode_six_bits takes them.
template <class E, bool usual>
__device__ __forceinline__ uint32_t prepared(uint32_t word, uint32_t factors) {
    uint32_t values = multiply_bf16_pairs(word, factors);
    if constexpr (kConvertsWide) {
        constexpr float joined = joins_wide<E> ? Conversion<E>::to_wide : 1;
        if (!usual)  // NaN becomes max
            asm("min.xorsign.abs.bf16x2 %0, %0, %1;" : "+r"(values) : "r"(bf16_pair_of(E::max * joined)));
        if constexpr (!joins_wide<E>) values = multiply_bf16_pairs(values, bf16_pair_of(Conversion<E>::to_wide));
    }
    return values;
}

__device__ __forceinline__ void pack_chunk(const uint32_t (&codes)[4], bool none, uint32_t (&packed)[kChunkWords]) {
    pack_six_bits(codes, packed);
#pragma unroll
    for (uint32_t& word : packed) word *= none ? 0 : 1;  // a selection would be the ALU's, which has more to do
}

// Makes the codes of a row's chunk.
template <class E, bool usual>
__device__ __forceinline__ void row_codes(const uint32_t (&words)[kPairs], const Block& block,
                                          uint32_t (&packed)[kChunkWords]) {
    const uint32_t factors = word_factors<E>(block.factor, block.factor);
    uint32_t codes[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        const uint32_t first = prepared<E, usual>(words[2 * g], factors);
        const uint32_t second = prepared<E, usual>(words[2 * g + 1], factors);
        codes[g] = encode_six_bits<E>(low_value(first), high_value(first), low_value(second), high_value(second));
    }
    pack_chunk(codes, block.none, packed);
}

// Makes the codes of chunks of two neighbouring columns.
template <class E, bool usual>
__device__ __forceinline__ void column_codes(const uint32_t (&words)[kChunk], const Block (&blocks)[2],
                                             uint32_t (&packed)[2][kChunkWords]) {
    const uint32_t factors = word_factors<E>(blocks[0].factor, blocks[1].factor);
    uint32_t low[4], high[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        uint32_t ready[4];
#pragma unroll
        for (int i = 0; i < 4; i++) ready[i] = prepared<E, usual>(words[4 * g + i], factors);
        low[g] = encode_six_bits<E>(low_value(ready[0]), low_value(ready[1]), low_value(ready[2]), low_value(ready[3]));
        high[g] = encode_six_bits<E>(high_value(ready[0]), high_value(ready[1]), high_value(ready[2]), high_value(ready[3]));
    }
    pack_chunk(low, blocks[0].none, packed[0]);
    pack_chunk(high, blocks[1].none, packed[1]);
}

// ---- Lines -----------------------------------------------------------------------------------------------------------

// Names the pieces that lines are stored in: of 16 bytes; the same, but half a piece at the end of a line of bands; of 8
// bytes, where lines begin at multiples of no more; of lines that begin anywhere, the pieces of 16 bytes that lie in them.
enum class Pieces { Whole, WholeAndHalf, Halves, Shifted };

// The way of a warp's chunks to memory, of four lines of a part at a time, `apart` lines one from the next.
template <Pieces pieces>
struct Lines {
    static constexpr int kBytes = kTile * 6 / 8, kSize = pieces == Pieces::Halves ? 8 : 16;
    static constexpr int kAtOnce = pieces == Pieces::Halves ? kWarpLines / 2 : kWarpLines;  // lines of one store

    uint32_t* put;      // the lane's chunk in shared memory
    const uint4* take;  // the lane's piece
    uint8_t* to;        // the piece in the first of its lines
    int lines;          // from the first on
    uint32_t line_bytes;
    bool is_cut;  // of a whole piece only half exists
    int second;   // of halves: how many lines the lane's second lies below

    __device__ __forceinline__ Lines(Shared& shared, const CodeTile& part, int apart)
        : line_bytes(uint32_t(part.line_bytes)), is_cut(false), second(kAtOnce * apart) {
        const int lane = threadIdx.x % 32, line = lane * kSize / kBytes, byte = lane * kSize % kBytes;
        const int first = int(threadIdx.x / 32 * kChunk) + line * apart, left = (part.length * 6 + 7) / 8 - byte;
        uint4* const staged = shared.staged[threadIdx.x / 32][0];
        put = reinterpret_cast<uint32_t*>(staged) + lane * kChunkWords;
        take = reinterpret_cast<const uint4*>(reinterpret_cast<const uint8_t*>(staged) + lane * kSize);
        to = part.codes + uint64_t(line_bytes) * uint32_t(first) + byte;
        lines = line < kAtOnce && left > 0 ? part.lines - first : 0;
        is_cut = left < kSize;
    }
    __device__ __forceinline__ void put_chunk(uint32_t half, const uint32_t (&packed)[kChunkWords]) const {
#pragma unroll
        for (int i = 0; i < kChunkWords; i++) put[half * (kWarpPieces * 4) + i] = packed[i];
    }
    // Stores the lane's pieces of the line `below` its first.
    __device__ __forceinline__ void store(uint32_t half, int below) const {
        uint8_t* const at = to + uint64_t(line_bytes) * uint32_t(below);
        const uint4* const from = take + half * kWarpPieces;
        const auto* const halves = reinterpret_cast<const uint2*>(from);
        if constexpr (pieces == Pieces::Halves) {
            if (below < lines) __stwb(reinterpret_cast<uint2*>(at), halves[0]);
            if (below + second < lines)
                __stwb(reinterpret_cast<uint2*>(at + uint64_t(line_bytes) * uint32_t(second)),
                       halves[kAtOnce * kBytes / kSize]);
        } else if (below < lines) {
            if (pieces == Pieces::WholeAndHalf && is_cut)
                __stwb(reinterpret_cast<uint2*>(at), halves[0]);
            else
                __stwb(reinterpret_cast<uint4*>(at), *from);
        }
    }
};

// The way of a warp's chunks to lines that begin anywhere: eight lanes have a line, of which each stores one piece of 16 bytes,
// and then they store the bytes beside those.
template <>
struct Lines<Pieces::Shifted> {
    static constexpr int lanes = 32 / kWarpLines, line_bytes_put = kTile * 6 / 8;

    uint32_t* put;
    const uint8_t* take;  // the lane's line
    uint8_t* to;
    int lines, bytes;
    uint32_t line_bytes;

    __device__ __forceinline__ Lines(Shared& shared, const CodeTile& part, int apart)
        : bytes((part.length * 6 + 7) / 8), line_bytes(uint32_t(part.line_bytes)) {
        const int lane = threadIdx.x % 32, first = int(threadIdx.x / 32 * kChunk) + lane / lanes * apart;
        uint4* const staged = shared.staged[threadIdx.x / 32][0];
        put = reinterpret_cast<uint32_t*>(staged) + lane * kChunkWords;
        take = reinterpret_cast<const uint8_t*>(staged) + lane / lanes * line_bytes_put;
        to = part.codes + uint64_t(line_bytes) * uint32_t(first);
        lines = part.lines - first;
    }
    __device__ __forceinline__ void put_chunk(uint32_t half, const uint32_t (&packed)[kChunkWords]) const {
#pragma unroll
        for (int i = 0; i < kChunkWords; i++) put[half * (kWarpPieces * 4) + i] = packed[i];
    }
    __device__ __forceinline__ void store(uint32_t half, int below) const {
        if (below >= lines) return;
        uint8_t* const line = to + uint64_t(line_bytes) * uint32_t(below);
        const uint8_t* const from = take + half * (kWarpPieces * 16);
        const int index = threadIdx.x % lanes, before = int(-reinterpret_cast<uintptr_t>(line) % 16);
        const int whole = max(bytes - before, 0) / 16;  // pieces
        if (index < whole) {
            const auto* const words = reinterpret_cast<const uint32_t*>(from) + before / 4 + index * 4;
            const int bits = before % 4 * 8;
            const uint32_t behind = bits == 0 ? 0 : words[4];
            const uint4 piece = {__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
                                 __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], behind, bits)};
            __stwb(reinterpret_cast<uint4*>(line + before + index * 16), piece);
        }
        for (int i = index; i < bytes - whole * 16; i += lanes) {
            const int byte = i < before ? i : i + whole * 16;
            line[byte] = from[byte];
        }
    }
};

// Puts the scale of the lane's chunk into its line's word, by the first of the two lanes of a block.
__device__ __forceinline__ void put_scale(uint32_t& word, uint32_t scale) {
    if (chunk_of_lane() % 2 == 0) reinterpret_cast<uint8_t*>(&word)[chunk_of_lane() / 2] = uint8_t(scale);
}

template <class E, bool usual, Pieces pieces, class Arguments>
__device__ __forceinline__ void emit_rows(const Arguments& a, Shared& shared, const CodeTile& to) {
    const RowReader<Bf16> rows(shared.tile, row_of_step(0), chunk_of_lane());
    const Lines<pieces> lines(shared, to, 1);
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i++) {
        uint32_t words[kPairs], packed[kChunkWords];
        rows.read_words(i * kWarpLines, words);
        const uint32_t maxima = block_maxima<usual>(a, words);
        const Block block = block_of<E, usual>(a, larger<Bf16>(maxima, maxima >> 16), 0);
        row_codes<E, usual>(words, block, packed);
        put_scale(shared.scales[0][row_of_step(i)], block.scale);
        lines.put_chunk(i % 2, packed);
        __syncwarp();  // who reads the other half has done so before the next
        lines.store(i % 2, i * kWarpLines);
    }
}

template <class E, bool usual, Pieces pieces, class Arguments>
__device__ __forceinline__ void emit_columns(const Arguments& a, Shared& shared, const CodeTile& to) {
    static_assert(kChunkSteps == 4);
    const int first = column_pair_word<Bf16>(column_of_step<Bf16>(0), chunk_of_lane());
    const int second = column_pair_word<Bf16>(column_of_step<Bf16>(2), chunk_of_lane());
    const Lines<pieces> lines(shared, to, 2);
#pragma unroll 1
    for (int i = 0; i < kChunkSteps; i += 2) {
        uint32_t words[kChunk], packed[2][kChunkWords];
        read_column_pair(shared.tile, i == 0 ? first : second, words);
        const uint32_t maxima = block_maxima<usual>(a, words);
        const Block blocks[2] = {block_of<E, usual>(a, maxima, 0), block_of<E, usual>(a, maxima, 1)};
        column_codes<E, usual>(words, blocks, packed);
        __syncwarp();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            put_scale(shared.scales[1][column_of_step<Bf16>(i) + half], blocks[half].scale);
            lines.put_chunk(half, packed[half]);
        }
        __syncwarp();
        lines.store(0, i * kWarpLines);
        lines.store(1, i * kWarpLines + 1);
    }
}

// Makes the rowwise part of the warp's rows, and what pads its group behind the last band.
template <class E, bool usual>
__device__ __forceinline__ void emit_band_rows(const BandArguments& a, Shared& shared) {
    const QuantizeProblem& p = a.problem;
    const PlacedBand& at = shared.bands.of_warp();
    if (!at.band.exists()) return;
    emit_rows<E, usual, Pieces::Whole>(a, shared, rows_of_band(p, shared.bands));
    __syncwarp();
    store_row_scales(p.rowwise, shared.bands, [&](int line, int) { return shared.scales[0][line]; });
    if (at.band.rows_behind > 0) store_placed_rows_behind<kBand>(p.rowwise, at, shared.bands.columns.lines);
}

// Stores the columnwise scales of a tile of bands.
__device__ __forceinline__ void store_band_columns(const QuantizedPart& part, const Shared& shared) {
    const uint32_t(&words)[kTile] = shared.scales[1];
    const int shift = shared.bands.place_of_warp() * 8;
    if (part.layout.swizzled)
        store_swizzled_columns(shared.bands, [&](int line) { return words[line] >> shift; });
    else
        store_compact_columns(part, shared.bands, [&](int line, int) { return words[line]; });
}

__device__ __forceinline__ void store_scales(const QuantizedPart& part, const PartPlace& place,
                                             const uint32_t (&words)[kTile]) {
    store_scale_words<kChunkThreads, 1>(part, place, [&](int line, int) { return words[line]; });
}

}  // namespace six_bits

template <class E, bool usual, six_bits::Pieces pieces>
__global__ void __launch_bounds__(kChunkThreads, 5) quantize_six_bits_kernel(const __grid_constant__ six_bits::Arguments a) {
    constexpr bool wide = pieces == six_bits::Pieces::Whole;
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<six_bits::Shared*>(memory);
    const QuantizeProblem& p = a.problem;
    const bool early = start_early(shared.tile, a.early);
    TilePlace place;
    if (!find_tile(a.tiles, p.grouped, shared.place.group, place)) return;
    uint4* const last = shared.staged[0][0];
    static_assert(sizeof(shared.staged) >= kTile * sizeof(uint4));
    if (!early) {
        const SourcePlace source(p, place, shared.place.group);
        if (wide || a.wide_in)
            copy_plain(shared.tile, p.source.plain, source);
        else
            start_shifted_tile(shared.tile, last, p, source);
    }
    describe_tile(p, place, shared.place);
    if (wide || a.wide_in)
        wait_for_pieces();
    else
        shift_tile(shared.tile, last, p, SourcePlace(p, place, shared.place.group));
    __syncthreads();
    const PartPlace &rowwise = shared.place.parts[kRowwisePart], &columnwise = shared.place.parts[kColumnwisePart];
    if (p.has_rowwise) six_bits::emit_rows<E, usual, pieces>(a, shared, rowwise.codes);
    if (p.has_columnwise) six_bits::emit_columns<E, usual, pieces>(a, shared, columnwise.codes);
    __syncthreads();
    if (p.has_rowwise) six_bits::store_scales(p.rowwise, rowwise, shared.scales[0]);
    if (p.has_columnwise) six_bits::store_scales(p.columnwise, columnwise, shared.scales[1]);
}

// Takes four bands of 32 rows, of whatever groups.
template <class E, bool usual, six_bits::Pieces pieces>
__global__ void __launch_bounds__(kChunkThreads, 5)
    quantize_six_bit_bands_kernel(const __grid_constant__ six_bits::BandArguments a) {
    extern __shared__ __align__(128) uint4 memory[];
    auto& shared = *reinterpret_cast<six_bits::Shared*>(memory);
    const QuantizeProblem& p = a.problem;
    if (!copy_bands(shared.tile, p, a.tiles)) return;
    describe_bands(p, a.tiles, shared.bands);
#pragma unroll 1
    do {
        wait_for_pieces();
        __syncthreads();
        if (p.has_rowwise) six_bits::emit_band_rows<E, usual>(a, shared);
        six_bits::emit_columns<E, usual, pieces>(a, shared, shared.bands.columns);
        __syncthreads();
        six_bits::store_band_columns(p.columnwise, shared);
    } while (copy_next_bands(shared.tile, p, a.tiles, shared.bands));
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns whether scales are RCEIL's with NaN handed on.
inline bool six_bits_are_usual(const QuantizeProblem& p) {
    return p.scale_rounding == ScaleRounding::Rceil && p.nonfinite == Nonfinite::Propagate;
}

// Returns what lines are stored in. Lines of groups stand side by side.
inline six_bits::Pieces six_bit_pieces(const QuantizeProblem& p) {
    const bool grouped = p.grouped.set();
    const auto is_wide = [](bool exists, const QuantizedPart& part) {
        return !exists || code_access(part, false).bytes == 16;
    };
    const bool wide = is_wide(p.has_columnwise, p.columnwise);
    if (grouped) return wide ? six_bits::Pieces::WholeAndHalf : six_bits::Pieces::Halves;
    return wide && is_wide_tile_source(p) && is_wide(p.has_rowwise, p.rowwise) ? six_bits::Pieces::Whole
                                                                               : six_bits::Pieces::Shifted;
}

// Returns whether a kernel takes a problem of BF16. Of groups, lines of rows must begin where 16 bytes can be stored at once,
// those of columns where 8 can. The bytes of a line are counted in 32 bits.
inline bool fits_six_bits(const QuantizeProblem& p) {
    if (p.format->bits != 6 || p.tile.length != kMxBlock || p.square_tiles) return false;
    const auto fits = [&](bool exists, const QuantizedPart& part) {
        if (!exists) return true;
        if (part.line_bytes >= int64_t(1) << 32) return false;
        return !p.grouped.set() || code_access(part, true).bytes >= (part.columnwise ? 8 : 16);
    };
    if (!fits(p.has_rowwise, p.rowwise) || !fits(p.has_columnwise, p.columnwise)) return false;
    return !p.grouped.set() || (p.has_columnwise && is_wide_tile_source(p) && fits_shared_bands(p));
}

inline six_bits::Arguments six_bit_arguments(const QuantizeProblem& p) {
    const bool wide_in = is_wide_tile_source(p);
    return {early_tiles(p, wide_in), p, Tiles(p), scale_steps_of(p), wide_in};
}

inline six_bits::BandArguments six_bit_band_arguments(const QuantizeProblem& p) {
    return {p, BandTiles<kBand>(p), scale_steps_of(p)};
}

}  // namespace mxq::cuda
