// The pass of wgmma_fp8_sm90: moves the codes of both operands to the references of lines or of 128 codes, in one launch.
//
// A block of threads has 32 lines of an expert or group, a warp four of them, one after the other:
//
//     scan     the scale bytes of the whole line, for its reference
//     codes    lane 0..31: 16 codes each, half a block of 32; a warp has 512 of a line at once and four such loads in flight
//     guard    the eight lanes of 128 codes agree by a ballot whether all of their blocks are near the reference
//     words    of 128 codes by the first of their lanes; a mark where blocks kept references of their own
//
// Lines of FP8 codes, whose scales stay, are copied.
//
// Bytes an element: 0.53 to 1.03 read, 1.03 written; a line's scales are read twice.
#include <algorithm>

#include "cuda/launch.h"
#include "cuda/memory/grid.cuh"
#include "cuda/memory/groups.cuh"
#include "cuda/rebase/chunks.cuh"
#include "cuda/memory/dependent_launch.cuh"
#include "cuda/sm90/move_operands.h"
#include "core/group_view.h"
#include "numerics/rebase_guard.h"

namespace mxq::cuda::sm90 {
namespace {

// Blocks of 256 threads share a multiprocessor by fours. Where a call may take a few multiprocessors alone, as many blocks of
// 1024 do the same, one after the other; and where there are few blocks, so that no warp has four lines one after the other.
constexpr int kThreads = 256, kMostThreads = 1024;
constexpr uint32_t kFewBlocks = 256;
constexpr int kLaneCodes = 16, kWarpCodes = 32 * kLaneCodes, kAhead = 4;

// An operand as the kernel takes it.
struct Operand {
    MoveCall call;
    GroupSumUnits units;
    uint32_t tiles;   // of 32 lines: of a matrix or group, but of all groups of rows
    uint32_t blocks;  // of threads
    bool whole;       // lines are whole aligned chunks of 16 codes
};

struct Arguments {
    Operand a, b;
};

// 32 lines of an expert or group, and where they go.
struct Lines {
    const uint8_t *codes, *scales;
    ScaleLayout layout;
    int64_t line_bytes;
    uint32_t first;  // line of the expert or group
    int count;
    int length, scaled, padded;  // codes that exist, that have scales, that are written
    uint8_t* to_codes;
    int64_t to_line_bytes;
    uint32_t* words;
    int64_t word_stride;
    Marks* marks;
    float* factors;
};

// ---- Places ----------------------------------------------------------------------------------------------------------

// Fills in what is written from this line among all on, and from where these codes and words of it begin.
__device__ __forceinline__ void point_to(const MoveCall& call, int64_t line, int64_t code, int64_t word, int64_t mark_row,
                                         Lines& at) {
    at.to_codes = call.codes + line * call.line_bytes + code;
    at.to_line_bytes = call.line_bytes;
    at.word_stride = call.word_stride();
    at.words = call.words + line * at.word_stride + word;
    at.marks = call.marks + mark_row * call.blocks() + code / kBlock128;
    at.factors = call.factors + line;
}

__device__ __forceinline__ void lines_of_matrix(const Operand& operand, uint32_t index, Lines& at) {
    const GemmOperand& from = operand.call.from;
    const uint32_t matrix = index / operand.tiles, first = index % operand.tiles * kMarkLines;
    at.codes = from.line(matrix, first);
    at.scales = from.scales + matrix * from.layout.matrix_scales;
    at.layout = from.layout;
    at.first = first;
    at.count = int(min(from.lines - first, int64_t(kMarkLines)));
    at.length = at.scaled = int(from.length);
    at.padded = int(operand.call.line_bytes);
    point_to(operand.call, matrix * from.lines + first, 0, 0, index, at);
}

// A group tile is 128 rows of one group; four blocks of threads share it.
__device__ __forceinline__ bool lines_of_group(const Operand& operand, uint32_t index, const Group& group, Lines& at) {
    const GemmOperand& from = operand.call.from;
    const uint32_t first = (index / 4 - group.first_group_tile) * kSwizzleRows + index % 4 * kMarkLines;
    if (group.index < 0 || first >= group.rows) return false;
    const GroupStart start{group.index, 0, group.starts[kSourceCodes], group.starts[kSourceScales]};
    at.codes = from.line(0, start.codes + first);
    at.scales = group_scales(from, start);
    at.layout = from.layout;
    at.first = first;
    at.count = int(min(group.rows - first, uint32_t(kMarkLines)));
    at.length = at.scaled = int(from.length);
    at.padded = int(operand.call.line_bytes);
    point_to(operand.call, start.codes + first, 0, 0, index, at);
    return true;
}

__device__ __forceinline__ void lines_of_depth(const Operand& operand, uint32_t tile, const Group& group, Lines& at) {
    const GemmOperand& from = operand.call.from;
    const GroupStart start{group.index, 0, group.starts[kSourceCodes], group.starts[kSourceScales]};
    const int64_t first = int64_t(tile) * kMarkLines;
    at.codes = group_codes(from, start) + first * from.line_bytes;
    at.scales = group_scales(from, start);
    at.layout = group_layout(from, group.rows);
    at.first = uint32_t(first);
    at.count = int(min(from.lines - first, int64_t(kMarkLines)));
    at.length = at.scaled = int(round_up_to_power(group.rows, from.units.codes));
    // Compact square tiles are there for a group's rows, all else for its padding too.
    if (from.layout.tile_rows > 1) at.scaled = min(at.scaled, int(round_up_to_power(group.rows, from.layout.block)));
    at.padded = int(round_up_to_power(group.rows, kBlock128));
    const int64_t code = group.starts[kRowwiseCodes];
    point_to(operand.call, first, code, MoveCall::first_word(code, group.index), tile, at);
    at.factors = operand.call.factors + group.index * from.lines + first;
}

// Finds the lines of a block of threads; false: there are none. All its threads call it.
__device__ __forceinline__ bool find_lines(const Operand& operand, uint32_t index, Lines& at) {
    const MoveCall& call = operand.call;
    at.line_bytes = call.from.line_bytes;
    if (call.grouping == Grouping::None) {
        lines_of_matrix(operand, index, at);
        return true;
    }
    const bool by_rows = call.grouping == Grouping::Rows;
    __shared__ Group group;
    if (threadIdx.x < 32) {
        const Group found = by_rows ? find_group_by<GroupBy::Tile>(call.grouped, operand.units, index / 4)
                                    : find_group_by<GroupBy::Index>(call.grouped, operand.units, index / operand.tiles);
        if (threadIdx.x == 0) group = found;
    }
    __syncthreads();
    if (by_rows) return lines_of_group(operand, index, group, at);
    lines_of_depth(operand, index % operand.tiles, group, at);
    return true;
}

// ---- Scales ----------------------------------------------------------------------------------------------------------

// The scales of a line, one for each block of 32 or 128 codes.
struct LineScales {
    const uint8_t* first;
    int64_t column_stride;
    int scaled;  // codes that have scales
    int shift;
    bool swizzled, by_words;  // four scales of blocks of 32 are a word in memory

