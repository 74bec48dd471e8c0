// From the sums of wgmma_fp8_sm90 to D: factors of lines, alpha, beta D, bias, one rounding, and the stores.
//
//     registers of a warp    16 rows of 192 sums, in the order of the instruction, times the factors of their lines
//     shared                 whole rows of 16-bit elements that D takes as they are; else turns (rows_output.cuh)
//     D                      whole rows by the copy engine, a copy each, while the next tile is multiplied
#pragma once
#include "cuda/memory/operand.cuh"
#include "cuda/sm90/copy.cuh"
#include "cuda/sm90/fp8_tiles.cuh"
#include "cuda/sm90/rows_output.cuh"

namespace mxq::cuda::sm90 {

constexpr int kSums = kWideAccumulators;  // of a half

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

// Starts copies of whole rows of 16-bit elements to D, by way of shared memory.
template <class T>
__device__ __forceinline__ void copy_rows(const GemmProblem& p, const RowsOfWarp& of, const float (&sums)[2][kSums],
                                          uint8_t* rows) {
    const uint32_t lane = read_thread() % 32;
    T* const place = reinterpret_cast<T*>(rows + lane / 4 * kRowPitch) + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < 2 * kSums; i += 4) {
        const float* const four = &sums[i / kSums][i % kSums];
        put_pair(place + 2 * i, four[0], four[1]);
        put_pair(place + 2 * i + 8 * kRowPitch / sizeof(T), four[2], four[3]);
    }
    publish_shared_writes();
    __syncwarp();
    if (int(lane) >= of.rows || of.columns == 0) return;
    const PlainMatrix& d = p.d;
    store_bytes(static_cast<T*>(d.data) + (of.d_row + lane) * d.row_stride + of.column, rows + lane * kRowPitch,
                uint32_t(of.columns) * uint32_t(sizeof(T)));
    commit_stores();
}

template <class T>
__device__ __forceinline__ void write_any(const GemmProblem& p, const RowsOfWarp& of, const float (&sums)[2][kSums],
                                          uint8_t* rows) {
    write_turns<T>(sums, rows, [&](int first) { store_turn<T>(p, of, first, rows); });
}

// Writes sums as elements of 16 bits, the faster way where D takes it.
template <class T>
__device__ __forceinline__ void write_rows(const GemmProblem& p, const RowsOfWarp& of, const float (&sums)[2][kSums],
                                           uint8_t* rows) {
    if (of.copied && of.columns * int(sizeof(T)) % 16 == 0)
        copy_rows<T>(p, of, sums, rows);
    else
        write_any<T>(p, of, sums, rows);
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
    clear_padding(args.problem, slot.tile, first_row);
}

// Writes a warp's rows of a tile.
__device__ __forceinline__ void write_sums(const ProductArguments& args, const TileSlot& slot, float (&sums)[2][kSums],
                                           ProductShared& shared) {
    const GemmProblem& p = args.problem;
    const uint32_t thread = read_thread(), warp = thread / 32 - 4, lane = thread % 32;
    const int first_row = int(warp) * kWarpRows;
    const float* const of_rows = slot.row_factors + first_row + lane / 4;
    const float* const of_columns = slot.column_factors + 2 * (lane % 4);
    if (slot.multiplied)
        scale_sums<true>(sums, {of_rows[0], of_rows[8]}, of_columns);
    else
        scale_sums<false>(sums, {of_rows[0], of_rows[8]}, of_columns);
    const RowsOfWarp of = rows_of_warp(p, slot.tile, first_row, args.wide);
    uint8_t* const rows = shared.out[warp];
    const int32_t format = format_of_sums(p, of);
    wait_stores_read<0>();  // of the tile before
    __syncwarp();
    add_more_to_sums(p, of, sums);
    if (format == MXQ_FORMAT_F32 && of.copied)
        write_floats(p, of, sums);
    else if (format == MXQ_FORMAT_BF16)
        write_rows<Bf16>(p, of, sums, rows);
    else if (format == MXQ_FORMAT_F16)
        write_rows<F16>(p, of, sums, rows);
    else
        write_any<float>(p, of, sums, rows);
    clear_padding(p, slot.tile, first_row);
}

}  // namespace mxq::cuda::sm90
