// The option objects behind the C handles. `*_set` records that the caller chose a value, so that a verb or a format can
// refuse an option that it does not have.
#pragma once
#include <string>

#include "core/handle.h"
#include "core/problem.h"
#include "mxq/mxq.h"

namespace mxq {
constexpr int32_t kMostMultiprocessors = 1024;  // that an option may name
}

struct mxq_context_options_s : mxq::Handle<mxq::Kind::ContextOptions> {
    int32_t threads = 0;
    bool own_threads = false;
    mxq_parallel_for parallel_for = nullptr;  // the host's, with `user`; NULL: the library's threads
    void* user = nullptr;
    std::string cublaslt_path;  // empty: MXQ_CUBLASLT_PATH, or where a search finds the library
};

struct mxq_quantize_options_s : mxq::Handle<mxq::Kind::QuantizeOptions> {
    mxq::ScaleRounding scale_rounding = mxq::ScaleRounding::Rceil;
    mxq::Nonfinite nonfinite = mxq::Nonfinite::Propagate;
    bool scale_rounding_set = false;
    bool nonfinite_set = false;
    mxq::FourOverSix four_over_six = mxq::FourOverSix::None;
    bool undo_hadamard = true;
    const uint64_t* seed_offset = nullptr;
    bool compute_amax = true;
    bool compute_amax_set = false;
    bool power_of_two = false;
    float epsilon = 0;
    int32_t source_part = 0;  // MXQ_PART_*; 0: the rowwise one if declared
    std::string implementation;
};

struct mxq_gemm_options_s : mxq::Handle<mxq::Kind::GemmOptions> {
    int32_t transpose_a = MXQ_TRANSPOSE_N;
    int32_t transpose_b = MXQ_TRANSPOSE_T;
    bool accumulate = false;
    float alpha = 1, beta = 0;
    mxq::Numbers bias;
    bool exact_products = false;
    int32_t sm_count = 0;  // 0: all
    bool row_invariant = false;
    std::string implementation;
};

struct mxq_activate_options_s : mxq::Handle<mxq::Kind::ActivateOptions> {
    int32_t activation = MXQ_ACTIVATION_SWIGLU;
    int32_t gate_layout = MXQ_GATE_LAYOUT_GATE_UP;
    bool gate_layout_set = false;
    mxq::ActivationNumbers numbers{1.702f, 7.0f, 1.0f};  // of the clamped form
    bool numbers_set = false;
    mxq::Numbers bias, row_weights;
    mxq::Buffer bias_gradient, row_weight_gradient;  // of backward
    mxq_quantize_options_s quantize;
    std::string implementation;
};

struct mxq_expert_layer_options_s : mxq::Handle<mxq::Kind::ExpertLayerOptions> {
    mxq_activate_options_s activate;
    int32_t row_format = 0;                  // of the rows that enter each product; 0: plain
    int32_t row_scaling = MXQ_SCALING_NONE;  // 0: the format's default
    mxq_quantize_options_s quantize;         // of these rows
    int32_t inner_format = MXQ_FORMAT_BF16;  // what numbers between the steps are rounded to
    mxq::Numbers gate_up_bias, down_bias;    // (experts, columns of the product)
    bool has_residual = false;
    mxq_tensor_s residual;
    bool weights_first = false;  // the weights of choices multiply the activation
    bool exact_products = false;
    bool row_invariant = false;
};

struct mxq_plan_s : mxq::Handle<mxq::Kind::Plan> {
    std::string implementation;
    uint64_t workspace_bytes = 0;
    std::string reason;
    int32_t bound = MXQ_BOUND_NONE;
};
