// The options of the expert layer: their setters and getters.
#include "core/options.h"

#include "api/guard.h"
#include "api/put.h"
#include "api/take.h"

using namespace mxq;

namespace {

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

}  // namespace

mxq_status mxq_expert_layer_options_create(mxq_expert_layer_options** out) { return create(out); }

void mxq_expert_layer_options_destroy(mxq_expert_layer_options* options) { destroy(options); }

mxq_status mxq_expert_layer_options_set_activate_options(mxq_expert_layer_options* options,
                                                         const mxq_activate_options* activate) {
    return with(options, [&](auto& o) {
        mxq_activate_options_s copy;
        if (activate) copy = require_handle(activate, "activate");
        if (copy.row_weights.format != 0)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "activate has row weights, expected none: the layer takes those of the routing; call "
                 "mxq_expert_layer_options_set_weights_first");
        if (!copy.implementation.empty())
            fail(MXQ_STATUS_INVALID_ARGUMENT, "activate asks for the implementation %s, expected none; set MXQ_IMPL instead",
                 copy.implementation.c_str());
        o.activate = copy;
    });
}

mxq_status mxq_expert_layer_options_set_row_format(mxq_expert_layer_options* options, int32_t format, int32_t scaling) {
    return with(options, [&](auto& o) {
        require_row_format(format, scaling);
        o.row_format = format;
        o.row_scaling = scaling;
    });
}

mxq_status mxq_expert_layer_options_set_quantize_options(mxq_expert_layer_options* options,
                                                         const mxq_quantize_options* quantize) {
    return with(options, [&](auto& o) {
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
        o.quantize = copy;
    });
}

mxq_status mxq_expert_layer_options_set_inner_format(mxq_expert_layer_options* options, int32_t format) {
    return with(options, [&](auto& o) {
        if (format != MXQ_FORMAT_F32 && format != MXQ_FORMAT_F16 && format != MXQ_FORMAT_BF16)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "format is %d, expected MXQ_FORMAT_F32 (1), F16 (2) or BF16 (3)", format);
        o.inner_format = format;
    });
}

mxq_status mxq_expert_layer_options_set_gate_up_bias(mxq_expert_layer_options* options, int32_t format, const void* bias,
                                                     uint64_t bytes) {
    return with(options, [&](auto& o) { o.gate_up_bias = numbers_of(format, bias, bytes, "bias"); });
}

mxq_status mxq_expert_layer_options_set_down_bias(mxq_expert_layer_options* options, int32_t format, const void* bias,
                                                  uint64_t bytes) {
    return with(options, [&](auto& o) { o.down_bias = numbers_of(format, bias, bytes, "bias"); });
}

mxq_status mxq_expert_layer_options_set_residual(mxq_expert_layer_options* options, const mxq_tensor* residual) {
    return with(options, [&](auto& o) {
        o.residual = residual ? require_handle(residual, "residual") : mxq_tensor_s{};
        o.has_residual = residual != nullptr;
    });
}

mxq_status mxq_expert_layer_options_set_weights_first(mxq_expert_layer_options* options, int32_t first) {
    return set_flag(options, "first", first, &mxq_expert_layer_options_s::weights_first);
}

mxq_status mxq_expert_layer_options_set_exact_products(mxq_expert_layer_options* options, int32_t exact) {
    return set_flag(options, "exact", exact, &mxq_expert_layer_options_s::exact_products);
}

mxq_status mxq_expert_layer_options_set_row_invariant(mxq_expert_layer_options* options, int32_t row_invariant) {
    return set_flag(options, "row_invariant", row_invariant, &mxq_expert_layer_options_s::row_invariant);
}

mxq_status mxq_expert_layer_options_get_activate_options(const mxq_expert_layer_options* options,
                                                         mxq_activate_options* activate) {
    return with(options, [&](auto& o) { require_handle(activate, "activate") = o.activate; });
}

mxq_status mxq_expert_layer_options_get_row_format(const mxq_expert_layer_options* options, int32_t* format,
                                                   int32_t* scaling) {
    return with(options, [&](auto& o) {
        put(format, o.row_format);
        put(scaling, o.row_scaling);
    });
}

mxq_status mxq_expert_layer_options_get_quantize_options(const mxq_expert_layer_options* options,
                                                         mxq_quantize_options* quantize) {
    return with(options, [&](auto& o) { require_handle(quantize, "quantize") = o.quantize; });
}

mxq_status mxq_expert_layer_options_get_inner_format(const mxq_expert_layer_options* options, int32_t* format) {
    return with(options, [&](auto& o) { put(format, o.inner_format); });
}

mxq_status mxq_expert_layer_options_get_gate_up_bias(const mxq_expert_layer_options* options, int32_t* format,
                                                     const void** bias, uint64_t* bytes) {
    return with(options, [&](auto& o) { put(format, bias, bytes, o.gate_up_bias); });
}

mxq_status mxq_expert_layer_options_get_down_bias(const mxq_expert_layer_options* options, int32_t* format,
                                                  const void** bias, uint64_t* bytes) {
    return with(options, [&](auto& o) { put(format, bias, bytes, o.down_bias); });
}

mxq_status mxq_expert_layer_options_get_residual(const mxq_expert_layer_options* options, int32_t* has_residual,
                                                 mxq_tensor* residual) {
    return with(options, [&](auto& o) {
        put(has_residual, o.has_residual);
        if (o.has_residual && residual) require_handle(residual, "residual") = o.residual;
    });
}

mxq_status mxq_expert_layer_options_get_weights_first(const mxq_expert_layer_options* options, int32_t* first) {
    return with(options, [&](auto& o) { put(first, o.weights_first); });
}

mxq_status mxq_expert_layer_options_get_exact_products(const mxq_expert_layer_options* options, int32_t* exact) {
    return with(options, [&](auto& o) { put(exact, o.exact_products); });
}

mxq_status mxq_expert_layer_options_get_row_invariant(const mxq_expert_layer_options* options, int32_t* row_invariant) {
    return with(options, [&](auto& o) { put(row_invariant, o.row_invariant); });
}
