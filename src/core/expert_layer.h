// The tensors and options of the verbs that make up an expert layer.
#pragma once
#include "core/options.h"
#include "core/routing.h"
#include "core/validate.h"

namespace mxq {

// Which tensors an expert layer was called with. None is NULL but the options.
struct LayerArguments {
    const mxq_expert_layer_options_s* options;
    const mxq_tensor* x;
    const mxq_routing* routing;
    const mxq_tensor *gate_up, *down, *out;
};

// What each step reads and writes. Tensors between the steps share two blocks of memory, since a step needs only what the
// step before it wrote:
//
//     first block     quantized rows of x     activated
//     second block    hidden                  products
class Layer {
public:
    explicit Layer(const LayerArguments& arguments);

    const mxq_expert_layer_options_s& options;
    const mxq_tensor& x;
    const mxq_routing& routing;
    const mxq_tensor &gate_up, &down, &out;

    bool routes() const { return !routing.is_computed; }
    bool quantizes() const { return options.row_format != 0; }
    ChoiceIds ids() const { return {routing.ids.pointer, routing.id_type, routing.first, routing.local_experts()}; }
    const mxq_tensor* residual() const { return options.has_residual ? &options.residual : nullptr; }

    mxq_tensor_s rows;       // of x by index
    mxq_tensor_s quantized;  // the same, where the options say so
    mxq_tensor_s hidden;     // the first product
    mxq_tensor_s activated;  // plain or quantized
    mxq_tensor_s products;   // the second product
    mxq_gemm_options_s first_product, second_product;
    mxq_activate_options_s activation;
    mxq_routing_s weighted;  // the routing with the weights that combine multiplies by

    uint64_t bytes() const { return first_bytes_ + second_bytes_; }
    // Gives the tensors between the steps their memory, at a multiple of 256 bytes.
    void place(void* memory);

private:
    mxq_tensor_s inner(int64_t cols) const;
    mxq_tensor_s row_tensor(int64_t cols) const;

    uint64_t first_bytes_ = 0, second_bytes_ = 0;
};

}  // namespace mxq
