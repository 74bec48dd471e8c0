// Bands of groups (tile/bands.cuh) in a tile in shared memory (tile/shared_tile.cuh): 128 rows, four bands of 32 or eight of
// 16, of whatever groups. A warp has 16 rows of one band:
//
//     rows of the tile      0 .. 15 | 16 .. 31 | 32 .. 47 | 48 .. 63 | ...         a warp each
//     bands of 32                0             |          1          |             two warps each
//     rowwise codes         from where the group's rows are, as many as it has     by the warp that has the rows
//     columnwise codes      128 of each line, side by side whatever their groups   as of any tile
//     scales of rows        words by the warp that has the rows
//     scales of columns     a byte a line and band: words begin where groups do, and are stored in pieces at a tile's ends
//
//     a block   find rows --> copy --> describe bands --> wait --> codes, scales --> copy the next tile --> wait --> ...
//               every warp                                                           the same bands, on the right
//
// Each warp finds as much as its loads need, and the rest while rows are on their way. A block that takes
// several tiles side by side does so once. The last band of a group also stores what pads the group: rows of the rowwise
// part that no band has, and zeros of its 128 x 4 tiles of scales.
#pragma once
#include "cuda/memory/async_copy.cuh"
#include "cuda/tile/bands.cuh"
#include "cuda/tile/store_scale_words.cuh"
#include "cuda/tile/tile_source.cuh"

namespace mxq::cuda {

// A band of a tile: where it lies in the outputs, from the tile's first column on.
struct PlacedBand {
    Band band;
    uint8_t* row_codes;      // of its first row
    uint8_t* row_scales;     // the first word of its first row
    uint8_t* column_scales;  // the 128 x 4 tile that its columns are in
};

// The bands of a tile by their places in it.
template <int band_rows>
struct TileBands {
    static constexpr int count = kTile / band_rows;
    PlacedBand bands[count];
    CodeTile columns;  // columnwise codes of all
    uint32_t column;   // of tiles, where this one is

    static __device__ __forceinline__ int place_of_warp() { return threadIdx.x / 32 * kChunk / band_rows; }
    // Returns the first of the warp's rows in its band.
    static __device__ __forceinline__ int first_row() { return threadIdx.x / 32 * kChunk % band_rows; }
    __device__ __forceinline__ const PlacedBand& of_warp() const { return bands[place_of_warp()]; }
};

// Returns, on the host, whether lines of columnwise codes begin inside of sectors, so that tiles side by side share these.
inline bool shares_sectors(const QuantizedPart& part) {
    constexpr int sector = 32;
    return !is_aligned(part.codes, sector) || part.line_bytes % sector != 0;
}

// The most tiles of a block of threads, and how many blocks there are at least where one takes several, as timed on an H200
// (docs/performance.md, "Groups").
constexpr uint32_t kMostBandTiles = 4;
constexpr int64_t kFewBandBlocks = 1500;

// Holds how many tiles of bands there are, and how many of them a block of threads takes, which the host settles.
template <int band_rows>
struct BandTiles {
    int64_t across, down;
    uint32_t in_block;  // tiles side by side that a block takes one after the other
    BandUnitsOf<band_rows> units;

