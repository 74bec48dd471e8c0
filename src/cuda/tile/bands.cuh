// Bands: 32 rows of one group, of NVFP4 16, padding included, whatever the sizes of groups. Groups begin at multiples of so
// many in the lines of columnwise codes, so that these are nothing but bands side by side, and a block of threads takes any
// that follow each other:
//
//     lines of codes      | 0 | 1 | 2 | 0 | 0 | 1 | 2 | 3 | 4 | 5 |       bands by their place in the group: four groups
//     blocks of threads   [ - - - - - - - - ] [ - - - - ...
//     swizzled scales     [0 1 2 +0] [0 +0 +0 +0] [0 1 2 3] [4 5 +0 +0]   a byte a line and band, words for each group
//
// A warp finds the group of its band alone, and needs nothing of the others until codes are stored. Words of scales that
// begin in one block and end in the next are stored in two pieces.
#pragma once
#include "cuda/memory/groups.cuh"
#include "cuda/memory/scale_words.cuh"
#include "cuda/tile/location.cuh"

namespace mxq::cuda {

constexpr int kBandLog2 = 5, kBand = 1 << kBandLog2, kTileBands = kTile / kBand;
constexpr int kWordBands = kSwizzleColumns;  // bands whose columnwise scales stand in a word of 128 x 4 tiles

static_assert(kBand == kMxBlock, "a block of columns is a band's");

// Counts bands of `band_rows` rows, the length of a block of columns, in place of group tiles.
template <int band_rows>
struct BandUnitsOf : GroupSumUnits {
    __device__ __forceinline__ uint32_t group_tiles(uint32_t rows) const {
        return round_up(kColumnwiseCodes, rows) / band_rows;
    }
    // Returns how many there are, given what find_group_tile returns where there is no group.
    __device__ __forceinline__ uint32_t tiles_of_all(const Group& none) const {
        return none.starts[kColumnwiseCodes] / band_rows;
    }
};

using BandUnits = BandUnitsOf<kBand>;

// Where a band lies in its group and in the outputs.
struct Band {
    uint32_t index, count;    // among those of the group; 0 of 0: there is none
    int32_t group, existing;  // its number; rows of the band that it has, padding aside
    int32_t rows;             // of the band that the rowwise part has
    int32_t rows_behind;      // that it has behind the last band of the group
    int64_t source_row;
    int64_t code_row;   // of the rowwise part
    int64_t scales[2];  // bytes to the group's first scale, rowwise and columnwise

    __device__ __forceinline__ bool exists() const { return index < count; }
    __device__ __forceinline__ bool is_last() const { return index + 1 == count; }
};

__device__ __forceinline__ uint32_t bands_to_words(uint32_t bands) { return (bands + kWordBands - 1) / kWordBands; }

// Bands that stand together in a word of swizzled scales, as far as a block has them: what one store takes.
struct BandWord {
    int count;       // of the block's bands, from the first on; 0: the band is not the first
    int begin, end;  // bytes of the word that are stored: what pads the group is stored with its last band

    // `place` is the band's among the `in_block` of the block.
    __device__ __forceinline__ BandWord(const Band& band, int place, int in_block)
        : count(0), begin(int(band.index % kWordBands)), end(0) {
        if (!band.exists() || (place > 0 && begin > 0)) return;
        const int most = min(kWordBands - begin, in_block - place), left = int(band.count - band.index);
        count = min(most, left);
        end = left <= most ? kWordBands : begin + count;
    }
    __device__ __forceinline__ bool is_whole() const { return begin == 0 && end == kWordBands; }
};

// Stores compact scales of columns of a tile by `threads` threads: of each line those of `count` bands from the first on, a
// byte each. word_at(line, i) has those of four bands.
template <int bands, int threads, class WordAt>
__device__ __forceinline__ void store_compact_bands(uint8_t* scales, int64_t stride, int64_t first_band, uint32_t column,
                                                    int lines, int count, int thread, const WordAt& word_at) {
    constexpr int words = bands / kWordBands;
    uint8_t* const to = scales + int64_t(column) * kTile * stride + first_band;
    if ((reinterpret_cast<uintptr_t>(to) | uintptr_t(stride)) % 4 == 0) {
        const int line = thread / words, word = thread % words;
        if (line < lines) store_shared_scale_word(to + line * stride + word * 4, word_at(line, word), count - word * 4);
        return;
    }
    const int band = thread % bands;
#pragma unroll
    for (int line = thread / bands; line < kTile; line += threads / bands)
        if (line < lines && band < count)
            store_kept(to + line * stride + band, uint8_t(word_at(line, band / 4) >> band % 4 * 8));
}

// Returns how many rows a group has in its `index`th band, padding aside.
template <int band_rows>
__device__ __forceinline__ int32_t existing_rows(const Group& group, uint32_t index) {
    const int64_t left = int64_t(group.rows) - int64_t(index) * band_rows;
    return group.exists() ? int32_t(max(min(left, int64_t(band_rows)), int64_t(0))) : 0;
}

// Describes the outputs of a band of this group, the `index`th.
template <int band_rows>
__device__ __forceinline__ Band band_of(const QuantizeProblem& p, const BandUnitsOf<band_rows>& units, const Group& group,
                                        uint32_t index) {
    if (!group.exists()) return {};
    const int64_t row = int64_t(index) * band_rows, source_row = int64_t(group.starts[kSourceCodes]) + row;
    const int32_t existing = existing_rows<band_rows>(group, index);
    Band band{index, units.group_tiles(group.rows), group.index, existing, 0, 0, source_row, 0, {}};
    band.scales[1] = group_scale_offset(p.columnwise.layout, group.start(kColumnwisePart));
    if (!p.has_rowwise) return band;
    // Padding may take a group beyond 2^31 - 1 rows.
    const int64_t left = int64_t(units.round_up(kRowwiseCodes, group.rows)) - row;
    band.rows = int32_t(min(left, int64_t(band_rows)));
    if (band.is_last()) band.rows_behind = int32_t(max(left - band_rows, int64_t(0)));
    band.code_row = int64_t(group.starts[kRowwiseCodes]) + row;
    band.scales[0] = group_scale_offset(p.rowwise.layout, group.start(kRowwisePart));
    return band;
}

inline int64_t bands_bound(const QuantizeProblem& p, int band_rows = kBand) {
    return padded_rows_bound(p.grouped.rows, p.grouped.groups.count, p.columnwise.units.codes) / band_rows;
}

}  // namespace mxq::cuda
