// The kernel of quantize_tile for groups of BF16 rows to the columnwise part of 8 bits, and to both parts, where no scale is
// of more rows than a band or its maximum is there before: MXFP8 1x32 and 32x32, ROW and TENSOR. A block of threads takes
// eight bands of 32 rows that follow each other, of whatever groups (tile/bands.cuh), a warp each:
//
//     lines of codes      | 0 | 1 | 2 | 0 | 0 | 1 | 2 | 3 | 4 | 5 |       bands by their place in the group: four groups
//     blocks of threads   [ - - - - - - - - ] [ - - - - ...
//
// It stores 256 bytes of each line, as one does where there are no groups (quantize_tall.cuh), whatever the sizes of groups
// are. Each warp finds its own group and needs nothing of the others until codes are stored. Among many groups that takes
// long; then a block takes several tiles of columns, one after the other.
//
// The last band of a group also stores the rows that pad the group in the rowwise part alone. Blocks that the ends might
// have needed leave once they know.
//
// Bound by memory as without groups, and by what a block waits for before its loads: docs/performance.md, "Groups".
#pragma once
#include "cuda/memory/ordered_groups.cuh"
#include "cuda/memory/read_thread.cuh"
#include "cuda/quantize/quantize_tall.cuh"
#include "cuda/tile/bands.cuh"

