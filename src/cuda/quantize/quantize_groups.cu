// quantize_groups: groups of aligned BF16 rows to the columnwise part of MXFP8 1x32 and 32x32, or to both parts.
//
// A thread block takes eight consecutive subtiles of 32 rows, of any groups (tile/subtiles.cuh), one a warp:
//
//     columnwise codes      | 0 | 1 | 2 | 0 | 0 | 1 | 2 | 3 | 4 | 5 |       subtiles, numbered in their group: four groups
//     thread blocks         [ - - - - - - - - ] [ - - - - ...
//
// It stores 256 bytes of each K-major row (two_tiles.cuh), whatever the sizes of groups. Each warp finds its own group and
// needs no other warp until codes are stored. Among many groups the search takes long: then a thread block takes several
// tiles of columns, one after the other. The last subtile of a group also stores the rows that pad the rowwise part. The
// grid covers any ends; thread blocks without subtiles exit after the search.
//
// Bytes an element: 2 read, 1.03 written for each part. Bound by memory, and by the search before the first loads:
// docs/performance.md, "Groups".
#include "cuda/implementations.h"
#include "cuda/memory/groups.cuh"
#include "cuda/memory/read_thread.cuh"
#include "cuda/quantize/two_tiles.cuh"
#include "cuda/tile/subtiles.cuh"

