// The kernel of quantize_tile for groups of BF16 rows to the columnwise part of 8 bits with scales of 128 rows (1x128,
// 128x128), and to both parts. Groups begin at multiples of 128 in lines of columnwise codes. The last tile of a group often
// has few rows, and as many blocks of threads as there are tiles take as long as if all were full. So a tile gets a slot, of
// a warp and 32 rows, for each of the bands that have rows: four, or if these are one or two, as many. Of 32 groups tiles of
// four slots come first, then those of two, then those of one, and a block of threads takes eight slots:
//
//     groups' tiles        |0 1 2 .||0 1 2 3|0 . . .||0 1 . .||0 1 2 3|0 1 . .|       bands with rows
//     slots                [0 1 2 3 0 1 2 3] [0 1 2 3 0 1 0 1] [0 ..                 of blocks of threads
//
// Each warp finds its slot alone. All warps meet twice on the way to scales of tiles, and once before lines of codes are
// stored: of each tile 128 bytes, what pads it included. Rows that pad a group behind its last slot are stored in the
// rowwise part as in quantize_bands.cuh, of squares with the codes of +0 under the square's factor (padding_codes).
//
// Bound by memory, and where tiles have three bands by a warp that has no rows: docs/performance.md, "Groups".
#pragma once
#include "cuda/quantize/quantize_bands.cuh"

namespace mxq::cuda {

constexpr int kSlots = kTallBands;  // of a block of threads

// Counts slots in place of group tiles.
struct SlotUnits : GroupSumUnits {
    // Returns how many tiles of a group have 1 << log2 slots.
    static __device__ __forceinline__ uint32_t tiles(uint32_t rows, int log2) {
        const uint32_t bands = (rows % kTile + kBand - 1) / kBand;  // of the last tile, if that is not full
        return log2 == 2 ? rows / kTile + (bands > 2) : bands == uint32_t(log2 + 1);
    }
    static __device__ __forceinline__ uint32_t slots(uint32_t rows) {
        return tiles(rows, 2) * 4 + tiles(rows, 1) * 2 + tiles(rows, 0);
    }
    // Returns the slots of the 32 groups that the lanes have, and those that fill up their last block of threads.
    static __device__ __forceinline__ uint32_t tiles_of_lanes(uint32_t rows) {
        return (__reduce_add_sync(kAllLanes, slots(rows)) + kSlots - 1) / kSlots * kSlots;
    }
};

// Returns the most slots that any ends need: a group's last tile may have four with 65 rows.
inline int64_t slots_bound(const GroupedRows& grouped) {
    const int64_t count = grouped.groups.count, nonempty = std::min(count, grouped.rows);
    return (grouped.rows + 63 * nonempty) / kBand + ceil_div(count, int64_t(32)) * (kSlots - 1);
}

// Holds which rows of a tile a warp has, and where they lie in the outputs.
struct Slot {
    int32_t log2;          // of the slots of its tile; -1: there is none
    int32_t index;         // among those
    int32_t existing;      // rows of the group that the slot has
    int32_t tile_rows;     // of the tile that the rowwise part has, padding included
    uint32_t tile, tiles;  // among those of the group
    int64_t source_row;
    int64_t code_row;     // of the rowwise part
    int64_t code_column;  // of the columnwise part: the tile's first
    int64_t scales[2];    // to the group's first scale, rowwise and columnwise