namespace mxq::cuda {

constexpr int kTallBands = kTallRows / kBand;

struct BandArguments {
    int64_t across, down;  // blocks of threads
    bool several;          // tiles side by side a block
    BandUnits units;
    ScaleRule rule;
    QuantizeProblem problem;
};

// Names which elements share a scale: 32 rows of a column and 32 columns of a row; a square of 32 x 32; more than a band has,
// whose maxima or scales are there before the kernel.
enum class BandScales { Blocks, Squares, Whole };

template <class E>
struct BandsShared {
    TileShared<E> tiles[kTallTiles];
    Band bands[kTallBands];
};

// Returns the number of the warp among those of both tiles.
__device__ __forceinline__ int warp_of_two() { return int(threadIdx.y) * kTileBands + int(threadIdx.x) / 32; }

// ---- Elements ----------------------------------------------------------------------------------------------------------

// Loads a warp's rows, so many from one of the source on, as the patch has them.
__device__ __forceinline__ void load_band(const QuantizeProblem& p, int64_t source_row, int rows, int in_tile, int64_t col,
                                          PatchVectors<Bf16>& vectors) {
    const PlainMatrix& in = p.source.plain;
    const Patch<Bf16> patch(in_tile + rows, int(min(p.source.cols - col, int64_t(kTile))));
    const Bf16* const at =
        static_cast<const Bf16*>(in.data) + (source_row - in_tile + patch.row) * in.row_stride + col + patch.column;
    load_patch_rows(at, in.row_stride, patch, vectors);
}

// ---- Codes -------------------------------------------------------------------------------------------------------------

// Puts the maxima of the warp's band in a part, of squares in both.
template <class E, BandScales of, Nonfinite policy>
__device__ __forceinline__ void put_band_maxima(const QuantizeProblem& p, bool columnwise, const PatchVectors<Bf16>& vectors,
                                                const Patch<Bf16>& patch, TileScales<E>& scales) {
    if constexpr (of == BandScales::Squares) {
        if (columnwise)
            put_square_maximum<E>(patch_maximum<Bf16, policy>(vectors), patch, kBandLog2,
                                  p.has_rowwise ? &scales.parts[0] : nullptr, &scales.parts[1]);
    } else if (columnwise) {
        put_column_maxima<E, policy>(vectors, patch, kBandLog2, scales.parts[1]);
    } else {
        put_row_maxima<E, policy>(vectors, patch, kBandLog2, scales.parts[0]);
    }
}

// Makes the factors and the stored scales of the warp's band from its elements. `apart`: one part after the other, since
// else the compiler keeps magnitudes of all elements from one to the other, for which a loop over columns leaves no
// registers.
template <class E, BandScales of, Nonfinite policy, bool apart>
__device__ __forceinline__ void make_band_scales(const QuantizeProblem& p, const PatchVectors<Bf16>& vectors,
                                                 const Patch<Bf16>& patch, TileScales<E>& scales) {
    const int last = p.has_rowwise ? 0 : 1;
    if (!apart) {
        put_band_maxima<E, of, policy>(p, true, vectors, patch, scales);
        if (p.has_rowwise) put_band_maxima<E, of, policy>(p, false, vectors, patch, scales);
    }
#pragma unroll 1
    for (int columnwise = 1; columnwise >= last; columnwise--) {
        if (apart) put_band_maxima<E, of, policy>(p, columnwise, vectors, patch, scales);
        __syncwarp();
        scale_warp_blocks<E, Bf16>(p, part_of(p, columnwise), 0, kBandLog2, scales.parts[columnwise]);
    }
    __syncwarp();
}

// Returns the factor of a whole scale, from its maximum or as given; `maximum` becomes the byte that MX stores.
template <class E>
__device__ __forceinline__ float whole_factor(const QuantizeProblem& p, const QuantizedPart& part, int64_t scope,
                                              uint32_t (&maximum)[1]) {
    if (p.quantization_scale) return p.quantization_scale[scope * part.scope_stride];
    if (part.scale_type == ScaleType::F32) return fp8_quantization_scale(bits_float(maximum[0]), fp8_rule(p, E::max));
    float factor[1];
    byte_scales<E>(p, ScaleType::E8M0, {}, maximum, factor);
    return factor[0];
}

// Returns the maximum of line `line` of a part, or of all that the scale is of; 0 for what only pads a group.
__device__ __forceinline__ uint32_t whole_maximum(const BandArguments& a, const Band& band, int columnwise, int64_t line,
                                                  bool exists) {
    const auto* const maxima = reinterpret_cast<const uint32_t*>(a.rule.maxima[columnwise]);
    const int64_t of_line = columnwise ? band.group * a.problem.columnwise.lines + line : line;
    const int64_t at = a.rule.per_line ? of_line : band.group * int64_t(part_of(a.problem, columnwise).scope_stride);
    return maxima && exists ? maxima[at] : 0;
}

// Makes the factors of the warp's band from whole scales. Maxima are loaded together, and wait in the table; a loop over
// columns leaves no registers to turn several at a time.
template <class E, bool several>
__device__ __forceinline__ void make_whole_scales(const BandArguments& a, const Band& band, int in_tile, int64_t col,
                                                  TileScales<E>& scales) {
    const QuantizeProblem& p = a.problem;
    const int lane = threadIdx.x % 32, scope = max(band.group, 0);
    uint32_t* const factors = &scales.parts[1].table[in_tile / kBand][lane];
    uint32_t maxima[kTileBlocks], of_row[1] = {0};
#pragma unroll
    for (int i = 0; i < kTileBlocks; i++) {
        const int64_t line = col + i * 32 + lane;
        maxima[i] = whole_maximum(a, band, 1, line, band.exists() && line < p.source.cols);
    }
    if (p.has_rowwise) of_row[0] = whole_maximum(a, band, 0, band.code_row + lane, lane < band.existing);
#pragma unroll
    for (int i = 0; i < kTileBlocks; i++) factors[i * 32] = maxima[i];
#pragma unroll(several ? 1 : kTileBlocks)
    for (int i = 0; i < kTileBlocks; i++) {
        uint32_t maximum[1] = {factors[i * 32]};
        factors[i * 32] = float_bits(whole_factor<E>(p, p.columnwise, scope, maximum));
    }
    if (p.has_rowwise) {
        scales.parts[0].table[0][in_tile + lane] = float_bits(whole_factor<E>(p, p.rowwise, scope, of_row));
        scales.parts[0].words[0][in_tile + lane] = of_row[0];
    }
    __syncwarp();
}

// Stores the ROW scales of a band's rows, and of those behind it: padding has 0.
template <class E>
__device__ __forceinline__ void store_scales_of_rows(const QuantizedPart& part, const Band& band, int in_tile,
                                                     const PartScales<E>& scales) {
    const int lane = threadIdx.x % 32;
    const int64_t first = band.scales[0] + int64_t(band.index) * kBand;
    const bool floats = part.scale_type == ScaleType::F32;
#pragma unroll 1
    for (int row = lane; row < band.rows + band.rows_behind; row += 32) {
        const bool exists = row < band.existing;
        if (floats)
            reinterpret_cast<float*>(part.scales)[first + row] =
                exists ? fp8_stored_scale(bits_float(scales.table[0][in_tile + row])) : 0;
        else
            part.scales[first + row] = exists ? uint8_t(scales.words[0][in_tile + row]) : 0;
    }
}

// Raises the maximum of the band's group, for delayed scaling.
__device__ __forceinline__ void record_band(const QuantizeProblem& p, const Band& band, const PatchVectors<Bf16>& vectors) {
    const uint32_t largest = __reduce_max_sync(kAllLanes, patch_maximum<Bf16, Nonfinite::Saturate>(vectors));
    if (threadIdx.x % 32 != 0 || !band.exists()) return;
    for (const QuantizedPart* part : {&p.rowwise, &p.columnwise})
        if (part->amax) take_larger(part->amax + int64_t(band.group) * part->scope_stride, largest);
}

// Stores the compact scales of the band's squares, in both parts from what the columnwise one has: none where the group has
// no rows.
template <class E>
__device__ __forceinline__ void store_band_squares(const QuantizeProblem& p, const Band& band, int64_t col,
                                                   const PartScales<E>& columns) {
    const int square = threadIdx.x % 32;
    const int64_t line = col + square * kMxBlock;
    if (band.existing <= 0 || square >= kTileBlocks || line >= p.source.cols) return;
    // A byte alone is read, since other warps may not have put theirs.
    const uint8_t scale = reinterpret_cast<const uint8_t*>(&columns.words[0][square * kMxBlock])[threadIdx.x / 32];
    const ScaleLayout &rows = p.rowwise.layout, &lines = p.columnwise.layout;
    if (p.has_rowwise && !rows.swizzled)
        store_kept(p.rowwise.scales + band.scales[0] + rows.offset(0, int64_t(band.index) * kBand, line / kMxBlock), scale);
    if (!lines.swizzled) store_kept(p.columnwise.scales + band.scales[1] + lines.offset(0, line, band.index), scale);
}

// Stores the rows that pad a group behind its last band: codes of +0, and scales where these are compact and a row's own.
template <BandScales of>
__device__ __forceinline__ void store_rows_behind(const QuantizeProblem& p, const Band& band, int64_t col) {
    const QuantizedPart& part = p.rowwise;
    const int lane = threadIdx.x % 32, bytes = int(min(p.source.cols - col, int64_t(kTile)));
    const int64_t behind = int64_t(band.index + 1) * kBand;
    uint8_t* const codes = part.line(0, band.code_row + kBand) + col;
    uint8_t* const scales = part.scales + band.scales[0] + behind * part.layout.line_stride + col / kMxBlock;
#pragma unroll 1
    for (int row = 0; row < band.rows_behind; row++) {
        if (lane * 4 < bytes) *reinterpret_cast<uint32_t*>(codes + row * part.line_bytes + lane * 4) = 0;
        if (of == BandScales::Blocks && !part.layout.swizzled && lane * kMxBlock < bytes)
            scales[row * part.layout.line_stride + lane] = 0;
    }
}

// Stores the band's rows in the rowwise part, and their scales where these are compact and a row's own.
template <class E, BandScales of>
__device__ __forceinline__ void put_band_rows(const QuantizeProblem& p, const PatchVectors<Bf16>& vectors,
                                              const Patch<Bf16>& patch, int in_tile, const Band& band, int64_t col,
                                              TileShared<E>& shared) {
    const QuantizedPart& part = p.rowwise;
    const PartScales<E>& scales = shared.scales.parts[0];
    const int lane = threadIdx.x % 32;
    CodeTile to(part, {0, 0, 0, col, 0}, {}, p.source.cols);
    to.codes += (band.code_row - in_tile) * part.line_bytes;
    to.lines = in_tile + band.rows;
    put_rows<E, Bf16>(vectors, patch, of == BandScales::Whole ? 7 : kBandLog2, scales, to, true, shared.codes);
    if (of == BandScales::Blocks && !part.layout.swizzled && lane < band.rows) {
        const int64_t row = int64_t(band.index) * kBand + lane;
        store_shared_scale_word(part.scales + band.scales[0] + part.layout.offset(0, row, col / kMxBlock),
                                scales.words[0][in_tile + lane], part.layout.columns - col / kMxBlock);
    }
    if (band.rows_behind > 0) store_rows_behind<of>(p, band, col);
}

// ---- Scales ------------------------------------------------------------------------------------------------------------

template <class E>
__device__ __forceinline__ const PartScales<E>& scales_of_band(const BandsShared<E>& shared, int band, int columnwise) {
    return shared.tiles[band / kTileBands].scales.parts[columnwise];
}

// The columnwise scales of the word of bands that begins with the warp's, if one does, on their way from shared memory to
// 128 x 4 tiles: a word for each line, of which a lane has four. They are loaded before lines are stored, so that nothing
// waits for them.
template <class E>
struct WordColumns {
    static constexpr int kLines = kTile / 32;
    BandWord word;
    uint32_t words[kLines];

