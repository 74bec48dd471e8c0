// From the sums of wgmma_fp8_sm90 to D: factors of lines, alpha, beta D, bias, one rounding, and the stores.
//
//     registers of a warp    16 rows of 192 sums, in the order of the instruction, times the factors of their lines, if any
//     shared                 boxes of 16 rows x 64 elements of 16 bits where a tensor map has D; else turns (rows_output.cuh)
//     D                      boxes by the copy engine where the tile has all 16 rows; else 16 bytes a lane
#pragma once
#include "cuda/memory/operand.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/fp8_tiles.cuh"
#include "cuda/sm90/rows_output.cuh"

namespace mxq::cuda::sm90 {

constexpr int kSums = kWideAccumulators / 2;  // of half of the columns

// ---- A warp's rows ---------------------------------------------------------------------------------------------------

// Returns the sum times the factors of its row and column, two powers of two. Their product is exact where it is a normal
// number; elsewhere one after the other leave fp32's range only where the result does.
template <bool multiplied>
__device__ __forceinline__ float scale_sum(float sum, float of_row, float of_column) {
    const float both = multiply_rn(of_row, of_column);
    if constexpr (multiplied) return multiply_rn(sum, both);
    const bool normal = float_bits(both) - (1u << 23) < kInfinityBits - (1u << 23);
    return normal ? multiply_rn(sum, both) : multiply_rn(multiply_rn(sum, of_row), of_column);
}

// Loads two factors from shared memory here and not further ahead, for which there are no registers.
__device__ __forceinline__ float2 load_factors(const float* from) {
    float2 factors;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(factors.x), "=f"(factors.y)
                 : "r"(uint32_t(__cvta_generic_to_shared(from))));
    return factors;
}

template <bool multiplied>
__device__ __forceinline__ void scale_sums(float (&sums)[2][kSums], const float2& of_rows, const float* of_columns) {
#pragma unroll
    for (int i = 0; i < 2 * kSums; i += 4) {
        float* const four = &sums[i / kSums][i % kSums];  // columns 2 i and 2 i + 1 of two rows
        const float2 factors = load_factors(of_columns + 2 * i);
        four[0] = scale_sum<multiplied>(four[0], of_rows.x, factors.x);
        four[1] = scale_sum<multiplied>(four[1], of_rows.x, factors.y);
        four[2] = scale_sum<multiplied>(four[2], of_rows.y, factors.x);
        four[3] = scale_sum<multiplied>(four[3], of_rows.y, factors.y);
        hold_accumulators(sums[i / kSums]);
    }
}

// Rounds sums to elements of 16 bits and puts them to shared memory, as boxes of D.
template <class T>
__device__ __forceinline__ void put_boxes(const float (&sums)[2][kSums], uint8_t* boxes) {
    const uint32_t lane = read_thread() % 32;
    const uint32_t row = uint32_t(__cvta_generic_to_shared(boxes)) + lane % 16 * kBoxPitch;
    const uint32_t unit = (lane / 16 ^ lane % 8) * 16;  // under the swizzle
#pragma unroll
    for (int i = 0; i < kTileColumns / 16; i++) {
        const float* const eight = &sums[8 * i / kSums][8 * i % kSums];
        store_matrices(row + i / 4 * kBoxBytes + (unit ^ i % 4 * 32), round_pair<T>(eight[0], eight[1]),
                       round_pair<T>(eight[2], eight[3]), round_pair<T>(eight[4], eight[5]),
                       round_pair<T>(eight[6], eight[7]));
    }
}

// Copies the rows of boxes that the tile has to D, 16 bytes a lane.
__device__ __forceinline__ void copy_ragged_rows(const PlainMatrix& d, const RowsOfWarp& of, const uint8_t* boxes) {
    constexpr int units = kTileColumns / 8;
#pragma unroll 1
    for (int i = int(read_thread() % 32); i < of.rows * units; i += 32) {
        const int row = i / units, unit = i % units;
        const uint8_t* const from = boxes + unit / 8 * kBoxBytes + row * kBoxPitch + (unit ^ row) % 8 * 16;
        uint16_t* const to = static_cast<uint16_t*>(d.data) + (of.d_row + row) * d.row_stride + of.column + unit * 8;
        if (unit * 8 < of.columns) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    }
}