namespace mxq::cuda {
namespace {

constexpr int kBlockSubtiles = kTwoTilesRows / kSubtileRows;

struct Arguments {
    int64_t down;    // thread blocks
    bool saturates;  // a maximum ignores NaN
    SubtileUnits units;
    QuantizeProblem problem;
};

template <class E>
struct SubtilesShared {
    TileShared<E> tiles[kTwoTiles];
    Subtile subtiles[kBlockSubtiles];
};

// Returns the index of the warp among those of both tiles.
__device__ __forceinline__ int warp_of_two() { return int(threadIdx.y) * kTileSubtiles + int(threadIdx.x) / 32; }

// ---- Elements ----------------------------------------------------------------------------------------------------------

// Loads a warp's patch: `rows` rows from `source_row` on.
__device__ __forceinline__ void load_subtile(const QuantizeProblem& p, int64_t source_row, int rows, int in_tile,
                                             int64_t col, PatchVectors<Bf16>& vectors) {
    const PlainMatrix& in = p.source.plain;
    const Patch<Bf16> patch(in_tile + rows, int(min(p.source.cols - col, int64_t(kTile))));
    const Bf16* const at =
        static_cast<const Bf16*>(in.data) + (source_row - in_tile + patch.row) * in.row_stride + col + patch.column;
    load_patch_rows(at, in.row_stride, patch, vectors);
}

// ---- Codes -------------------------------------------------------------------------------------------------------------

// Stores the maxima of the warp's subtile in the table of a part; of squares, in both.
template <class E, bool squares, Nonfinite policy>
__device__ __forceinline__ void put_subtile_maxima(const QuantizeProblem& p, bool columnwise,
                                                   const PatchVectors<Bf16>& vectors, const Patch<Bf16>& patch,
                                                   TileScales<E>& scales) {
    if constexpr (squares) {
        if (columnwise)
            put_square_maximum<E>(patch_maximum<Bf16, policy>(vectors), patch, kSubtileRowsLog2,
                                  p.has_rowwise ? &scales.parts[0] : nullptr, &scales.parts[1]);
    } else if (columnwise) {
        put_column_maxima<E, policy>(vectors, patch, kSubtileRowsLog2, scales.parts[1]);
    } else {
        put_row_maxima<E, policy>(vectors, patch, kSubtileRowsLog2, scales.parts[0]);
    }
}

// Makes the factors and stored scales of the warp's subtile. The loop over parts is not unrolled: the compiler would keep
// the magnitudes of all elements, and run out of registers.
template <class E, bool squares, Nonfinite policy>
__device__ __forceinline__ void make_subtile_scales(const QuantizeProblem& p, const PatchVectors<Bf16>& vectors,
                                                    const Patch<Bf16>& patch, TileScales<E>& scales) {
    const int last = p.has_rowwise ? 0 : 1;
#pragma unroll 1
    for (int columnwise = 1; columnwise >= last; columnwise--) {
        put_subtile_maxima<E, squares, policy>(p, columnwise, vectors, patch, scales);
        __syncwarp();
        scale_warp_blocks<E, Bf16>(p, part_of(p, columnwise), 0, kSubtileRowsLog2, scales.parts[columnwise]);
    }
    __syncwarp();
}

// Stores the compact scales of the subtile's squares in both parts, from those of the columnwise part. Rows without elements
// have none.
template <class E>
__device__ __forceinline__ void store_subtile_squares(const QuantizeProblem& p, const Subtile& subtile, int64_t col,
                                                      const PartScales<E>& columns) {
    const int square = threadIdx.x % 32;
    const int64_t line = col + square * kMxBlock;
    if (subtile.existing <= 0 || square >= kTileBlocks || line >= p.source.cols) return;
    // Reads one byte, since other warps may not have written theirs yet.
    const uint8_t scale = reinterpret_cast<const uint8_t*>(&columns.words[0][square * kMxBlock])[threadIdx.x / 32];
    const ScaleLayout &rows = p.rowwise.layout, &lines = p.columnwise.layout;
    if (p.has_rowwise && !rows.swizzled)
        store_kept(
            p.rowwise.scales + subtile.scales[0] + rows.offset(0, int64_t(subtile.index) * kSubtileRows, line / kMxBlock),
            scale);
    if (!lines.swizzled) store_kept(p.columnwise.scales + subtile.scales[1] + lines.offset(0, line, subtile.index), scale);
}

// Stores the rows that pad a group after its last subtile: codes of +0, and compact scales of rows.
template <bool squares>
__device__ __forceinline__ void store_rows_behind(const QuantizeProblem& p, const Subtile& subtile, int64_t col) {
    const QuantizedPart& part = p.rowwise;
    const int lane = threadIdx.x % 32, bytes = int(min(p.source.cols - col, int64_t(kTile)));
    const int64_t behind = int64_t(subtile.index + 1) * kSubtileRows;
    uint8_t* const codes = part.line(0, subtile.code_row + kSubtileRows) + col;
    uint8_t* const scales = part.scales + subtile.scales[0] + behind * part.layout.line_stride + col / kMxBlock;
#pragma unroll 1
    for (int row = 0; row < subtile.rows_behind; row++) {
        if (lane * 4 < bytes) *reinterpret_cast<uint32_t*>(codes + row * part.line_bytes + lane * 4) = 0;
        if (!squares && !part.layout.swizzled && lane * kMxBlock < bytes) scales[row * part.layout.line_stride + lane] = 0;
    }
}

// Stores the subtile's rows in the rowwise part, and their scales where these are compact and each row has its own.
template <class E, bool squares>
__device__ __forceinline__ void put_subtile_rows(const QuantizeProblem& p, const PatchVectors<Bf16>& vectors,
                                                 const Patch<Bf16>& patch, int in_tile, const Subtile& subtile, int64_t col,
                                                 TileShared<E>& shared) {
    const QuantizedPart& part = p.rowwise;
    const PartScales<E>& scales = shared.scales.parts[0];
    const int lane = threadIdx.x % 32;
    CodeTile to(part, {0, 0, 0, col, 0}, {}, p.source.cols);
    to.codes += (subtile.code_row - in_tile) * part.line_bytes;
    to.lines = in_tile + subtile.rows;
    put_rows<E, Bf16>(vectors, patch, kSubtileRowsLog2, scales, to, true, shared.codes);
    if (!squares && !part.layout.swizzled && lane < subtile.rows) {
        const int64_t row = int64_t(subtile.index) * kSubtileRows + lane;
        store_shared_scale_word(part.scales + subtile.scales[0] + part.layout.offset(0, row, col / kMxBlock),
                                scales.words[0][in_tile + lane], part.layout.columns - col / kMxBlock);
    }
    if (subtile.rows_behind > 0) store_rows_behind<squares>(p, subtile, col);
}

// ---- Scales ------------------------------------------------------------------------------------------------------------

// The columnwise scales of the word that starts with the warp's subtile, if one does: a word for each row, four of them a
// lane. They are read from shared memory before codes are stored, so that nothing waits for them.
template <class E>
struct WordColumns {
    static constexpr int kLines = kTile / 32;
    SubtileWord word;
    uint32_t words[kLines];

