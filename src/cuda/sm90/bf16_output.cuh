// From the sums of wgmma_bf16_sm90 to D: fp32 factors of lines, alpha, beta D, bias, one rounding, and the stores.
//
//     registers of a warp    16 lines of weights, columns of D, by the tile's tokens, rows of D
//     shared                 16 tokens in a turn: as elements of 16 bits, transposed on the way (stmatrix), where D takes these
//                            as they are by 16 bytes, two lanes a token; else as sums, which the lanes finish one by one
//
// Rows that are not the tile's stay untouched either way.
#pragma once
#include "cuda/sm90/bf16_tiles.cuh"
#include "cuda/sm90/output.cuh"

namespace mxq::cuda::sm90::bf16 {

// Makes the sum of plain numbers and codes again, in double: without their fp32 factors sums may leave fp32's range where D
// does not.
__device__ __noinline__ float sum_again(const GemmProblem& p, const TileOperand& a, const TileOperand& b, uint32_t token,
                                        uint32_t line) {
    double sum = 0;
#pragma unroll 1
    for (uint32_t k = 0; k < uint32_t(p.k) && sum == sum; k++)
        sum += double(operand_value(p.a, a, token, k)) * double(operand_value(p.b, b, line, k));
    return __double2float_rn(sum);
}

__device__ __forceinline__ bool has_factor(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::F32 || operand.scale_type == ScaleType::E4M3;
}

// Says how the sums of a warp become D.
struct Output {
    bool copied;      // as elements of 16 bits that need no more than the factor of their column
    float factors[2]; // of this lane's columns
};

template <Weights kind>
__device__ __forceinline__ Output output_of(const Arguments& args, const Tile& tile, int32_t line) {
    const GemmProblem& p = args.problem;
    Output output{args.wide && p.d.format != MXQ_FORMAT_F32 && line + kWarpLines <= p.n && p.is_sum_alone() &&
                      !has_factor(p.a),
                  {1, 1}};
    if (!output.copied || !has_factor(p.b)) return output;
    const TileOperand b = operand_of_matrix(p.b, tile.group);
#pragma unroll
    for (int h = 0; h < 2; h++) output.factors[h] = line_factor(p.b, b, line + threadIdx.x % 32 / 4 + 8 * h);
    const bool usual = is_usual_factor(output.factors[0]) && is_usual_factor(output.factors[1]);
    output.copied = __all_sync(kAllLanes, usual);
    return output;
}

// ---- Elements as they are ------------------------------------------------------------------------------------------------

// Stores four 8 x 8 matrices, transposed, whose rows lie where the lanes say.
__device__ __forceinline__ void store_transposed(void* row, const uint32_t (&of)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     uint32_t(__cvta_generic_to_shared(row))),
                 "r"(of[0]), "r"(of[1]), "r"(of[2]), "r"(of[3])
                 : "memory");
}

__device__ __forceinline__ uint32_t pack_pair(bool f16, float low, float high) {
    if (f16) return uint32_t(from_float<F16>(low).bits) | uint32_t(from_float<F16>(high).bits) << 16;
    return uint32_t(from_float<Bf16>(low).bits) | uint32_t(from_float<Bf16>(high).bits) << 16;
}

// Copies a turn's tokens from shared memory to D; those that pad the group become +0.
__device__ __forceinline__ void copy_turn(const GemmProblem& p, const Tile& tile, int first_token, int32_t column,
                                          const uint8_t* from) {
    const int lane = int(threadIdx.x % 32);
#pragma unroll
    for (int i = lane / 2; i < kOutTokens; i += 16) {
        const int token = first_token + i;
        if (token >= tile.padded) break;
        const uint4 of = *reinterpret_cast<const uint4*>(from + i * kOutPitch + lane % 2 * 16);
        *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.d.data) + (tile.d_row + token) * p.d.row_stride + column +
                                  lane % 2 * 8) = token < tile.rows ? of : uint4{};
    }
}