    __device__ __forceinline__ bool exists() const { return log2 >= 0; }
    __device__ __forceinline__ int count() const { return 1 << max(log2, 0); }
    // Returns the rows of the rowwise part that the slot has, and how many follow the last slot of the tile.
    __device__ __forceinline__ int rows() const { return min(max(tile_rows - index * kBand, 0), kBand); }
    __device__ __forceinline__ int rows_behind() const {
        return index + 1 == count() ? max(tile_rows - count() * kBand, 0) : 0;
    }
};

struct SlotArguments {
    int64_t across, down;  // blocks of threads
    bool several;          // tiles side by side a block
    GroupSumUnits units;   // of columnwise codes: 128
    bool saturates;
    QuantizeProblem problem;
};

template <class E>
struct SlotsShared {
    TileShared<E> tiles[kTallTiles];
    Slot slots[kSlots];
};

// ---- Which -------------------------------------------------------------------------------------------------------------

// Finds the group of a slot and its lane, and sets what is the tile's. The groups are those among which the slot is.
__device__ __forceinline__ Group find_slot(const OrderedGroups<SlotUnits>& groups, uint32_t wanted, Slot& slot, int& owner) {
    const uint32_t rows = groups.here.rows(), in_lanes = wanted - groups.passed_tiles;
    const uint32_t fours = 4 * __reduce_add_sync(kAllLanes, SlotUnits::tiles(rows, 2)),
                   twos = 2 * __reduce_add_sync(kAllLanes, SlotUnits::tiles(rows, 1));
    const int log2 = in_lanes < fours ? 2 : in_lanes - fours < twos ? 1 : 0;
    const uint32_t in_kind = in_lanes - (log2 == 2 ? 0 : log2 == 1 ? fours : fours + twos), tile = in_kind >> log2;
    const uint32_t tiles = SlotUnits::tiles(rows, log2), passed = scan_lanes<Scan::Sum>(tiles);
    owner = __popc(__ballot_sync(kAllLanes, passed <= tile));  // ones from lane 0 on
    Group group = groups.group(owner, __shfl_sync(kAllLanes, passed - tiles, owner));
    if (owner == 32) group.index = -1;
    slot.log2 = owner == 32 ? -1 : log2;
    slot.index = int32_t(in_kind & ((1u << log2) - 1));
    slot.tile = log2 == 2 ? tile - group.first_group_tile : group.rows / kTile;
    slot.existing = existing_rows<kBand>(group, slot.tile * kTileBands + slot.index);
    slot.source_row = int64_t(group.starts[kSourceCodes]) + int64_t(slot.tile) * kTile + slot.index * kBand;
    return group;
}

// Describes the rows of a slot and the outputs.
__device__ __forceinline__ void describe_slot(const SlotArguments& a, const Group& group, Slot& slot) {
    if (!slot.exists()) return;
    const QuantizeProblem& p = a.problem;
    const int64_t tile_row = int64_t(slot.tile) * kTile, row = tile_row + slot.index * kBand;
    slot.tiles = (group.rows + kTile - 1) / kTile;
    slot.code_column = int64_t(group.starts[kColumnwiseCodes]) + tile_row;
    slot.scales[1] = group_scale_offset(p.columnwise.layout, group.start(kColumnwisePart));
    if (!p.has_rowwise) return;
    const int64_t rows = a.units.round_up(kRowwiseCodes, group.rows);
    slot.tile_rows = int32_t(min(rows - tile_row, int64_t(kTile)));
    slot.code_row = int64_t(group.starts[kRowwiseCodes]) + row;
    slot.scales[0] = group_scale_offset(p.rowwise.layout, group.start(kRowwisePart));
}

// ---- Scales ------------------------------------------------------------------------------------------------------------

// A scale as it is stored, the maximum that it is made from, and what elements are multiplied by.
struct SlotScale {
    uint32_t maximum, stored;  // stored: a byte, or the bits of an fp32 number
    float factor;
};

template <class E>
__device__ __forceinline__ SlotScale slot_scale(const QuantizeProblem& p, uint32_t maximum) {
    if (p.columnwise.scale_type == ScaleType::F32) {
        const float factor = fp8_quantization_scale(bits_float(maximum), fp8_rule(p, E::max));
        return {maximum, float_bits(fp8_stored_scale(factor)), factor};
    }
    uint32_t value[1] = {maximum};
    float factor[1];
    byte_scales<E>(p, ScaleType::E8M0, {}, value, factor);
    return {maximum, value[0], factor[0]};
}

// Stores a compact scale, and its maximum where that is wanted. `at` counts scales.
__device__ __forceinline__ void store_slot_scale(const QuantizedPart& part, int64_t at, const SlotScale& scale) {
    if (part.scale_type != ScaleType::F32) return store_kept(part.scales + at, uint8_t(scale.stored));
    store_kept(reinterpret_cast<uint32_t*>(part.scales) + at, scale.stored);
    if (part.amax) part.amax[at] = bits_float(scale.maximum);
}

// Returns the line or row of a word of 128 x 4 tiles: what a warp stores of these lies side by side.
__device__ __forceinline__ int line_of_slot_word(int word) { return word % 4 * 32 + word / 4; }

// A warp's share of the scales of its tile: of as many times 32 lines as the tile has fewer slots than four.
template <class E, bool squares>
struct SlotScales {
    const QuantizeProblem& p;
    const Slot& slot;
    TileScales<E>& scales;  // of the slots of four warps
    int in_tile;            // the first row of the warp's among theirs
    int64_t col;

