// Subtiles: 32 rows (NVFP4: 16) of one group, padding included. A subtile is one block of every columnwise K-major row, and
// groups start at multiples of it there. So subtiles of all groups are adjacent, and a thread block takes any that follow
// each other:
//
//     columnwise codes      | 0 | 1 | 2 | 0 | 0 | 1 | 2 | 3 | 4 | 5 |       subtiles, numbered in their group: four groups
//     thread blocks         [ - - - - - - - - ] [ - - - - ...
//     swizzled scales       [0 1 2 +0] [0 +0 +0 +0] [0 1 2 3] [4 5 +0 +0]   a byte per row and subtile; words per group
//
// A warp finds the group of its subtile alone, and needs no other warp until codes are stored. A word of scales that two
// thread blocks share is stored in two parts.
#pragma once
#include "cuda/memory/groups.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/tile/location.cuh"

namespace mxq::cuda {

constexpr int kSubtileRowsLog2 = 5, kSubtileRows = 1 << kSubtileRowsLog2, kTileSubtiles = kTile / kSubtileRows;
constexpr int kWordSubtiles = kSwizzleColumns;  // subtiles whose columnwise scales share a word of 128 x 4 tiles

static_assert(kSubtileRows == kMxBlock, "a block of columns is a subtile's");

// Counts subtiles of `subtile_rows` rows in place of group tiles.
template <int subtile_rows>
struct SubtileUnitsOf : GroupSumUnits {
    __device__ __forceinline__ uint32_t group_tiles(uint32_t rows) const {
        return round_up(kColumnwiseCodes, rows) / subtile_rows;
    }
    // Returns how many there are, given what find_group_tile returns without a group.
    __device__ __forceinline__ uint32_t tiles_of_all(const Group& none) const {
        return none.starts[kColumnwiseCodes] / subtile_rows;
    }
};

using SubtileUnits = SubtileUnitsOf<kSubtileRows>;

// The position of a subtile in its group and in the outputs.
struct Subtile {
    uint32_t index, count;    // in the group; 0 of 0: there is none
    int32_t group, existing;  // number of the group; rows without padding
    int32_t rows;             // of the subtile in the rowwise part
    int32_t rows_behind;      // of the rowwise part after the group's last subtile
    int64_t source_row;
    int64_t code_row;   // of the rowwise part
    int64_t scales[2];  // bytes to the group's first scale, rowwise and columnwise

    __device__ __forceinline__ bool exists() const { return index < count; }
    __device__ __forceinline__ bool is_last() const { return index + 1 == count; }
};

__device__ __forceinline__ uint32_t subtiles_to_words(uint32_t subtiles) {
    return (subtiles + kWordSubtiles - 1) / kWordSubtiles;
}

// The subtiles of a thread block that share a word of swizzled scales: one store.
struct SubtileWord {
    int count;       // subtiles, from this one on; 0: another one is the first
    int begin, end;  // stored bytes of the word; padding belongs to the last subtile

    // The subtile is number `in_block_index` among the `in_block` of the thread block.
    __device__ __forceinline__ SubtileWord(const Subtile& subtile, int in_block_index, int in_block)
        : count(0), begin(int(subtile.index % kWordSubtiles)), end(0) {
        if (!subtile.exists() || (in_block_index > 0 && begin > 0)) return;
        const int most = min(kWordSubtiles - begin, in_block - in_block_index), left = int(subtile.count - subtile.index);
        count = min(most, left);
        end = left <= most ? kWordSubtiles : begin + count;
    }
    __device__ __forceinline__ bool is_whole() const { return begin == 0 && end == kWordSubtiles; }
};

// Stores the compact columnwise scales of a tile by `threads` threads: of each row those of `count` subtiles, a byte each.
// word_at(line, i) has the bytes of four subtiles.
template <int subtiles, int threads, class WordAt>
__device__ __forceinline__ void store_compact_subtiles(uint8_t* scales, int64_t stride, int64_t first_subtile,
                                                       uint32_t column, int lines, int count, int thread,
                                                       const WordAt& word_at) {
    constexpr int words = subtiles / kWordSubtiles;
    uint8_t* const to = scales + int64_t(column) * kTile * stride + first_subtile;
    if ((reinterpret_cast<uintptr_t>(to) | uintptr_t(stride)) % 4 == 0) {
        const int line = thread / words, word = thread % words;
        if (line < lines) store_shared_scale_word(to + line * stride + word * 4, word_at(line, word), count - word * 4);
        return;
    }
    const int subtile = thread % subtiles;
#pragma unroll
    for (int line = thread / subtiles; line < kTile; line += threads / subtiles)
        if (line < lines && subtile < count)
            store_kept(to + line * stride + subtile, uint8_t(word_at(line, subtile / 4) >> subtile % 4 * 8));
}

// Returns how many rows without padding a group has in subtile `index`.
template <int subtile_rows>
__device__ __forceinline__ int32_t existing_rows(const Group& group, uint32_t index) {
    const int64_t left = int64_t(group.rows) - int64_t(index) * subtile_rows;
    return group.exists() ? int32_t(max(min(left, int64_t(subtile_rows)), int64_t(0))) : 0;
}

// Describes subtile `index` of this group.
template <int subtile_rows>
__device__ __forceinline__ Subtile subtile_of(const QuantizeProblem& p, const SubtileUnitsOf<subtile_rows>& units,
                                              const Group& group, uint32_t index) {
    if (!group.exists()) return {};
    const int64_t row = int64_t(index) * subtile_rows, source_row = int64_t(group.starts[kSourceCodes]) + row;
    const int32_t existing = existing_rows<subtile_rows>(group, index);
    Subtile subtile{index, units.group_tiles(group.rows), group.index, existing, 0, 0, source_row, 0, {}};
    subtile.scales[1] = group_scale_offset(p.columnwise.layout, group.start(kColumnwisePart));
    if (!p.has_rowwise) return subtile;
    // Padding may take a group beyond 2^31 - 1 rows.
    const int64_t left = int64_t(units.round_up(kRowwiseCodes, group.rows)) - row;
    subtile.rows = int32_t(min(left, int64_t(subtile_rows)));
    if (subtile.is_last()) subtile.rows_behind = int32_t(max(left - subtile_rows, int64_t(0)));
    subtile.code_row = int64_t(group.starts[kRowwiseCodes]) + row;
    subtile.scales[0] = group_scale_offset(p.rowwise.layout, group.start(kRowwisePart));
    return subtile;
}

inline int64_t subtiles_bound(const QuantizeProblem& p, int subtile_rows = kSubtileRows) {
    return padded_rows_bound(p.grouped.rows, p.grouped.groups.count, p.columnwise.units.codes) / subtile_rows;
}

}  // namespace mxq::cuda
