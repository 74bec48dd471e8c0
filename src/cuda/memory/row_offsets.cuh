// Maps neighbouring rows to their rows in the source, among the codes and among the scales, whatever their groups. A thread
// block takes 128 rows, or 8: its loads need no search first, and no tile of a group is half empty. While the loads are in
// flight it finds the groups of its rows, one thread for each of 256 groups:
//
//     rows, as ends count them    | 0 0 0 | 1 1 1 1 1 | 2 2 |           three groups
//     thread blocks               [ - - - - ][ - - - - ][ -
//     codes                       | 0 0 0 +0 | 1 1 1 1 1 +0 +0 +0 | ..  rows move by the padding of earlier groups
//     scales in 128 x 4 tiles     | 0 0 0 +0 ..          | 1 1 ..       the same, by a padding of its own
//
// The first thread blocks of the grid zero the padding of groups. Their scales then wait in the L2 until later thread blocks
// complete the sectors.
#pragma once
#include "cuda/memory/groups.cuh"
#include "cuda/memory/scale_words.cuh"

#include <algorithm>

namespace mxq::cuda {

constexpr int kMapRows = kSwizzleRows;
constexpr int kMapThreads = 256, kMapWarps = kMapThreads / 32;  // of a thread block
constexpr int kPaddingColumns = 1024;

// Names where a row is looked up: in the source, among the codes, among the rows of scales.
enum RowSpace { kSourceRow, kCodeRow, kScaleRow, kRowSpaces };

// Holds what the map is made from, and how thread blocks share the padding of groups.
struct GroupedRowMap {
    uint32_t tiles, tile_rows_log2;   // of 2^tile_rows_log2 rows
    uint32_t padding, in_row, width;  // grid rows that zero padding; groups in one; thread blocks of a group
    uint32_t units[kRowSpaces];       // to which the rows of a group are rounded up
    uint32_t last_row[kRowSpaces];    // of any ends; ends out of order give rows up to it
    GroupedRows grouped;

    // `across`: thread blocks in a row of the grid.
    GroupedRowMap(const GroupedRows& groups, const PlainMatrix& in, const QuantizedPart& out, int32_t tile_rows,
                  int64_t across)
        : tiles(uint32_t(ceil_div(in.rows, tile_rows))),
          tile_rows_log2(uint32_t(log2_of(uint32_t(tile_rows)))),
          padding(0),
          in_row(1),
          width(uint32_t(std::clamp(padding_blocks(groups, in, out), int64_t(1), across))),
          units{uint32_t(in.group_unit), uint32_t(out.units.codes), uint32_t(out.units.scales)},
          last_row{},
          grouped(groups) {
        for (int i = 0; i < kRowSpaces; i++)
            last_row[i] = uint32_t(std::max<int64_t>(padded_rows_bound(groups.rows, groups.groups.count, units[i]), 1) - 1);
        if (units[kCodeRow] == 1 && units[kScaleRow] == 1) return;
        in_row = uint32_t(across) / width;
        padding = uint32_t(ceil_div(groups.groups.count, in_row));
    }
    int64_t down() const { return int64_t(tiles) + padding; }

    // Returns how many thread blocks share the padding of a group. Padding of scales alone is little work, and thread blocks
    // cost more than they save among many groups.
    static int64_t padding_blocks(const GroupedRows& groups, const PlainMatrix& in, const QuantizedPart& out) {
        constexpr int64_t enough = 256;
        const int64_t most = ceil_div(in.cols, kPaddingColumns);
        return out.units.codes == 1 ? std::min(most, ceil_div(enough, std::max(groups.groups.count, 1))) : most;
    }

    // Returns whether padding moves any row.
    __device__ __forceinline__ bool moves() const { return units[kSourceRow] * units[kCodeRow] * units[kScaleRow] != 1; }

    __device__ __forceinline__ uint32_t end_of(int group) const { return uint32_t(clamped_end(grouped, group)); }
    __device__ __forceinline__ uint32_t padding_of(int line, uint32_t rows) const { return -rows & (units[line] - 1); }
};

// The start and end of the thread's group, among the 256 groups from `base` on; 0 and 0 past the last group. And the end of
// the last group.
struct GroupEnds {
    uint32_t start, end, last;

