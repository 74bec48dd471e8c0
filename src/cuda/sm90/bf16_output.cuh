// From the sums of wgmma_bf16_sm90 to D: fp32 factors of lines, alpha, beta D, bias, one rounding, and the stores.
//
//     registers of a warp    16 lines of weights, columns of D, by the tile's tokens, rows of D
//     shared                 32 tokens in a turn: as elements, those of 16 bits transposed on the way (stmatrix), where D
//                            takes them by 16 bytes, some lanes a token; else as sums, which the lanes finish by fours where
//                            D is added to, or one by one
//
// Rows that are not the tile's stay untouched either way.
#pragma once
#include <type_traits>

#include "cuda/memory/plain_elements.cuh"
#include "cuda/sm90/bf16_tiles.cuh"
#include "cuda/sm90/wgmma.cuh"

namespace mxq::cuda::sm90::bf16 {

// Adds a thread's sums of low parts, the second half of a tile's columns, to those of high ones.
template <int count>
__device__ __forceinline__ void add_low_parts(float (&sums)[count]) {
#pragma unroll
    for (int i = 0; i < count / 2; i++) sums[i] = add_rn(sums[i], sums[count / 2 + i]);
}

__device__ __forceinline__ TileOperand operand_of_tokens(const GemmProblem& p, const Tile& tile) {
    return p.grouping == Grouping::Rows ? operand_of_group(p.a, tile.start, tile.group_rows) : operand_of_matrix(p.a, 0);
}

// Return which of the consumers a warp is, and the first of its lines. They are found anew where they are used, since
// registers are short while sums wait in them.
__device__ __forceinline__ uint32_t consumer_warp() { return read_thread() / 32 - kWarpgroup / 32; }
__device__ __forceinline__ int32_t first_line_of(const Tile& tile) {
    return tile.line + int32_t(consumer_warp()) * kWarpLines;
}

// Says how the sums of a warp become D.
struct Output {
    bool copied;             // by 16 bytes, with no more than factors of lines, alpha and bias
    bool factored;           // there are some factors
    float of_lines[2];       // of this lane's lines, columns of D
    const float* of_tokens;  // those of A, where each has its own
    int64_t token_stride;
    float of_all_tokens;
};

template <Weights kind>
__device__ __forceinline__ Output output_of(const Arguments& args, const Tile& tile, int32_t line) {
    const GemmProblem& p = args.problem;
    Output output{
        args.wide && line + kWarpLines <= p.n && p.beta == 0, has_factor(p.a) || has_factor(p.b), {1, 1}, nullptr, 0, 1};
    if (!output.copied || !output.factored) return output;
    if (has_factor(p.a)) {
        const TileOperand a = operand_of_tokens(p, tile);
        output.of_all_tokens = a.global;
        output.token_stride = a.layout.line_stride;
        if (p.a.scale_type == ScaleType::F32 && !has_scales_of_128(p.a))
            output.of_tokens = reinterpret_cast<const float*>(a.scales) + tile.row * output.token_stride;
    }
    bool usual = true;
    if (has_factor(p.b)) {
        const TileOperand b = operand_of_matrix(p.b, tile.group);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            output.of_lines[h] = line_factor(p.b, b, line + threadIdx.x % 32 / 4 + 8 * h);
            usual &= is_usual_factor(output.of_lines[h]);
        }
    }
    output.copied = __all_sync(kAllLanes, usual && is_usual_factor(output.of_all_tokens));
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

// Rounds two numbers to nearest, to a word.
template <class T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
    if constexpr (std::is_same_v<T, F16>) {
        const __half2 pair = __floats2half2_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    }
}

