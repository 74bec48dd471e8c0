#include "layer.h"

namespace {

// Adds what quantizes BF16 numbers; where they stay plain there is no such call.
void add_quantize(std::vector<Case>& calls, const Case& layer, const Quantization& to, const Shape& shape, int32_t parts) {
    if (to.format->plain()) return;
    Case c = layer;
    c.verb = "quantize";
    c.from = layer.d, c.to = to;
    c.shape = shape, c.parts = parts;
    c.groups = shape.experts ? 0 : layer.groups;
    c.exact = false, c.implementation.clear();
    calls.push_back(c);
}

void add_product(std::vector<Case>& calls, const Case& layer, int32_t transpose_a, const Quantization& b) {
    Case c = layer;
    c.verb = "grouped_gemm";
    c.transpose_a = transpose_a, c.transpose_b = MXQ_TRANSPOSE_N;
    c.to = b;
    c.size = {layer.size.m, layer.size.k, layer.size.n};  // n inputs of k outputs
    calls.push_back(c);
}

}  // namespace

std::vector<Case> layer_calls(const Case& c) {
    std::vector<Case> calls;
    if (!c.layer()) return calls;
    const auto [m, n, k] = c.size;
    const bool trains = c.verb == "training";
    const int32_t parts = trains ? MXQ_PART_BOTH : MXQ_PART_ROWWISE;
    add_quantize(calls, c, c.from, {m, k}, parts);
    add_quantize(calls, c, c.to, {n, k, c.groups}, parts);
    if (!trains) return calls;
    add_quantize(calls, c, c.from, {m, n}, MXQ_PART_BOTH);  // the gradient of the outputs
    add_product(calls, c, MXQ_TRANSPOSE_N, c.to);           // with the weights: the gradient of the inputs
    add_product(calls, c, MXQ_TRANSPOSE_T, c.from);         // with the inputs: the gradient of the weights
    return calls;
}