    __device__ __forceinline__ LineScales(const Lines& at, uint32_t line)
        : first(at.scales + at.layout.offset(0, at.first + line, 0)),
          column_stride(at.layout.column_stride),
          scaled(at.scaled),
          shift(log2_of(uint32_t(at.layout.block))),
          swizzled(at.layout.swizzled),
          by_words(shift == 5 && (swizzled || column_stride == 1) && reinterpret_cast<uintptr_t>(first) % 4 == 0) {}
    __device__ __forceinline__ uint32_t of_column(uint32_t column) const {
        return first[swizzled ? column / 4 * uint32_t(kSwizzleBytes) + column % 4 : column * column_stride];
    }
    __device__ __forceinline__ uint32_t of_code(uint32_t code) const { return of_column(code >> shift); }
    // Returns the four scales of 128 codes, a byte each, 255 where there is none.
    __device__ __forceinline__ uint32_t of_step(uint32_t step) const {
        if (by_words && int((step + 1) * kBlock128) <= scaled)
            return *reinterpret_cast<const uint32_t*>(first + step * (swizzled ? uint32_t(kSwizzleBytes) : 4));
        uint32_t word = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t code = step * kBlock128 + i * kMxBlock;
            word |= (int(code) < scaled ? of_code(code) : kScaleNan) << 8 * i;
        }
        return word;
    }
};

// Returns the reference of a whole line, for all lanes of a warp.
template <class E>
__device__ __forceinline__ uint32_t line_reference(const LineScales& scales) {
    uint32_t largest = 1;
#pragma unroll 4
    for (int step = threadIdx.x % 32; step * int(kBlock128) < scales.scaled; step += 32)
        largest = max(largest, rebased_scale<E>(scales.of_step(uint32_t(step))));
    return __reduce_max_sync(kAllLanes, largest);
}

// Returns whether any block of 128 codes may be far below the reference; blocks of scale 255 are not. Of references so small
// that the least scales come near them, only that of zeros is sure.
template <class E>
__device__ __forceinline__ bool any_may_be_far(uint32_t scales, uint32_t reference) {
    if (reference <= 1 + kGuardBinades) return reference != 1;
    const uint32_t least = reference + Rebase<E>::headroom - kGuardBinades;
    return __vcmpltu4(scales, least * 0x01010101u) != 0;
}

// ---- Codes -----------------------------------------------------------------------------------------------------------

// Returns a mask of the bits of a word of codes that are no signs. Words of six-bit codes come by threes.
template <int bits>
__device__ constexpr uint32_t magnitude_bits(int word) {
    uint32_t mask = 0;
    for (int i = 0; i < 32; i++)
        if ((word * 32 + i) % bits != bits - 1) mask |= 1u << i;
    return mask;
}

template <int bits>
__device__ __forceinline__ bool has_magnitudes(const Chunk<bits>& chunk) {
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < bits / 2; i++) found |= chunk.words[i] & magnitude_bits<bits>(i);
    return found != 0;
}