// Brings 16 lines by a turn's tokens to shared memory as elements, token by token.
template <class T>
__device__ __forceinline__ void put_elements(const float* values, uint8_t* out) {
    const uint32_t lane = read_thread() % 32;
#pragma unroll
    for (int two = 0; two < kOutTokens / 16; two++) {
        uint32_t packed[4];
#pragma unroll
        for (int part = 0; part < 4; part++)
            packed[part] = pack_pair<T>(values[8 * two + 2 * part], values[8 * two + 2 * part + 1]);
        store_transposed(out + (16 * two + lane / 16 * 8 + lane % 8) * kOutPitch + lane / 8 % 2 * 16, packed);
    }
}

// Copies a turn's tokens from shared memory to D, some lanes a token; those that pad the group become +0.
template <int element_bytes>
__device__ __forceinline__ void copy_turn(const GemmProblem& p, const Tile& tile, int first_token, int32_t column,
                                          const uint8_t* from) {
    constexpr int pieces = kWarpLines * element_bytes / 16, pitch = element_bytes == 4 ? kSumPitch * 4 : kOutPitch;
    const int lane = int(threadIdx.x % 32), piece = lane % pieces;
#pragma unroll
    for (int i = lane / pieces; i < kOutTokens; i += 32 / pieces) {
        const int token = first_token + i;
        if (token >= tile.padded) break;
        const uint4 of = *reinterpret_cast<const uint4*>(from + i * pitch + piece * 16);
        uint8_t* const row = static_cast<uint8_t*>(p.d.data) + (tile.d_row + token) * p.d.row_stride * element_bytes;
        *reinterpret_cast<uint4*>(row + column * element_bytes + piece * 16) = token < tile.rows ? of : uint4{};
    }
}

// Multiplies a turn's sums with the factors of their lines. Returns whether that is all: sums are numbers, which without the
// factors they might not be, and factors are usual.
template <Weights kind>
__device__ __forceinline__ bool scale_turn(const Tile& tile, const Output& output, int first_token, const float* sums,
                                           float (&values)[kOutTokens / 2]) {
    bool plain = true;
#pragma unroll
    for (int two = 0; two < kOutTokens / 2; two += 4) {
        float of_tokens[2] = {output.of_all_tokens, output.of_all_tokens};
        if (output.of_tokens)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int token = min(first_token + 2 * two + int(threadIdx.x % 4) * 2 + i, tile.rows - 1);
                of_tokens[i] = __ldg(output.of_tokens + token * output.token_stride);
                plain &= is_usual_factor(of_tokens[i]);
            }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float sum = kind == Weights::Nvfp4 ? multiply_rn(sums[two + i], unit_of_sums<kind>) : sums[two + i];
            plain &= fabsf(sum) < bits_float(kInfinityBits);
            values[two + i] = multiply_rn(multiply_rn(sum, of_tokens[i % 2]), output.of_lines[i / 2]);
        }
    }
    return __all_sync(kAllLanes, plain);
}

// Multiplies sums with alpha and adds the bias of their lines, columns of D from `column` on.
template <int count>
__device__ __forceinline__ void add_bias(const GemmProblem& p, const Tile& tile, int32_t column, float (&sums)[count]) {
    float bias[2] = {-0.0f, -0.0f};  // which adds nothing
    if (p.bias.format != 0)
#pragma unroll
        for (int h = 0; h < 2; h++)
            bias[h] = element_at(p.bias.values, p.bias.format, tile.group * p.n + column + threadIdx.x % 32 / 4 + 8 * h);
#pragma unroll
    for (int i = 0; i < count; i++) sums[i] = add_rn(multiply_rn(p.alpha, sums[i]), bias[i / 2 % 2]);
}

// Brings sums to shared memory, token by token.
__device__ __forceinline__ void put_turn(const float* sums, float* out) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kOutTokens / 2; i++)
        out[(i / 4 * 8 + lane % 4 * 2 + i % 2) * kSumPitch + lane / 4 + i / 2 % 2 * 8] = sums[i];
}

// Takes back the sums that the thread has put there.
__device__ __forceinline__ void take_turn(const float* out, float (&sums)[kOutTokens / 2]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kOutTokens / 2; i++)
        sums[i] = out[(i / 4 * 8 + lane % 4 * 2 + i % 2) * kSumPitch + lane / 4 + i / 2 % 2 * 8];
}

