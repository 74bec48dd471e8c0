// The options of the expert layer: their setters and getters.
#include "core/layer_options.h"

#include "api/guard.h"
#include "api/put.h"
#include "api/take.h"

using namespace mxq;

namespace {

void require_plain_format(int32_t format, const char* name) {
    if (format != MXQ_FORMAT_F32 && format != MXQ_FORMAT_F16 && format != MXQ_FORMAT_BF16)
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is %d, expected MXQ_FORMAT_F32 (1), F16 (2) or BF16 (3)", name, format);
}

void require_row_format(int32_t format, int32_t scaling) {
    if (format == 0 && scaling == MXQ_SCALING_NONE) return;
    const Format* const found = find_format(format);
    if (!found || !found->quantized())
        fail(MXQ_STATUS_INVALID_ARGUMENT, "format is %d, expected a quantized format, or 0 with scaling 0 for plain rows",
             format);
    if (scaling != MXQ_SCALING_NONE && !found->takes(scaling))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "scaling is %d, expected 0 (the default) or one that %s takes; see MXQ_SCALING_*",
             scaling, found->name);
}

BiasOption bias_of(int32_t format, const void* bias, uint64_t bytes) {
    if (format == 0 && !bias && bytes == 0) return {};
    require_plain_format(format, "format");
    return {format, buffer_of(bias, bytes, "bias")};
}

mxq_status put_bias(const char* function, const mxq_expert_layer_options* options,
                    BiasOption mxq_expert_layer_options_s::*which, int32_t* format, const void** bias, uint64_t* bytes) {
    return guard(function, [&] {
        const BiasOption& found = require_handle(options, "options").*which;
        put(format, found.format);
        put(bias, bytes, found.values);
    });
}

}  // namespace

mxq_status mxq_expert_layer_options_create(mxq_expert_layer_options** out) {
    return guard_create("mxq_expert_layer_options_create", out, [] { return new mxq_expert_layer_options_s; });
}

void mxq_expert_layer_options_destroy(mxq_expert_layer_options* options) {
    destroy("mxq_expert_layer_options_destroy", options, "options");
}

mxq_status mxq_expert_layer_options_set_activate_options(mxq_expert_layer_options* options,
                                                         const mxq_activate_options* activate) {
    return guard("mxq_expert_layer_options_set_activate_options", [&] {
        require_handle(options, "options");
        mxq_activate_options_s copy;
        if (activate) copy = require_handle(activate, "activate");
        if (copy.row_weight_format != 0)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "activate has row weights, expected none: the layer takes those of the routing; call "
                 "mxq_expert_layer_options_set_weights_first");
        if (!copy.implementation.empty())
            fail(MXQ_STATUS_INVALID_ARGUMENT, "activate asks for the implementation %s, expected none; set MXQ_IMPL instead",
                 copy.implementation.c_str());
        options->activate = copy;
    });
}

mxq_status mxq_expert_layer_options_set_row_format(mxq_expert_layer_options* options, int32_t format, int32_t scaling) {
    return guard("mxq_expert_layer_options_set_row_format", [&] {
        require_handle(options, "options");
        require_row_format(format, scaling);
        options->row_format = format;
        options->row_scaling = scaling;
    });
}

mxq_status mxq_expert_layer_options_set_quantize_options(mxq_expert_layer_options* options,
                                                         const mxq_quantize_options* quantize) {
    return guard("mxq_expert_layer_options_set_quantize_options", [&] {
        require_handle(options, "options");
        mxq_quantize_options_s copy;
        if (quantize) copy = require_handle(quantize, "quantize");
        if (!copy.compute_amax)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "quantize has an amax that is given, expected a computed one; call mxq_quantize_options_set_compute_amax "
                 "with 1");
        if (copy.source_part != 0)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "quantize sets a source part, which mxq_quantize does not have; set it to 0");
        if (!copy.implementation.empty())
            fail(MXQ_STATUS_INVALID_ARGUMENT, "quantize asks for the implementation %s, expected none; set MXQ_IMPL instead",
                 copy.implementation.c_str());
        options->quantize = copy;
    });
}

mxq_status mxq_expert_layer_options_set_inner_format(mxq_expert_layer_options* options, int32_t format) {
    return guard("mxq_expert_layer_options_set_inner_format", [&] {
        require_handle(options, "options");
        require_plain_format(format, "format");
        options->inner_format = format;
    });
}

mxq_status mxq_expert_layer_options_set_gate_up_bias(mxq_expert_layer_options* options, int32_t format, const void* bias,
                                                     uint64_t bytes) {
    return guard("mxq_expert_layer_options_set_gate_up_bias", [&] {
        require_handle(options, "options");
        options->gate_up_bias = bias_of(format, bias, bytes);
    });
}