// Returns the word of 128 codes whose blocks have references of their own, to the first of their eight lanes.
__device__ __forceinline__ uint32_t join_references(uint32_t reference) {
    uint32_t word = reference << (threadIdx.x % 8 / 2 * 8);
    word |= __shfl_xor_sync(kAllLanes, word, 2);
    return word | __shfl_xor_sync(kAllLanes, word, 4);
}

// Returns whether this holds for any of the eight lanes of 128 codes.
__device__ __forceinline__ bool any_of_step(bool holds) {
    return (__ballot_sync(kAllLanes, holds) >> (threadIdx.x & 24) & 0xFF) != 0;
}

// Moves a lane's codes of a line and stores them, and the word and marks of the 128 that they are part of. All lanes of a
// warp call it. `of_line`: the reference of the line, which codes of B have where they can.
template <class E>
__device__ __forceinline__ void move_codes(const Lines& at, uint32_t line, uint32_t code, const Chunk<E::bits>& chunk,
                                           uint32_t scale, uint32_t of_line, bool by_line) {
    uint32_t of_step = block_reference<E>(scale);
    of_step = max(of_step, __shfl_xor_sync(kAllLanes, of_step, 2));
    of_step = max(of_step, __shfl_xor_sync(kAllLanes, of_step, 4));
    const bool counts = has_magnitudes<E::bits>(chunk);
    const bool leaves_line = any_of_step(by_line && counts && !is_near<E>(scale, of_line));
    const bool split = any_of_step(counts && !is_near<E>(scale, of_step));
    uint32_t reference = by_line && !leaves_line ? of_line : of_step;
    if (split && scale != kScaleNan) reference = block_reference<E>(scale);
    const uint32_t relative = relative_reference(reference, of_line), joined = join_references(relative);
    if (code >= uint32_t(at.padded)) return;
    *reinterpret_cast<uint4*>(at.to_codes + line * at.to_line_bytes + code) =
        rebase_chunk<E>(chunk, rebase_block<E>(scale, reference));
    if (threadIdx.x % 8 != 0) return;
    at.words[line * at.word_stride + code / kBlock128] = split ? joined : relative * 0x01010101u;
    Marks& marks = at.marks[code / kBlock128];
    if (leaves_line) marks.moved = 1;
    if (split) marks.split = 1;
}

