// The pass that transposes FP8 codes: matrices of k rows of n codes to n rows of k codes.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"

namespace mxq::cuda {

// Returns whether the scales of FP8 codes serve their transpose, too.
inline bool has_transposable_scales(const GemmOperand& operand) {
    const ScaleLayout& layout = operand.layout;
    if (operand.scale_type != ScaleType::F32) return false;
    return layout.block == MXQ_MAX_DIM ? layout.line_stride == 0 : layout.tile_rows == kBlock128;
}

// Returns the layout of these scales for K-major rows.
inline ScaleLayout transposed_layout(const GemmOperand& from) {
    ScaleLayout to = from.layout;
    if (to.block == MXQ_MAX_DIM) return to;
    to.line_stride = from.layout.column_stride, to.column_stride = from.layout.line_stride;
    to.columns = ceil_div(from.length, int64_t(to.block));
    return to;
}

// Enqueues the pass. `from` is MN-major; `to` is K-major, its rows begin at multiples of 4 bytes.
void transpose_codes(const Context& context, const GemmOperand& from, const GemmOperand& to, void* stream);

void load_transpose_codes(const Context&);

}  // namespace mxq::cuda