    explicit BandTiles(const QuantizeProblem& p)
        : across(ceil_div(p.source.cols, int64_t(kTile))),
          down(ceil_div(bands_bound(p, band_rows), int64_t(TileBands<band_rows>::count))),
          in_block(1),
          units{Tiles(p).units} {
        // Columns whose tiles share sectors take one tile a block, since several would complete sectors later. Both parts of
        // four bits with swizzled columns, which arithmetic bounds, do not wait for that: NVFP4 takes four tiles, MXFP4 two.
        const bool shares = shares_sectors(p.columnwise), is_mx = band_rows == kMxBlock;
        const bool bound_by_arithmetic = p.has_rowwise && p.columnwise.bits == 4 && p.columnwise.layout.swizzled;
        if (shares && !bound_by_arithmetic) return;
        const uint32_t most = shares && is_mx ? kMostBandTiles / 2 : kMostBandTiles;
        while (in_block < most && count() / (2 * in_block) >= kFewBandBlocks) in_block *= 2;
    }
    int64_t count() const { return across * down; }
    dim3 grid() const { return grid_of_rows(ceil_div(across, int64_t(in_block)), down); }
    // Returns the first tile of the block and the one behind its last.
    __device__ __forceinline__ uint32_t begin() const { return blockIdx.x * in_block; }
    __device__ __forceinline__ uint32_t end() const { return min(begin() + in_block, uint32_t(across)); }
};

// ---- Before ------------------------------------------------------------------------------------------------------------

// Starts to copy the warp's 16 lines of the tile, of which the source has `rows` from `first_row` on and `cols` columns.
__device__ __forceinline__ void copy_warp_lines(ChunkTile<Bf16>& tile, const PlainMatrix& in, int64_t first_row, int rows,
                                                int64_t col, int cols) {
    using Tile = ChunkTile<Bf16>;
    constexpr int step = 32 / Tile::line_pieces;
    const int lane = threadIdx.x % 32, line = lane / Tile::line_pieces, piece = lane % Tile::line_pieces;
    const int column = piece * Tile::in_piece, existing = column < cols ? rows : 0;
    const Bf16* at = static_cast<const Bf16*>(in.data) + (first_row + line) * in.row_stride + col + column;
    uint4* const to = &tile.pieces[Tile::slot(threadIdx.x / 32 * kChunk + line, piece)];
    if (__all_sync(kAllLanes, existing >= kChunk)) {
#pragma unroll
        for (int i = 0; i < kChunk; i += step, at += step * in.row_stride) copy_piece(to + i * Tile::line_pieces, at, true);
    } else {
#pragma unroll
        for (int i = 0; i < kChunk; i += step, at += step * in.row_stride)
            copy_piece(to + i * Tile::line_pieces, i + line < existing ? at : static_cast<const Bf16*>(in.data),
                       i + line < existing);
    }
}

// Returns the group of the warp's band, which copy_bands finds and describe_bands reads.
__device__ __forceinline__ Group& group_of_warp() {
    __shared__ Group groups[kChunkThreads / 32];
    return groups[threadIdx.x / 32];
}

// Finds the warp's band and starts to copy its rows; false: the tile has no band.
template <int band_rows>
__device__ __forceinline__ bool copy_bands(ChunkTile<Bf16>& tile, const QuantizeProblem& p,
                                           const BandTiles<band_rows>& tiles) {
    using Bands = TileBands<band_rows>;
    if (row_of_blocks() >= tiles.down) return false;
    const uint32_t first_band = row_of_blocks() * Bands::count, wanted = first_band + Bands::place_of_warp();
    TileSearch<BandUnitsOf<band_rows>> search(p.grouped, tiles.units, wanted);
    const Group& group = search.group;
    if (!group.exists() && group.first_group_tile <= first_band) return false;  // behind the last band of all
    const int row = int(wanted - group.first_group_tile) * band_rows + Bands::first_row();
    const int64_t col = int64_t(tiles.begin()) * kTile;
    copy_warp_lines(tile, p.source.plain, int64_t(group.starts[kSourceCodes]) + row,
                    group.exists() ? int(group.rows) - row : 0, col, int(min(p.source.cols - col, int64_t(kTile))));
    search.add_starts();
    if (threadIdx.x % 32 == 0) group_of_warp() = group;
    __syncwarp();
    return true;
}

// Describes the tile's bands, each by its first warp, while their rows are on their way. All threads of the block call it. A
// barrier must follow.
template <int band_rows>
__device__ __forceinline__ void describe_bands(const QuantizeProblem& p, const BandTiles<band_rows>& tiles,
                                               TileBands<band_rows>& found) {
    using Bands = TileBands<band_rows>;
    const int place = Bands::place_of_warp();
    const uint32_t wanted = row_of_blocks() * Bands::count + place;
    const Group& group = group_of_warp();
    const Band band = band_of(p, tiles.units, group, wanted - group.first_group_tile);
    const int length = __syncthreads_count(band.exists()) / 32 * kChunk;  // rows of bands that exist
    if (threadIdx.x % 32 != 0 || Bands::first_row() != 0) return;
    const int64_t col = int64_t(tiles.begin()) * kTile, row = int64_t(band.index) * band_rows;
    PlacedBand& to = found.bands[place];
    to.band = band;
    to.column_scales = p.columnwise.scales + band.scales[1] +
                       (int64_t(tiles.begin()) * bands_to_words(band.count) + band.index / kWordBands) * kSwizzleBytes;
    if (p.has_rowwise) {
        const ScaleLayout& layout = p.rowwise.layout;
        to.row_codes = p.rowwise.line(0, band.code_row) + col / 8 * p.rowwise.bits;
        to.row_scales =
            p.rowwise.scales + band.scales[0] + layout.offset(0, row, int64_t(tiles.begin()) * (kTile / band_rows));
    }
    if (place > 0) return;
    found.column = tiles.begin();
    found.columns.line_bytes = p.columnwise.line_bytes;
    found.columns.lines = int(min(p.source.cols - col, int64_t(kTile)));
    found.columns.length = length;
    found.columns.codes = p.columnwise.line(0, col) + int64_t(row_of_blocks()) * (kTile / 8 * p.columnwise.bits);
}

// Goes on to the next tile of the block, whose rows are copied; false: there is none. All threads of the block call it once
// they need nothing of the tile before. A barrier must follow.
template <int band_rows>
__device__ __forceinline__ bool copy_next_bands(ChunkTile<Bf16>& tile, const QuantizeProblem& p,
                                                const BandTiles<band_rows>& tiles, TileBands<band_rows>& bands) {
    constexpr int words = kTile / band_rows / 4;  // of scales of a row
    const uint32_t column = bands.column + 1;
    if (column == tiles.end()) return false;
    __syncthreads();
    const PlacedBand& at = bands.of_warp();
    const int64_t col = int64_t(column) * kTile;
    const int cols = int(min(p.source.cols - col, int64_t(kTile)));
    copy_warp_lines(tile, p.source.plain, at.band.source_row + bands.first_row(), at.band.existing - bands.first_row(), col,
                    cols);
    const int place = int(threadIdx.x) - (kChunkThreads - 32);
    if (place < 0 || place >= bands.count) return true;
    PlacedBand& moved = bands.bands[place];
    moved.row_codes += kTile / 8 * p.rowwise.bits;
    moved.row_scales += words * int(p.rowwise.layout.swizzled ? kSwizzleBytes : kSwizzleColumns);
    moved.column_scales += bands_to_words(moved.band.count) * kSwizzleBytes;
    if (place > 0) return true;
    bands.column = column;
    bands.columns.codes += kTile * p.columnwise.line_bytes;
    bands.columns.lines = cols;
    return true;
}

// ---- Codes -------------------------------------------------------------------------------------------------------------

// Returns where rowwise codes of the warp's lines are, by lines of the tile.
template <int band_rows>
__device__ __forceinline__ CodeTile rows_of_band(const QuantizeProblem& p, const TileBands<band_rows>& tile) {
    const PlacedBand& at = tile.of_warp();
    const int in_tile = tile.place_of_warp() * band_rows;
    CodeTile to = tile.columns;
    to.line_bytes = p.rowwise.line_bytes;
    to.codes = at.row_codes - in_tile * to.line_bytes;
    to.length = tile.columns.lines;
    to.lines = at.band.exists() ? in_tile + at.band.rows : 0;
    return to;
}

// Stores the rows that pad a group behind its last band: codes and compact scales of +0.
template <int band_rows>
__device__ __forceinline__ void store_placed_rows_behind(const QuantizedPart& part, const PlacedBand& at, int cols) {
    const int lane = threadIdx.x % 32, first = TileBands<band_rows>::first_row() / kChunk;
#pragma unroll 1
    for (int row = band_rows + first; row < band_rows + at.band.rows_behind; row += band_rows / kChunk) {
        if (lane * 4 < cols * part.bits / 8)
            *reinterpret_cast<uint32_t*>(at.row_codes + row * part.line_bytes + lane * 4) = 0;
        if (!part.layout.swizzled && lane * part.layout.block < cols)
            at.row_scales[row * part.layout.line_stride + lane] = 0;
    }
}

// ---- Scales of rows ------------------------------------------------------------------------------------------------------

// Stores the scales of the warp's rows, and zeros of 128 x 4 tiles behind the last band: word_at(line, i) is a scale word of
// a line of the tile.
template <int band_rows, class WordAt>
__device__ __forceinline__ void store_row_scales(const QuantizedPart& part, const TileBands<band_rows>& tile,
                                                 const WordAt& word_at) {
    constexpr int words = kTile / band_rows / 4, tile_bands = kSwizzleRows / band_rows, word_bands = 32 / band_rows;
    const ScaleLayout& layout = part.layout;
    const PlacedBand& at = tile.of_warp();
    const int lane = threadIdx.x % 32, line = lane % kChunk, word = lane / kChunk;
    const int in_band = TileBands<band_rows>::first_row() + line;
    const int64_t left = layout.columns - (int64_t(tile.column) * words + word) * 4;
    if (word >= words || left <= 0) return;
    const uint32_t scales = word_at(threadIdx.x / 32 * kChunk + line, word);
    if (!layout.swizzled) {
        if (in_band < at.band.rows)
            store_shared_scale_word(at.row_scales + in_band * layout.line_stride + word * 4, scales, left);
        return;
    }
    // Squares have scales where there are no rows and columns.
    const uint32_t existing = in_band < at.band.rows ? ~0u >> (32 - 8 * int(min(left, int64_t(4)))) : 0;
    auto* const to = reinterpret_cast<uint32_t*>(at.row_scales + word * kSwizzleBytes) + in_band * 4;
    store_kept(to, scales & existing);
    if (!at.band.is_last()) return;
    const int first = int(at.band.index % tile_bands);  // 32 rows have a word each in 16 bytes, the next 32 the words behind
#pragma unroll 1
    for (int i = first + 1; i < tile_bands; i++)
        store_kept(to + (i % word_bands - first % word_bands) * (band_rows * 4) + i / word_bands - first / word_bands, 0u);
}

// ---- Scales of columns ---------------------------------------------------------------------------------------------------

// Stores words of 128 x 4 tiles that begin with the warp's band, if one does: bytes_at(line) has the bytes of its bands.
template <int band_rows, class BytesAt>
__device__ __forceinline__ void store_swizzled_columns(const TileBands<band_rows>& tile, const BytesAt& bytes_at) {
    using Bands = TileBands<band_rows>;
    constexpr int warps = band_rows / kChunk, words = kTile / 32 / warps;  // warps of a band, words of a lane
    const PlacedBand& at = tile.of_warp();
    const BandWord word(at.band, Bands::place_of_warp(), Bands::count);
    if (word.count == 0) return;
    const int lane = threadIdx.x % 32, first = Bands::first_row() / kChunk * words;
    uint8_t* const to = at.column_scales + lane * 4 + first * kTile;
#pragma unroll
    for (int i = 0; i < words; i++) {
        const int line = lane % 4 * 32 + (first + i) * 8 + lane / 4;  // in the order of the layout
        const uint32_t existing = line < tile.columns.lines ? ~0u >> (32 - 8 * word.count) : 0;
        const uint32_t bytes = (bytes_at(line) & existing) << (word.begin * 8);
        if (word.is_whole()) {
            *reinterpret_cast<uint32_t*>(to + i * kTile) = bytes;
            continue;
        }
#pragma unroll
        for (int byte = 0; byte < 4; byte++)
            if (byte >= word.begin && byte < word.end) store_kept(to + i * kTile + byte, uint8_t(bytes >> byte * 8));
    }
}

// Stores compact scales of columns: word_at(line, i) has those of four bands.
template <int band_rows, class WordAt>
__device__ __forceinline__ void store_compact_columns(const QuantizedPart& part, const TileBands<band_rows>& tile,
                                                      const WordAt& word_at) {
    constexpr int bands = TileBands<band_rows>::count;
    store_compact_bands<bands, kChunkThreads>(part.scales, part.layout.line_stride, int64_t(row_of_blocks()) * bands,
                                              tile.column, tile.columns.lines, tile.columns.length / band_rows, threadIdx.x,
                                              word_at);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns whether tiles of a group take less time than those of bands: of long groups, where bands share sectors, for
// columns alone and for squares (docs/performance.md, "Groups").
inline bool are_slower_in_bands(const QuantizeProblem& p) {
    if (!shares_sectors(p.columnwise) || (p.has_rowwise && !p.square_tiles)) return false;
    const int64_t long_group = p.square_tiles ? 2048 : 4096;  // rows on average
    return p.grouped.rows >= long_group * p.grouped.groups.count;
}

// Returns whether tiles of bands take groups of a problem, as far as scales and what is faster tell.
inline bool fits_shared_bands(const QuantizeProblem& p) {
    const auto fits = [](const QuantizedPart& part) { return !part.layout.swizzled || is_aligned(part.scales, 4); };
    return p.grouped.set() && p.has_columnwise && fits(p.columnwise) && (!p.has_rowwise || fits(p.rowwise)) &&
           !are_slower_in_bands(p);
}

}  // namespace mxq::cuda