    // `lines` is how many lines there are: a square's scale stands at these alone.
    __device__ __forceinline__ WordColumns(const BandsShared<E>& shared, const BandWord& of, int warp, int64_t lines)
        : word(of) {
        const int lane = threadIdx.x % 32, tile = warp / kTileBands, byte = warp % kTileBands * 8;
#pragma unroll
        for (int i = 0; i < kLines; i++) {
            const int line = lane % 4 * 32 + i * 8 + lane / 4;  // of word 32 * i + lane in the order of the layout
            const uint32_t low = shared.tiles[tile].scales.parts[1].words[0][line];
            const uint32_t high = tile == 0 ? shared.tiles[1].scales.parts[1].words[0][line] : 0;
            words[i] = (__funnelshift_r(low, high, byte) & (~0u >> (32 - 8 * max(word.count, 1)))) << (word.begin * 8);
            if (line >= lines) words[i] = 0;
        }
    }
    __device__ __forceinline__ void store(const QuantizeProblem& p, const Band& band, int64_t col) const {
        const int64_t tile = col / kTile * bands_to_words(band.count) + band.index / kWordBands;
        uint8_t* const to = p.columnwise.scales + band.scales[1] + tile * kSwizzleBytes + threadIdx.x % 32 * 4;
#pragma unroll
        for (int i = 0; i < kLines; i++)
            if (word.is_whole()) *reinterpret_cast<uint32_t*>(to + i * kTile) = words[i];
        if (word.is_whole()) return;
#pragma unroll
        for (int byte = 0; byte < 4; byte++) {
            if (byte < word.begin || byte >= word.end) continue;
#pragma unroll
            for (int i = 0; i < kLines; i++) store_kept(to + i * kTile + byte, uint8_t(words[i] >> byte * 8));
        }
    }
};

// Stores the rowwise scales of that word: the rows of a band have a word each of 16 bytes. A square's scale stands at rows
// that the part has.
template <class E, BandScales of>
__device__ __forceinline__ void store_word_rows(const QuantizeProblem& p, const BandsShared<E>& shared, const BandWord& word,
                                                const Band& band, int warp, int64_t col) {
    const int lane = threadIdx.x % 32;
    const int64_t row = int64_t(band.index / 4) * kSwizzleRows + lane;
    uint8_t* const to = p.rowwise.scales + band.scales[0] + p.rowwise.layout.offset(0, row, col / kMxBlock);
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = warp + i - word.begin;
        const bool exists =
            i >= word.begin && i < word.begin + word.count && (of != BandScales::Squares || lane < shared.bands[at].rows);
        words[i] = exists ? scales_of_band(shared, at, 0).words[0][at % kTileBands * kBand + lane] : 0;
    }
    if (word.is_whole()) *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    else
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i >= word.begin && i < word.end) store_kept(reinterpret_cast<uint32_t*>(to + i * 4), words[i]);
}