// Brings boxes of a warp's rows to D.
__device__ __forceinline__ void store_boxes(const ProductArguments& args, const RowsOfWarp& of, const uint8_t* boxes) {
    publish_shared_writes();
    __syncwarp();
    if (of.rows < kWarpRows) return copy_ragged_rows(args.problem.d, of, boxes);
    if (!elect_lane()) return;
#pragma unroll
    for (int first = 0; first < kTileColumns; first += kBoxColumns) {
        const int32_t at[] = {of.column + first, int32_t(of.d_row)};
        if (first < of.columns) store_tile(args.d_map, at, boxes + first / kBoxColumns * kBoxBytes);
    }
    commit_stores();
}

// Writes sums as elements of D, which nothing is added to.
template <class T>
__device__ __forceinline__ void write_any(const GemmProblem& p, const RowsOfWarp& of, const float (&sums)[2][kSums],
                                          uint8_t* rows) {
    write_turns<T>(sums, rows, [&](int first) { store_turn<T>(p, of, first, rows); });
}

// Writes sums as elements of 16 bits by boxes.
__device__ __forceinline__ void write_boxes(const ProductArguments& args, const RowsOfWarp& of, const float (&sums)[2][kSums],
                                            uint8_t* boxes) {
    if (args.problem.d.format == MXQ_FORMAT_BF16)
        put_boxes<Bf16>(sums, boxes);
    else
        put_boxes<F16>(sums, boxes);
    store_boxes(args, of, boxes);
}

// ---- Sums that fp32 could not hold ---------------------------------------------------------------------------------------

// Reads the BF16 numbers of a line, times the scales of 128 of them.
struct ScaledLine {
    const uint16_t* numbers;
    const uint32_t* words;  // NULL: no scales
    int64_t step_stride;
    __device__ __forceinline__ ScaledLine(const GemmOperand& operand, const SideView& side, int64_t matrix, int64_t line,
                                          int64_t first_word, int64_t word_line)
        : numbers(reinterpret_cast<const uint16_t*>(operand.line(matrix, line))),
          words(side.words ? side.words + first_word + (word_line >> side.lines_log2) * side.word_stride : nullptr),
          step_stride(side.step_stride) {}
    __device__ __forceinline__ double operator[](int32_t k) const {
        const double number = to_float(Bf16{numbers[k]});
        return words ? number * bits_float(words[k / kBlock128 * step_stride]) : number;
    }
};

// Makes the sum of an element again, in double. Rare, and slow.
__device__ __noinline__ inline double sum_again(const ProductArguments& args, const TileSlot& slot, int row, int column) {
    const ProductTile& tile = slot.tile;
    const GemmProblem& p = args.problem;
    const ScaledLine a(p.a, args.a, 0, tile.a_line + row, slot.words.a, slot.words.a_line + row);
    const ScaledLine b(p.b, args.b, tile.b_matrix, tile.b_line + column, slot.words.b, slot.words.b_line + column);
    double sum = 0;
#pragma unroll 1
    for (int32_t k = 0; k < p.k && sum == sum; k++) sum += a[k] * b[k];
    return sum;
}

// Returns, for all lanes of a warp, whether sums of BF16 numbers are to be made again: those under scales that were out of the
// ordinary, and those that left fp32's range before a scale brought them back, which BF16's own range allows.
__device__ __forceinline__ bool needs_again(const GemmProblem& p, const float (&sums)[2][kSums], bool met_unusual) {
    bool again = met_unusual;
    if (p.a.scale_type == ScaleType::None || p.b.scale_type == ScaleType::None)
#pragma unroll
        for (int i = 0; i < 2 * kSums; i++) again |= !(fabsf(sums[i / kSums][i % kSums]) < bits_float(kInfinityBits));
    return __any_sync(kAllLanes, again);
}

