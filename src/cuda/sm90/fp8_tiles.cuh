// Which tile of which product a block of wgmma_fp8_sm90 makes next, or of wgmma_blocks_sm90, and what it has of it in shared
// memory. Of the latter "codes" are BF16 numbers, two bytes each.
//
//     the blocks of a cluster take two tiles that share lines of B or A (cluster_turns.cuh)
//
//     scout         a tile ahead: finds the tile and the steps that have marks, and writes them to one of two slots
//     all others    take their part of the tile of a slot, and give the slot back
#pragma once
#include <cuda.h>

#include "cuda/memory/operand.cuh"
#include "cuda/sm90/barrier.cuh"
#include "cuda/sm90/cluster_turns.cuh"
#include "cuda/sm90/move_operands.h"
#include "cuda/sm90/rows_output.cuh"
#include "cuda/sm90/tensor_map.h"

namespace mxq::cuda::sm90 {

constexpr int kTileRows = 128, kTileColumns = 192;
constexpr int kHalfRows = kTileRows / 2, kHalfColumns = kTileColumns / 2;
constexpr int kStepBytes = 128;  // of a line; as many codes of FP8
constexpr int kStages = 4, kTileSlots = 2;
constexpr int kMostSteps = 2048;  // of a tile
constexpr int kMostBand = 12;
constexpr uint32_t kNoReferences = 0x7F7F7F7Fu;  // the word of codes that have the reference of their line
constexpr int kPieceColumns = 64;                // of which neighbours share the scale of 128 x 128
constexpr int kConsumers = 2, kConsumerWarps = 4 * kConsumers, kLoaders = 3;  // warps that load: codes of A, of B, words
static_assert(kTileRows == kConsumerWarps * kWarpRows);
// Boxes of a warp's rows of 16-bit elements, which a TMA store takes to D, under the 128-byte swizzle.
constexpr int kBoxColumns = 64, kBoxPitch = kBoxColumns * 2, kBoxBytes = kWarpRows * kBoxPitch;
constexpr int kBoxesBytes = kTileColumns / kBoxColumns * kBoxBytes;
static_assert(kBoxesBytes >= kWarpRows * kTurnPitch, "rows in turns lie there too");
static_assert(kTileRows == kSwizzleRows, "group tiles are row tiles");

// Holds what a side of the product has beside its codes: a word for each line and step, a factor for each line, or both. A
// pass leaves both for MX operands. Those that no pass moved have either, their scales: numbers for every 128 codes, or numbers
// (FP8) or bytes (MX) of lines.
struct SideView {
    const uint32_t* words;  // references beside those of their lines, numerics/rebase_guard.h; or fp32 scales
    int64_t word_stride, step_stride;  // words from a line to the next, and from a step to the next
    int32_t lines_log2;                // that share a word
    bool boxed;                        // the words of all lines lie one after the other; of A, boxes of them are loaded
    const Marks* marks;                // of 32 lines and a step; mark_stride from such lines to the next
    int64_t mark_stride;
    const float* factors;   // of lines
    int64_t factor_stride;  // from a line to the next: 1, or 0 where all have the same
    int64_t factor_group_stride;
    const uint8_t* bytes;  // in place of factors
    int64_t tile_bytes;    // above 0: bytes are in 128 x 4 tiles, so far from those of 128 lines to the next
};

// Describes an operand whose scales of 128 stay where they are, as words.
inline SideView view_of_scales_of_128(const GemmOperand& operand) {
    SideView view{};
    view.words = reinterpret_cast<const uint32_t*>(operand.scales);
    view.word_stride = operand.layout.line_stride;
    view.step_stride = operand.layout.column_stride;
    view.lines_log2 = int32_t(log2_of(uint32_t(operand.layout.tile_rows)));
    return view;
}

struct ProductArguments {
    CUtensorMap a_map, b_map;
    CUtensorMap a_words;  // where they are boxed
    CUtensorMap d_map;    // of elements of 16 bits that D takes directly
    SideView a, b;
    GemmProblem problem;
    TurnUnits units;  // codes of A and B, and rows of D or codes of a moved group
    TileBands bands;
    bool a_stays, b_stays;                    // groups along the contraction that no pass moved, one right behind the other
    bool directly;                            // D takes boxes, or is F32 and takes 16 bytes
    bool late;                                // D takes boxes of the sums alone
    int32_t step_log2;                        // numbers of the contraction in a step, and steps of 128 of them
    int32_t word_steps_log2;
    float lift;  // of BF16 numbers' scales (lift_of_scales)
};

// Says how D takes sums, once the problem is known.
inline void describe_output(ProductArguments& args) {
    const GemmProblem& p = args.problem;
    const PlainMatrix& d = p.d;
    const int64_t element = find_format(d.format)->bits / 8;
    const int64_t rows = p.grouping == Grouping::Rows ? padded_rows_bound(p.group_rows, p.groups.count, d.group_unit)
                                                      : d.matrices * d.rows;
    args.directly = d.row_stride * element % 16 == 0 && reinterpret_cast<uintptr_t>(d.data) % 16 == 0;
    if (element == 2) {
        const auto type = d.format == MXQ_FORMAT_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        const TileMap map{d.data, type, 2, {d.cols, rows, 1}, {d.row_stride * element, 0}, {kBoxColumns, kWarpRows, 1},
                          CU_TENSOR_MAP_SWIZZLE_128B};
        // A box that ends within 16 bytes would write zeros behind the columns of D.
        args.directly = args.directly && d.cols % 8 == 0 && rows < int64_t(1) << 31 && unmappable(map).empty();
        if (args.directly) args.d_map = tensor_map(driver(), map);
        args.late = args.directly && p.is_sum_alone();
    }
}

// One tile of one product; steps below 0: there are no more.
struct ProductTile {
    int32_t steps;
    int32_t a_line, b_line, b_matrix, a_code, b_code;  // where its operands begin: lines and codes as the maps count
    int32_t code;                                      // where what a pass left of its group begins
    int32_t cut;                                       // codes that the last step has of the group's; 0: no others follow them
    int32_t rows, padded_rows, columns;      // of D, from the tile's first on; below 128 or 192 at the edges
    int32_t column, group;
    int64_t d_row;
    int64_t a_factor, b_factor;               // of the first line
    int32_t a_marks, b_marks;                 // rows of marks
    bool shares_a;                            // with the other block: lines of A, not of B
};

// Says where the words of a tile lie: those of its group begin at `a` and `b`, and count its first lines as these.
struct WordPlaces {
    int64_t a, b;
    int32_t a_line, b_line;
};

// Holds the marks of the steps that a round through the ring takes, a bit each: the columns of a step have references of their
// own; and kStages bits up, its blocks of 32 have.
using RoundMarks = uint32_t;
constexpr int kMostRounds = (kMostSteps + kStages - 1) / kStages;

// Says what factors the lines of a tile have: none but 1; such that the product of a row's and a column's is always a normal
// number; or others.
enum class Factors : uint8_t { None, Multiplied, Any };

// A tile, the factors of its lines, and its steps that have marks.
struct TileSlot {
    ProductTile tile;
    WordPlaces words;
    float row_factors[kTileRows];
    alignas(8) float column_factors[kTileColumns];
    Factors factors;
    bool any_marked;
    RoundMarks rounds[kMostRounds + 1];  // one more than there are, so that who looks ahead may read it
};

// A step: 128 codes of the lines of a tile.
struct Stage {
    alignas(1024) uint8_t a[kTileRows * kStepBytes];
    uint8_t b[kTileColumns * kStepBytes];
};

// Holds the words of the rows of a tile for a round through the ring, as the copy engine brings them. There are two: the words
// of a round are read until its last step, while those of the next arrive.
struct RoundWords {
    alignas(128) uint32_t of_row[kTileRows][kStages];
};
constexpr int kWordRounds = 2;
static_assert(kStages % kWordUnit == 0, "rounds begin where the copy engine can read words");

// Holds a word of a step for each column of the tile, or for each piece of columns, where those have some.
struct StageWords {
    alignas(16) uint32_t of_column[kTileColumns];
};

struct ProductShared {
    Stage stages[kStages];
    RoundWords row_words[kWordRounds];
    StageWords column_words[kWordRounds][kStages];
    alignas(1024) uint8_t out[kConsumerWarps][kBoxesBytes];
    TileSlot tiles[kTileSlots];
    Barrier full[kStages], free[kStages], tile_full[kTileSlots], tile_free[kTileSlots];
    Barrier landed[kStages];  // in place of full, for the codes of a step that is cut
    Barrier words_full;       // those of a round
};
static_assert(sizeof(ProductShared) <= 227 * 1024, "what a block may have");

// Sets the tile of the cluster's turn `index` in a product of `rows` row tiles; returns its row tile.
__device__ __forceinline__ uint32_t place_tile(const ProductArguments& args, uint32_t index, uint32_t rows, ProductTile& tile) {
    const TilePlace place = place_in_product<kTileColumns>(args.bands, args.problem.n, index, rows);
    tile.column = place.column;
    tile.columns = place.columns;
    tile.shares_a = place.shares_a;
    return place.row_tile;
}

__device__ __forceinline__ void place_rows(int64_t row, int64_t rows, int64_t padded, ProductTile& tile) {
    tile.rows = int32_t(min(rows - row, int64_t(kTileRows)));
    tile.padded_rows = int32_t(min(padded - row, int64_t(kTileRows)));
}

// Finds the words of a group, which are scales: those lie group after group. All lanes write the same; registers are short.
__device__ __forceinline__ void place_words(const ProductArguments& args, const Group& group, WordPlaces& words) {
    const GemmProblem& p = args.problem;
    words.a = group_scale_offset(p.a.layout, {group.index, 0, 0, group.starts[kSourceScales]});
    words.b = p.grouping == Grouping::Rows
                  ? group.index * p.b.layout.matrix_scales
                  : group_scale_offset(p.b.layout, {group.index, 0, 0, group.starts[kRowwiseScales]});
}

// Finds the words of a tile's first lines, once its lines and codes are known. Those that a pass left count all lines.
__device__ __forceinline__ void place_word_lines(const ProductArguments& args, const ProductTile& tile, int64_t row,
                                                 WordPlaces& words) {
    const GemmProblem& p = args.problem;
    const int64_t passed = p.grouping == Grouping::Contraction ? MoveCall::first_word(tile.code, tile.group) : 0;
    if (args.a.boxed) words.a = passed;
    if (args.b.boxed) words.b = passed;
    words.a_line = args.a.boxed ? tile.a_line : int32_t(row);
    words.b_line = tile.column + (args.b.boxed ? int32_t(tile.b_matrix * p.b.lines) : 0);
}

__device__ __forceinline__ int32_t steps_of(const ProductArguments& args, int64_t length) {
    return int32_t((length + (int64_t(1) << args.step_log2) - 1) >> args.step_log2);
}

// Returns the tile of this block in turn number `index`, for all lanes of a warp.
__device__ __forceinline__ ProductTile product_tile(const ProductArguments& args, uint32_t index, WordPlaces& words) {
    const GemmProblem& p = args.problem;
    const GroupedRows grouped{p.groups, p.group_rows};
    const uint32_t b_marks_of_matrix = uint32_t(ceil_div(p.b.lines, int64_t(kMarkLines)));
    ProductTile tile{};
    tile.steps = -1;
    words.a = words.b = 0;
    int64_t row;  // of the product
    if (p.grouping == Grouping::Rows) {
        const Group group = find_group_by<GroupBy::Tile>(grouped, args.units, index);
        if (group.index < 0) return tile;
        const uint32_t rows = (group.rows + kTileRows - 1) / kTileRows;
        const uint32_t row_tile = place_tile(args, index - group.first_group_tile, rows, tile);
        row = int64_t(row_tile) * kTileRows;
        place_rows(row, group.rows, round_up_to_power(group.rows, p.d.group_unit), tile);
        tile.group = tile.b_matrix = group.index;
        tile.steps = steps_of(args, p.k);
        tile.a_line = int32_t(group.starts[kSourceCodes] + row);
        tile.d_row = group.starts[kRowwiseCodes] + row;
        tile.a_marks = int32_t(group.starts[kColumnwiseCodes] / kMarkLines + row_tile * (kTileRows / kMarkLines));
        tile.a_factor = tile.a_line;
        place_words(args, group, words);
    } else {
        const uint32_t rows = uint32_t(ceil_div(p.m, int64_t(kTileRows)));
        const uint32_t of_product = args.units.turns(rows), product = index / of_product;
        const bool along = p.grouping == Grouping::Contraction;
        if (product >= (along ? uint32_t(p.groups.count) : 1)) return tile;
        const uint32_t row_tile = place_tile(args, index - product * of_product, rows, tile);
        row = int64_t(row_tile) * kTileRows;
        place_rows(row, p.m, p.m, tile);
        int64_t codes = p.k;
        if (along) {
            const Group group = find_group_by<GroupBy::Index>(grouped, args.units, product);
            codes = group.rows;
            tile.code = int32_t(group.starts[kRowwiseCodes]);
            tile.a_code = args.a_stays ? int32_t(group.starts[kSourceCodes]) : tile.code;
            tile.b_code = args.b_stays ? int32_t(group.starts[kColumnwiseCodes]) : tile.code;
            tile.cut = args.a_stays || args.b_stays ? int32_t(codes) % kStepBytes : 0;
            place_words(args, group, words);
        }
        tile.group = int32_t(product);
        tile.steps = steps_of(args, codes);
        tile.a_line = int32_t(row);
        tile.d_row = product * p.m + row;
        tile.a_marks = int32_t(row / kMarkLines);
        tile.a_factor = row;
    }
    tile.b_line = tile.column;
    place_word_lines(args, tile, row, words);
    tile.b_marks = int32_t(tile.b_matrix * b_marks_of_matrix + tile.column / kMarkLines);
    tile.a_factor = args.a.tile_bytes > 0 ? words.a + row / kSwizzleRows * args.a.tile_bytes
                                          : tile.a_factor * args.a.factor_stride + tile.group * args.a.factor_group_stride;
    tile.b_factor = args.b.tile_bytes > 0 ? words.b + tile.column / kSwizzleRows * args.b.tile_bytes
                                          : tile.column * args.b.factor_stride + tile.group * args.b.factor_group_stride;
    return tile;
}

// Adds the marks that `count` lines have at this block of 128 codes to those found before.
__device__ __forceinline__ void find_marks(const SideView& side, int64_t first, int32_t count, int64_t block, Marks& found) {
    if (!side.marks) return;
    const Marks* at = side.marks + first * side.mark_stride + block;
#pragma unroll 1
    for (; count > 0; count -= kMarkLines, at += side.mark_stride) found.moved |= at->moved, found.split |= at->split;
}

// Looks at the marks of a tile's steps. All lanes of a warp call it.
__device__ __forceinline__ void scout_marks(const ProductArguments& args, const ProductTile& tile, TileSlot& slot) {
    const uint32_t lane = threadIdx.x % 32;
    constexpr int32_t rounds = 32 / kStages;  // at once
    uint32_t any = 0;
    for (int32_t first = 0; first < tile.steps; first += rounds * kStages) {
        const int32_t step = first + int32_t(lane), block = tile.code / kStepBytes + step;
        Marks found{};
        if (step < tile.steps) {
            find_marks(args.a, tile.a_marks, tile.rows, block, found);
            find_marks(args.b, tile.b_marks, tile.columns, block, found);
        }
        const uint32_t moved = __ballot_sync(kAllLanes, found.moved), split = __ballot_sync(kAllLanes, found.split);
        any |= moved | split;
        const uint32_t shift = lane * kStages, mask = (1u << kStages) - 1;
        if (lane < rounds && first + int32_t(shift) < tile.steps)
            slot.rounds[first / kStages + lane] = (moved >> shift & mask) | (split >> shift & mask) << kStages;
    }
    if (lane == 0) slot.any_marked = any != 0;
}

// Keeps the least and the largest exponent of some factors, with their signs above, and whether all are 1.
struct ExponentRange {
    uint32_t least = 255, largest = 0;
    bool ones = true;
    __device__ __forceinline__ void add(float factor) {
        const uint32_t exponent = float_bits(factor) >> 23;
        least = min(least, exponent), largest = max(largest, exponent);
        ones = ones && factor == 1;
    }
    // Returns what factors these of rows and others of columns are. All lanes of a warp call it.
    __device__ __forceinline__ Factors beside(const ExponentRange& other) const {
        if (__all_sync(kAllLanes, ones && other.ones)) return Factors::None;
        const uint32_t low = __reduce_min_sync(kAllLanes, least) + __reduce_min_sync(kAllLanes, other.least);
        const uint32_t high = __reduce_max_sync(kAllLanes, largest) + __reduce_max_sync(kAllLanes, other.largest);
        return low > 127 && high < 127 + 254 ? Factors::Multiplied : Factors::Any;
    }
};

// Brings the factors of some lines to shared memory: `global` where the side has none, and 1 for those that the tile does not have.
// In 128 x 4 tiles of scales the first of these lines is line `in_tile` of such a tile. All lanes of a warp call it.
template <int lines>
__device__ __forceinline__ ExponentRange scout_factors(const SideView& side, int64_t first, int32_t in_tile, int32_t count,
                                                       float global, float* to) {
    const int32_t stride = int32_t(side.factor_stride);
    const auto place = [&](int32_t line) {
        if (side.tile_bytes == 0) return int64_t(line) * stride;
        return (in_tile + line) / kSwizzleRows * side.tile_bytes + swizzle_in_tile(in_tile + line, 0);
    };
    const auto factor = [&](int32_t line) {
        const int64_t at = first + place(line);
        return side.bytes ? scale_value(__ldg(side.bytes + at)) : side.factors ? __ldg(side.factors + at) : global;
    };
    ExponentRange range;
#pragma unroll 2
    for (int32_t line = int32_t(threadIdx.x % 32); line < lines; line += 32)
        range.add(to[line] = line < count ? factor(line) : 1.0f);
    return range;
}

// Writes this block's next tile and its marks to a slot, and moves `index` to the turn after it. All lanes of a warp call
// it.
__device__ __forceinline__ void scout_tile(const ProductArguments& args, uint32_t& index, TileSlot& slot) {
    const bool leads = threadIdx.x % 32 == 0;
    const ProductTile tile = product_tile(args, index, slot.words);
    index += gridDim.x / kCluster;
    scout_marks(args, tile, slot);
    if (tile.steps >= 0) {
        const bool any = tile.steps > 0;  // a group without rows has no scales either
        const float global = any ? global_scale(args.problem.b, tile.b_matrix) / args.lift : 1;
        const ExponentRange rows =
            scout_factors<kTileRows>(args.a, tile.a_factor, 0, any ? tile.rows : 0, 1, slot.row_factors);
        const ExponentRange columns = scout_factors<kTileColumns>(args.b, tile.b_factor, tile.column % int32_t(kSwizzleRows),
                                                                  any ? tile.columns : 0, global, slot.column_factors);
        const Factors factors = rows.beside(columns);
        if (leads) slot.factors = factors;
    }
    if (leads) slot.tile = tile;
}

}  // namespace mxq::cuda::sm90