// Stores compact columnwise scales.
template <class E>
__device__ __forceinline__ void store_compact_columns(const QuantizeProblem& p, const BandsShared<E>& shared,
                                                      int64_t first_band, int count, int64_t col) {
    constexpr int threads = kTallTiles * Patch<Bf16>::threads;
    store_compact_bands<kTallBands, threads>(
        p.columnwise.scales, p.columnwise.layout.line_stride, first_band, uint32_t(col / kTile),
        int(min(p.source.cols - col, int64_t(kTile))), count, tall_thread(),
        [&](int line, int tile) { return shared.tiles[tile].scales.parts[1].words[0][line]; });
}

// ---- The kernel ----------------------------------------------------------------------------------------------------------

// Quantizes the block's bands in some columns, whose elements are loaded.
template <class E, BandScales of, bool several>
__device__ __forceinline__ void quantize_bands(const BandArguments& a, int64_t col, PatchVectors<Bf16>& vectors,
                                               BandsShared<E>& shared) {
    const QuantizeProblem& p = a.problem;
    const uint32_t first_band = row_of_blocks() * kTallBands;
    const int in_tile = threadIdx.x / 32 * kBand, warp = warp_of_two();
    TileShared<E>& mine = shared.tiles[threadIdx.y];
    const Band& band = shared.bands[warp];
    const Patch<Bf16> patch(kTile, kTile, several ? read_thread() : threadIdx.x);
    if constexpr (of == BandScales::Whole) {
        make_whole_scales<E, several>(a, band, in_tile, col, mine.scales);
        if (a.rule.records) record_band(p, band, vectors);
        if (p.has_rowwise && a.rule.per_line && col == 0)
            store_scales_of_rows(p.rowwise, band, in_tile, mine.scales.parts[0]);
    } else {
        if (a.rule.saturates)
            make_band_scales<E, of, Nonfinite::Saturate, several>(p, vectors, patch, mine.scales);
        else
            make_band_scales<E, of, Nonfinite::Propagate, several>(p, vectors, patch, mine.scales);
    }
    forget_values<Bf16>(vectors);
    if (of == BandScales::Squares) store_band_squares<E>(p, band, col, mine.scales.parts[1]);
    if (p.has_rowwise && band.exists()) put_band_rows<E, of>(p, vectors, patch, in_tile, band, col, mine);
    forget_values<Bf16>(vectors);
    put_columns<E, Bf16>(vectors, patch, kBandLog2, mine.scales.parts[1], mine.codes);
    const int count = __syncthreads_count(band.exists()) / 32;
    CodeTile to(p.columnwise, {0, 0, 0, col, 0}, {}, p.source.cols);
    to.codes += int64_t(first_band) * kBand;
    to.length = count * kBand;
    if constexpr (of == BandScales::Whole) {
        store_tall_lines<E>(shared.tiles, to);
    } else {
        const bool swizzled_columns = p.columnwise.layout.swizzled,
                   swizzled_rows = p.has_rowwise && p.rowwise.layout.swizzled;
        const BandWord word(band, warp, kTallBands);
        const WordColumns<E> columns(shared, word, warp, of == BandScales::Squares ? p.source.cols - col : kTile);
        store_tall_lines<E>(shared.tiles, to);
        if (of == BandScales::Blocks && !swizzled_columns) store_compact_columns(p, shared, first_band, count, col);
        if (word.count == 0) return;
        if (swizzled_columns) columns.store(p, band, col);
        if (swizzled_rows) store_word_rows<E, of>(p, shared, word, band, warp, col);
    }
}

