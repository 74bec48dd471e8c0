#include "core/expert_layer.h"

#include <algorithm>

#include "core/error.h"
#include "core/views.h"

namespace mxq {
namespace {

void require_ok(mxq_status status) {
    if (status != MXQ_STATUS_OK) throw Error(status, last_error());
}

uint64_t bytes_of(const mxq_tensor_s& tensor) {
    uint64_t bytes = 0;
    require_ok(mxq_tensor_total_bytes(&tensor, MXQ_PART_ROWWISE, &bytes));
    return bytes;
}

void require_matrix(const mxq_tensor& t, const char* name, int64_t rows, int64_t cols) {
    require_plain(t, name);
    if (t.is_3d || t.rows != rows || t.cols != cols)
        fail(MXQ_STATUS_SHAPE_MISMATCH,
             "%s is %s, expected %lld x %lld, the tokens of the routing and the columns of x; create it so", name,
             shape_text(t).c_str(), (long long)rows, (long long)cols);
    require_no_groups(t, name, "its rows are tokens; clear them");
}

void require_weights(const mxq_tensor& t, const char* name, int64_t experts, int64_t rows, int64_t cols) {
    if (!t.is_3d || t.experts != experts || t.rows != rows || t.cols != cols)
        fail(MXQ_STATUS_SHAPE_MISMATCH,
             "%s is %s, expected %lld x %lld x %lld: experts of this rank, outputs, inputs; create it so", name,
             shape_text(t).c_str(), (long long)experts, (long long)rows, (long long)cols);
}

void require_shapes(const Layer& layer) {
    const int64_t experts = layer.routing.local_experts(), tokens = layer.routing.tokens, width = layer.x.cols;
    const int64_t times = is_gated(Activation(layer.options.activate.activation)) ? 2 : 1;
    require_matrix(layer.x, "x", tokens, width);
    require_matrix(layer.out, "out", tokens, width);
    if (const mxq_tensor* residual = layer.residual()) require_matrix(*residual, "options.residual", tokens, width);
    require_weights(layer.gate_up, "gate_up", experts, layer.gate_up.rows, width);
    if (layer.gate_up.rows % times != 0)
        fail(MXQ_STATUS_SHAPE_MISMATCH, "gate_up is %s, expected an even number of rows: a gate and an up for each number",
             shape_text(layer.gate_up).c_str());
    require_weights(layer.down, "down", experts, width, layer.gate_up.rows / times);
}

mxq_gemm_options_s product_options(const Numbers& bias, const mxq_expert_layer_options_s& layer) {
    mxq_gemm_options_s options;
    options.bias = bias;
    options.exact_products = layer.exact_products;
    options.row_invariant = layer.row_invariant;
    return options;
}

}  // namespace

Layer::Layer(const LayerArguments& given)
    : options(options_or_default(given.options)),
      x(require(given.x, "x")),
      routing(require_routing(given.routing)),
      gate_up(require(given.gate_up, "gate_up")),
      down(require(given.down, "down")),
      out(require(given.out, "out")) {
    require_shapes(*this);
    const RoutingArrays arrays = routing.arrays();
    rows = x;
    rows.rows = routing.rows();
    rows.row_indices = {arrays.row_tokens.pointer, MXQ_TYPE_INT32, routing.tokens, true};
    rows.groups = {arrays.ends.pointer, MXQ_TYPE_INT32, routing.local_experts(), true, false};
    if (quantizes()) quantized = row_tensor(x.cols);
    hidden = inner(gate_up.rows);
    activated = quantizes() ? row_tensor(down.cols) : inner(down.cols);
    products = inner(x.cols);
    first_product = product_options(options.gate_up_bias, options);
    second_product = product_options(options.down_bias, options);
    activation = options.activate;
    if (quantizes()) activation.quantize = options.quantize;
    weighted = routing;
    if (options.weights_first && routing.weights.format != 0) {
        activation.row_weights = {MXQ_FORMAT_F32, arrays.row_weights};
        weighted.weights.format = 0;
    }
    first_bytes_ = std::max(quantizes() ? bytes_of(quantized) : 0, bytes_of(activated));
    second_bytes_ = std::max(bytes_of(hidden), bytes_of(products));
}

// Returns a matrix of the inner format with a row for each choice, in the groups of the experts.
mxq_tensor_s Layer::inner(int64_t cols) const {
    mxq_tensor_s tensor;
    tensor.format = find_format(options.inner_format);
    tensor.rows = rows.rows;
    tensor.cols = tensor.row_stride = cols;
    tensor.groups = rows.groups;
    tensor.rowwise.declared = true;
    return tensor;
}

// Returns such a matrix of the format of rows.
mxq_tensor_s Layer::row_tensor(int64_t cols) const {
    mxq_tensor_s tensor = inner(cols);
    tensor.format = find_format(options.row_format);
    tensor.scaling = options.row_scaling != MXQ_SCALING_NONE ? options.row_scaling : tensor.format->scaling;
    tensor.scaling_set = true;
    return tensor;
}

void Layer::place(void* memory) {
    auto* const first = static_cast<uint8_t*>(memory);
    auto* const second = first + first_bytes_;
    if (quantizes()) require_ok(mxq_tensor_set_memory(&quantized, MXQ_PART_ROWWISE, first, first_bytes_));
    require_ok(mxq_tensor_set_memory(&activated, MXQ_PART_ROWWISE, first, first_bytes_));
    require_ok(mxq_tensor_set_memory(&hidden, MXQ_PART_ROWWISE, second, second_bytes_));
    require_ok(mxq_tensor_set_memory(&products, MXQ_PART_ROWWISE, second, second_bytes_));
}

}  // namespace mxq