    // Returns the first slot of the tile among the four.
    __device__ __forceinline__ int first() const { return in_tile / kBand - slot.index; }

    // Returns the maximum of a line of the tile, or of the whole tile.
    __device__ __forceinline__ uint32_t maximum_of(int line) const {
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < kTileBands; i++)
            if (i < slot.count())
                largest = max(largest, squares ? scales.warp_maxima[first() + i] : scales.parts[1].table[first() + i][line]);
        return largest;
    }
    // Makes the factors of the lines that are the warp's share, and stores their scales.
    __device__ __forceinline__ void make_columns() const {
        const QuantizedPart& part = p.columnwise;
#pragma unroll 1
        for (int share = slot.index; share < kTileBlocks; share += slot.count()) {
            const int word = share * 32 + int(read_thread() % 32), line = line_of_slot_word(word);
            const SlotScale scale = slot_scale<E>(p, maximum_of(line));
#pragma unroll
            for (int i = 0; i < kTileBands; i++)
                if (i < slot.count()) scales.parts[1].table[first() + i][line] = float_bits(scale.factor);
            const bool exists = col + line < p.source.cols;
            if (!slot.exists()) continue;
            if (part.layout.swizzled)
                store_word(part, slot.scales[1] + (col / kTile * slot.tiles + slot.tile) * kSwizzleBytes, word,
                           exists ? scale.stored * 0x01010101u : 0);
            else if (exists && (!squares || line == 0))
                store_slot_scale(part, slot.scales[1] + part.layout.offset(0, col + line, slot.tile), scale);
        }
    }
    // Makes the factors of the warp's rows, and stores their scales where they are compact.
    __device__ __forceinline__ void make_rows() const {
        const QuantizedPart& part = p.rowwise;
        auto& table = scales.parts[0].table;
        const int lane = read_thread() % 32, row = in_tile + lane;
        const uint32_t maximum =
            squares ? maximum_of(0) : max(max(table[0][row], table[1][row]), max(table[2][row], table[3][row]));
        SlotScale scale = slot_scale<E>(p, maximum);
        table[0][row] = float_bits(scale.factor);
        scales.parts[0].words[0][row] = scale.stored * 0x01010101u;
        if (part.layout.swizzled || !slot.exists()) return;
        const int64_t first_row = int64_t(slot.tile) * kTile + slot.index * kBand;
        const int64_t at = slot.scales[0] + part.layout.offset(0, first_row + (squares ? 0 : lane), col / kTile);
        if (squares) {
            if (slot.index == 0 && lane == 0) store_slot_scale(part, at, scale);
            return;
        }
        if (lane >= slot.existing && part.scale_type == ScaleType::F32) scale.stored = 0;
        if (lane < slot.rows()) store_slot_scale(part, at, scale);
#pragma unroll 1
        for (int behind = lane; behind < slot.rows_behind(); behind += 32)
            store_slot_scale(part, at + int64_t(kBand + behind - lane) * part.layout.line_stride, {});
    }
    // Stores words of the scales of rows in 128 x 4 tiles, once all warps have theirs. Squares have one for what pads them
    // too.
    __device__ __forceinline__ void store_row_words() const {
        const QuantizedPart& part = p.rowwise;
        const int64_t tile = slot.scales[0] + part.layout.offset(0, int64_t(slot.tile) * kTile, col / kMxBlock);
        const auto& words = scales.parts[0].words[0];
        const uint32_t existing = ~0u >> (32 - 8 * int(min(part.layout.columns - col / kMxBlock, int64_t(kTileBlocks))));
#pragma unroll 1
        for (int share = slot.index; slot.exists() && share < kTileBlocks; share += slot.count()) {
            const int word = share * 32 + int(read_thread() % 32), row = line_of_slot_word(word);
            const bool exists = row < slot.tile_rows && (squares || row < slot.count() * kBand);
            store_word(part, tile, word, exists ? words[first() * kBand + (squares ? 0 : row)] & existing : 0);
        }
    }

private:
    static __device__ __forceinline__ void store_word(const QuantizedPart& part, int64_t tile, int word, uint32_t value) {
        reinterpret_cast<uint32_t*>(part.scales + tile)[word] = value;
    }
};