template <class E, BandScales of, bool several>
__global__ void __launch_bounds__(kTallTiles* Patch<Bf16>::threads, kSmBlocks<Bf16> / kTallTiles)
    quantize_bands_kernel(const __grid_constant__ BandArguments a) {
    __shared__ BandsShared<E> shared;
    const QuantizeProblem& p = a.problem;
    const int warp = warp_of_two(), in_tile = warp % kTileBands * kBand;
    PatchVectors<Bf16> vectors;
    bool exists = row_of_blocks() < a.down;
    if (exists) {
        const uint32_t first_band = row_of_blocks() * kTallBands;
        const OrderedGroups<BandUnits> groups(p.grouped, a.units, first_band + warp);
        const bool ordered = __all_sync(kAllLanes, groups.ordered);
        int owner = 0;
        Group group = ordered ? groups.find_tile(first_band + warp, owner)
                              : find_group_by<GroupBy::Tile>(p.grouped, a.units, first_band + warp);
        const uint32_t index = first_band + warp - group.first_group_tile;
        // Loads come first: warps of a new block wait long for each instruction.
        load_band(p, group.starts[kSourceCodes] + int64_t(index) * kBand, existing_rows<kBand>(group, index), in_tile,
                  int64_t(blockIdx.x) * kTile, vectors);
        if (ordered) groups.add_starts(owner, group);
        // Without a group, its starts are where the last one ends: a block behind that has nothing to do.
        exists = group.exists() || group.starts[kColumnwiseCodes] > first_band * kBand;
        if (threadIdx.x % 32 == 0) shared.bands[warp] = band_of(p, a.units, group, index);
        __syncwarp();
    }
    if constexpr (of == BandScales::Whole) {
        wait_for_previous_kernel();  // which makes the maxima
        store_whole_scales<E>(p, a.rule);
    }
    if (!exists) return;
    const Band& band = shared.bands[warp];
    for (int64_t tile = blockIdx.x;;) {
        quantize_bands<E, of, several>(a, tile * kTile, vectors, shared);
        tile += gridDim.x;
        if (!several || tile * kTile >= p.source.cols) return;
        load_band(p, band.source_row, band.existing, in_tile, tile * kTile, vectors);
        __syncthreads();  // all have stored the columns before
    }
}