// Writes a turn that needs no more than factors, with which alpha and bias come; returns whether it was one.
template <Weights kind>
__device__ __forceinline__ bool write_turn(const GemmProblem& p, const Tile& tile, const Output& output, int first_token,
                                           int32_t column, const float* sums, uint8_t* out) {
    float values[kOutTokens / 2];
    if (kind == Weights::Nvfp4 || output.factored) {
        if (!scale_turn<kind>(tile, output, first_token, sums, values)) return false;
        if (!p.is_sum_alone()) add_bias(p, tile, column, values);
    } else {
#pragma unroll
        for (int i = 0; i < kOutTokens / 2; i++) values[i] = sums[i];
    }
    if (p.d.format == MXQ_FORMAT_F32) {
        put_turn(values, reinterpret_cast<float*>(out));
        __syncwarp();
        copy_turn<4>(p, tile, first_token, column, out);
        return true;
    }
    with_plain(p.d.format, [&]<class T>(T) {
        if constexpr (sizeof(T) == 2) put_elements<T>(values, out);
    });
    __syncwarp();
    copy_turn<2>(p, tile, first_token, column, out);
    return true;
}

// ---- Four elements that are added to -------------------------------------------------------------------------------------

// Holds four neighbouring elements of D.
struct FourOfD {
    uint4 words;

    __device__ __forceinline__ void load(const PlainMatrix& d, int64_t at) {
        if (d.format == MXQ_FORMAT_F32) {
            words = *reinterpret_cast<const uint4*>(static_cast<const float*>(d.data) + at);
        } else {
            const uint2 halves = *reinterpret_cast<const uint2*>(static_cast<const Bf16*>(d.data) + at);
            words.x = halves.x, words.y = halves.y;
        }
    }
    __device__ __forceinline__ float of(int32_t format, int i) const {
        const uint32_t of_words[4] = {words.x, words.y, words.z, words.w};
        if (format == MXQ_FORMAT_F32) return bits_float(of_words[i]);
        const auto bits = uint16_t(of_words[i / 2] >> 16 * (i % 2));
        return format == MXQ_FORMAT_F16 ? to_float(F16{bits}) : to_float(Bf16{bits});
    }
};

__device__ __forceinline__ void store_four(const PlainMatrix& d, int64_t at, const float (&values)[4]) {
    if (d.format == MXQ_FORMAT_F32) {
        *reinterpret_cast<float4*>(static_cast<float*>(d.data) + at) = {values[0], values[1], values[2], values[3]};
        return;
    }
    uint32_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits[i] = d.format == MXQ_FORMAT_F16 ? from_float<F16>(values[i]).bits : from_float<Bf16>(values[i]).bits;
    *reinterpret_cast<uint2*>(static_cast<Bf16*>(d.data) + at) = {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16};
}

// Writes alpha sums + beta D + bias of a turn, four columns a lane, where D takes 16 bytes. A lane loads what it needs of D
// before the first of it is added, so that loads do not wait for each other.
__device__ __forceinline__ void add_turn(const GemmProblem& p, const Tile& tile, int first_token, int32_t line,
                                         const float* sums) {
    constexpr int lanes = kWarpLines / 4, tokens = kOutTokens / (32 / lanes);  // of a token; of a lane
    const int lane = int(threadIdx.x % 32), own = lane % lanes * 4;
    const int64_t corner = (tile.d_row + first_token) * p.d.row_stride + line + own;
    float bias[4] = {-0.0f, -0.0f, -0.0f, -0.0f};  // which adds nothing
    if (p.bias.format != 0)
#pragma unroll
        for (int i = 0; i < 4; i++) bias[i] = element_at(p.bias.values, p.bias.format, tile.group * p.n + line + own + i);
    FourOfD d[tokens];
#pragma unroll
    for (int t = 0; t < tokens; t++)
        if (const int token = t * (32 / lanes) + lane / lanes; first_token + token < tile.rows)
            d[t].load(p.d, corner + token * p.d.row_stride);
#pragma unroll
    for (int t = 0; t < tokens; t++) {
        const int token = t * (32 / lanes) + lane / lanes;
        if (first_token + token >= tile.rows) break;
        const float4 four = *reinterpret_cast<const float4*>(sums + token * kSumPitch + own);
        float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float sum = add_rn(multiply_rn(p.alpha, values[i]), multiply_rn(p.beta, d[t].of(p.d.format, i)));
            values[i] = add_rn(sum, bias[i]);
        }
        store_four(p.d, corner + token * p.d.row_stride, values);
    }
}

