// Where neighbouring rows of all groups lie, for kernels that go from rows to rows. A block of threads takes 128 rows, or 8,
// of whatever groups, as if there were none: its loads need not wait for a search, and no tile of a group is half empty.
// While they are on their way it finds the groups that these rows belong to, a thread each of 256 groups:
//
//     rows, as ends count them    | 0 0 0 | 1 1 1 1 1 | 2 2 |           three groups
//     blocks of threads           [ - - - - ][ - - - - ][ -
//     codes                       | 0 0 0 +0 | 1 1 1 1 1 +0 +0 +0 | ..  each row moved by the padding of the groups before
//     scales in 128 x 4 tiles     | 0 0 0 +0 ..          | 1 1 ..       the same, by a padding of its own
//
// Blocks of threads that come first zero what pads groups: scales that complete a sector of a row's then wait in the L2 for
// the rows, not the rows for them.
#pragma once
#include "cuda/memory/groups.cuh"
#include "cuda/memory/scale_words.cuh"

#include <algorithm>

namespace mxq::cuda {

constexpr int kPlacedRows = kSwizzleRows;
constexpr int kPlaceThreads = 256, kPlaceWarps = kPlaceThreads / 32;  // of a block
constexpr int kPaddingColumns = 1024;

// Names what is counted of a row: its line in the source, among the codes and among rows of scales.
enum RowLine { kSourceLine, kCodeLine, kScaleLine, kRowLines };

// Tells where rows lie, and how blocks of threads share what pads groups.
struct PlacedRows {
    uint32_t tiles, tile_rows_log2;   // of rows
    uint32_t padding, in_row, width;  // rows of blocks that pad; groups in one; blocks for each
    uint32_t units[kRowLines];        // that the rows of a group are rounded up to
    uint32_t last_line[kRowLines];    // that any ends have; those out of order give lines up to it
    GroupedRows grouped;

    // `across`: blocks of threads in a row of the grid.
    PlacedRows(const GroupedRows& groups, const PlainMatrix& in, const QuantizedPart& out, int32_t tile_rows, int64_t across)
        : tiles(uint32_t(ceil_div(in.rows, tile_rows))),
          tile_rows_log2(uint32_t(log2_of(uint32_t(tile_rows)))),
          padding(0),
          in_row(1),
          width(uint32_t(std::clamp(padding_blocks(groups, in, out), int64_t(1), across))),
          units{uint32_t(in.group_unit), uint32_t(out.units.codes), uint32_t(out.units.scales)},
          last_line{},
          grouped(groups) {
        for (int i = 0; i < kRowLines; i++)
            last_line[i] = uint32_t(std::max<int64_t>(padded_rows_bound(groups.rows, groups.groups.count, units[i]), 1) - 1);
        if (units[kCodeLine] == 1 && units[kScaleLine] == 1) return;
        in_row = uint32_t(across) / width;
        padding = uint32_t(ceil_div(groups.groups.count, in_row));
    }
    int64_t down() const { return int64_t(tiles) + padding; }

    // Returns how many blocks share what pads a group: scales alone are little, and blocks cost more where groups are many.
    static int64_t padding_blocks(const GroupedRows& groups, const PlainMatrix& in, const QuantizedPart& out) {
        constexpr int64_t enough = 256;
        const int64_t most = ceil_div(in.cols, kPaddingColumns);
        return out.units.codes == 1 ? std::min(most, ceil_div(enough, std::max(groups.groups.count, 1))) : most;
    }

    // Returns whether rows have other lines than ends say.
    __device__ __forceinline__ bool moves() const { return units[kSourceLine] * units[kCodeLine] * units[kScaleLine] != 1; }

    __device__ __forceinline__ uint32_t end_of(int group) const { return uint32_t(clamped_end(grouped, group)); }
    __device__ __forceinline__ uint32_t padding_of(int line, uint32_t rows) const { return -rows & (units[line] - 1); }
};

// Where the rows of the thread's group begin and end, among the 256 groups from `base` on: behind the last group 0 and 0. And the
// last end.
struct PlacedEnds {
    uint32_t start, end, last;

