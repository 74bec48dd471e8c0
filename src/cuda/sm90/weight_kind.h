// What kind of weights an operand is to the exact kernels of this folder, and the rule that decodes them.
#pragma once
#include "core/problem.h"
#include "cuda/memory/weights.cuh"
#include "cuda/sm90/tensor_map.h"
#include "cuda/widen/widen_operand.h"
#include "dispatch/reason.h"

namespace mxq::cuda::sm90 {

// Returns why the exact kernels that take weights line by line decline these operands.
inline Reason needs_lines_of_codes(const GemmProblem& p) {
    if (p.b.scale_type == ScaleType::None)
        return [format = p.b.format] { return format_text("needs b quantized, found %s", find_format(format)->name); };
    if (p.b.scale_type == ScaleType::F32 && !has_line_scales(p.b))
        return "needs FP8 with scaling ROW or TENSOR, found scales of 128";
    if (!can_be_bf16(p.a))
        return [format = p.a.format] {
            return format_text("needs a in BF16, F16 or quantized, without scales of 128, found %s",
                               find_format(format)->name);
        };
    return {};
}

// Returns how many BF16 numbers an operand has for one of its own: two of F16, whose sum it is, so that the sums of its rows
// are those of the rows of high parts and of the rows of low ones.
inline int32_t parts_of_numbers(const GemmOperand& a) { return can_split(a) ? 2 : 1; }

// Describes boxes of so many tokens, lines of BF16, and 64 of the contraction; of tokens in two parts the high ones, and
// behind them the low ones.
inline TileMap map_of_tokens(const GemmOperand& a, int32_t tokens) {
    return {a.codes,
            CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            3,
            {a.length, a.lines, a.matrices},
            {a.line_bytes, a.matrix_bytes},
            {64, tokens, int32_t(a.matrices)},
            CU_TENSOR_MAP_SWIZZLE_128B};
}

// Describes boxes of so many lines of B and so many codes of each, as place_in_lines finds them (line_codes.cuh).
inline TileMap map_of_lines(const GemmProblem& p, int32_t codes, int32_t lines) {
    const int32_t line_bytes = codes * p.b.bits / 8;
    return {p.b.codes,
            CU_TENSOR_MAP_DATA_TYPE_UINT8,
            3,
            {ceil_div(p.k * p.b.bits, int64_t(8)), p.b.lines, p.b.matrices},
            {p.b.line_bytes, p.b.matrix_bytes},
            {line_bytes, lines, 1},
            line_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
            : line_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                               : CU_TENSOR_MAP_SWIZZLE_NONE};
}

}  // namespace mxq::cuda::sm90
