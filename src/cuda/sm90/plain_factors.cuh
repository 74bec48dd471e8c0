// Fp32 factors of lines, which multiply the sums of wgmma_plain_sm90 where its operands were widened (cuda/widen).
//
//     a warp's factors are all usual, and its sums numbers    in registers, one factor after the other
//     else                                                    element by element; sums that are no numbers are made again, since
//                                                             D may be one
#pragma once
#include "cuda/memory/operand.cuh"
#include "cuda/sm90/plain_tiles.cuh"

namespace mxq::cuda::sm90::plain {

// Holds both operands as the tile's product has them.
struct TileOperands {
    TileOperand a, b;
    __device__ __forceinline__ TileOperands(const GemmProblem& p, const Tile& tile)
        : a(p.grouping == Grouping::None ? operand_of_matrix(p.a, 0) : operand_of_group(p.a, tile.a_start, tile.group_rows)),
          b(p.grouping == Grouping::Contraction ? operand_of_group(p.b, tile.b_start, tile.group_rows)
                                                : operand_of_matrix(p.b, tile.b_matrix)) {}
};

// Holds the factors of some lines of an operand. An empty group has none, nor has the block of a cluster that has no columns.
struct LineFactors {
    const GemmOperand& operand;
    const TileOperand& at;
    int32_t first, count;  // lines of the tile
    bool exist;

    __device__ __forceinline__ bool same() const {
        return operand.scale_type != ScaleType::F32 || operand.layout.line_stride == 0;
    }
    // Returns that of a line of the tile; of one behind them that of the last.
    __device__ __forceinline__ float of(int32_t line) const {
        return exist ? line_factor(operand, at, first + max(0, min(line, count - 1))) : 1.0f;
    }
};

// Multiplies sums with the factors of their rows and of accumulators 4 j + i, which `of_column(4 j + i)` returns.
template <int halves, int count, class OfColumn>
__device__ __forceinline__ void multiply_sums(float (&sums)[halves][count], const float (&of_rows)[2],
                                              const OfColumn& of_column) {
#pragma unroll
    for (int i = 0; i < halves * count; i += 4) {
        if (i % 16 == 0) __syncwarp();  // else the compiler loads more ahead than there are registers for
        const float factors[2] = {of_column(i), of_column(i + 1)};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float& sum = sums[i / count][i % count + j];
            sum = multiply_rn(multiply_rn(sum, of_rows[j / 2]), factors[j % 2]);
        }
    }
}

// Multiplies the sums of a warp with their factors; returns false, and leaves them, where that is not all that there is to do.
template <int halves, int count>
__device__ __forceinline__ bool scale_rows(const GemmProblem& p, const Tile& tile, int first_row, float (&sums)[halves][count]) {
    const TileOperands operands(p, tile);
    const LineFactors rows{p.a, operands.a, tile.row, tile.rows, tile.steps > 0},
        columns{p.b, operands.b, tile.column, tile.columns, tile.steps > 0 && tile.columns > 0};
    const int lane = int(read_thread() % 32);
    const float of_rows[2] = {rows.of(first_row + lane / 4), rows.of(first_row + lane / 4 + 8)}, of_all = columns.of(0);
    bool usual = is_usual_factor(of_rows[0]) && is_usual_factor(of_rows[1]) && is_usual_factor(of_all);
    if (!columns.same())
#pragma unroll 1
        for (int column = lane; column < tile.columns; column += 32) usual &= is_usual_factor(columns.of(column));
#pragma unroll
    for (int i = 0; i < halves * count; i++) usual &= fabsf(sums[i / count][i % count]) < bits_float(kInfinityBits);
    if (!__all_sync(kAllLanes, usual)) return false;
    if (columns.same())
        multiply_sums(sums, of_rows, [&](int) { return of_all; });
    else
        multiply_sums(sums, of_rows, [&](int i) { return columns.of(2 * (i / 4 * 4) + 2 * (lane % 4) + i % 2); });
    return true;
}

// Makes the sum of an element again, in double, without factors: these may take it back to where D has numbers.
__device__ __noinline__ double sum_again(const GemmProblem& p, const TileOperands& operands, uint32_t row, uint32_t column,
                                         uint32_t length) {
    const auto value = [](const GemmOperand& operand, const TileOperand& at, uint32_t of_line, uint32_t k) {
        const auto [line, code] = stored_at(operand.across, of_line, k);
        return double(element_at(operand, operand.bits, at, line, code));
    };
    double sum = 0;
#pragma unroll 1
    for (uint32_t k = 0; k < length && sum == sum; k++)
        sum += value(p.a, operands.a, row, k) * value(p.b, operands.b, column, k);
    return sum;
}

// Stores the turn's columns, fp32 sums without their factors, from shared memory to D.
__device__ __noinline__ void finish_turn(const GemmProblem& p, const Tile& tile, int first_row, int first, const uint8_t* from) {
    const TileOperands operands(p, tile);
    const bool to_nearest = !p.is_sum_alone() || p.d.format == MXQ_FORMAT_F32;
    const uint32_t length = p.grouping == Grouping::Contraction ? uint32_t(tile.group_rows) : uint32_t(p.k);
    const int rows = min(tile.rows - first_row, kWarpRows), column = first + int(read_thread() % 32);
    if (column >= tile.columns) return;
    const uint32_t line = uint32_t(tile.column + column);
    const float of_column = line_factor(p.b, operands.b, line);
#pragma unroll 1
    for (int i = 0; i < rows; i++) {
        const int64_t d_row = tile.d_row + first_row + i;
        const uint32_t row = uint32_t(tile.row + first_row + i);
        const float sum = reinterpret_cast<const float*>(from + i * kTurnPitch)[column - first];
        const float of_row = line_factor(p.a, operands.a, row);
        float value;
        if (fabsf(sum) < bits_float(kInfinityBits))
            value = scale_sum(sum, of_row, of_column, to_nearest);
        else
            value = round_sum(sum_again(p, operands, row, line, length) * of_row * of_column, to_nearest);
        value = add_more(p, tile.group, d_row, int32_t(line), value);
        store_element(p.d.data, p.d.format, d_row * p.d.row_stride + line, value);
    }
}

}  // namespace mxq::cuda::sm90::plain