// ---- Codes -------------------------------------------------------------------------------------------------------------

// Returns four codes of what pads a group, under a factor.
__device__ __forceinline__ uint32_t padding_codes(uint32_t factor) { return is_nan(bits_float(factor)) ? 0x7F7F7F7Fu : 0; }

// Stores the slot's rows in the rowwise part, and those behind the last.
template <class E, bool squares>
__device__ __forceinline__ void put_slot_rows(const QuantizeProblem& p, const PatchVectors<Bf16>& vectors,
                                              const Patch<Bf16>& patch, int in_tile, const Slot& slot, int64_t col,
                                              TileShared<E>& shared) {
    const QuantizedPart& part = p.rowwise;
    CodeTile to(part, {0, 0, 0, col, 0}, {}, p.source.cols);
    to.codes += (slot.code_row - in_tile) * part.line_bytes;
    to.lines = in_tile + slot.rows();
    put_rows<E, Bf16>(vectors, patch, 7, shared.scales.parts[0], to, true, shared.codes);
    const int byte = read_thread() % 32 * 4;
    const uint32_t codes = squares ? padding_codes(shared.scales.parts[0].table[0][in_tile]) : 0;
    uint8_t* at = part.line(0, slot.code_row + kBand) + col + byte;
#pragma unroll 1
    for (int row = 0; row < slot.rows_behind(); row++, at += part.line_bytes)
        if (byte < to.length) *reinterpret_cast<uint32_t*>(at) = codes;
}

// Stores lines of codes by all threads: 32 codes of each slot, and as many for each band of its tile that has none.
template <class E>
__device__ __forceinline__ void store_slot_lines(const QuantizeProblem& p, const SlotsShared<E>& shared, int64_t col) {
    constexpr int threads = kTallTiles * Patch<Bf16>::threads, units = kTallRows / sizeof(uint4),
                  in_tile = units / kTallTiles;
    const int thread = tall_thread(read_thread()), unit = thread % units, in_slot = unit % 2;
    const Slot& slot = shared.slots[unit / 2];
    const auto& tile = shared.tiles[unit / in_tile];
    if (!slot.exists()) return;
    const QuantizedPart& part = p.columnwise;
    const int lines = int(min(p.source.cols - col, int64_t(kTile))), count = slot.count();
    uint8_t* to = part.line(0, col + thread / units) + slot.code_column + slot.index * kBand + in_slot * sizeof(uint4);
#pragma unroll
    for (int line = thread / units; line < kTile; line += threads / units, to += threads / units * part.line_bytes) {
        if (line >= lines) break;
        const auto* from = &tile.codes.words[TileCodes<E>::template line<Patch<Bf16>::columns>(line)];
        *reinterpret_cast<uint4*>(to) = reinterpret_cast<const uint4*>(from)[unit % in_tile];
        if (count == kTileBands) continue;
        const uint32_t codes = padding_codes(tile.scales.parts[1].table[unit % in_tile / 2][line]);
        for (int band = count; band < kTileBands; band += count)
            *reinterpret_cast<uint4*>(to + band * kBand) = {codes, codes, codes, codes};
    }
}

// ---- The kernel ----------------------------------------------------------------------------------------------------------

// Puts the maxima of the warp's rows where its tile's scales are made from them.
template <class E, bool squares, Nonfinite policy>
__device__ __forceinline__ void put_slot_maxima(const QuantizeProblem& p, PatchVectors<Bf16>& vectors,
                                                const Patch<Bf16>& patch, TileScales<E>& scales) {
    if constexpr (squares) {
        const uint32_t of_warp = __reduce_max_sync(kAllLanes, patch_maximum<Bf16, policy>(vectors));
        if (threadIdx.x % 32 == 0) scales.warp_maxima[threadIdx.x / 32] = of_warp;
    } else {
        put_column_maxima<E, policy>(vectors, patch, kBandLog2, scales.parts[1]);
    }
}

