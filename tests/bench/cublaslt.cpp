// The implementations cublaslt and cublaslt_grouped, each in turns with a bare call of the same cuBLASLt.
#include "bare_cublaslt.h"
#include "verbs.h"

namespace {

struct Kind {
    const char* name;
    Scales scales;
    Quantization x, w;
};

Kind bf16() { return {"BF16", Scales::None, {.format = MXQ_FORMAT_BF16}, {.format = MXQ_FORMAT_BF16}}; }

Kind tensor_scales(bool grouped) {
    const Quantization fp8 = {.format = MXQ_FORMAT_FP8_E4M3, .per_expert = grouped};
    return {grouped ? "FP8, a scale a group" : "FP8 tensor", Scales::Tensor, fp8, fp8};
}

// Groups of x and D start at multiples of 4 rows, where the bare call has their scales; ours makes the padding of D zero, too.
Kind wide_scales(bool grouped, bool swizzled) {
    const Quantization x = {.format = MXQ_FORMAT_FP8_E4M3, .scaling = MXQ_SCALING_1X128, .swizzled = swizzled,
                            .group_alignment = grouped ? 4 : 1};
    const Quantization w = {.format = MXQ_FORMAT_FP8_E4M3, .scaling = MXQ_SCALING_128X128, .swizzled = swizzled};
    return {swizzled ? "FP8 1x128 x 128x128, swizzled" : "FP8 1x128 x 128x128, compact", Scales::Wide, x, w};
}

void measure_beside(Backend& backend, Report& report, const Kind& kind, const Size& size, const Operands& operands,
                    const Operands& of_bare) {
    with_reason(report, kind.name, size, [&] {
        const bool grouped = size.groups > 0;
        const Product product(backend, operands, grouped, {.implementation = grouped ? "cublaslt_grouped" : "cublaslt"});
        measure_product(backend, report, kind.name, size, product, bare_cublaslt(backend, of_bare, kind.scales, size));
    });
}

void measure_kind(Backend& backend, Report& report, const Kind& kind, const Size& size) {
    if (!report.wants(kind.name)) return;
    const Operands operands = forward_operands(backend, kind.x, kind.w, size);
    if (kind.scales != Scales::Wide || kind.x.swizzled) return measure_beside(backend, report, kind, size, operands, operands);
    const Kind swizzled = wide_scales(size.groups > 0, true);  // the order that cuBLASLt wants
    measure_beside(backend, report, kind, size, operands, forward_operands(backend, swizzled.x, swizzled.w, size));
}

}  // namespace

void bench_cublaslt(Backend& backend, const Arguments& arguments, Report& report) {
    if (needs_cuda(backend, report, "cublaslt")) return;
    report.note(std::string("by ") + mxq_context_cublaslt(backend.context()));
    std::vector<Size> sizes = expert_sizes(arguments);
    if (arguments.m == 0) sizes.insert(sizes.begin(), {8192, 8192, 8192});
    for (const Size& size : sizes) {
        const bool grouped = size.groups > 0;
        for (const Kind& kind : {bf16(), tensor_scales(grouped), wide_scales(grouped, true), wide_scales(grouped, false)})
            measure_kind(backend, report, kind, size);
    }
}