// Packs a turn's sums, times their factors, to shared memory, 16 tokens at a time. Returns whether a factor met a sum that is no
// number, which may be one without it.
template <Weights kind>
__device__ __forceinline__ bool pack_turn(const GemmProblem& p, const Output& output, const float* sums, uint8_t* out) {
    const uint32_t lane = threadIdx.x % 32;
    bool infinite = false;
#pragma unroll
    for (int two = 0; two < kOutTokens / 16; two++) {
        uint32_t packed[4];
#pragma unroll
        for (int part = 0; part < 4; part++) {
            float values[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                values[i] = multiply_rn(sums[8 * two + part / 2 * 4 + part % 2 * 2 + i], unit_of_sums<kind>);
                infinite |= !(fabsf(values[i]) < bits_float(kInfinityBits));
                values[i] = multiply_rn(values[i], output.factors[part % 2]);
            }
            packed[part] = pack_pair(p.d.format == MXQ_FORMAT_F16, values[0], values[1]);
        }
        store_transposed(out + (16 * two + lane / 16 * 8 + lane % 8) * kOutPitch + lane / 8 % 2 * 16, packed);
    }
    return __any_sync(kAllLanes, infinite) && has_factor(p.b);
}

// ---- Any elements ----------------------------------------------------------------------------------------------------------

// Makes D of a turn's sums in shared memory, a lane for each column of two tokens.
__device__ __noinline__ void finish_turn(const GemmProblem& p, const Tile& tile, float unit, int first_token, int32_t line,
                                         uint32_t repair, const float* sums) {
    const int lane = int(threadIdx.x % 32);
    const int32_t column = line + lane % kWarpLines;
    const int tokens = min(p.beta == 0 ? tile.padded : tile.rows, first_token + kOutTokens);
    const bool factored = has_factor(p.a) || has_factor(p.b);
    const bool to_nearest = !p.is_sum_alone() || p.d.format == MXQ_FORMAT_F32;
    const TileOperand a = p.grouping == Grouping::Rows ? operand_of_group(p.a, tile.start, tile.group_rows)
                                                       : operand_of_matrix(p.a, 0);
    const TileOperand b = operand_of_matrix(p.b, tile.group);
    if (column >= p.n) return;
#pragma unroll 1
    for (int token = first_token + lane / kWarpLines; token < tokens; token += 32 / kWarpLines) {
        const int64_t row = tile.d_row + token;
        float value = 0;
        if (token < tile.rows) {
            value = multiply_rn(sums[(token - first_token) * kSumPitch + lane % kWarpLines], unit);
            const uint32_t in_group = uint32_t(tile.row + token);
            if ((repair >> lane % kWarpLines & 1) || (factored && !(fabsf(value) < bits_float(kInfinityBits))))
                value = sum_again(p, a, b, in_group, uint32_t(column));
            else if (factored)
                value = scale_sum(value, line_factor(p.a, a, in_group), line_factor(p.b, b, column), to_nearest);
            value = add_more(p, tile.group, row, column, value);
        }
        store_element(p.d.data, p.d.format, row * p.d.row_stride + column, value);
    }
}

__device__ __forceinline__ void put_turn(const float* sums, float* out) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kOutTokens / 2; i++)
        out[(i / 4 * 8 + lane % 4 * 2 + i % 2) * kSumPitch + lane / 4 + i / 2 % 2 * 8] = sums[i];
}

// Writes 16 lines by all tokens, which a warp has: of line 8 h + lane / 4 and token 8 j + 2 (lane % 4) + i the sum
// 4 j + 2 h + i. `line` is the first one's number in the product; those with a bit of `repair` have no sums yet.
template <Weights kind, int count>
__device__ __forceinline__ void write_lines(const Arguments& args, const Tile& tile, const float (&sums)[count], int32_t line,
                                            uint32_t repair, uint8_t* out) {
    const Output output = output_of<kind>(args, tile, line);
#pragma unroll
    for (int first = 0; first < count * 2; first += kOutTokens) {
        if (first >= tile.padded) break;
        const float* const of_turn = &sums[first / 2];
        __syncwarp();
        const bool copied = output.copied && repair == 0 && !pack_turn<kind>(args.problem, output, of_turn, out);
        __syncwarp();
        if (copied) {
            copy_turn(args.problem, tile, first, line, out);
        } else {
            put_turn(of_turn, reinterpret_cast<float*>(out));
            __syncwarp();
            finish_turn(args.problem, tile, unit_of_sums<kind>, first, line, repair, reinterpret_cast<const float*>(out));
        }
    }
}

}  // namespace mxq::cuda::sm90::bf16
