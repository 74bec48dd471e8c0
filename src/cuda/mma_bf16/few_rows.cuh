// Shares the tile of a thread block, its loads, products and sums between mma_bf16_rows.cu and mma_bf16_rows_routed.cu.
#pragma once
#include "cuda/kernel_lists.h"
#include "cuda/memory/elements.cuh"
#include "cuda/memory/plain_elements.cuh"
#include "cuda/memory/row_indices.cuh"
#include "cuda/memory/weights.cuh"
#include "cuda/mma_bf16/instructions.cuh"
#include "dispatch/implementation.h"

namespace mxq::cuda::few_rows {

using AllWeights = Values<Weights::Bits4, Weights::Nvfp4, Weights::Bits6, Weights::Bits8>;

constexpr int kTileRows = 8, kTileLines = 16;            // rows of BF16
constexpr int kMostRows = 64;                            // of a group on average
constexpr int64_t kMostRowTiles = 65535;                 // of a grid
constexpr uint32_t kChunk = 128, kQuarter = kChunk / 4;  // codes

struct Arguments {
    GemmProblem problem;
    GemmOperand rows;     // A in BF16
    GroupSumUnits units;  // of A's codes and scales, and of D's rows
    Bf16DecodeRule rule;
    uint32_t missing;      // 2^(127 - bias of the codes) as BF16, in both halves
    uint32_t tile_rows;    // of A: 8, or 4 in two parts
    int64_t chunk_scales;  // bytes from the scales of 128 codes of a row to those of the next
    bool scaled;           // weights have scale bytes
    float lift;            // of scales of 128 (lift_of_scales), 1 where there are none

    // A lane multiplies two rows of weights: the first is at most the last here, the second so many rows further.
    __device__ __forceinline__ uint32_t last_first_line() const { return uint32_t(problem.n) - 1; }
    __device__ __forceinline__ uint32_t to_second_line() const { return kTileLines / 2; }
};

// The rows of weights and of A that a block multiplies. (`line`: K-major row of the weights.)
struct Tile {
    TileOperand a, b;
    int64_t d_row;  // of its first row
    int32_t group;
    uint32_t line, row, rows;  // first row of weights; first row of the group; rows of A
    uint32_t written;          // rows of D: those of A, and those that pad the group
    const uint8_t* numbers;    // of the group's first row, in BF16
    int64_t first_row;         // of the group, among all rows
};

// Returns false where there is no such tile. All lanes of a warp call it.
template <bool grouped>
__device__ __forceinline__ bool find_tile(const Arguments& args, Tile& tile) {
    const GemmProblem& p = args.problem;
    const uint32_t row_tile = blockIdx.y;
    tile.line = blockIdx.x * kTileLines;
    uint32_t rows = uint32_t(p.m), padded = rows, first_tile = 0;
    tile.group = 0, tile.d_row = 0;
    if constexpr (grouped) {
        const Group group = find_group_tile({p.groups, p.group_rows}, args.units, row_tile);
        if (!group.exists()) return false;
        tile.group = group.index, tile.d_row = group.second().codes;
        rows = group.rows, first_tile = group.first_group_tile;
        padded = uint32_t(round_up_to_power(int64_t(rows), p.d.group_unit));
        tile.a = operand_of_group(p.a, group.first(), rows);
        tile.numbers = group_codes(args.rows, group.first());
        tile.first_row = group.first().codes;
    } else {
        tile.first_row = 0;
        tile.a = operand_of_matrix(p.a, 0);
        tile.numbers = args.rows.codes;
    }
    tile.b = operand_of_matrix(p.b, tile.group);
    tile.row = (row_tile - first_tile) * args.tile_rows;
    tile.d_row += tile.row;
    tile.rows = min(rows - tile.row, args.tile_rows);
    tile.written = p.beta != 0 || tile.row + args.tile_rows < rows ? tile.rows : padded - tile.row;
    return true;
}

// Multiplies a warp's chunks of 128 codes of K. The code is short and its loop rolled: a block executes it only once or
// twice, and longer code would wait for instruction fetches.
template <Weights kind, int warps, bool promotes, class Arguments = few_rows::Arguments>
struct Consumer {
    static constexpr int kAhead = weight_bits<kind> == 4 ? 2 : 1;  // chunks in flight while one is multiplied
    static constexpr uint32_t kLaneBytes = kQuarter / 8 * weight_bits<kind>, kWarpsCodes = warps * kChunk;
    using Chunk = Fragment<kind>;
    const Arguments& args;
    uint32_t code;                            // the lane's first of the chunk that is loaded next
    const uint8_t *codes, *scales, *numbers;  // of the lane's first row of weights; of its row of A, null past the last
    int64_t to_second_codes, to_second_scales;
    float sums[4] = {};
    bool met_unusual = false;  // a scale of 128