// Quantizes the rows of the block's slots in some columns, whose elements are loaded.
template <class E, bool squares>
__device__ __forceinline__ void quantize_slots(const SlotArguments& a, int64_t col, PatchVectors<Bf16>& vectors,
                                               SlotsShared<E>& shared) {
    const QuantizeProblem& p = a.problem;
    const uint32_t thread = read_thread();
    const int in_tile = thread / 32 * kBand;
    TileShared<E>& mine = shared.tiles[threadIdx.y];
    const Slot& slot = shared.slots[warp_of_two()];
    const Patch<Bf16> patch(kTile, kTile, thread);
    if (a.saturates)
        put_slot_maxima<E, squares, Nonfinite::Saturate>(p, vectors, patch, mine.scales);
    else
        put_slot_maxima<E, squares, Nonfinite::Propagate>(p, vectors, patch, mine.scales);
    __syncthreads();
    const SlotScales<E, squares> scales{p, slot, mine.scales, in_tile, col};
    scales.make_columns();
    if (p.has_rowwise) {
        if (!squares && a.saturates)
            put_row_maxima<E, Nonfinite::Saturate>(vectors, patch, kBandLog2, mine.scales.parts[0]);
        else if (!squares)
            put_row_maxima<E, Nonfinite::Propagate>(vectors, patch, kBandLog2, mine.scales.parts[0]);
        __syncwarp();
        scales.make_rows();
    }
    __syncthreads();
    forget_values<Bf16>(vectors);
    if (p.has_rowwise && slot.exists()) put_slot_rows<E, squares>(p, vectors, patch, in_tile, slot, col, mine);
    forget_values<Bf16>(vectors);
    put_columns<E, Bf16>(vectors, patch, kBandLog2, mine.scales.parts[1], mine.codes);
    __syncthreads();
    store_slot_lines(p, shared, col);
    if (p.has_rowwise && p.rowwise.layout.swizzled) scales.store_row_words();
}

template <class E, bool squares, bool several>
__global__ void __launch_bounds__(kTallTiles* Patch<Bf16>::threads, kSmBlocks<Bf16> / kTallTiles)
    quantize_slots_kernel(const __grid_constant__ SlotArguments a) {
    __shared__ SlotsShared<E> shared;
    if (row_of_blocks() >= a.down) return;
    const QuantizeProblem& p = a.problem;
    const int warp = warp_of_two(), in_tile = warp % kTileBands * kBand;
    PatchVectors<Bf16> vectors;
    {
        const uint32_t wanted = row_of_blocks() * kSlots + warp;
        const SlotUnits units{a.units};
        const OrderedGroups<SlotUnits> groups(p.grouped, units, wanted);
        // The block has no slots; or ends are out of order, and nothing is to be read or written by them.
        if (groups.base >= groups.count || !__all_sync(kAllLanes, groups.ordered)) return;
        Slot found{};
        int owner;
        Group group = find_slot(groups, wanted, found, owner);
        load_band(p, found.source_row, found.existing, in_tile, int64_t(blockIdx.x) * kTile, vectors);
        groups.add_starts(owner, group);
        describe_slot(a, group, found);
        if (threadIdx.x % 32 == 0) shared.slots[warp] = found;
        __syncwarp();
    }
    const Slot& slot = shared.slots[warp];
    for (int64_t tile = blockIdx.x;;) {
        quantize_slots<E, squares>(a, tile * kTile, vectors, shared);
        tile += gridDim.x;
        if (!several || tile * kTile >= p.source.cols) return;
        load_band(p, slot.source_row, slot.existing, in_tile, tile * kTile, vectors);
        __syncthreads();  // all have stored the columns before
    }
}

// ---- On the host ---------------------------------------------------------------------------------------------------------

inline SlotArguments slot_arguments(const TileArguments& a) {
    const int64_t down = ceil_div(slots_bound(a.problem.grouped), int64_t(kSlots));
    const bool several = takes_several(a.problem, a.tiles.across, down);
    return {blocks_across(a.tiles.across, several), down, several, a.tiles.units, a.rule.saturates, a.problem};
}

// Returns whether this kernel takes a problem whose source is BF16: all its accesses are of 16 bytes, of 8 to rows of codes.
inline bool fits_slots(const TileArguments& a) {
    const QuantizeProblem& p = a.problem;
    if (!p.grouped.set() || !p.has_columnwise || p.format->bits != 8 || p.tile.length != kBlock128 || !a.wide_in)
        return false;
    const auto fits_scales = [](const QuantizedPart& part) { return !part.layout.swizzled || is_aligned(part.scales, 4); };
    const bool rows = !p.has_rowwise || (a.access[0].bytes >= 8 && fits_scales(p.rowwise));
    return rows && a.access[1].bytes == 16 && fits_scales(p.columnwise);
}

}  // namespace mxq::cuda