mxq_status mxq_expert_layer_options_set_down_bias(mxq_expert_layer_options* options, int32_t format, const void* bias,
                                                  uint64_t bytes) {
    return guard("mxq_expert_layer_options_set_down_bias", [&] {
        require_handle(options, "options");
        options->down_bias = bias_of(format, bias, bytes);
    });
}

mxq_status mxq_expert_layer_options_set_residual(mxq_expert_layer_options* options, const mxq_tensor* residual) {
    return guard("mxq_expert_layer_options_set_residual", [&] {
        require_handle(options, "options");
        options->residual = residual ? require_handle(residual, "residual") : mxq_tensor_s{};
        options->has_residual = residual != nullptr;
    });
}

mxq_status mxq_expert_layer_options_set_weights_first(mxq_expert_layer_options* options, int32_t first) {
    return guard("mxq_expert_layer_options_set_weights_first", [&] {
        require_handle(options, "options");
        require_flag(first, "first");
        options->weights_first = first == 1;
    });
}

mxq_status mxq_expert_layer_options_set_exact_products(mxq_expert_layer_options* options, int32_t exact) {
    return guard("mxq_expert_layer_options_set_exact_products", [&] {
        require_handle(options, "options");
        require_flag(exact, "exact");
        options->exact_products = exact == 1;
    });
}

mxq_status mxq_expert_layer_options_set_row_invariant(mxq_expert_layer_options* options, int32_t row_invariant) {
    return guard("mxq_expert_layer_options_set_row_invariant", [&] {
        require_handle(options, "options");
        require_flag(row_invariant, "row_invariant");
        options->row_invariant = row_invariant == 1;
    });
}

mxq_status mxq_expert_layer_options_get_activate_options(const mxq_expert_layer_options* options,
                                                         mxq_activate_options* activate) {
    return guard("mxq_expert_layer_options_get_activate_options",
                 [&] { require_handle(activate, "activate") = require_handle(options, "options").activate; });
}

mxq_status mxq_expert_layer_options_get_row_format(const mxq_expert_layer_options* options, int32_t* format,
                                                   int32_t* scaling) {
    return guard("mxq_expert_layer_options_get_row_format", [&] {
        put(format, require_handle(options, "options").row_format);
        put(scaling, options->row_scaling);
    });
}

mxq_status mxq_expert_layer_options_get_quantize_options(const mxq_expert_layer_options* options,
                                                         mxq_quantize_options* quantize) {
    return guard("mxq_expert_layer_options_get_quantize_options",
                 [&] { require_handle(quantize, "quantize") = require_handle(options, "options").quantize; });
}

mxq_status mxq_expert_layer_options_get_inner_format(const mxq_expert_layer_options* options, int32_t* format) {
    return guard("mxq_expert_layer_options_get_inner_format",
                 [&] { put(format, require_handle(options, "options").inner_format); });
}

mxq_status mxq_expert_layer_options_get_gate_up_bias(const mxq_expert_layer_options* options, int32_t* format,
                                                     const void** bias, uint64_t* bytes) {
    return put_bias("mxq_expert_layer_options_get_gate_up_bias", options, &mxq_expert_layer_options_s::gate_up_bias, format,
                    bias, bytes);
}

mxq_status mxq_expert_layer_options_get_down_bias(const mxq_expert_layer_options* options, int32_t* format,
                                                  const void** bias, uint64_t* bytes) {
    return put_bias("mxq_expert_layer_options_get_down_bias", options, &mxq_expert_layer_options_s::down_bias, format, bias,
                    bytes);
}

mxq_status mxq_expert_layer_options_get_residual(const mxq_expert_layer_options* options, int32_t* has_residual,
                                                 mxq_tensor* residual) {
    return guard("mxq_expert_layer_options_get_residual", [&] {
        require_handle(options, "options");
        put(has_residual, options->has_residual);
        if (options->has_residual && residual) require_handle(residual, "residual") = options->residual;
    });
}

mxq_status mxq_expert_layer_options_get_weights_first(const mxq_expert_layer_options* options, int32_t* first) {
    return guard("mxq_expert_layer_options_get_weights_first",
                 [&] { put(first, require_handle(options, "options").weights_first); });
}

mxq_status mxq_expert_layer_options_get_exact_products(const mxq_expert_layer_options* options, int32_t* exact) {
    return guard("mxq_expert_layer_options_get_exact_products",
                 [&] { put(exact, require_handle(options, "options").exact_products); });
}

mxq_status mxq_expert_layer_options_get_row_invariant(const mxq_expert_layer_options* options, int32_t* row_invariant) {
    return guard("mxq_expert_layer_options_get_row_invariant",
                 [&] { put(row_invariant, require_handle(options, "options").row_invariant); });
}