// ---- On the host ---------------------------------------------------------------------------------------------------------

// Returns whether a block of threads takes several tiles of columns after one search: where a search takes long, and blocks
// are left for all multiprocessors.
inline bool takes_several(const QuantizeProblem& p, int64_t across, int64_t down) {
    return p.grouped.groups.count > 160 && across * down >= 2000;
}

// Returns how many blocks of threads lie side by side.
inline int64_t blocks_across(int64_t across, bool several) {
    constexpr int64_t tiles = 3;
    return several ? ceil_div(across, tiles) : across;
}

inline BandArguments band_arguments(const TileArguments& a) {
    const int64_t down = ceil_div(bands_bound(a.problem), int64_t(kTallBands));
    const bool several = takes_several(a.problem, a.tiles.across, down);
    return {blocks_across(a.tiles.across, several), down, several, {a.tiles.units}, a.rule, a.problem};
}

inline BandScales band_scales(const QuantizeProblem& p) {
    return p.tile.length == 0 ? BandScales::Whole : p.square_tiles ? BandScales::Squares : BandScales::Blocks;
}

// Returns whether this kernel takes a problem whose source is BF16: all its accesses are of 16 bytes, of 8 to rows of codes.
inline bool fits_bands(const TileArguments& a) {
    const QuantizeProblem& p = a.problem;
    if (!p.grouped.set() || !p.has_columnwise || p.format->bits != 8 || !a.wide_in) return false;
    const bool whole = a.rule.whole;
    if ((!whole && p.tile.length != kMxBlock) || p.columnwise.units.codes % kBand != 0) return false;
    const auto fits_scales = [&](const QuantizedPart& part) {
        return !part.layout.swizzled || (!whole && is_aligned(part.scales, 16));
    };
    const bool rows = !p.has_rowwise || (a.access[0].bytes >= 8 && fits_scales(p.rowwise));
    return rows && a.access[1].bytes == 16 && fits_scales(p.columnwise);
}

}  // namespace mxq::cuda