// Moves kAhead times 512 codes of a line, none of whose blocks is far; false: one may be. Lanes 0 to 15 look at the scales of
// 128 codes each. All lanes of a warp call it.
template <class E>
__device__ __forceinline__ bool move_near(const Lines& at, const LineScales& scales, uint32_t line, uint32_t first,
                                          const Chunk<E::bits> (&chunks)[kAhead], uint32_t of_line, bool by_line) {
    const uint32_t lane = threadIdx.x % 32, step = first / kBlock128 + lane;
    const bool looks = lane < kAhead * kWarpCodes / kBlock128 && step * kBlock128 < uint32_t(at.padded);
    const uint32_t of_step = looks ? scales.of_step(step) : 0;
    const uint32_t reference = by_line ? of_line : rebased_scale<E>(of_step);
    if (__any_sync(kAllLanes, looks && any_may_be_far<E>(of_step, reference))) return false;
    if (looks) at.words[line * at.word_stride + step] = relative_reference(reference, of_line) * 0x01010101u;
#pragma unroll
    for (uint32_t i = 0; i < kAhead; i++) {
        const uint32_t from = i * (kWarpCodes / kBlock128) + lane / 8, code = first + i * kWarpCodes + lane * kLaneCodes;
        const uint32_t four = __shfl_sync(kAllLanes, of_step, from), to = __shfl_sync(kAllLanes, reference, from);
        const uint32_t scale = int(code / kMxBlock * kMxBlock) < scales.scaled ? four >> lane % 8 / 2 * 8 & 0xFF : to;
        if (code < uint32_t(at.padded))
            *reinterpret_cast<uint4*>(at.to_codes + line * at.to_line_bytes + code) =
                rebase_chunk<E>(chunks[i], rebase_block<E>(scale, to));
    }
    return true;
}

template <class E>
__device__ __forceinline__ void move_line(const Lines& at, uint32_t line, bool by_line, bool whole) {
    const uint32_t lane = threadIdx.x % 32;
    const LineScales scales(at, line);
    const uint8_t* const codes = at.codes + line * at.line_bytes;
    const uint32_t of_line = line_reference<E>(scales);
    if (lane == 0) at.factors[line] = scale_value(of_line);
#pragma unroll 1
    for (uint32_t first = 0; first < uint32_t(at.padded); first += kAhead * kWarpCodes) {
        Chunk<E::bits> chunks[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            const uint32_t code = first + i * kWarpCodes + lane * kLaneCodes;
            const uint8_t* const from = codes + code / 8 * E::bits;
            chunks[i] = {};
            if (code >= uint32_t(at.length)) continue;
            chunks[i] = whole ? load_whole<E::bits>(from) : load_some<E::bits>(from, min(at.length - int(code), kLaneCodes));
        }
        if (move_near<E>(at, scales, line, first, chunks, of_line, by_line)) continue;
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            const uint32_t code = first + i * kWarpCodes + lane * kLaneCodes;
            // Both lanes of a block have its scale, though it may end before the second.
            const uint32_t scale = code / kMxBlock * kMxBlock < uint32_t(at.scaled) ? scales.of_code(code) : 0;
            move_codes<E>(at, line, code, chunks[i], scale, of_line, by_line);
        }
    }
}

