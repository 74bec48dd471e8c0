// The kernel of quantize_tile for groups of BF16 rows to the columnwise part of MXFP8 1x32, and to both parts. A block of
// threads takes eight bands of 32 rows that follow each other, of whatever groups (tile/bands.cuh), a warp each:
//
//     lines of codes      | 0 | 1 | 2 | 0 | 0 | 1 | 2 | 3 | 4 | 5 |       bands by their place in the group: four groups
//     blocks of threads   [ - - - - - - - - ] [ - - - - ...
//
// It stores 256 bytes of each line, as one does where there are no groups (quantize_tall.cuh), whatever the sizes of groups
// are. Each warp finds its own group and needs nothing of the others until codes are stored.
//
// The last band of a group also stores the rows that pad the group in the rowwise part alone. Blocks that the ends might
// have needed leave once they know.
//
// Bound by memory as without groups, and by what a block waits for before its loads: docs/performance.md, "Groups".
#pragma once
#include "cuda/memory/ordered_groups.cuh"
#include "cuda/quantize/quantize_tall.cuh"
#include "cuda/tile/bands.cuh"

namespace mxq::cuda {

constexpr int kTallBands = kTallRows / kBand;

struct BandArguments {
    int64_t across, down;  // blocks of threads
    BandUnits units;
    bool saturates;
    QuantizeProblem problem;
};

template <class E>
struct BandsShared {
    TileShared<E> tiles[kTallTiles];
    Band bands[kTallBands];
};

// ---- Before ------------------------------------------------------------------------------------------------------------

// Loads the rows of the warp's band, which are counted from the first of its tile, as the patch has them.
__device__ __forceinline__ void load_band(const QuantizeProblem& p, const Group& group, uint32_t index, int in_tile,
                                          int64_t col, PatchVectors<Bf16>& vectors) {
    const PlainMatrix& in = p.source.plain;
    const int row = int(index) * kBand, rows = group.exists() ? min(int(group.rows) - row, kBand) : 0;
    const int64_t first_row = int64_t(group.starts[kSourceCodes]) + row - in_tile;
    const Patch<Bf16> patch(in_tile + rows, int(min(p.source.cols - col, int64_t(kTile))));
    load_wide_vectors(vectors, static_cast<const Bf16*>(in.data) + first_row * in.row_stride + col, in.row_stride, patch);
}

// ---- Codes -------------------------------------------------------------------------------------------------------------

// Makes the factors and the stored scales of the warp's band.
template <class E, Nonfinite policy>
__device__ __forceinline__ void make_band_scales(const QuantizeProblem& p, const PatchVectors<Bf16>& vectors,
                                                 const Patch<Bf16>& patch, TileScales<E>& scales) {
    put_column_maxima<E, policy>(vectors, patch, kBandLog2, scales.parts[1]);
    if (p.has_rowwise) put_row_maxima<E, policy>(vectors, patch, kBandLog2, scales.parts[0]);
    __syncwarp();
#pragma unroll 1
    for (int columnwise = p.has_rowwise ? 0 : 1; columnwise < 2; columnwise++)
        scale_warp_blocks<E, Bf16>(p, part_of(p, columnwise), 0, kBandLog2, scales.parts[columnwise]);
    __syncwarp();
}

// Stores the rows that pad a group behind its last band: codes and compact scales of +0.
__device__ __forceinline__ void store_rows_behind(const QuantizeProblem& p, const Band& band, int64_t col) {
    const QuantizedPart& part = p.rowwise;
    const int lane = threadIdx.x % 32, bytes = int(min(p.source.cols - col, int64_t(kTile)));
    const int64_t behind = int64_t(band.index + 1) * kBand;
    uint8_t* const codes = part.line(0, band.code_row + kBand) + col;
    uint8_t* const scales = part.scales + band.scales[0] + behind * part.layout.line_stride + col / kMxBlock;
#pragma unroll 1
    for (int row = 0; row < band.rows_behind; row++) {
        if (lane * 4 < bytes) *reinterpret_cast<uint32_t*>(codes + row * part.line_bytes + lane * 4) = 0;
        if (!part.layout.swizzled && lane * kMxBlock < bytes) scales[row * part.layout.line_stride + lane] = 0;
    }
}

// Stores the band's rows in the rowwise part, and their scales where these are compact.
template <class E>
__device__ __forceinline__ void put_band_rows(const QuantizeProblem& p, const PatchVectors<Bf16>& vectors,
                                              const Patch<Bf16>& patch, int in_tile, const Band& band, int64_t col,
                                              TileShared<E>& shared) {
    const QuantizedPart& part = p.rowwise;
    const PartScales<E>& scales = shared.scales.parts[0];
    const int lane = threadIdx.x % 32;
    CodeTile to(part, {0, 0, 0, col, 0}, {}, p.source.cols);
    to.codes += (band.code_row - in_tile) * part.line_bytes;
    to.lines = in_tile + band.rows;
    put_rows<E, Bf16>(vectors, patch, kBandLog2, scales, to, true, shared.codes);
    if (!part.layout.swizzled && lane < band.rows) {
        const int64_t row = int64_t(band.index) * kBand + lane;
        store_shared_scale_word(part.scales + band.scales[0] + part.layout.offset(0, row, col / kMxBlock),
                                scales.words[0][in_tile + lane], part.layout.columns - col / kMxBlock);
    }
    if (band.rows_behind > 0) store_rows_behind(p, band, col);
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

    __device__ __forceinline__ WordColumns(const BandsShared<E>& shared, const BandWord& of, int warp) : word(of) {
        const int lane = threadIdx.x % 32, tile = warp / kTileBands, byte = warp % kTileBands * 8;
#pragma unroll
        for (int i = 0; i < kLines; i++) {
            const int line = lane % 4 * 32 + i * 8 + lane / 4;  // of word 32 * i + lane in the order of the layout
            const uint32_t low = shared.tiles[tile].scales.parts[1].words[0][line];
            const uint32_t high = tile == 0 ? shared.tiles[1].scales.parts[1].words[0][line] : 0;
            words[i] = (__funnelshift_r(low, high, byte) & (~0u >> (32 - 8 * max(word.count, 1)))) << (word.begin * 8);
        }
    }
    __device__ __forceinline__ void store(const QuantizeProblem& p, const Band& band, int64_t col) const {
        const int64_t tile = col / kTile * ((band.count + 3) / 4) + band.index / 4;
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

// Stores the rowwise scales of that word: the rows of a band have a word each of 16 bytes.
template <class E>
__device__ __forceinline__ void store_word_rows(const QuantizeProblem& p, const BandsShared<E>& shared, const BandWord& word,
                                                const Band& band, int warp, int64_t col) {
    const int lane = threadIdx.x % 32;
    const int64_t row = int64_t(band.index / 4) * kSwizzleRows + lane;
    uint8_t* const to = p.rowwise.scales + band.scales[0] + p.rowwise.layout.offset(0, row, col / kMxBlock);
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = warp + i - word.begin;
        const bool exists = i >= word.begin && i < word.begin + word.count;
        words[i] = exists ? scales_of_band(shared, at, 0).words[0][at % kTileBands * kBand + lane] : 0;
    }
    if (word.is_whole()) *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    else
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i >= word.begin && i < word.end) store_kept(reinterpret_cast<uint32_t*>(to + i * 4), words[i]);
}

// Stores compact columnwise scales: the bytes of bands side by side.
template <class E>
__device__ __forceinline__ void store_compact_columns(const QuantizeProblem& p, const BandsShared<E>& shared,
                                                      int64_t first_band, int count, int64_t col) {
    const ScaleLayout& layout = p.columnwise.layout;
    constexpr int threads = kTallTiles * Patch<Bf16>::threads;
    const int thread = tall_thread(), lines = int(min(p.source.cols - col, int64_t(kTile)));
    uint8_t* const to = p.columnwise.scales + col * layout.line_stride + first_band;
    if ((reinterpret_cast<uintptr_t>(to) | uintptr_t(layout.line_stride)) % 4 == 0) {
        const int line = thread / kTallTiles, tile = thread % kTallTiles;
        if (line < lines)
            store_shared_scale_word(to + line * layout.line_stride + tile * kTileBands,
                                    shared.tiles[tile].scales.parts[1].words[0][line], count - tile * kTileBands);
        return;
    }
    const int band = thread % kTallBands;
#pragma unroll
    for (int line = thread / kTallBands; line < kTile; line += threads / kTallBands)
        if (line < lines && band < count)
            store_kept(to + line * layout.line_stride + band,
                       uint8_t(scales_of_band(shared, band, 1).words[0][line] >> band % kTileBands * 8));
}

// ---- The kernel ----------------------------------------------------------------------------------------------------------

template <class E>
__global__ void __launch_bounds__(kTallTiles* Patch<Bf16>::threads, kSmBlocks<Bf16> / kTallTiles)
    quantize_bands_kernel(const __grid_constant__ BandArguments a) {
    __shared__ BandsShared<E> shared;
    const QuantizeProblem& p = a.problem;
    if (row_of_blocks() >= a.down) return;
    const int in_tile = threadIdx.x / 32 * kBand, warp = int(threadIdx.y) * kTileBands + int(threadIdx.x) / 32;
    const uint32_t first_band = row_of_blocks() * kTallBands, wanted = first_band + warp;
    const int64_t col = int64_t(blockIdx.x) * kTile;
    TileShared<E>& mine = shared.tiles[threadIdx.y];
    PatchVectors<Bf16> vectors;
    {
        const Group group = find_ordered_group_tile(p.grouped, a.units, wanted);
        // Without a group, its starts are where the last one ends: a block behind that has nothing to do.
        if (!group.exists() && group.starts[kColumnwiseCodes] <= first_band * kBand) return;
        load_band(p, group, wanted - group.first_group_tile, in_tile, col, vectors);
        if (threadIdx.x % 32 == 0) shared.bands[warp] = band_of(p, a.units, group, wanted - group.first_group_tile);
        __syncwarp();
    }
    const Band& band = shared.bands[warp];
    const Patch<Bf16> patch(kTile, kTile);
    if (a.saturates) make_band_scales<E, Nonfinite::Saturate>(p, vectors, patch, mine.scales);
    else make_band_scales<E, Nonfinite::Propagate>(p, vectors, patch, mine.scales);
    forget_values<Bf16>(vectors);
    if (p.has_rowwise && band.exists()) put_band_rows<E>(p, vectors, patch, in_tile, band, col, mine);
    forget_values<Bf16>(vectors);
    put_columns<E, Bf16>(vectors, patch, kBandLog2, mine.scales.parts[1], mine.codes);
    const int count = __syncthreads_count(band.exists()) / 32;
    const bool swizzled_columns = p.columnwise.layout.swizzled, swizzled_rows = p.has_rowwise && p.rowwise.layout.swizzled;
    const BandWord word(band, warp, kTallBands);
    const WordColumns<E> columns(shared, word, warp);
    CodeTile to(p.columnwise, {0, 0, 0, col, 0}, {}, p.source.cols);
    to.codes += int64_t(first_band) * kBand;
    to.length = count * kBand;
    store_tall_lines<E>(shared.tiles, to);
    if (!swizzled_columns) store_compact_columns(p, shared, first_band, count, col);
    if (word.count == 0) return;
    if (swizzled_columns) columns.store(p, band, col);
    if (swizzled_rows) store_word_rows(p, shared, word, band, warp, col);
}

// ---- On the host ---------------------------------------------------------------------------------------------------------

inline BandArguments band_arguments(const QuantizeProblem& p) {
    const int64_t across = ceil_div(p.source.cols, int64_t(kTile)), down = ceil_div(bands_bound(p), int64_t(kTallBands));
    return {across, down, {Tiles(p).units}, p.nonfinite == Nonfinite::Saturate, p};
}

// Returns whether this kernel takes a problem whose source is BF16: all its accesses are of 16 bytes, of 8 to rows of codes.
inline bool fits_bands(const QuantizeProblem& p) {
    if (!p.grouped.set() || !p.has_columnwise || !p.format->is_mx() || p.format->bits != 8) return false;
    if (p.tile.id != MXQ_SCALING_1X32 || !is_wide_plain(p.source.plain)) return false;
    const auto has_wide_scales = [](const QuantizedPart& part) {
        return !part.layout.swizzled || is_aligned(part.scales, 16);
    };
    const bool rows = !p.has_rowwise || (code_access(p.rowwise, true).bytes >= 8 && has_wide_scales(p.rowwise));
    return rows && code_access(p.columnwise, true).bytes == 16 && has_wide_scales(p.columnwise);
}

}  // namespace mxq::cuda
