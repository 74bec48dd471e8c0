// The operand of a product in one group or expert: its values one by one, and the fp32 factors of its rows.
#pragma once
#include "core/group_view.h"
#include "cuda/memory/groups.cuh"
#include "cuda/types.cuh"
#include "numerics/decode_to_bf16.h"
#include "numerics/packing.h"

namespace mxq::cuda {

// The codes and scales of the first stored row of an operand.
struct TileOperand {
    const uint8_t *codes, *scales;
    ScaleLayout layout;
    float global;  // NVFP4: the decode scale
};

__device__ inline TileOperand operand_of_matrix(const GemmOperand& operand, int64_t matrix) {
    return {matrix_codes(operand, matrix), matrix_scales(operand, matrix), operand.layout, global_scale(operand, matrix)};
}

__device__ inline TileOperand operand_of_group(const GemmOperand& operand, const GroupStart& start, int64_t rows) {
    return {group_codes(operand, start), group_scales(operand, start), group_layout(operand, rows),
            global_scale(operand, start.index)};
}

// Return the offset of the first scale of a stored row, and the offset from there to the scale of code k. Shifts replace
// divisions by powers of two that the compiler does not know as such.
__device__ __forceinline__ int64_t scale_line(ScaleLayout layout, uint32_t line) {
    const int shift = layout.swizzled ? 0 : log2_of(uint32_t(layout.tile_rows));
    layout.tile_rows = 1;
    return layout.offset(0, line >> shift, 0);
}

__device__ __forceinline__ int64_t scale_in_line(ScaleLayout layout, uint32_t k) {
    layout.tile_rows = 1;
    return layout.block == MXQ_MAX_DIM ? 0 : layout.offset(0, 0, k >> log2_of(uint32_t(layout.block)));
}

// Makes the compiler compute the value here and once, apart from later operations.
__device__ __forceinline__ void keep(uint32_t& value) { asm volatile("" : "+r"(value)); }

// ---- Values -----------------------------------------------------------------------------------------------------------

__device__ inline uint32_t code_at(int32_t bits, const uint8_t* line, uint32_t k) {
    if (bits == 4) return load_code<4>(line, k);
    if (bits == 6) return load_code<6>(line, k);
    if (bits == 8) return line[k];
    return reinterpret_cast<const uint16_t*>(line)[k];
}

__device__ inline uint32_t without_sign(int32_t bits, uint32_t code) { return code & ((1u << (bits - 1)) - 1); }

// Returns the value of a code of an element of so many bits.
__device__ inline float element_value(int32_t bits, Element element, uint32_t code) {
    static_assert(kElementCount == 5, "the elements are told apart below");
    if (bits == 4) return decode<E2M1>(code);
    if (bits == 6) return element == Element::E2M3 ? decode<E2M3>(code) : decode<E3M2>(code);
    if (bits == 8) return element == Element::E4M3 ? decode<E4M3>(code) : decode<E5M2>(code);
    return element == Element::F16 ? to_float(F16{uint16_t(code)}) : to_float(Bf16{uint16_t(code)});
}

// Returns the value of code `k` of a stored row.
__device__ inline float element_at(const GemmOperand& operand, int32_t bits, const TileOperand& at, uint32_t line,
                                   uint32_t k) {
    uint32_t code = code_at(bits, at.codes + line * operand.line_bytes, k);
    keep(code);
    return element_value(bits, operand.element, code);
}

// Returns the value of the scale byte of code `k` of a stored row; 1 without scale bytes.
__device__ inline float block_scale_at(const GemmOperand& operand, int32_t bits, const TileOperand& at, uint32_t line,
                                       uint32_t k) {
    if (operand.scale_type != ScaleType::E8M0 && operand.scale_type != ScaleType::E4M3) return 1;
    const uint32_t scale = at.scales[scale_line(at.layout, line) + scale_in_line(at.layout, k)];
    return bits == E2M1::bits && operand.scale_type == ScaleType::E4M3 ? decode<E4M3>(scale) : scale_value(scale);
}

// The stored row of a code, and its index there.
struct Stored {
    uint32_t line, code;
};

__device__ __forceinline__ Stored stored_at(bool across, uint32_t line, uint32_t k) {
    return across ? Stored{k, line} : Stored{line, k};
}

// Returns an operand's fp32 value at (line, k), as dequantized.
__device__ inline float operand_value(const GemmOperand& operand, const TileOperand& at, uint32_t operand_line,
                                      uint32_t operand_k) {
    const auto [line, k] = stored_at(operand.across, operand_line, operand_k);
    const float value =
        multiply_rn(element_at(operand, operand.bits, at, line, k), block_scale_at(operand, operand.bits, at, line, k));
    if (operand.scale_type == ScaleType::E4M3) return multiply_rn(value, at.global);
    if (operand.scale_type != ScaleType::F32) return value;
    const float* const scales = reinterpret_cast<const float*>(at.scales);
    return multiply_rn(value, scales[scale_line(at.layout, line) + scale_in_line(at.layout, k)]);
}

// ---- Factors of rows -----------------------------------------------------------------------------------------------------

// Rounds to nearest where the sum becomes F32 or is added to. Before a rounding to 16 bits it rounds to odd, so that the
// result is rounded once.
__device__ __forceinline__ float round_sum(double sum, bool to_nearest) {
    if (to_nearest) return __double2float_rn(sum);
    const float cut = __double2float_rz(sum);
    return double(cut) == sum ? cut : bits_float(float_bits(cut) | 1);
}

// Returns the factor of a row's sums: 1 where its scales of 128 multiply sums of as many.
__device__ __forceinline__ float line_factor(const GemmOperand& operand, const TileOperand& at, int64_t line) {
    if (operand.scale_type == ScaleType::F32 && operand.layout.block == MXQ_MAX_DIM)
        return __ldg(reinterpret_cast<const float*>(at.scales) + line * operand.layout.line_stride);
    return at.global;
}

// Returns whether a factor is within 2^-30 to 2^30. Two such factors keep a sum of products of codes in fp32's normal range.
__device__ __forceinline__ bool is_usual_factor(float factor) {
    return (float_bits(factor) & kMagnitudeMask) - (97u << 23) <= 60u << 23;
}

// Returns whether a scale of 128 codes, as bits, lies outside of 2^-80 to 2^60 and is not 0. Then sums of products of FP8
// codes and NVFP4 values may leave fp32's normal range.
__device__ __forceinline__ bool is_unusual_scale(uint32_t scale) {
    constexpr uint32_t least = (127 - 80) << 23, most = (127 + 60) << 23;
    const uint32_t magnitude = scale & kMagnitudeMask;
    return magnitude - least > most - least && magnitude != 0;
}

__device__ __forceinline__ float scale_sum(float sum, float a, float b, bool to_nearest) {
    if (is_usual_factor(a) && is_usual_factor(b)) return multiply_rn(multiply_rn(sum, a), b);
    return round_sum(double(sum) * double(a) * double(b), to_nearest);
}

// Computes a sum again in double: without its fp32 factors it may leave fp32's range where D does not.
__device__ __noinline__ inline float sum_again(const GemmProblem& p, const TileOperand& a, const TileOperand& b, uint32_t token,
                                               uint32_t line) {
    double sum = 0;
#pragma unroll 1
    for (uint32_t k = 0; k < uint32_t(p.k) && sum == sum; k++)
        sum += double(operand_value(p.a, a, token, k)) * double(operand_value(p.b, b, line, k));
    return __double2float_rn(sum);
}

// Returns whether the rows of an operand have fp32 factors, which multiply sums.
__device__ __forceinline__ bool has_factor(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::F32 || operand.scale_type == ScaleType::E4M3;
}

// Returns whether line_factor may be other than 1.
__device__ __forceinline__ bool has_line_factor(const GemmOperand& operand) {
    return operand.scale_type == ScaleType::E4M3 ||
           (operand.scale_type == ScaleType::F32 && operand.layout.block == MXQ_MAX_DIM);
}

}  // namespace mxq::cuda
