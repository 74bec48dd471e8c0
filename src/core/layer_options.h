// The options of the expert layer.
#pragma once
#include "core/options.h"
#include "core/tensor.h"

namespace mxq {

// The bias of a product, (experts, its columns).
struct BiasOption {
    int32_t format = 0;  // MXQ_FORMAT_*; 0: none
    Buffer values;
};

}  // namespace mxq

struct mxq_expert_layer_options_s : mxq::Handle<mxq::Kind::ExpertLayerOptions> {
    mxq_activate_options_s activate;
    int32_t row_format = 0;                  // of the rows that enter each product; 0: plain
    int32_t row_scaling = MXQ_SCALING_NONE;  // 0: the format's default
    mxq_quantize_options_s quantize;         // of these rows
    int32_t inner_format = MXQ_FORMAT_BF16;  // what numbers between the steps are rounded to
    mxq::BiasOption gate_up_bias, down_bias;
    bool has_residual = false;
    mxq_tensor_s residual;
    bool weights_first = false;  // the weights of choices multiply the activation
    bool exact_products = false;
    bool row_invariant = false;
};
