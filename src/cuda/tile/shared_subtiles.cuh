// Subtiles of groups (tile/subtiles.cuh) in a tile in shared memory (tile/shared_tile.cuh): 128 rows, which are four
// subtiles of 32 or eight of 16, of any groups. A warp has 16 rows of one subtile:
//
//     rows of the tile      0 .. 15 | 16 .. 31 | 32 .. 47 | 48 .. 63 | ...         a warp each
//     subtiles of 32             0             |          1          |             two warps each
//     rowwise codes         stored where the group's rows are                      by the warp with the rows
//     columnwise codes      128 of each K-major row, contiguous across groups      as in any tile
//     rowwise scales        words                                                  by the warp with the rows
//     columnwise scales     a byte per row and subtile; words start with groups, and two tiles may share one
//
//     thread block   find rows --> copy --> describe subtiles --> wait --> codes, scales --> copy the next tile --> ...
//                    every warp                                                              same rows, to the right
//
// A warp first finds what its loads need, and the rest while these are in flight. A thread block that takes several adjacent
// tiles does so once. The last subtile of a group also stores the group's padding: rows of the rowwise part after it, and
// zeros of its 128 x 4 tiles of scales.
#pragma once
#include "cuda/memory/async_copy.cuh"
#include "cuda/tile/subtiles.cuh"
#include "cuda/tile/store_scale_words.cuh"
#include "cuda/tile/tile_source.cuh"

namespace mxq::cuda {

// A subtile, and its outputs from the tile's first column on.
struct SubtileOutputs {
    Subtile subtile;
    uint8_t* row_codes;      // of its first row
    uint8_t* row_scales;     // the first word of its first row
    uint8_t* column_scales;  // the 128 x 4 tile that its columns are in
};

// The subtiles of a tile.
template <int subtile_rows>
struct TileSubtiles {
    static constexpr int count = kTile / subtile_rows;
    SubtileOutputs subtiles[count];
    CodeTile columns;  // columnwise codes of all
    uint32_t column;   // of tiles

    static __device__ __forceinline__ int index_of_warp() { return threadIdx.x / 32 * kChunk / subtile_rows; }
    // Returns the warp's first row in its subtile.
    static __device__ __forceinline__ int first_row() { return threadIdx.x / 32 * kChunk % subtile_rows; }
    __device__ __forceinline__ const SubtileOutputs& of_warp() const { return subtiles[index_of_warp()]; }
};

// Returns, on the host, whether columnwise K-major rows start inside of sectors, which adjacent tiles then share.
inline bool shares_sectors(const QuantizedPart& part) {
    constexpr int sector = 32;
    return !is_aligned(part.codes, sector) || part.line_bytes % sector != 0;
}

// The maximum of tiles of a thread block, and the minimum of thread blocks where one takes several, as timed on an H200
// (docs/performance.md, "Groups").
constexpr uint32_t kMaxTilesOfBlock = 4;
constexpr int64_t kFewBlocks = 1500;

// The tiles of all subtiles, and how many of them a thread block takes, which the host decides.
template <int subtile_rows>
struct SubtileGrid {
    int64_t across, down;
    uint32_t in_block;  // adjacent tiles that a thread block takes one after the other
    SubtileUnitsOf<subtile_rows> units;