template <class E>
__device__ __forceinline__ void move_lines(const Lines& at, bool by_line, bool whole) {
#pragma unroll 1
    for (uint32_t line = threadIdx.x / 32; line < uint32_t(at.count); line += blockDim.x / 32)
        move_line<E>(at, line, by_line, whole);
}

// Writes the words and factors of lines whose codes stay, a warp each. A NaN in a line is one in all of its row of D.
template <class E>
__device__ __forceinline__ void scan_lines(const Lines& at) {
    const int lane = int(threadIdx.x % 32);
#pragma unroll 1
    for (uint32_t line = threadIdx.x / 32; line < uint32_t(at.count); line += blockDim.x / 32) {
        const LineScales scales(at, line);
        const uint32_t of_line = line_reference<E>(scales);
        bool is_nan = false;
#pragma unroll 4
        for (int step = lane; step < at.padded / int(kBlock128); step += 32) {
            const bool exists = step * int(kBlock128) < scales.scaled;
            const uint32_t scale = exists ? scales.of_code(uint32_t(step) * kBlock128) : 0;
            is_nan |= scale == kScaleNan;
            const uint32_t reference = scale == kScaleNan ? of_line : scale;
            at.words[line * at.word_stride + step] = relative_reference(reference, of_line) * 0x01010101u;
        }
        const float factor = __any_sync(kAllLanes, is_nan) ? bits_float(kNanBits) : scale_value(of_line);
        if (lane == 0) at.factors[line] = factor;
    }
}

// Copies lines of FP8 codes, a warp each.
__device__ __forceinline__ void copy_lines(const Lines& at, bool whole) {
#pragma unroll 1
    for (int line = int(threadIdx.x / 32); line < at.count; line += int(blockDim.x / 32)) {
        const uint8_t* const from = at.codes + line * at.line_bytes;
#pragma unroll 4
        for (int code = int(threadIdx.x % 32) * kLaneCodes; code < at.padded; code += kWarpCodes) {
            Chunk<8> chunk{};
            if (code < at.length)
                chunk = whole ? load_whole<8>(from + code) : load_some<8>(from + code, min(at.length - code, kLaneCodes));
            *reinterpret_cast<uint4*>(at.to_codes + line * at.to_line_bytes + code) = {chunk.words[0], chunk.words[1],
                                                                                       chunk.words[2], chunk.words[3]};
        }
    }
}

__device__ __forceinline__ void move_operand(const Operand& operand, uint32_t index) {
    Lines at;
    if (!find_lines(operand, index, at)) return;
    if (operand.call.copies()) return copy_lines(at, operand.whole);
    if (operand.call.codes_stay)
        return operand.call.from.element == Element::E5M2 ? scan_lines<E5M2>(at) : scan_lines<E4M3>(at);
    for (int block = threadIdx.x; block < at.padded / int(kBlock128); block += int(blockDim.x)) at.marks[block] = {};
    __syncthreads();
    const bool by_line = operand.call.by_line, whole = operand.whole;
    switch (operand.call.from.element) {
        case Element::E4M3: return move_lines<E4M3>(at, by_line, whole);
        case Element::E5M2: return move_lines<E5M2>(at, by_line, whole);
        case Element::E2M3: return move_lines<E2M3>(at, by_line, whole);
        case Element::E3M2: return move_lines<E3M2>(at, by_line, whole);
        case Element::E2M1: return move_lines<E2M1>(at, by_line, whole);
    }
}

__global__ void __launch_bounds__(kMostThreads, 1) move_operands_kernel(const __grid_constant__ Arguments args) {
    start_next_kernel();
    const uint32_t blocks = args.a.blocks + args.b.blocks;
#pragma unroll 1
    for (uint32_t index = blockIdx.x; index < blocks; index += gridDim.x) {
        const bool is_a = index < args.a.blocks;
        move_operand(is_a ? args.a : args.b, is_a ? index : index - args.a.blocks);
        __syncthreads();  // the next lines are found in the same place
    }
}