    __device__ __forceinline__ GroupEnds(const GroupedRowMap& map, int base) : start(0), end(0) {
        const int group = base + int(threadIdx.x), last_group = map.grouped.groups.count - 1;
        last = map.end_of(last_group);
        if (!map.moves() || group > last_group) return;
        end = map.end_of(group);
        if (group > 0) start = map.end_of(group - 1);
    }
    // Returns how many rows there are from `first` on. Rows past the last end are not read.
    __device__ __forceinline__ int rows_from(uint32_t first) const { return int(last - first); }
};

// The rows of a tile in the source, codes and scales, and the working memory of the search. The padding before a group
// stands at its first row in the tile.
struct RowOffsets {
    uint32_t rows[kRowSpaces][32][kMapRows / 32];  // rows 32 apart are adjacent
    uint32_t padding[kRowSpaces][kMapRows];
    uint32_t begins[kMapRows / 32];            // a bit for each row with an entry in `padding`
    uint32_t of_warps[kRowSpaces][kMapWarps];  // padding of the groups of a warp
    uint32_t before[kRowSpaces];               // padding before the groups of all warps
};

// Returns the map of the thread block. It is no argument, so that the compiler knows that it is in shared memory.
__device__ __forceinline__ RowOffsets& row_offsets() {
    __shared__ RowOffsets offsets;
    return offsets;
}

// Stores the padding before each group that has rows in the tile, a thread a group, 256 groups at a time. Ends out of order
// store some value by which no access leaves the buffers.
__device__ __forceinline__ void put_groups(const GroupedRowMap& map, GroupEnds ends, uint32_t first) {
    RowOffsets& offsets = row_offsets();
    const uint32_t behind = first + (1u << map.tile_rows_log2);
    const int thread = threadIdx.x, warp = thread / 32, count = map.grouped.groups.count;
#pragma unroll 1
    for (int base = 0;;) {
        const bool has_groups = __any_sync(kAllLanes, base + thread < count);  // the warp
        if (has_groups)
#pragma unroll
            for (int i = 0; i < kRowSpaces; i++) {
                if (map.units[i] == 1) continue;
                const uint32_t all = __reduce_add_sync(kAllLanes, map.padding_of(i, ends.end - ends.start));
                if (thread % 32 == 0) offsets.of_warps[i][warp] = all;
            }
        __syncthreads();
        const bool here = ends.end > max(ends.start, first) && ends.start < behind;
        if (has_groups && __any_sync(kAllLanes, here)) {
            const int row = int(max(ends.start, first) - first);
#pragma unroll
            for (int i = 0; i < kRowSpaces; i++) {
                if (map.units[i] == 1) continue;
                const uint32_t mine = map.padding_of(i, ends.end - ends.start);
                uint32_t before = offsets.before[i] + scan_lanes<Scan::Sum>(mine) - mine;
#pragma unroll 1
                for (int w = 0; w < warp; w++) before += offsets.of_warps[i][w];
                if (here) offsets.padding[i][row] = before;
            }
            if (here) atomicOr(&offsets.begins[row / 32], 1u << row % 32);
        }
        base += kMapThreads;
        if (!__syncthreads_or(base < count && thread == kMapThreads - 1 && ends.end < behind)) return;
        if (thread < kRowSpaces && map.units[thread] != 1)
            for (int w = 0; w < kMapWarps; w++) offsets.before[thread] += offsets.of_warps[thread][w];
        __syncthreads();
        ends = GroupEnds(map, base);
    }
}

// Maps the rows of a tile. `first` is its first row, which is before the last end. All threads of the block call it and have
// the map afterwards.
__device__ __forceinline__ void find_row_offsets(const GroupedRowMap& map, const GroupEnds& ends, uint32_t first) {
    RowOffsets& offsets = row_offsets();
    const int row = threadIdx.x;
    const auto put_row = [&](int begin) {
#pragma unroll
        for (int i = 0; i < kRowSpaces; i++) {
            const uint32_t before = begin < 0 || map.units[i] == 1 ? 0 : offsets.padding[i][begin];
            offsets.rows[i][row % 32][row / 32] = min(first + row + before, map.last_row[i]);
        }
    };
    if (!map.moves()) {
        if (row < kMapRows) put_row(-1);
        return __syncthreads();
    }
    if (row < kMapRows / 32) offsets.begins[row] = 0;
    if (row < kRowSpaces) offsets.before[row] = 0;
    put_groups(map, ends, first);
    if (row < kMapRows) {
        int word = row / 32;
        uint32_t bits = offsets.begins[word] & (~0u >> (31 - row % 32));
        while (bits == 0 && word > 0) bits = offsets.begins[--word];
        put_row(word * 32 + 31 - __clz(bits));
    }
    __syncthreads();
}

// ---- Padding of groups --------------------------------------------------------------------------------------------------

// The first row of a group's padding in each space, and its rows of codes.
struct RowPadding {
    uint32_t rows[kRowSpaces];
    int codes;
};

// Finds the padding of group `wanted`; false: there is none. All threads of the block call it, once.
__device__ __forceinline__ bool find_row_padding(const GroupedRowMap& map, int wanted, RowPadding& found) {
    __shared__ uint32_t before[kRowSpaces];
    if (threadIdx.x < kRowSpaces) before[threadIdx.x] = 0;
    __syncthreads();
    uint32_t sums[kRowSpaces] = {};
    for (int group = threadIdx.x; group < wanted; group += blockDim.x) {
        const uint32_t rows = map.end_of(group) - (group > 0 ? map.end_of(group - 1) : 0);
#pragma unroll
        for (int i = 0; i < kRowSpaces; i++) sums[i] += map.padding_of(i, rows);
    }
    const uint32_t start = wanted > 0 ? map.end_of(wanted - 1) : 0, end = map.end_of(wanted);
#pragma unroll
    for (int i = 0; i < kRowSpaces; i++) {
        const uint32_t of_warp = __reduce_add_sync(kAllLanes, sums[i]);
        if (threadIdx.x % 32 == 0 && of_warp > 0) atomicAdd(&before[i], of_warp);
    }
    __syncthreads();
    if (end <= start) return false;
#pragma unroll
    for (int i = 0; i < kRowSpaces; i++) found.rows[i] = min(end + before[i], map.last_row[i]);
    found.codes = min(map.padding_of(kCodeRow, end - start), map.last_row[kCodeRow] + 1 - found.rows[kCodeRow]);
    return found.codes > 0 || map.padding_of(kScaleRow, end - start) > 0;
}

template <class Unit>
__device__ __forceinline__ void zero_units(uint8_t* first, int lines, int64_t stride, int bytes) {
#pragma unroll 1
    for (int line = threadIdx.x / 32; line < lines; line += blockDim.x / 32)
#pragma unroll 1
        for (int i = threadIdx.x % 32; i < bytes / int(sizeof(Unit)); i += 32)
            reinterpret_cast<Unit*>(first + line * stride)[i] = Unit{};
}

// Zeroes rows of so many bytes by all threads of the block, a warp a row.
__device__ __forceinline__ void zero_lines(uint8_t* first, int lines, int64_t stride, int bytes) {
    if ((reinterpret_cast<uintptr_t>(first) | uintptr_t(stride) | uintptr_t(bytes)) % 16 == 0)
        zero_units<uint4>(first, lines, stride, bytes);
    else
        zero_units<uint8_t>(first, lines, stride, bytes);
}

// Zeroes the scales from row `first_row` on in its 128 x 4 tiles, in the columns of tiles from `begin` to `end`.
__device__ __forceinline__ void zero_swizzled_scales(const QuantizedPart& part, uint32_t first_row, int begin, int end) {
    const int word = threadIdx.x % kSwizzleRows, row = word % 4 * 32 + word / 4, tiles = blockDim.x / kSwizzleRows;
    const int first = int(first_row % kSwizzleRows);
    if (first == 0 || row < first) return;
    uint8_t* const to = part.scales + first_row / kSwizzleRows * part.layout.tile_row_scales() + word * 4;
    for (int tile = begin + int(threadIdx.x / kSwizzleRows); tile < end; tile += tiles)
        store_shared_scale_word(to + tile * kSwizzleBytes, 0, kSwizzleColumns);
}

// Zeroes the codes and scales of the padding of a group, in the columns of this thread block. `index` counts grid rows that
// zero padding. All threads of the block call it.
__device__ __noinline__ inline void store_row_padding(const GroupedRowMap& map, const QuantizedPart& part, uint32_t index) {
    const uint32_t in_row = blockIdx.x / map.width, wanted = index * map.in_row + in_row;
    if (in_row >= map.in_row || wanted >= uint32_t(map.grouped.groups.count)) return;
    RowPadding padding;
    if (!find_row_padding(map, int(wanted), padding)) return;
    const int block_log2 = log2_of(uint32_t(part.layout.block)), columns = int(part.layout.columns),
              length = int(part.length);
#pragma unroll 1
    for (int64_t col = int64_t(blockIdx.x % map.width) * kPaddingColumns; col < length;
         col += int64_t(map.width) * kPaddingColumns) {
        const int begin = int(col >> block_log2), end = min(begin + (kPaddingColumns >> block_log2), columns);
        zero_lines(part.line(0, padding.rows[kCodeRow]) + col * part.bits / 8, padding.codes, part.line_bytes,
                   (min(length - int(col), kPaddingColumns) * part.bits + 7) / 8);
        const uint32_t row = padding.rows[kScaleRow];
        if (part.layout.swizzled)
            zero_swizzled_scales(part, row, begin / 4, (end + 3) / 4);
        else
            zero_lines(part.scales + part.layout.offset(0, row, begin), padding.codes, part.layout.line_stride, end - begin);
    }
}

}  // namespace mxq::cuda