// Stores the turn's columns, sums without the factors of their columns, from shared memory to D. Those that are no numbers are
// made again, or all.
__device__ __noinline__ inline void finish_turn(const ProductArguments& args, const TileSlot& slot, int first_row, int first, bool all,
                                         const uint8_t* from) {
    const GemmProblem& p = args.problem;
    const ProductTile& tile = slot.tile;
    const bool to_nearest = !p.is_sum_alone() || p.d.format == MXQ_FORMAT_F32;
    const int rows = min(tile.rows - first_row, kWarpRows), lane = int(read_thread() % 32), column = first + lane;
    if (column >= tile.columns) return;
    const float factor = slot.column_factors[column], whole = multiply_rn(factor, args.lift);
#pragma unroll 1
    for (int i = 0; i < rows; i++) {
        const int64_t d_row = tile.d_row + first_row + i;
        const float sum = reinterpret_cast<const float*>(from + i * kTurnPitch)[lane];
        const bool again = all || !(fabsf(sum) < bits_float(kInfinityBits));
        const float value = again ? round_sum(sum_again(args, slot, first_row + i, column) * whole, to_nearest)
                                  : multiply_rn(sum, factor);
        store_element(p.d.data, p.d.format, d_row * p.d.row_stride + tile.column + column,
                      add_more(p, tile.group, d_row, tile.column + column, value));
    }
}

// Writes a warp's rows of a tile, some sums or all made again.
__device__ __forceinline__ void write_again(const ProductArguments& args, const TileSlot& slot, float (&sums)[2][kSums],
                                            bool met_unusual, ProductShared& shared) {
    const int warp = int(read_thread()) / 32 - 4, first_row = warp * kWarpRows;
    const bool all = __any_sync(kAllLanes, met_unusual);
    uint8_t* const rows = shared.out[warp];
    wait_stores_read<0>();  // of the tile before
    write_turns<float>(sums, rows, [&](int first) { finish_turn(args, slot, first_row, first, all, rows); });
}

// Multiplies a warp's sums with the factors of their lines.
__device__ __forceinline__ void scale_all(const TileSlot& slot, float (&sums)[2][kSums]) {
    if (slot.factors == Factors::None) return;
    const uint32_t thread = read_thread(), lane = thread % 32;
    const float* const of_rows = slot.row_factors + (thread / 32 - 4) * kWarpRows + lane / 4;
    const float* const of_columns = slot.column_factors + 2 * (lane % 4);
    if (slot.factors == Factors::Multiplied)
        scale_sums<true>(sums, {of_rows[0], of_rows[8]}, of_columns);
    else
        scale_sums<false>(sums, {of_rows[0], of_rows[8]}, of_columns);
}

// Writes a warp's rows of a tile. `late`: under the first product of the next tile, where D takes boxes of sums.
template <bool late>
__device__ __forceinline__ void write_sums(const ProductArguments& args, const TileSlot& slot, float (&sums)[2][kSums],
                                           ProductShared& shared) {
    const GemmProblem& p = args.problem;
    scale_all(slot, sums);
    const int warp = int(read_thread()) / 32 - 4, first_row = warp * kWarpRows;
    const RowsOfWarp of = rows_of_warp(p, slot.tile, first_row, args.directly);
    uint8_t* const rows = shared.out[warp];
    wait_stores_read<0>();  // of the tile before
    __syncwarp();
    if constexpr (late) return write_boxes(args, of, sums, rows);
    add_more_to_sums(p, of, sums);
    const int32_t format = format_of_sums(p, of);
    if (of.copied && format == MXQ_FORMAT_F32)
        write_floats(p, of, sums);
    else if (of.copied)
        write_boxes(args, of, sums, rows);
    else if (format == MXQ_FORMAT_BF16)
        write_any<Bf16>(p, of, sums, rows);
    else if (format == MXQ_FORMAT_F16)
        write_any<F16>(p, of, sums, rows);
    else
        write_any<float>(p, of, sums, rows);
}

}  // namespace mxq::cuda::sm90
