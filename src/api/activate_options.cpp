// Options of activate: setters and getters.
#include "api/guard.h"
#include "api/put.h"
#include "api/take.h"
#include "core/options.h"

using namespace mxq;

mxq_status mxq_activate_options_create(mxq_activate_options** out) { return create(out); }

void mxq_activate_options_destroy(mxq_activate_options* options) { destroy(options); }

mxq_status mxq_activate_options_set_activation(mxq_activate_options* options, int32_t activation) {
    return with(options, [&](auto& o) {
        if (activation < MXQ_ACTIVATION_SWIGLU || activation > MXQ_ACTIVATION_SQUARED_RELU)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "activation is %d, expected MXQ_ACTIVATION_SWIGLU (1) to MXQ_ACTIVATION_SQUARED_RELU (8)", activation);
        o.activation = activation;
    });
}

mxq_status mxq_activate_options_set_gate_layout(mxq_activate_options* options, int32_t layout) {
    return with(options, [&](auto& o) {
        if (layout < MXQ_GATE_LAYOUT_GATE_UP || layout > MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "layout is %d, expected MXQ_GATE_LAYOUT_GATE_UP (1) to MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE (4)", layout);
        o.gate_layout = layout;
        o.gate_layout_set = layout != MXQ_GATE_LAYOUT_GATE_UP;
    });
}

mxq_status mxq_activate_options_set_clamp(mxq_activate_options* options, float alpha, float limit, float addend) {
    return with(options, [&](auto& o) {
        require_finite(alpha, "alpha");
        require_finite(addend, "addend");
        if (!(limit > 0))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "limit is %g, expected a number above 0, or infinity for no limit",
                 double(limit));
        o.numbers = {alpha, limit, addend};
        o.numbers_set = true;
    });
}

mxq_status mxq_activate_options_set_bias(mxq_activate_options* options, int32_t format, const void* bias, uint64_t bytes) {
    return with(options, [&](auto& o) { o.bias = numbers_of(format, bias, bytes, "bias"); });
}

mxq_status mxq_activate_options_set_row_weights(mxq_activate_options* options, int32_t format, const void* weights,
                                                uint64_t bytes) {
    return with(options, [&](auto& o) { o.row_weights = numbers_of(format, weights, bytes, "weights"); });
}

mxq_status mxq_activate_options_set_quantize_options(mxq_activate_options* options, const mxq_quantize_options* quantize) {
    return with(options, [&](auto& o) {
        if (!quantize) {
            o.quantize = {};
            return;
        }
        if (!require_handle(quantize, "quantize").implementation.empty())
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "quantize has the implementation \"%s\", expected none; call mxq_activate_options_set_implementation",
                 quantize->implementation.c_str());
        o.quantize = *quantize;
    });
}

mxq_status mxq_activate_options_set_implementation(mxq_activate_options* options, const char* name) {
    return with(options, [&](auto& o) { o.implementation = name ? name : ""; });
}

mxq_status mxq_activate_options_get_activation(const mxq_activate_options* options, int32_t* activation) {
    return with(options, [&](auto& o) { put(activation, o.activation); });
}

mxq_status mxq_activate_options_get_gate_layout(const mxq_activate_options* options, int32_t* layout) {
    return with(options, [&](auto& o) { put(layout, o.gate_layout); });
}

mxq_status mxq_activate_options_get_clamp(const mxq_activate_options* options, float* alpha, float* limit, float* addend) {
    return with(options, [&](auto& o) {
        put(alpha, o.numbers.alpha);
        put(limit, o.numbers.limit);
        put(addend, o.numbers.addend);
    });
}

mxq_status mxq_activate_options_get_bias(const mxq_activate_options* options, int32_t* format, const void** bias,
                                         uint64_t* bytes) {
    return with(options, [&](auto& o) { put(format, bias, bytes, o.bias); });
}

mxq_status mxq_activate_options_get_row_weights(const mxq_activate_options* options, int32_t* format, const void** weights,
                                                uint64_t* bytes) {
    return with(options, [&](auto& o) { put(format, weights, bytes, o.row_weights); });
}

mxq_status mxq_activate_options_get_quantize_options(const mxq_activate_options* options, mxq_quantize_options* quantize) {
    return with(options, [&](auto& o) { require_handle(quantize, "quantize") = o.quantize; });
}

mxq_status mxq_activate_options_get_implementation(const mxq_activate_options* options, const char** name) {
    return with(options, [&](auto& o) { put(name, o.implementation.c_str()); });
}

mxq_status mxq_activate_options_set_bias_gradient(mxq_activate_options* options, float* gradient, uint64_t bytes) {
    return with(options, [&](auto& o) { o.bias_gradient = buffer_of(gradient, bytes, "gradient"); });
}

mxq_status mxq_activate_options_set_row_weight_gradient(mxq_activate_options* options, float* gradient, uint64_t bytes) {
    return with(options, [&](auto& o) { o.row_weight_gradient = buffer_of(gradient, bytes, "gradient"); });
}

mxq_status mxq_activate_options_get_bias_gradient(const mxq_activate_options* options, float** gradient, uint64_t* bytes) {
    return with(options, [&](auto& o) { put(gradient, bytes, o.bias_gradient); });
}

mxq_status mxq_activate_options_get_row_weight_gradient(const mxq_activate_options* options, float** gradient,
                                                        uint64_t* bytes) {
    return with(options, [&](auto& o) { put(gradient, bytes, o.row_weight_gradient); });
}