    // The scales of the chunks of two rows of an operand; NULL: none.
    struct ChunkScales {
        const float* at = nullptr;
        int64_t to_second, to_next;
        __device__ __forceinline__ ChunkScales(const GemmOperand& operand, const TileOperand& of, uint32_t first, uint32_t second) {
            if (!has_scales_of_128(operand)) return;
            const int64_t line = scale_line(of.layout, first);
            at = reinterpret_cast<const float*>(of.scales) + line;
            to_second = scale_line(of.layout, second) - line, to_next = of.layout.column_stride;
        }
        __device__ __forceinline__ float2 of_chunk(uint32_t chunk) const {
            if (!at) return {1, 1};
            const float* const first = at + chunk * to_next;
            return {__ldg(first), __ldg(first + to_second)};
        }
    };

    __device__ __forceinline__ Consumer(const Arguments& arguments, const Tile& tile) : args(arguments) {
        const auto [first, second] = lines(tile);
        code = threadIdx.x / 32 * kChunk + threadIdx.x % 4 * kQuarter;
        codes = tile.b.codes + first * args.problem.b.line_bytes + code / 8 * weight_bits<kind>;
        to_second_codes = (second - first) * args.problem.b.line_bytes;
    }
    // Returns the lane's rows of weights. Rows past the last read the last one; their sums are not stored.
    struct Lines {
        int64_t first, second;
    };
    __device__ __forceinline__ Lines lines(const Tile& tile) const {
        const uint32_t own = tile.line + threadIdx.x % 32 / 4, last = uint32_t(args.problem.n) - 1;
        return {min(own, args.last_first_line()), min(own + args.to_second_line(), last)};
    }
    __device__ __forceinline__ void find_scales(const Tile& tile) {
        const auto [first, second] = lines(tile);
        const ScaleLayout& layout = tile.b.layout;
        const int64_t scale = scale_line(layout, uint32_t(first));
        scales =
            tile.b.scales + scale + scale_in_line(layout, threadIdx.x % 4 * kQuarter) + threadIdx.x / 32 * args.chunk_scales;
        to_second_scales = scale_line(layout, uint32_t(second)) - scale;
    }
    // Finds the lane's row of A, whose address find_row(row, part) returns; null: zeros.
    template <class FindRow>
    __device__ __forceinline__ void find_numbers(const Tile& tile, uint32_t first_code, const FindRow& find_row) {
        const uint32_t column = threadIdx.x % 32 / 4, part = column >= args.tile_rows, row = column - part * args.tile_rows;
        numbers = row < tile.rows ? find_row(row, part) : nullptr;
        if (numbers) numbers += first_code * 2;
    }
    __device__ __forceinline__ bool exists(uint32_t first_code) const { return first_code < uint32_t(args.problem.k); }

