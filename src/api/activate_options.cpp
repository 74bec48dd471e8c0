// Options of activate: setters and getters.
#include <cfloat>

#include "api/guard.h"
#include "api/put.h"
#include "api/take.h"
#include "core/options.h"

using namespace mxq;

namespace {

// Calls read(options) inside of a guard.
template <class Read>
mxq_status get(const char* function, const mxq_activate_options* options, const Read& read) {
    return guard(function, [&] { read(require_handle(options, "options")); });
}

// Takes numbers of a plain format, or none.
void take_numbers(int32_t format, const void* numbers, uint64_t bytes, const char* name, int32_t& format_to, Buffer& to) {
    const Format* known = find_format(format);
    const bool clears = format == 0 && !numbers;
    if (!clears && (!known || known->quantized()))
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "format is %d, expected MXQ_FORMAT_F32 (1), F16 (2) or BF16 (3), or 0 with NULL for no %s", format, name);
    to = buffer_of(numbers, bytes, name);
    format_to = format;
}

void require_finite(float value, const char* name) {
    if (!(value >= -FLT_MAX && value <= FLT_MAX))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is %g, expected a finite number", name, double(value));
}

}  // namespace

mxq_status mxq_activate_options_create(mxq_activate_options** out) {
    return guard_create("mxq_activate_options_create", out, [] { return new mxq_activate_options_s; });
}

void mxq_activate_options_destroy(mxq_activate_options* options) {
    destroy("mxq_activate_options_destroy", options, "options");
}

mxq_status mxq_activate_options_set_activation(mxq_activate_options* options, int32_t activation) {
    return guard("mxq_activate_options_set_activation", [&] {
        require_handle(options, "options");
        if (activation < MXQ_ACTIVATION_SWIGLU || activation > MXQ_ACTIVATION_SQUARED_RELU)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "activation is %d, expected MXQ_ACTIVATION_SWIGLU (1) to MXQ_ACTIVATION_SQUARED_RELU (8)", activation);
        options->activation = activation;
    });
}

mxq_status mxq_activate_options_set_gate_layout(mxq_activate_options* options, int32_t layout) {
    return guard("mxq_activate_options_set_gate_layout", [&] {
        require_handle(options, "options");
        if (layout < MXQ_GATE_LAYOUT_GATE_UP || layout > MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "layout is %d, expected MXQ_GATE_LAYOUT_GATE_UP (1) to MXQ_GATE_LAYOUT_INTERLEAVED_UP_GATE (4)", layout);
        options->gate_layout = layout;
        options->gate_layout_set = layout != MXQ_GATE_LAYOUT_GATE_UP;
    });
}

mxq_status mxq_activate_options_set_clamp(mxq_activate_options* options, float alpha, float limit, float addend) {
    return guard("mxq_activate_options_set_clamp", [&] {
        require_handle(options, "options");
        require_finite(alpha, "alpha");
        require_finite(addend, "addend");
        if (!(limit > 0))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "limit is %g, expected a number above 0, or infinity for no limit",
                 double(limit));
        options->numbers = {alpha, limit, addend};
        options->numbers_set = true;
    });
}

mxq_status mxq_activate_options_set_bias(mxq_activate_options* options, int32_t format, const void* bias, uint64_t bytes) {
    return guard("mxq_activate_options_set_bias", [&] {
        require_handle(options, "options");
        take_numbers(format, bias, bytes, "bias", options->bias_format, options->bias);
    });
}

mxq_status mxq_activate_options_set_row_weights(mxq_activate_options* options, int32_t format, const void* weights,
                                                uint64_t bytes) {
    return guard("mxq_activate_options_set_row_weights", [&] {
        require_handle(options, "options");
        take_numbers(format, weights, bytes, "weights", options->row_weight_format, options->row_weights);
    });
}

mxq_status mxq_activate_options_set_quantize_options(mxq_activate_options* options, const mxq_quantize_options* quantize) {
    return guard("mxq_activate_options_set_quantize_options", [&] {
        require_handle(options, "options");
        if (!quantize) {
            options->quantize = {};
            return;
        }
        if (!require_handle(quantize, "quantize").implementation.empty())
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "quantize has the implementation \"%s\", expected none; call mxq_activate_options_set_implementation",
                 quantize->implementation.c_str());
        options->quantize = *quantize;
    });
}

mxq_status mxq_activate_options_set_implementation(mxq_activate_options* options, const char* name) {
    return guard("mxq_activate_options_set_implementation",
                 [&] { require_handle(options, "options").implementation = name ? name : ""; });
}

mxq_status mxq_activate_options_get_activation(const mxq_activate_options* options, int32_t* activation) {
    return get("mxq_activate_options_get_activation", options, [&](auto& o) { put(activation, o.activation); });
}

mxq_status mxq_activate_options_get_gate_layout(const mxq_activate_options* options, int32_t* layout) {
    return get("mxq_activate_options_get_gate_layout", options, [&](auto& o) { put(layout, o.gate_layout); });
}

mxq_status mxq_activate_options_get_clamp(const mxq_activate_options* options, float* alpha, float* limit, float* addend) {
    return get("mxq_activate_options_get_clamp", options, [&](auto& o) {
        put(alpha, o.numbers.alpha);
        put(limit, o.numbers.limit);
        put(addend, o.numbers.addend);
    });
}

mxq_status mxq_activate_options_get_bias(const mxq_activate_options* options, int32_t* format, const void** bias,
                                         uint64_t* bytes) {
    return get("mxq_activate_options_get_bias", options, [&](auto& o) {
        put(format, o.bias_format);
        put(bias, bytes, o.bias);
    });
}

mxq_status mxq_activate_options_get_row_weights(const mxq_activate_options* options, int32_t* format, const void** weights,
                                                uint64_t* bytes) {
    return get("mxq_activate_options_get_row_weights", options, [&](auto& o) {
        put(format, o.row_weight_format);
        put(weights, bytes, o.row_weights);
    });
}

mxq_status mxq_activate_options_get_quantize_options(const mxq_activate_options* options, mxq_quantize_options* quantize) {
    return get("mxq_activate_options_get_quantize_options", options,
               [&](auto& o) { require_handle(quantize, "quantize") = o.quantize; });
}

mxq_status mxq_activate_options_get_implementation(const mxq_activate_options* options, const char** name) {
    return get("mxq_activate_options_get_implementation", options, [&](auto& o) { put(name, o.implementation.c_str()); });
}

mxq_status mxq_activate_options_set_bias_gradient(mxq_activate_options* options, float* gradient, uint64_t bytes) {
    return guard("mxq_activate_options_set_bias_gradient",
                 [&] { require_handle(options, "options").bias_gradient = buffer_of(gradient, bytes, "gradient"); });
}

mxq_status mxq_activate_options_set_row_weight_gradient(mxq_activate_options* options, float* gradient, uint64_t bytes) {
    return guard("mxq_activate_options_set_row_weight_gradient",
                 [&] { require_handle(options, "options").row_weight_gradient = buffer_of(gradient, bytes, "gradient"); });
}

mxq_status mxq_activate_options_get_bias_gradient(const mxq_activate_options* options, float** gradient, uint64_t* bytes) {
    return get("mxq_activate_options_get_bias_gradient", options, [&](auto& o) { put(gradient, bytes, o.bias_gradient); });
}

mxq_status mxq_activate_options_get_row_weight_gradient(const mxq_activate_options* options, float** gradient,
                                                        uint64_t* bytes) {
    return get("mxq_activate_options_get_row_weight_gradient", options,
               [&](auto& o) { put(gradient, bytes, o.row_weight_gradient); });
}
