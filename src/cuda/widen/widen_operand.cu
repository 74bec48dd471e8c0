// The pass is a dequantize, with fp32 factors of 1. Where it transposes, it is the dequantize of a columnwise part.
#include "cuda/widen/widen_operand.h"

#include <utility>

#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/transpose/transpose_codes.h"
#include "dispatch/prepared.h"

namespace mxq::cuda {
namespace {

__device__ const float one = 1;

// Returns the address of `one` on the context's device, whichever is current for the caller.
float* address_of_one(const Context& context) {
    const CurrentDevice current(*context.cuda);
    void* address = nullptr;
    check(cudaGetSymbolAddress(&address, one), "cudaGetSymbolAddress");
    return static_cast<float*>(address);
}

// Describes one scale of 1 for all rows.
ScaleLayout layout_of_one() {
    ScaleLayout layout{};
    layout.columns = 1;
    layout.block = MXQ_MAX_DIM;
    layout.tile_rows = layout.repeat = layout.group_rows = 1;
    layout.bytes = sizeof(float);
    return layout;
}

void leave_out_factors(const Context& context, QuantizedPart& part) {
    if (part.scale_type == ScaleType::F32) {
        part.scales = reinterpret_cast<uint8_t*>(address_of_one(context));
        part.layout = layout_of_one();
    }
    if (part.scale_type == ScaleType::E4M3) {
        part.decode_scale = address_of_one(context);
        part.scope_stride = 0;
    }
}

}  // namespace

bool can_widen(const GemmOperand& operand) {
    if (operand.scale_type != ScaleType::F32) return operand.scale_type != ScaleType::None;
    return has_line_factors(operand) && (!operand.across || operand.layout.line_stride == 0);
}

GemmOperand widened(const GemmProblem& p, Side side, void* to) {
    constexpr int64_t whole = 8;  // numbers
    const GemmOperand& from = p.operand(side);
    GemmOperand wide{};
    wide.codes = static_cast<uint8_t*>(to);
    wide.across = p.grouping == Grouping::Contraction;
    wide.matrices = from.matrices, wide.lines = from.lines;
    wide.length = wide.across ? p.group_rows : from.length;
    wide.line_bytes = 2 * round_up(wide.across ? wide.lines : wide.length, whole);
    wide.matrix_bytes = (wide.across ? wide.length : wide.lines) * wide.line_bytes;
    wide.units.codes = wide.across ? 1 : from.units.codes;
    wide.units.scales = from.units.scales;
    wide.element = Element::Bf16, wide.bits = 16, wide.scale_type = ScaleType::None, wide.format = MXQ_FORMAT_BF16;
    wide.layout.block = MXQ_MAX_DIM;
    wide.layout.tile_rows = wide.layout.group_rows = 1;
    if (!has_line_factors(from) && !has_scales_of_128(from)) return wide;
    wide.scale_type = from.scale_type, wide.scales = from.scales;
    wide.layout = from.across && has_scales_of_128(from) ? transposed_layout(from) : from.layout;
    wide.decode_scale = from.decode_scale, wide.amax = from.amax;
    wide.scale_max = from.scale_max, wide.scope_stride = from.scope_stride;
    return wide;
}

uint64_t widened_bytes(const GemmOperand& wide) {
    return uint64_t(round_up(wide.matrices * wide.matrix_bytes, int64_t(kWorkspaceAlignment)));
}

void widen(const Context& context, const GemmProblem& p, Side side, const GemmOperand& wide, void* stream) {
    const GemmOperand& from = p.operand(side);
    if (can_split(from)) return split_f16(context, from, wide, stream);
    DequantizeProblem pass{};
    pass.format = find_format(from.format);
    pass.columnwise = from.across || wide.across;
    pass.in = from;
    pass.in.columnwise = pass.columnwise, pass.in.transformed = false;
    if (from.across) std::swap(pass.in.lines, pass.in.length);  // as they are stored
    leave_out_factors(context, pass.in);
    const int64_t rows = wide.across ? wide.length : wide.lines, cols = wide.across ? wide.lines : wide.length;
    pass.out = {wide.codes, MXQ_FORMAT_BF16, wide.matrices, rows, cols, wide.line_bytes / 2, 1, Addresses::Dense};
    if (p.grouping_of(side) != Grouping::None) {
        pass.grouped = {p.groups, p.group_rows};
        pass.out.rows = p.group_rows, pass.out.group_unit = wide.units.codes;
    }
    (pass.columnwise ? dequantize_columnwise : dequantize_rowwise).run(context, pass, {nullptr, stream});
}

void load_widen(const Context&) { load_split_f16(); }

}  // namespace mxq::cuda