// ---- Any elements ------------------------------------------------------------------------------------------------------

// Makes D of a turn's sums in shared memory: by fours where it takes 16 bytes and all that is more is added to sums, else a
// lane for each column of two tokens.
__device__ __noinline__ inline void finish_turn(const GemmProblem& p, const Tile& tile, bool wide, float unit,
                                                int first_token, int32_t line, uint32_t repair, const float* sums) {
    const int lane = int(threadIdx.x % 32);
    const int32_t column = line + lane % kWarpLines;
    const int tokens = min(p.beta == 0 ? tile.padded : tile.rows, first_token + kOutTokens);
    const bool factored = has_factor(p.a) || has_factor(p.b);
    const bool to_nearest = !p.is_sum_alone() || p.d.format == MXQ_FORMAT_F32;
    if (wide && line + kWarpLines <= p.n && p.beta != 0 && !factored && repair == 0)
        return add_turn(p, tile, first_token, line, sums);
    const TileOperand a = operand_of_tokens(p, tile), b = operand_of_matrix(p.b, tile.group);
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

// Writes a turn of a warp's lines, the first of which is `line`, however it must be done; by way of kOutBytes at `out`.
template <Weights kind>
__device__ __forceinline__ void write_any_turn(const Arguments& args, const Tile& tile, const Output& output, int32_t line,
                                               int first_token, uint32_t repair, const float* sums, uint8_t* out) {
    __syncwarp();
    if (output.copied && repair == 0 && write_turn<kind>(args.problem, tile, output, first_token, line, sums, out)) return;
    put_turn(sums, reinterpret_cast<float*>(out));
    __syncwarp();
    finish_turn(args.problem, tile, args.wide, unit_of_sums<kind>, first_token, line, repair,
                reinterpret_cast<const float*>(out));
}

// Adds alpha and bias to sums that are copied as they are. In a place of their own, since among the instructions of each
// turn they take 1% of the time where there is no bias.
template <int count>
__device__ __forceinline__ void add_bias_to_sums(const Arguments& args, const Tile& tile, const Output& output, int32_t line,
                                                 uint32_t repair, float (&sums)[count]) {
    if (args.problem.is_sum_alone() || !output.copied || output.factored || repair != 0) return;
    add_bias(args.problem, tile, line, sums);
}

// Writes 16 lines by all tokens, which a warp has: of line 8 h + lane / 4 and token 8 j + 2 (lane % 4) + i the sum
// 4 j + 2 h + i. Lines with a bit of `repair` have no sums yet.
template <Weights kind, int count>
__device__ __forceinline__ void write_lines(const Arguments& args, const Tile& tile, float (&sums)[count], uint32_t repair,
                                            OutOfWarps& outs) {
    const int32_t line = first_line_of(tile);
    const Output output = output_of<kind>(args, tile, line);
    add_bias_to_sums(args, tile, output, line, repair, sums);
#pragma unroll
    for (int first = 0; first < count * 2; first += kOutTokens) {
        if (first >= tile.padded) break;
        write_any_turn<kind>(args, tile, output, line, first, repair, &sums[first / 2], outs[consumer_warp()]);
    }
}

}  // namespace mxq::cuda::sm90::bf16
