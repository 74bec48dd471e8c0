// Bands: 32 rows of one group, padding included, whatever the sizes of groups. Groups begin at multiples of 32 in the lines
// of columnwise codes, so that these are nothing but bands side by side, and a block of threads takes any that follow each
// other:
//
//     lines of codes      | 0 | 1 | 2 | 0 | 0 | 1 | 2 | 3 | 4 | 5 |       bands by their place in the group: four groups
//     blocks of threads   [ - - - - - - - - ] [ - - - - ...
//     swizzled scales     [0 1 2 +0] [0 +0 +0 +0] [0 1 2 3] [4 5 +0 +0]   a byte a line and band, words for each group
//
// A warp finds the group of its band alone, and needs nothing of the others until codes are stored. Words of scales that
// begin in one block and end in the next are stored in two pieces.
#pragma once
#include "cuda/memory/groups.cuh"
#include "cuda/tile/location.cuh"

namespace mxq::cuda {

constexpr int kBandLog2 = 5, kBand = 1 << kBandLog2, kTileBands = kTile / kBand;

static_assert(kBand == kMxBlock, "a block of columns is a band's");

// Counts bands in place of group tiles.
struct BandUnits : GroupSumUnits {
    __device__ __forceinline__ uint32_t group_tiles(uint32_t rows) const { return round_up(kColumnwiseCodes, rows) / kBand; }
};

// Where a band lies in its group and in the outputs.
struct Band {
    uint32_t index, count;  // among those of the group; 0 of 0: there is none
    int32_t rows;           // of the band that the rowwise part has
    int32_t rows_behind;    // that it has behind the last band of the group
    int64_t code_row;       // of the rowwise part
    int64_t scales[2];      // bytes to the group's first scale, rowwise and columnwise

    __device__ __forceinline__ bool exists() const { return index < count; }
    __device__ __forceinline__ bool is_last() const { return index + 1 == count; }
};

// Bands that stand together in a word of swizzled scales, as far as a block has them: what one store takes.
struct BandWord {
    int count;       // of the block's bands, from the first on; 0: the band is not the first
    int begin, end;  // bytes of the word that are stored: what pads the group is stored with its last band

    // `place` is the band's among the `in_block` of the block.
    __device__ __forceinline__ BandWord(const Band& band, int place, int in_block)
        : count(0), begin(int(band.index % kTileBands)), end(0) {
        if (!band.exists() || (place > 0 && begin > 0)) return;
        const int most = min(kTileBands - begin, in_block - place), left = int(band.count - band.index);
        count = min(most, left);
        end = left <= most ? kTileBands : begin + count;
    }
    __device__ __forceinline__ bool is_whole() const { return begin == 0 && end == kTileBands; }
};

// Describes the outputs of a band of this group, the `index`th.
__device__ __forceinline__ Band band_of(const QuantizeProblem& p, const BandUnits& units, const Group& group,
                                        uint32_t index) {
    if (!group.exists()) return {};
    Band band{index, units.group_tiles(group.rows), 0, 0, 0, {}};
    band.scales[1] = group_scale_offset(p.columnwise.layout, group.start(kColumnwisePart));
    if (!p.has_rowwise) return band;
    // Padding may take a group beyond 2^31 - 1 rows.
    const int64_t row = int64_t(index) * kBand, left = int64_t(units.round_up(kRowwiseCodes, group.rows)) - row;
    band.rows = int32_t(min(left, int64_t(kBand)));
    if (band.is_last()) band.rows_behind = int32_t(max(left - kBand, int64_t(0)));
    band.code_row = int64_t(group.starts[kRowwiseCodes]) + row;
    band.scales[0] = group_scale_offset(p.rowwise.layout, group.start(kRowwisePart));
    return band;
}

inline int64_t bands_bound(const QuantizeProblem& p) {
    return padded_rows_bound(p.grouped.rows, p.grouped.groups.count, p.columnwise.units.codes) / kBand;
}

}  // namespace mxq::cuda