    explicit SubtileGrid(const QuantizeProblem& p)
        : across(ceil_div(p.source.cols, int64_t(kTile))),
          down(ceil_div(subtiles_bound(p, subtile_rows), int64_t(TileSubtiles<subtile_rows>::count))),
          in_block(1),
          units{Tiles(p).units} {
        // Tiles that share sectors of columns are taken one a thread block: several would complete the sectors later.
        // Arithmetic bounds both parts with swizzled columns, so they take four tiles (NVFP4) or two (MXFP4).
        const bool shares = shares_sectors(p.columnwise), is_mx = subtile_rows == kMxBlock;
        const bool bound_by_arithmetic = p.has_rowwise && p.columnwise.layout.swizzled;
        if (shares && !bound_by_arithmetic) return;
        const uint32_t most = shares && is_mx ? kMaxTilesOfBlock / 2 : kMaxTilesOfBlock;
        while (in_block < most && count() / (2 * in_block) >= kFewBlocks) in_block *= 2;
    }
    int64_t count() const { return across * down; }
    dim3 grid() const { return grid_of_rows(ceil_div(across, int64_t(in_block)), down); }
    // Returns the first tile of the thread block, and the one after its last.
    __device__ __forceinline__ uint32_t begin() const { return blockIdx.x * in_block; }
    __device__ __forceinline__ uint32_t end() const { return min(begin() + in_block, uint32_t(across)); }
};

// ---- Loads -------------------------------------------------------------------------------------------------------------

// Starts to copy the warp's 16 rows of the tile. The source has `rows` of them from `first_row` on, and `cols` columns.
__device__ __forceinline__ void copy_warp_lines(ChunkTile<Bf16>& tile, const PlainMatrix& in, int64_t first_row, int rows,
                                                int64_t col, int cols) {
    using Tile = ChunkTile<Bf16>;
    constexpr int step = 32 / Tile::line_vectors;
    const int lane = threadIdx.x % 32, line = lane / Tile::line_vectors, vector = lane % Tile::line_vectors;
    const int column = vector * Tile::vector_elements, existing = column < cols ? rows : 0;
    const Bf16* at = static_cast<const Bf16*>(in.data) + (first_row + line) * in.row_stride + col + column;
    uint4* const to = &tile.vectors[Tile::vector_index(threadIdx.x / 32 * kChunk + line, vector)];
    if (__all_sync(kAllLanes, existing >= kChunk)) {
#pragma unroll
        for (int i = 0; i < kChunk; i += step, at += step * in.row_stride)
            copy_vector(to + i * Tile::line_vectors, at, true);
    } else {
#pragma unroll
        for (int i = 0; i < kChunk; i += step, at += step * in.row_stride)
            copy_vector(to + i * Tile::line_vectors, i + line < existing ? at : static_cast<const Bf16*>(in.data),
                        i + line < existing);
    }
}

// Returns the group of the warp's subtile: copy_subtiles finds it, describe_subtiles reads it.
__device__ __forceinline__ Group& group_of_warp() {
    __shared__ Group groups[kChunkThreads / 32];
    return groups[threadIdx.x / 32];
}

// Finds the warp's subtile and starts to copy its rows; false: the tile has no subtile.
template <int subtile_rows>
__device__ __forceinline__ bool copy_subtiles(ChunkTile<Bf16>& tile, const QuantizeProblem& p,
                                              const SubtileGrid<subtile_rows>& tiles) {
    using Subtiles = TileSubtiles<subtile_rows>;
    if (row_of_blocks() >= tiles.down) return false;
    const uint32_t first_subtile = row_of_blocks() * Subtiles::count, wanted = first_subtile + Subtiles::index_of_warp();
    TileSearch<SubtileUnitsOf<subtile_rows>> search(p.grouped, tiles.units, wanted);
    const Group& group = search.group;
    if (!group.exists() && group.first_group_tile <= first_subtile) return false;  // after the last subtile of all groups
    const int row = int(wanted - group.first_group_tile) * subtile_rows + Subtiles::first_row();
    const int64_t col = int64_t(tiles.begin()) * kTile;
    copy_warp_lines(tile, p.source.plain, int64_t(group.starts[kSourceCodes]) + row,
                    group.exists() ? int(group.rows) - row : 0, col, int(min(p.source.cols - col, int64_t(kTile))));
    search.add_starts();
    if (threadIdx.x % 32 == 0) group_of_warp() = group;
    __syncwarp();
    return true;
}

// Describes the tile's subtiles, each by its first warp, while their rows are in flight. All threads of the block call it. A
// barrier must follow.
template <int subtile_rows>
__device__ __forceinline__ void describe_subtiles(const QuantizeProblem& p, const SubtileGrid<subtile_rows>& tiles,
                                                  TileSubtiles<subtile_rows>& found) {
    using Subtiles = TileSubtiles<subtile_rows>;
    const int index = Subtiles::index_of_warp();
    const uint32_t wanted = row_of_blocks() * Subtiles::count + index;
    const Group& group = group_of_warp();
    const Subtile subtile = subtile_of(p, tiles.units, group, wanted - group.first_group_tile);
    const int length = __syncthreads_count(subtile.exists()) / 32 * kChunk;  // rows of subtiles that exist
    if (threadIdx.x % 32 != 0 || Subtiles::first_row() != 0) return;
    const int64_t col = int64_t(tiles.begin()) * kTile, row = int64_t(subtile.index) * subtile_rows;
    SubtileOutputs& to = found.subtiles[index];
    to.subtile = subtile;
    to.column_scales =
        p.columnwise.scales + subtile.scales[1] +
        (int64_t(tiles.begin()) * subtiles_to_words(subtile.count) + subtile.index / kWordSubtiles) * kSwizzleBytes;
    if (p.has_rowwise) {
        const ScaleLayout& layout = p.rowwise.layout;
        to.row_codes = p.rowwise.line(0, subtile.code_row) + col / 8 * p.rowwise.bits;
        to.row_scales =
            p.rowwise.scales + subtile.scales[0] + layout.offset(0, row, int64_t(tiles.begin()) * (kTile / subtile_rows));
    }
    if (index > 0) return;
    found.column = tiles.begin();
    found.columns.line_bytes = p.columnwise.line_bytes;
    found.columns.lines = int(min(p.source.cols - col, int64_t(kTile)));
    found.columns.length = length;
    found.columns.codes = p.columnwise.line(0, col) + int64_t(row_of_blocks()) * (kTile / 8 * p.columnwise.bits);
}

// Goes on to the next tile of the thread block and starts its copies; false: there is none. All threads of the block call it
// once they need nothing of the tile before. A barrier must follow.
template <int subtile_rows>
__device__ __forceinline__ bool copy_next_subtiles(ChunkTile<Bf16>& tile, const QuantizeProblem& p,
                                                   const SubtileGrid<subtile_rows>& tiles,
                                                   TileSubtiles<subtile_rows>& subtiles) {
    constexpr int words = kTile / subtile_rows / 4;  // of scales of a row
    const uint32_t column = subtiles.column + 1;
    if (column == tiles.end()) return false;
    __syncthreads();
    const SubtileOutputs& at = subtiles.of_warp();
    const int64_t col = int64_t(column) * kTile;
    const int cols = int(min(p.source.cols - col, int64_t(kTile)));
    copy_warp_lines(tile, p.source.plain, at.subtile.source_row + subtiles.first_row(),
                    at.subtile.existing - subtiles.first_row(), col, cols);
    const int index = int(threadIdx.x) - (kChunkThreads - 32);
    if (index < 0 || index >= subtiles.count) return true;
    SubtileOutputs& moved = subtiles.subtiles[index];
    moved.row_codes += kTile / 8 * p.rowwise.bits;
    moved.row_scales += words * int(p.rowwise.layout.swizzled ? kSwizzleBytes : kSwizzleColumns);
    moved.column_scales += subtiles_to_words(moved.subtile.count) * kSwizzleBytes;
    if (index > 0) return true;
    subtiles.column = column;
    subtiles.columns.codes += kTile * p.columnwise.line_bytes;
    subtiles.columns.lines = cols;
    return true;
}

// ---- Codes -------------------------------------------------------------------------------------------------------------

// Returns where the rowwise codes of the warp's rows are, by rows of the tile.
template <int subtile_rows>
__device__ __forceinline__ CodeTile rows_of_subtile(const QuantizeProblem& p, const TileSubtiles<subtile_rows>& tile) {
    const SubtileOutputs& at = tile.of_warp();
    const int in_tile = tile.index_of_warp() * subtile_rows;
    CodeTile to = tile.columns;
    to.line_bytes = p.rowwise.line_bytes;
    to.codes = at.row_codes - in_tile * to.line_bytes;
    to.length = tile.columns.lines;
    to.lines = at.subtile.exists() ? in_tile + at.subtile.rows : 0;
    return to;
}

// Stores the rows that pad a group after its last subtile: codes and compact scales of +0.
template <int subtile_rows>
__device__ __forceinline__ void store_rows_behind_subtile(const QuantizedPart& part, const SubtileOutputs& at, int cols) {
    const int lane = threadIdx.x % 32, first = TileSubtiles<subtile_rows>::first_row() / kChunk;
#pragma unroll 1
    for (int row = subtile_rows + first; row < subtile_rows + at.subtile.rows_behind; row += subtile_rows / kChunk) {
        if (lane * 4 < cols * part.bits / 8)
            *reinterpret_cast<uint32_t*>(at.row_codes + row * part.line_bytes + lane * 4) = 0;
        if (!part.layout.swizzled && lane * part.layout.block < cols)
            at.row_scales[row * part.layout.line_stride + lane] = 0;
    }
}

// ---- Scales of rows ------------------------------------------------------------------------------------------------------

// Stores the scales of the warp's rows, and zeros of 128 x 4 tiles after the last subtile. The callback word_at(line, i)
// returns a scale word of a row of the tile.
template <int subtile_rows, class WordAt>
__device__ __forceinline__ void store_row_scales(const QuantizedPart& part, const TileSubtiles<subtile_rows>& tile,
                                                 const WordAt& word_at) {
    constexpr int words = kTile / subtile_rows / 4, tile_subtiles = kSwizzleRows / subtile_rows,
                  word_subtiles = 32 / subtile_rows;
    const ScaleLayout& layout = part.layout;
    const SubtileOutputs& at = tile.of_warp();
    const int lane = threadIdx.x % 32, line = lane % kChunk, word = lane / kChunk;
    const int in_subtile = TileSubtiles<subtile_rows>::first_row() + line;
    const int64_t left = layout.columns - (int64_t(tile.column) * words + word) * 4;
    if (word >= words || left <= 0) return;
    const uint32_t scales = word_at(threadIdx.x / 32 * kChunk + line, word);
    if (!layout.swizzled) {
        if (in_subtile < at.subtile.rows)
            store_shared_scale_word(at.row_scales + in_subtile * layout.line_stride + word * 4, scales, left);
        return;
    }
    // Scales of squares are there for rows and columns that do not exist.
    const uint32_t existing = in_subtile < at.subtile.rows ? ~0u >> (32 - 8 * int(min(left, int64_t(4)))) : 0;
    auto* const to = reinterpret_cast<uint32_t*>(at.row_scales + word * kSwizzleBytes) + in_subtile * 4;
    store_kept(to, scales & existing);
    if (!at.subtile.is_last()) return;
    const int first =
        int(at.subtile.index % tile_subtiles);  // of the words in 16 bytes of a swizzled tile
#pragma unroll 1
    for (int i = first + 1; i < tile_subtiles; i++)
        store_kept(to + (i % word_subtiles - first % word_subtiles) * (subtile_rows * 4) + i / word_subtiles -
                       first / word_subtiles,
                   0u);
}

// ---- Scales of columns ---------------------------------------------------------------------------------------------------

// Stores the words of 128 x 4 tiles that start with the warp's subtile, if any do. bytes_at(line) has the bytes of its
// subtiles.
template <int subtile_rows, class BytesAt>
__device__ __forceinline__ void store_swizzled_columns(const TileSubtiles<subtile_rows>& tile, const BytesAt& bytes_at) {
    using Subtiles = TileSubtiles<subtile_rows>;
    constexpr int warps = subtile_rows / kChunk, words = kTile / 32 / warps;  // warps of a subtile, words of a lane
    const SubtileOutputs& at = tile.of_warp();
    const SubtileWord word(at.subtile, Subtiles::index_of_warp(), Subtiles::count);
    if (word.count == 0) return;
    const int lane = threadIdx.x % 32, first = Subtiles::first_row() / kChunk * words;
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

// Stores compact columnwise scales. word_at(line, i) has those of four subtiles.
template <int subtile_rows, class WordAt>
__device__ __forceinline__ void store_compact_columns(const QuantizedPart& part, const TileSubtiles<subtile_rows>& tile,
                                                      const WordAt& word_at) {
    constexpr int subtiles = TileSubtiles<subtile_rows>::count;
    store_compact_subtiles<subtiles, kChunkThreads>(part.scales, part.layout.line_stride,
                                                    int64_t(row_of_blocks()) * subtiles, tile.column, tile.columns.lines,
                                                    tile.columns.length / subtile_rows, threadIdx.x, word_at);
}

// ---- On the host -----------------------------------------------------------------------------------------------------

// Returns whether tiles of one group are faster: with long groups whose subtiles share sectors, for the columnwise part
// alone (docs/performance.md, "Groups").
inline bool are_slower_in_subtiles(const QuantizeProblem& p) {
    constexpr int64_t long_group = 4096;  // rows on average
    return shares_sectors(p.columnwise) && !p.has_rowwise && p.grouped.rows >= long_group * p.grouped.groups.count;
}

// Returns whether tiles of subtiles take the groups of a problem with a columnwise part, as far as scales and speed decide.
inline bool fits_shared_subtiles(const QuantizeProblem& p) {
    const auto fits = [](const QuantizedPart& part) { return !part.layout.swizzled || is_aligned(part.scales, 4); };
    return fits(p.columnwise) && (!p.has_rowwise || fits(p.rowwise)) && !are_slower_in_subtiles(p);
}

}  // namespace mxq::cuda
