// Products of MX operands rebased to FP8, each in turns with the BF16 product of the same size by the same cuBLASLt.
#include "product.h"
#include "verbs.h"

namespace {

const Quantization e4m3 = {}, e5m2 = {.format = MXQ_FORMAT_MXFP8_E5M2};

struct Pair {
    const char* name;
    Quantization x, w;
};

// "kept": the weights have tiles of 128 x 128 already, so that only the activations take the pass.
const Pair pairs[] = {
    {"MXFP8 x MXFP8 128x128, kept", e4m3, {.scaling = MXQ_SCALING_128X128}},
    {"MXFP8 x MXFP8, weights' pass too", e4m3, e4m3},
    {"E5M2 x MXFP8 128x128, kept", e5m2, {.scaling = MXQ_SCALING_128X128}},
    {"E5M2 x MXFP8, weights' pass too", e5m2, e4m3},
    {"MXFP8 x E5M2, weights' pass too", e4m3, e5m2},
    {"MXFP8 x MXFP6 E2M3", e4m3, {.format = MXQ_FORMAT_MXFP6_E2M3}},
    {"MXFP8 x MXFP4", e4m3, {.format = MXQ_FORMAT_MXFP4}},
};

void measure_pair(Backend& backend, Report& report, const Pair& pair, const Size& size, const Product& bf16) {
    if (!report.wants(pair.name)) return;
    const bool grouped = size.groups > 0;
    const Operands operands = forward_operands(backend, pair.x, pair.w, size);
    with_reason(report, pair.name, size, [&] {
        const Product product(backend, operands, grouped,
                              {.implementation = grouped ? "cublaslt_grouped_rebase" : "cublaslt_rebase"});
        measure_product(backend, report, pair.name, size, product,
                        {"BF16 by " + bf16.implementation(), [&] { bf16.enqueue(); }});
    });
}

}  // namespace

void bench_rebase(Backend& backend, const Arguments& arguments, Report& report) {
    if (needs_cuda(backend, report, "rebase")) return;
    report.note(std::string("by ") + mxq_context_cublaslt(backend.context()));
    for (const Size& size : expert_sizes(arguments)) {
        const Quantization plain = {.format = MXQ_FORMAT_BF16};
        const Operands operands = forward_operands(backend, plain, plain, size);
        with_reason(report, "BF16 and what is compared with it", size, [&] {
            const bool grouped = size.groups > 0;
            const Product bf16(backend, operands, grouped, {.implementation = grouped ? "cublaslt_grouped" : "cublaslt"});
            for (const Pair& pair : pairs) measure_pair(backend, report, pair, size, bf16);
        });
    }
}
