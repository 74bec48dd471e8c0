// Options made from the bytes of an input.
#include "tensors.h"

namespace fuzz {

namespace {

// Takes numbers of a plain format, of exactly as many bytes, with few exceptions.
Buffer take_numbers(Scene& scene, mxq_format format, int64_t count, bool may_be_written) {
    if (count < 0 || count > 65536) return {};
    const uint64_t bytes = static_cast<uint64_t>(count) * (format == MXQ_FORMAT_F32 ? 4 : 2) + (scene.in.seldom(16) ? 2 : 0);
    return scene.memory.take(bytes, may_be_written, 16, 0, scene.in.byte());
}

const char* implementation(Input& in) {
    constexpr const char* names[] = {"cpu", "", "cublaslt", "%s%n", nullptr};
    return names[in.below(5)];
}

float factor(Input& in) { return in.seldom(4) ? in.wild_float() : static_cast<float>(in.below(5)) - 1.5f; }

// Returns the numbers of a bias: of one, or of one for each group.
int64_t bias_count(Scene& scene, int64_t columns) {
    if (columns < 0 || columns > 65536) return 1;
    return scene.in.below(2) || scene.groups == 0 ? columns : columns * scene.groups;
}

}  // namespace

QuantizeOptions make_quantize_options(Scene& scene) {
    Input& in = scene.in;
    const int32_t setters = in.below(5);
    mxq_quantize_options* options = nullptr;
    if (setters > 0) mxq_quantize_options_create(&options);
    for (int32_t left = setters - 1; left > 0; --left) {
        switch (in.below(10)) {
            case 0: mxq_quantize_options_set_scale_rounding(options, in.below(6)); break;
            case 1: mxq_quantize_options_set_nonfinite(options, in.below(4)); break;
            case 2: mxq_quantize_options_set_four_over_six(options, in.below(4)); break;
            case 3: mxq_quantize_options_set_undo_hadamard(options, in.below(3)); break;
            case 4: {
                const Buffer seed = scene.memory.take(16, false);
                mxq_quantize_options_set_stochastic_rounding(options, reinterpret_cast<const uint64_t*>(seed.address),
                                                             seed.bytes);
                break;
            }
            case 5: mxq_quantize_options_set_compute_amax(options, in.below(3)); break;
            case 6: mxq_quantize_options_set_power_of_two_scales(options, in.below(3)); break;
            case 7: mxq_quantize_options_set_amax_epsilon(options, factor(in)); break;
            case 8: mxq_quantize_options_set_source_part(options, in.below(4)); break;
            case 9: mxq_quantize_options_set_implementation(options, implementation(in)); break;
        }
    }
    return QuantizeOptions(options);
}

GemmOptions make_gemm_options(Scene& scene, int64_t columns) {
    Input& in = scene.in;
    const int32_t setters = in.below(5);
    mxq_gemm_options* options = nullptr;
    if (setters > 0) mxq_gemm_options_create(&options);
    for (int32_t left = setters; left > 0; --left) {
        switch (in.below(9)) {
            case 0: mxq_gemm_options_set_transpose(options, in.below(4), in.below(4)); break;
            case 1: mxq_gemm_options_set_alpha(options, factor(in)); break;
            case 2: mxq_gemm_options_set_beta(options, factor(in)); break;
            case 3: mxq_gemm_options_set_accumulate(options, in.below(3)); break;
            case 4: {
                const mxq_format format = in.below(5);
                const Buffer bias = take_numbers(scene, format, bias_count(scene, columns), false);
                mxq_gemm_options_set_bias(options, format, bias.address, bias.bytes);
                break;
            }
            case 5: mxq_gemm_options_set_exact_products(options, in.below(3)); break;
            case 6: mxq_gemm_options_set_sm_count(options, in.wild32()); break;
            case 7: mxq_gemm_options_set_row_invariant(options, in.below(3)); break;
            case 8: mxq_gemm_options_set_implementation(options, implementation(in)); break;
        }
    }
    return GemmOptions(options);
}

ActivateOptions make_activate_options(Scene& scene, int64_t columns, int64_t rows, bool backward) {
    Input& in = scene.in;
    const int32_t setters = in.below(6);
    mxq_activate_options* options = nullptr;
    if (setters > 0) mxq_activate_options_create(&options);
    for (int32_t left = setters; left > 0; --left) {
        switch (in.below(backward ? 9 : 7)) {
            case 0: mxq_activate_options_set_activation(options, in.below(10)); break;
            case 1: mxq_activate_options_set_gate_layout(options, in.below(6)); break;
            case 2: mxq_activate_options_set_clamp(options, factor(in), factor(in), factor(in)); break;
            case 3: {
                const mxq_format format = in.below(5);
                const Buffer bias = take_numbers(scene, format, bias_count(scene, columns), false);
                mxq_activate_options_set_bias(options, format, bias.address, bias.bytes);
                break;
            }
            case 4: {
                const mxq_format format = in.below(5);
                const Buffer weights = take_numbers(scene, format, rows, false);
                mxq_activate_options_set_row_weights(options, format, weights.address, weights.bytes);
                break;
            }
            case 5: mxq_activate_options_set_quantize_options(options, make_quantize_options(scene).get()); break;
            case 6: mxq_activate_options_set_implementation(options, implementation(in)); break;
            case 7:
            case 8: {
                const bool of_bias = in.below(2);
                const Buffer sums = take_numbers(scene, MXQ_FORMAT_F32, of_bias ? bias_count(scene, columns) : rows, true);
                auto* const address = reinterpret_cast<float*>(sums.address);
                if (of_bias)
                    mxq_activate_options_set_bias_gradient(options, address, sums.bytes);
                else
                    mxq_activate_options_set_row_weight_gradient(options, address, sums.bytes);
                break;
            }
        }
    }
    return ActivateOptions(options);
}

LayerOptions make_layer_options(Scene& scene, int64_t inner, int64_t width) {
    Input& in = scene.in;
    const int32_t setters = in.below(6);
    mxq_expert_layer_options* options = nullptr;
    if (setters > 0) mxq_expert_layer_options_create(&options);
    for (int32_t left = setters; left > 0; --left) {
        switch (in.below(8)) {
            case 0:
                mxq_expert_layer_options_set_activate_options(options, make_activate_options(scene, inner, 1, false).get());
                break;
            case 1: mxq_expert_layer_options_set_row_format(options, in.below(13), in.below(2) ? 0 : in.below(10)); break;
            case 2: mxq_expert_layer_options_set_quantize_options(options, make_quantize_options(scene).get()); break;
            case 3: mxq_expert_layer_options_set_inner_format(options, in.below(5)); break;
            case 4: {
                const mxq_format format = in.below(5);
                const bool of_down = in.below(2);
                const Buffer bias = take_numbers(scene, format, bias_count(scene, of_down ? width : inner), false);
                if (of_down)
                    mxq_expert_layer_options_set_down_bias(options, format, bias.address, bias.bytes);
                else
                    mxq_expert_layer_options_set_gate_up_bias(options, format, bias.address, bias.bytes);
                break;
            }
            case 5: mxq_expert_layer_options_set_weights_first(options, in.below(3)); break;
            case 6: mxq_expert_layer_options_set_exact_products(options, in.below(3)); break;
            case 7: mxq_expert_layer_options_set_row_invariant(options, in.below(3)); break;
        }
    }
    return LayerOptions(options);
}

}  // namespace fuzz