    // Loads the lane's codes of a chunk, zeros behind the last.
    __device__ __forceinline__ void load_codes(Chunk& to) {
        const bool here = exists(code);
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const uint8_t* const from = codes + (l > 0 ? to_second_codes : 0);
            auto& words = to.words[l];
            if constexpr (kind == Weights::Bits6) {
#pragma unroll
                for (int i = 0; i < 3; i++) {
                    const uint2 two = here ? load_once_8(from + 8 * i) : uint2{};
                    words[2 * i] = two.x, words[2 * i + 1] = two.y;
                }
            } else {
#pragma unroll
                for (int i = 0; i < int(kLaneBytes) / 16; i++) {
                    const uint4 four = here ? load_once(from + 16 * i) : uint4{};
                    words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
                }
            }
        }
        codes += warps * 4 * kLaneBytes;
        code += kWarpsCodes;
    }
    // Loads the scales of its codes, those of finite numbers behind the last.
    __device__ __forceinline__ void load_scales(uint32_t first_code, Chunk& to) {
        const bool here = exists(first_code) && args.scaled;
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < int(sizeof to.scales[l] / 4); i++) {
                to.scales[l][i] = kind == Weights::Nvfp4 ? 0 : 127;
                if (here) to.scales[l][i] = __ldg(scales + (l > 0 ? to_second_scales : 0) + i);
            }
        scales += warps * args.chunk_scales;
    }
    // Returns whether one factor does not serve some scale of any lane, or codes are Inf or NaN.
    __device__ __forceinline__ bool is_special(const Chunk& chunk) const {
        bool special = false;
        if constexpr (kind == Weights::Bits8) special = any_special(args.rule, chunk);
#pragma unroll
        for (int l = 0; l < 2; l++)
            for (uint32_t scale : chunk.scales[l]) special |= needs_two_factors<kind>(args.rule, scale);
        return __any_sync(kAllLanes, special);
    }
    // Decodes the operand of one instruction: 4 codes of each row.
    template <bool special>
    __device__ __forceinline__ void decode_16(const Chunk& chunk, int four, const uint32_t (&factors)[2][2],
                                              uint32_t (&to)[4]) const {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            const int half = kind == Weights::Nvfp4 ? four / 4 : 0;
            const uint32_t of = four_codes<kind>(chunk, l, four);
            const EvenOddBf16 pairs = special
                                          ? decode_any_four<kind>(args.rule, args.missing, of, four, chunk.scales[l][half])
                                          : decode_four<kind>(args.rule, of, four, factors[l][half]);
            to[l] = pairs.even, to[2 + l] = pairs.odd;
        }
    }
    template <bool special>
    __device__ __forceinline__ void multiply_chunk(const Chunk& chunk, const uint4 (&eights)[4]) {
        uint32_t factors[2][2];
#pragma unroll
        for (int l = 0; l < 2; l++)
#pragma unroll
            for (int i = 0; i < int(sizeof chunk.scales[l] / 4); i++)
                factors[l][i] = scale_factor<kind>(args.rule, chunk.scales[l][i]);
#pragma unroll
        for (int two = 0; two < 4; two++) {
            const uint4 pairs = pair_eight<kind>(eights[two]);
            uint32_t first[4], second[4];
            decode_16<special>(chunk, 2 * two, factors, first);
            decode_16<special>(chunk, 2 * two + 1, factors, second);
            multiply_add_bf16(sums, first, pairs.x, pairs.y);
            multiply_add_bf16(sums, second, pairs.z, pairs.w);
        }
    }
    // Loads codes before it computes the addresses of scales, since codes take longest. `wait` is called before A is read,
    // when the first loads of weights are in flight; find_row: see find_numbers.
    template <class FindRow, class Wait>
    __device__ __forceinline__ void multiply(const Tile& tile, const FindRow& find_row, const Wait& wait) {
        Chunk chunks[kAhead + 1];
        uint32_t own = code;  // of the chunk that is multiplied
#pragma unroll
        for (int i = 0; i < kAhead; i++) load_codes(chunks[i]);
        find_scales(tile);
        find_numbers(tile, own, find_row);
#pragma unroll
        for (int i = 0; i < kAhead; i++) load_scales(own + uint32_t(i) * kWarpsCodes, chunks[i]);
        wait();
        const auto [first_line, second_line] = lines(tile);
        const uint32_t row = tile.row + threadIdx.x % 4 * 2, last_row = tile.row + tile.rows - 1;
        const ChunkScales line_scales(args.problem.b, tile.b, uint32_t(first_line), uint32_t(second_line));
        const ChunkScales row_scales(args.problem.a, tile.a, min(row, last_row), min(row + 1, last_row));
        [[maybe_unused]] float totals[4] = {};
#pragma unroll 1
        for (uint32_t first = threadIdx.x / 32 * kChunk; exists(first); first += kWarpsCodes) {
            uint4 eights[4] = {};
            if (numbers && exists(own))
#pragma unroll
                for (int i = 0; i < 4; i++) eights[i] = __ldg(reinterpret_cast<const uint4*>(numbers) + i);
            load_scales(code, chunks[kAhead]);
            load_codes(chunks[kAhead]);
            float2 of_lines, of_rows;
            if constexpr (promotes)
                of_lines = line_scales.of_chunk(first / kChunk), of_rows = row_scales.of_chunk(first / kChunk);
            if (is_special(chunks[0]))
                multiply_chunk<true>(chunks[0], eights);
            else
                multiply_chunk<false>(chunks[0], eights);
            if constexpr (promotes) promote(of_lines, of_rows, totals);
#pragma unroll
            for (int i = 0; i < kAhead; i++) chunks[i] = chunks[i + 1];
            own += kWarpsCodes;
            if (numbers) numbers += kWarpsCodes * 2;
        }
        if constexpr (promotes)
            for (int i = 0; i < 4; i++) sums[i] = totals[i];
    }
    // Stores the sums of the warp in the table of its thread block, whose threads all call it. Returns whether sums must be
    // made again.
    __device__ __forceinline__ bool put_sums(float (&parts)[warps][kTileRows * kTileLines]) const {
        const uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 4; i++)
            parts[threadIdx.x / 32][(lane % 4 * 2 + i % 2) * kTileLines + lane / 4 + i / 2 * 8] = sums[i];
        if constexpr (promotes) return __syncthreads_or(met_unusual);
        __syncthreads();
        return false;
    }
    // Adds the sums of a chunk under their scales to the totals.
    __device__ __forceinline__ void promote(const float2& of_lines, const float2& of_rows, float (&totals)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float of_line = i < 2 ? of_lines.x : of_lines.y, of_row = i % 2 ? of_rows.y : of_rows.x;
            const float scale = multiply_rn(of_line, of_row);
            met_unusual |= is_unusual_scale(float_bits(scale)) || (scale == 0 && of_line != 0 && of_row != 0);
            totals[i] = __fmaf_rn(sums[i], multiply_rn(scale, args.lift), totals[i]);
            sums[i] = 0;
        }
    }
};

