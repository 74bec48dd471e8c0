// widen_tokens: dequantize_rowwise, with 1 in place of the fp32 scales of lines and of NVFP4's factor above its block scales.
#include "cuda/sm90/widen_tokens.h"

#include "cuda/device.h"
#include "cuda/implementations.h"
#include "cuda/sm90/weight_kind.h"

namespace mxq::cuda::sm90 {
namespace {

__device__ const float one = 1;

// Returns the address of `one` on the current device.
float* address_of_one() {
    void* address = nullptr;
    check(cudaGetSymbolAddress(&address, one), "cudaGetSymbolAddress");
    return static_cast<float*>(address);
}

// Describes one scale of 1 for all lines.
ScaleLayout layout_of_one() {
    ScaleLayout layout{};
    layout.columns = 1;
    layout.block = MXQ_MAX_DIM;
    layout.tile_rows = layout.repeat = layout.group_rows = 1;
    layout.bytes = sizeof(float);
    return layout;
}

}  // namespace

bool can_widen_tokens(const GemmOperand& a) {
    return a.scale_type != ScaleType::None && (a.scale_type != ScaleType::F32 || has_line_scales(a));
}

uint64_t widened_bytes(const GemmProblem& p) { return uint64_t(p.a.lines * p.k) * 2; }

void widen_tokens(const Context& context, const GemmProblem& p, void* to, void* stream) {
    const bool grouped = p.grouping == Grouping::Rows;
    DequantizeProblem pass{};
    pass.format = find_format(p.a.format);
    pass.in = p.a;
    pass.in.columnwise = pass.in.transformed = false;
    pass.out = {to, MXQ_FORMAT_BF16, 1, grouped ? p.group_rows : p.m, p.k, p.k, grouped ? p.a.units.codes : 1};
    if (grouped) pass.grouped = {p.groups, p.group_rows};
    if (p.a.scale_type == ScaleType::F32) {
        pass.in.scales = reinterpret_cast<uint8_t*>(address_of_one());
        pass.in.layout = layout_of_one();
    }
    if (p.a.scale_type == ScaleType::E4M3) {
        pass.in.decode_scale = address_of_one();
        pass.in.scope_stride = 0;
    }
    dequantize_rowwise.run(context, pass, {nullptr, stream});
}

void load_widen_tokens(const Context& context) { dequantize_rowwise.load(context); }

}  // namespace mxq::cuda::sm90