// ---- On the host -----------------------------------------------------------------------------------------------------

int64_t tiles_of(const MoveCall& call) {
    if (call.grouping == Grouping::Rows) return group_tiles_bound(call.grouped) * (kSwizzleRows / kMarkLines);
    return ceil_div(call.from.lines, int64_t(kMarkLines));
}

Operand operand_of(const MoveCall& call) {
    const int64_t chunk_bytes = 2 * call.from.bits;
    const bool whole = reinterpret_cast<uintptr_t>(call.from.codes) % uintptr_t(chunk_bytes & -chunk_bytes) == 0 &&
                       call.from.line_bytes % chunk_bytes == 0 && call.from.length % kLaneCodes == 0 &&
                       (call.grouping != Grouping::Contraction || call.from.units.codes % kLaneCodes == 0);
    Operand operand{call, {}, uint32_t(tiles_of(call)), 0, whole};
    operand.units.at[kSourceCodes] = uint32_t(call.from.units.codes);
    operand.units.at[kSourceScales] = uint32_t(call.from.units.scales);
    operand.units.at[kRowwiseCodes] = uint32_t(kBlock128);
    operand.blocks = uint32_t(move_blocks(call));
    return operand;
}

}  // namespace

MoveCall move_call(const GemmProblem& p, Side side, bool by_line) {
    MoveCall call{};
    call.from = p.operand(side);
    call.grouping = p.grouping_of(side);
    call.grouped = {p.groups, p.group_rows};
    call.by_line = by_line;
    call.line_bytes = call.grouping == Grouping::Contraction ? padded_rows_bound(p.group_rows, p.groups.count, kBlock128)
                                                             : round_up(call.from.length, kBlock128);
    return call;
}

uint64_t moved_code_bytes(const MoveCall& call) {
    return call.codes_stay ? 0 : uint64_t(call.lines() * call.line_bytes);
}

uint64_t moved_word_bytes(const MoveCall& call) {
    if (call.copies()) return 0;
    return uint64_t(call.lines() * call.word_stride()) * sizeof(uint32_t);
}

uint64_t moved_factor_bytes(const MoveCall& call) {
    if (call.copies()) return 0;
    const int64_t groups = call.grouping == Grouping::Contraction ? call.grouped.groups.count : 1;
    return uint64_t(call.lines() * groups) * sizeof(float);
}

uint64_t moved_mark_bytes(const MoveCall& call) {
    if (call.copies() || call.codes_stay) return 0;
    const int64_t matrices = call.grouping == Grouping::None ? call.from.matrices : 1;
    return uint64_t(matrices * tiles_of(call) * call.blocks()) * sizeof(Marks);
}

int64_t move_blocks(const MoveCall& call) {
    const int64_t times = call.grouping == Grouping::None          ? call.from.matrices
                          : call.grouping == Grouping::Contraction ? call.grouped.groups.count
                                                                   : 1;
    return tiles_of(call) * times;
}

void move_operands(const Context& context, const MoveCall* a, const MoveCall* b, int32_t sm_count, void* stream) {
    const Arguments args{a ? operand_of(*a) : Operand{}, b ? operand_of(*b) : Operand{}};
    const uint32_t blocks = args.a.blocks + args.b.blocks;
    if (blocks == 0) return;
    const uint32_t grid = sm_count > 0 ? std::min(blocks, uint32_t(sm_count)) : blocks;
    const uint32_t threads = sm_count > 0 || blocks < kFewBlocks ? kMostThreads : kThreads;
    launch(context, move_operands_kernel, "wgmma_fp8_sm90's pass", dim3(grid), dim3(threads), 0, stream, args);
}

void load_move_operands() { load_kernel(reinterpret_cast<const void*>(move_operands_kernel), 0); }

}  // namespace mxq::cuda::sm90