// Returns the row of A of a tile, as BF16; null: a row of zeros.
__device__ __forceinline__ const uint8_t* row_of_tile(const Arguments& args, const Tile& tile, uint32_t row, uint32_t part) {
    if (args.problem.a_by_index.set) {
        const int64_t source = source_row(args.problem.a_by_index, tile.first_row + tile.row + row);
        return source < 0 ? nullptr : args.rows.codes + source * args.rows.line_bytes;
    }
    return tile.numbers + part * args.rows.matrix_bytes + int64_t(tile.row + row) * args.rows.line_bytes;
}

// Returns an element of D from the sum of its products; `again`: which sum_again is to make again.
template <Weights kind, class SumAgain>
__device__ __forceinline__ float finish(const GemmProblem& p, const Tile& tile, uint32_t row, uint32_t line, float sum,
                                        float lift, bool again, const SumAgain& sum_again) {
    float value = multiply_rn(sum, unit_of_sums<kind> / lift);
    if (has_factor(p.a) || has_factor(p.b)) {
        const auto after_sums = [](const GemmOperand& operand, const TileOperand& at, uint32_t of) {
            return has_scales_of_128(operand) ? 1.0f : line_factor(operand, at, of);
        };
        const bool to_nearest = !p.is_sum_alone() || p.d.format == MXQ_FORMAT_F32;
        const uint32_t in_group = tile.row + row;
        value = !again && fabsf(value) < bits_float(kInfinityBits)
                    ? scale_sum(value, after_sums(p.a, tile.a, in_group), after_sums(p.b, tile.b, line), to_nearest)
                    : sum_again(row, line);
    }
    return add_more(p, tile.group, tile.d_row + row, int32_t(line), value);
}

// Warps that an SM should hold: more warps have more loads in flight.
template <Weights kind>
constexpr int kResidentWarps = kind == Weights::Bits4 ? 24 : 16;

// ---- On the host (mma_bf16_rows.cu) --------------------------------------------------------------------------------------

constexpr int kPromotingWarps = 8;

bool has_aligned_lines(const GemmOperand& operand);
bool has_promotions(const GemmProblem& p);
int64_t tile_rows(const GemmProblem& p);
int64_t row_tiles(const GemmProblem& p);
int64_t line_tiles(const GemmProblem& p);
int warps_of_tile(const Context& context, const GemmProblem& p);

// Returns why the kernels do not take a product.
Reason declines(const Context& context, const GemmProblem& p);

// Returns their arguments. A becomes BF16 in the workspace, where it is not.
Arguments arguments_of(const GemmProblem& p, void* workspace);

}  // namespace mxq::cuda::few_rows