    __device__ __forceinline__ PlacedEnds(const PlacedRows& placed, int base) : start(0), end(0) {
        const int group = base + int(threadIdx.x), last_group = placed.grouped.groups.count - 1;
        last = placed.end_of(last_group);
        if (!placed.moves() || group > last_group) return;
        end = placed.end_of(group);
        if (group > 0) start = placed.end_of(group - 1);
    }
    // Returns how many rows there are from `first` on: those behind the last end are not read.
    __device__ __forceinline__ int rows_from(uint32_t first) const { return int(last - first); }
};

// The lines of a tile's rows, and what finding them takes: at the first row of a group, or the tile's first, stands the
// padding before the group.
struct RowPlaces {
    uint32_t lines[kRowLines][32][kPlacedRows / 32];  // of rows 32 apart side by side
    uint32_t padding[kRowLines][kPlacedRows];
    uint32_t begins[kPlacedRows / 32];          // a bit for each row at which padding stands
    uint32_t of_warps[kRowLines][kPlaceWarps];  // padding of the groups of a warp
    uint32_t before[kRowLines];                 // padding before the groups of all warps
};

// Returns the block's places. They are no argument, so that code knows that they are in shared memory.
__device__ __forceinline__ RowPlaces& row_places() {
    __shared__ RowPlaces places;
    return places;
}

// Puts the padding before each group that has rows in the tile, a thread a group and 256 at a time. Of ends that are out of
// order something is put, by which no line lies outside of the buffers.
__device__ __forceinline__ void put_groups(const PlacedRows& placed, PlacedEnds ends, uint32_t first) {
    RowPlaces& places = row_places();
    const uint32_t behind = first + (1u << placed.tile_rows_log2);
    const int thread = threadIdx.x, warp = thread / 32, count = placed.grouped.groups.count;
#pragma unroll 1
    for (int base = 0;;) {
        const bool has_groups = __any_sync(kAllLanes, base + thread < count);  // the warp
        if (has_groups)
#pragma unroll
            for (int i = 0; i < kRowLines; i++) {
                if (placed.units[i] == 1) continue;
                const uint32_t all = __reduce_add_sync(kAllLanes, placed.padding_of(i, ends.end - ends.start));
                if (thread % 32 == 0) places.of_warps[i][warp] = all;
            }
        __syncthreads();
        const bool here = ends.end > max(ends.start, first) && ends.start < behind;
        if (has_groups && __any_sync(kAllLanes, here)) {
            const int row = int(max(ends.start, first) - first);
#pragma unroll
            for (int i = 0; i < kRowLines; i++) {
                if (placed.units[i] == 1) continue;
                const uint32_t mine = placed.padding_of(i, ends.end - ends.start);
                uint32_t before = places.before[i] + scan_lanes<Scan::Sum>(mine) - mine;
#pragma unroll 1
                for (int w = 0; w < warp; w++) before += places.of_warps[i][w];
                if (here) places.padding[i][row] = before;
            }
            if (here) atomicOr(&places.begins[row / 32], 1u << row % 32);
        }
        base += kPlaceThreads;
        if (!__syncthreads_or(base < count && thread == kPlaceThreads - 1 && ends.end < behind)) return;
        if (thread < kRowLines && placed.units[thread] != 1)
            for (int w = 0; w < kPlaceWarps; w++) places.before[thread] += places.of_warps[thread][w];
        __syncthreads();
        ends = PlacedEnds(placed, base);
    }
}

// Finds the lines of a tile's rows, the first of which is `first` and not behind the last end. All threads of the block call
// it, which then have them.
__device__ __forceinline__ void find_row_places(const PlacedRows& placed, const PlacedEnds& ends, uint32_t first) {
    RowPlaces& places = row_places();
    const int row = threadIdx.x;
    const auto put_row = [&](int begin) {
#pragma unroll
        for (int i = 0; i < kRowLines; i++) {
            const uint32_t before = begin < 0 || placed.units[i] == 1 ? 0 : places.padding[i][begin];
            places.lines[i][row % 32][row / 32] = min(first + row + before, placed.last_line[i]);
        }
    };
    if (!placed.moves()) {
        if (row < kPlacedRows) put_row(-1);
        return __syncthreads();
    }
    if (row < kPlacedRows / 32) places.begins[row] = 0;
    if (row < kRowLines) places.before[row] = 0;
    put_groups(placed, ends, first);
    if (row < kPlacedRows) {
        int word = row / 32;
        uint32_t bits = places.begins[word] & (~0u >> (31 - row % 32));
        while (bits == 0 && word > 0) bits = places.begins[--word];
        put_row(word * 32 + 31 - __clz(bits));
    }
    __syncthreads();
}

// ---- What pads groups --------------------------------------------------------------------------------------------------

// Where what pads a group begins in a part, and how many lines of codes it has.
struct RowPadding {
    uint32_t lines[kRowLines];
    int codes;
};

// Finds what pads group `wanted`; false: nothing. All threads of the block call it, once.
__device__ __forceinline__ bool find_row_padding(const PlacedRows& placed, int wanted, RowPadding& found) {
    __shared__ uint32_t before[kRowLines];
    if (threadIdx.x < kRowLines) before[threadIdx.x] = 0;
    __syncthreads();
    uint32_t sums[kRowLines] = {};
    for (int group = threadIdx.x; group < wanted; group += blockDim.x) {
        const uint32_t rows = placed.end_of(group) - (group > 0 ? placed.end_of(group - 1) : 0);
#pragma unroll
        for (int i = 0; i < kRowLines; i++) sums[i] += placed.padding_of(i, rows);
    }
    const uint32_t start = wanted > 0 ? placed.end_of(wanted - 1) : 0, end = placed.end_of(wanted);
#pragma unroll
    for (int i = 0; i < kRowLines; i++) {
        const uint32_t of_warp = __reduce_add_sync(kAllLanes, sums[i]);
        if (threadIdx.x % 32 == 0 && of_warp > 0) atomicAdd(&before[i], of_warp);
    }
    __syncthreads();
    if (end <= start) return false;
#pragma unroll
    for (int i = 0; i < kRowLines; i++) found.lines[i] = min(end + before[i], placed.last_line[i]);
    found.codes = min(placed.padding_of(kCodeLine, end - start), placed.last_line[kCodeLine] + 1 - found.lines[kCodeLine]);
    return found.codes > 0 || placed.padding_of(kScaleLine, end - start) > 0;
}

template <class Unit>
__device__ __forceinline__ void zero_units(uint8_t* first, int lines, int64_t stride, int bytes) {
#pragma unroll 1
    for (int line = threadIdx.x / 32; line < lines; line += blockDim.x / 32)
#pragma unroll 1
        for (int i = threadIdx.x % 32; i < bytes / int(sizeof(Unit)); i += 32)
            reinterpret_cast<Unit*>(first + line * stride)[i] = Unit{};
}

// Zeroes lines of so many bytes by all threads of the block, a warp a line.
__device__ __forceinline__ void zero_lines(uint8_t* first, int lines, int64_t stride, int bytes) {
    if ((reinterpret_cast<uintptr_t>(first) | uintptr_t(stride) | uintptr_t(bytes)) % 16 == 0)
        zero_units<uint4>(first, lines, stride, bytes);
    else
        zero_units<uint8_t>(first, lines, stride, bytes);
}

// Zeroes the scales from row `first_row` on in its 128 x 4 tiles, of columns of tiles from `begin` to `end`.
__device__ __forceinline__ void zero_swizzled_scales(const QuantizedPart& part, uint32_t first_row, int begin, int end) {
    const int word = threadIdx.x % kSwizzleRows, row = word % 4 * 32 + word / 4, tiles = blockDim.x / kSwizzleRows;
    const int first = int(first_row % kSwizzleRows);
    if (first == 0 || row < first) return;
    uint8_t* const to = part.scales + first_row / kSwizzleRows * part.layout.tile_row_scales() + word * 4;
    for (int tile = begin + int(threadIdx.x / kSwizzleRows); tile < end; tile += tiles)
        store_shared_scale_word(to + tile * kSwizzleBytes, 0, kSwizzleColumns);
}

// Zeroes the codes and scales of what pads groups, in the block's columns of its group, `index` counted from the first block
// that pads. All threads of the block call it.
__device__ __noinline__ inline void store_row_padding(const PlacedRows& placed, const QuantizedPart& part, uint32_t index) {
    const uint32_t in_row = blockIdx.x / placed.width, wanted = index * placed.in_row + in_row;
    if (in_row >= placed.in_row || wanted >= uint32_t(placed.grouped.groups.count)) return;
    RowPadding padding;
    if (!find_row_padding(placed, int(wanted), padding)) return;
    const int block_log2 = log2_of(uint32_t(part.layout.block)), columns = int(part.layout.columns),
              length = int(part.length);
#pragma unroll 1
    for (int64_t col = int64_t(blockIdx.x % placed.width) * kPaddingColumns; col < length;
         col += int64_t(placed.width) * kPaddingColumns) {
        const int begin = int(col >> block_log2), end = min(begin + (kPaddingColumns >> block_log2), columns);
        zero_lines(part.line(0, padding.lines[kCodeLine]) + col * part.bits / 8, padding.codes, part.line_bytes,
                   (min(length - int(col), kPaddingColumns) * part.bits + 7) / 8);
        const uint32_t row = padding.lines[kScaleLine];
        if (part.layout.swizzled)
            zero_swizzled_scales(part, row, begin / 4, (end + 3) / 4);
        else
            zero_lines(part.scales + part.layout.offset(0, row, begin), padding.codes, part.layout.line_stride, end - begin);
    }
}

}  // namespace mxq::cuda
