// Options, routings and calls of the verbs of the layer.
#include "bound.h"

namespace search {

using testing::ok;

namespace {

float* floats(const Pointer& pointer) { return reinterpret_cast<float*>(pointer.address); }
const int32_t* integers(const Pointer& pointer) { return reinterpret_cast<const int32_t*>(pointer.address); }

}  // namespace

mxq_tensor* Bound::tensor(const std::string& name) const {
    for (size_t i = 0; i < tensors.size(); ++i)
        if (problem.tensors[i].name == name) return tensors[i];
    return nullptr;
}

void Bound::make_activation() {
    const Call& call = problem.call;
    ok(mxq_activate_options_create(activate_options.out()));
    if (call.activation) ok(mxq_activate_options_set_activation(activate_options, call.activation));
    if (call.gate_layout) ok(mxq_activate_options_set_gate_layout(activate_options, call.gate_layout));
    if (call.activation == MXQ_ACTIVATION_SWIGLU_CLAMPED)
        ok(mxq_activate_options_set_clamp(activate_options, call.clamp_alpha, call.clamp_limit, call.clamp_addend));
}

void Bound::point_activation() {
    const Call& call = problem.call;
    if (has("bias")) ok(mxq_activate_options_set_bias(activate_options, call.bias, at("bias").address, at("bias").bytes));
    if (has("row_weights"))
        ok(mxq_activate_options_set_row_weights(activate_options, call.row_weights, at("row_weights").address,
                                                at("row_weights").bytes));
    const Pointer bias = at("bias_gradient"), weights = at("row_weight_gradient");
    if (has("bias_gradient")) ok(mxq_activate_options_set_bias_gradient(activate_options, floats(bias), bias.bytes));
    if (has("row_weight_gradient"))
        ok(mxq_activate_options_set_row_weight_gradient(activate_options, floats(weights), weights.bytes));
    if (options) ok(mxq_activate_options_set_quantize_options(activate_options, options));
}

void Bound::make_routing() {
    const testing::Choices& c = problem.choices;
    ok(mxq_routing_create(c.tokens, c.choices, c.experts, routing.out()));
    if (c.count) ok(mxq_routing_set_local_experts(routing, c.first, c.count));
}

// Throws where the library asks for other memory than the oracle's arrays fill.
void Bound::point_routing() {
    const Pointer ids = at("routing.ids"), weights = at("routing.weights"), dropped = at("routing.dropped");
    ok(mxq_routing_set_ids(routing, ids.address, ids.bytes, problem.call.id_type));
    if (has("routing.weights"))
        ok(mxq_routing_set_weights(routing, problem.call.choice_weights, weights.address, weights.bytes));
    if (has("routing.dropped"))
        ok(mxq_routing_set_dropped(routing, reinterpret_cast<int32_t*>(dropped.address), dropped.bytes));
    if (has("routing.memory")) ok(mxq_routing_set_memory(routing, at("routing.memory").address, at("routing.memory").bytes));
    if (!has("routing.choice_rows")) return;
    const Pointer ends = at("routing.ends"), tokens = at("routing.row_tokens"), rows = at("routing.choice_rows");
    ok(mxq_routing_set_computed(routing, integers(ends), ends.bytes, integers(tokens), tokens.bytes, integers(rows),
                                rows.bytes, nullptr, 0));
}

mxq_status Bound::query_layer(mxq_plan** plan) const {
    const std::string& verb = problem.call.verb;
    if (verb == "route") return mxq_route_query(context, options, routing, plan);
    if (verb == "activate") return mxq_activate_query(context, activate_options, tensor("in"), tensor("out"), plan);
    if (verb == "activate_backward")
        return mxq_activate_backward_query(context, activate_options, tensor("gradient"), tensor("in"), tensor("out"), plan);
    if (verb == "combine")
        return mxq_combine_query(context, options, routing, tensor("in"), tensor("residual"), tensor("out"), plan);
    return mxq_combine_backward_query(context, options, routing, tensor("d_out"), tensor("in"), tensor("d_in"),
                                      tensor("d_weights"), plan);
}

mxq_status Bound::run_layer() const {
    const std::string& verb = problem.call.verb;
    const auto [memory, bytes] = workspace;
    if (verb == "route") return mxq_route(context, options, routing, memory, bytes, stream);
    if (verb == "activate")
        return mxq_activate(context, activate_options, tensor("in"), tensor("out"), memory, bytes, stream);
    if (verb == "activate_backward")
        return mxq_activate_backward(context, activate_options, tensor("gradient"), tensor("in"), tensor("out"), memory,
                                     bytes, stream);
    if (verb == "combine")
        return mxq_combine(context, options, routing, tensor("in"), tensor("residual"), tensor("out"), memory, bytes,
                           stream);
    return mxq_combine_backward(context, options, routing, tensor("d_out"), tensor("in"), tensor("d_in"),
                                tensor("d_weights"), memory, bytes, stream);
}

}  // namespace search
