// The pass that turns FP8 codes: matrices of k lines of n codes to n lines of k codes.
#pragma once
#include "core/context.h"
#include "core/problem.h"

namespace mxq::cuda {

// Returns whether the scales of FP8 codes are the same along lines and across them.
inline bool has_turned_scales(const GemmOperand& operand) {
    const ScaleLayout& layout = operand.layout;
    if (operand.scale_type != ScaleType::F32) return false;
    return layout.block == MXQ_MAX_DIM ? layout.line_stride == 0 : layout.tile_rows == kBlock128;
}

// Returns the layout of these scales for lines along the contraction.
inline ScaleLayout turned_layout(const GemmOperand& from) {
    ScaleLayout to = from.layout;
    if (to.block == MXQ_MAX_DIM) return to;
    to.line_stride = from.layout.column_stride, to.column_stride = from.layout.line_stride;
    to.columns = ceil_div(from.length, int64_t(to.block));
    return to;
}

// Enqueues the pass. `from` is read across; `to` has its values along its lines, which begin at multiples of 4 bytes.
void turn_codes(const Context& context, const GemmOperand& from, const GemmOperand& to, void* stream);

void load_turn_codes();

}  // namespace mxq::cuda