    // Scales of squares are valid in the first `lines` rows alone.
    __device__ __forceinline__ WordColumns(const SubtilesShared<E>& shared, const SubtileWord& of, int warp, int64_t lines)
        : word(of) {
        const int lane = threadIdx.x % 32, tile = warp / kTileSubtiles, byte = warp % kTileSubtiles * 8;
#pragma unroll
        for (int i = 0; i < kLines; i++) {
            const int line = lane % 4 * 32 + i * 8 + lane / 4;  // of word 32 * i + lane in the order of the layout
            const uint32_t low = shared.tiles[tile].scales.parts[1].words[0][line];
            const uint32_t high = tile == 0 ? shared.tiles[1].scales.parts[1].words[0][line] : 0;
            words[i] = (__funnelshift_r(low, high, byte) & (~0u >> (32 - 8 * max(word.count, 1)))) << (word.begin * 8);
            if (line >= lines) words[i] = 0;
        }
    }
    __device__ __forceinline__ void store(const QuantizeProblem& p, const Subtile& subtile, int64_t col) const {
        const int64_t tile = col / kTile * subtiles_to_words(subtile.count) + subtile.index / kWordSubtiles;
        uint8_t* const to = p.columnwise.scales + subtile.scales[1] + tile * kSwizzleBytes + threadIdx.x % 32 * 4;
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

// Stores the rowwise scales of that word: each row of a subtile has one word of 16 bytes. Scales of squares are valid in
// rows of the part alone.
template <class E, bool squares>
__device__ __forceinline__ void store_word_rows(const QuantizeProblem& p, const SubtilesShared<E>& shared,
                                                const SubtileWord& word, const Subtile& subtile, int warp, int64_t col) {
    const int lane = threadIdx.x % 32;
    const int64_t row = int64_t(subtile.index / 4) * kSwizzleRows + lane;
    uint8_t* const to = p.rowwise.scales + subtile.scales[0] + p.rowwise.layout.offset(0, row, col / kMxBlock);
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = warp + i - word.begin;
        const bool exists = i >= word.begin && i < word.begin + word.count && (!squares || lane < shared.subtiles[at].rows);
        words[i] =
            exists ? shared.tiles[at / kTileSubtiles].scales.parts[0].words[0][at % kTileSubtiles * kSubtileRows + lane] : 0;
    }
    if (word.is_whole())
        *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    else
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i >= word.begin && i < word.end) store_kept(reinterpret_cast<uint32_t*>(to + i * 4), words[i]);
}

// Stores compact columnwise scales.
template <class E>
__device__ __forceinline__ void store_compact_columns(const QuantizeProblem& p, const SubtilesShared<E>& shared,
                                                      int64_t first_subtile, int count, int64_t col) {
    constexpr int threads = kTwoTilesThreads;
    store_compact_subtiles<kBlockSubtiles, threads>(
        p.columnwise.scales, p.columnwise.layout.line_stride, first_subtile, uint32_t(col / kTile),
        int(min(p.source.cols - col, int64_t(kTile))), count, thread_of_two(),
        [&](int line, int tile) { return shared.tiles[tile].scales.parts[1].words[0][line]; });
}

// ---- The kernel ----------------------------------------------------------------------------------------------------------

// Quantizes the subtiles of the thread block in a tile of columns, whose elements are loaded.
template <class E, bool squares>
__device__ __forceinline__ void quantize_subtiles(const Arguments& a, int64_t col, PatchVectors<Bf16>& vectors,
                                                  SubtilesShared<E>& shared) {
    const QuantizeProblem& p = a.problem;
    const uint32_t first_subtile = row_of_blocks() * kBlockSubtiles;
    const int in_tile = threadIdx.x / 32 * kSubtileRows, warp = warp_of_two();
    TileShared<E>& mine = shared.tiles[threadIdx.y];
    const Subtile& subtile = shared.subtiles[warp];
    const Patch<Bf16> patch(kTile, kTile, read_thread());
    if (a.saturates)
        make_subtile_scales<E, squares, Nonfinite::Saturate>(p, vectors, patch, mine.scales);
    else
        make_subtile_scales<E, squares, Nonfinite::Propagate>(p, vectors, patch, mine.scales);
    forget_values<Bf16>(vectors);
    if (squares) store_subtile_squares<E>(p, subtile, col, mine.scales.parts[1]);
    if (p.has_rowwise && subtile.exists()) put_subtile_rows<E, squares>(p, vectors, patch, in_tile, subtile, col, mine);
    forget_values<Bf16>(vectors);
    put_columns<E, Bf16>(vectors, patch, kSubtileRowsLog2, mine.scales.parts[1], mine.codes);
    const int count = __syncthreads_count(subtile.exists()) / 32;
    CodeTile to(p.columnwise, {0, 0, 0, col, 0}, {}, p.source.cols);
    to.codes += int64_t(first_subtile) * kSubtileRows;
    to.length = count * kSubtileRows;
    const bool swizzled_columns = p.columnwise.layout.swizzled, swizzled_rows = p.has_rowwise && p.rowwise.layout.swizzled;
    const SubtileWord word(subtile, warp, kBlockSubtiles);
    const WordColumns<E> columns(shared, word, warp, squares ? p.source.cols - col : kTile);
    store_two_tiles<E>(shared.tiles, to);
    if (!squares && !swizzled_columns) store_compact_columns(p, shared, first_subtile, count, col);
    if (word.count == 0) return;
    if (swizzled_columns) columns.store(p, subtile, col);
    if (swizzled_rows) store_word_rows<E, squares>(p, shared, word, subtile, warp, col);
}

template <class E, bool squares>
__global__ void __launch_bounds__(kTwoTilesThreads, kTwoTilesBlocks)
    quantize_groups_kernel(const __grid_constant__ Arguments a) {
    if (!kTwoTilesFit) return;
    __shared__ SubtilesShared<E> shared;
    const QuantizeProblem& p = a.problem;
    const int warp = warp_of_two(), in_tile = warp % kTileSubtiles * kSubtileRows;
    if (row_of_blocks() >= a.down) return;
    const uint32_t first_subtile = row_of_blocks() * kBlockSubtiles;
    TileSearch<SubtileUnits> search(p.grouped, a.units, first_subtile + warp);
    const Group& group = search.group;
    const uint32_t index = first_subtile + warp - group.first_group_tile;
    // Loads come first: the warps of a new thread block wait long for each instruction.
    PatchVectors<Bf16> vectors;
    load_subtile(p, group.starts[kSourceCodes] + int64_t(index) * kSubtileRows, existing_rows<kSubtileRows>(group, index),
                 in_tile, int64_t(blockIdx.x) * kTile, vectors);
    search.add_starts();
    if (threadIdx.x % 32 == 0) shared.subtiles[warp] = subtile_of(p, a.units, group, index);
    __syncwarp();
    if (!group.exists() && group.first_group_tile <= first_subtile) return;  // after the last subtile of all groups
    const Subtile& subtile = shared.subtiles[warp];
    for (int64_t tile = blockIdx.x;;) {
        quantize_subtiles<E, squares>(a, tile * kTile, vectors, shared);
        tile += gridDim.x;
        if (tile * kTile >= p.source.cols) return;
        load_subtile(p, subtile.source_row, subtile.existing, in_tile, tile * kTile, vectors);
        __syncthreads();  // all threads have stored the tile before
    }
}

// ---- On the host ---------------------------------------------------------------------------------------------------------

// The second value: scales of squares.
constexpr auto kernels =
    kernels_of([]<class E>(E, auto squares) { return kernel(quantize_groups_kernel<E, squares.value>, kTwoTilesBlock); },
               ElementsOf8Bits{}, Values<false, true>{});

// Returns the thread blocks in a row of the grid. A thread block takes three tiles of columns after one search where a
// search takes long and enough thread blocks are left for all SMs.
int64_t blocks_across(const QuantizeProblem& p, int64_t down) {
    constexpr int64_t tiles = 3, many_groups = 160, enough_blocks = 2000;
    const int64_t across = ceil_div(p.source.cols, int64_t(kTile));
    return p.grouped.groups.count > many_groups && across * down >= enough_blocks ? ceil_div(across, tiles) : across;
}

Reason declines(const Context& context, const QuantizeProblem& problem) {
    if (!problem.grouped.set()) return "needs groups, found none";
    if (Reason reason = declines_two_tiles(context, problem); !reason.empty()) return reason;
    if (problem.tile.length != kMxBlock) return needs("blocks of 1x32 or 32x32", problem.tile.name);
    if (problem.columnwise.units.codes % kSubtileRows != 0)
        return "needs groups that begin at multiples of 32 codes, found others";
    const auto fits = [](const QuantizedPart& part) { return !part.layout.swizzled || is_aligned(part.scales, 16); };
    if (!fits(problem.columnwise) || (problem.has_rowwise && !fits(problem.rowwise)))
        return "needs swizzled scales at multiples of 16 bytes, found others";
    if (problem.has_rowwise && code_access(problem.rowwise, true) < 8)
        return "needs rows of codes at multiples of 8 bytes, found others";
    return "";
}

void run(const Context& context, const QuantizeProblem& problem, const Launch& call) {
    const int64_t down = ceil_div(subtiles_bound(problem), int64_t(kBlockSubtiles));
    const Arguments a{down, scale_rule(problem, AmaxBuffers(problem, nullptr)).saturates, {Tiles(problem).units}, problem};
    launch(context, kernels, {problem.format->element, problem.square_tiles}, "quantize_groups",
           grid_of_rows(blocks_across(problem, down), down), call.stream, a);
}

}  // namespace

const QuantizeImplementation quantize_groups = {"quantize_groups", declines, nullptr, run, load_all<kernels>};

}  // namespace mxq::cuda
