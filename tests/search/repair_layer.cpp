// Repairs calls of the layer's verbs.
#include "values.h"

namespace search {
namespace {

void make_plain_matrix(Side& side) {
    const int64_t gap = side.gap;
    const bool memory = side.memory;
    side = {side.plain() ? side.format : MXQ_FORMAT_F32};
    side.gap = gap, side.memory = memory;
}

// Takes from a call what belongs to a layer.
void forget_layer(Call& call) {
    const Call plain;
    call.activation = call.gate_layout = call.row_weights = 0;
    call.clamp_alpha = plain.clamp_alpha, call.clamp_limit = plain.clamp_limit, call.clamp_addend = plain.clamp_addend;
    call.bias_gradient = call.weight_gradient = call.residual = call.counts_dropped = call.computed = false;
    call.row_gradient = true;
    call.ids = plain.ids, call.id_type = plain.id_type, call.choice_weights = 0;
    call.first_expert = call.local_experts = 0;
}

void forget_routing(Call& call) {
    const Call plain;
    call.residual = call.counts_dropped = call.computed = false;
    call.row_gradient = true;
    call.ids = plain.ids, call.id_type = plain.id_type, call.choice_weights = 0;
    call.first_expert = call.local_experts = 0;
}

void forget_activation(Call& call) {
    const Call plain;
    call.activation = call.gate_layout = call.row_weights = call.bias = 0;
    call.clamp_alpha = plain.clamp_alpha, call.clamp_limit = plain.clamp_limit, call.clamp_addend = plain.clamp_addend;
    call.bias_gradient = false;
}

// Leaves the experts of this rank that there are.
void repair_experts(Call& call, int64_t experts) {
    call.local_experts = std::clamp<int64_t>(call.local_experts, 0, experts);
    call.first_expert = call.local_experts ? std::clamp<int64_t>(call.first_expert, 0, experts - call.local_experts) : 0;
}

void repair_routed(Call& call) {
    forget_activation(call);
    call.groups.reset();
    call.shape.resize(3, 1);
    call.shape[1] = std::max<int64_t>(call.shape[1], 1);
    for (Side* side : {&call.first, &call.second, &call.d}) make_plain_matrix(*side);
    if (call.choice_weights != MXQ_FORMAT_F32 && call.choice_weights != MXQ_FORMAT_BF16) call.choice_weights = 0;
    if (call.verb != "combine") call.residual = false;
    if (call.verb != "combine_backward") call.weight_gradient = false, call.row_gradient = true;
    if (!call.weight_gradient) call.row_gradient = true;
    if (call.verb != "route") {
        call.counts_dropped = false;
        repair_experts(call, 8);
        return;
    }
    call.shape[2] = std::clamp<int64_t>(call.shape[2], 1, MXQ_MAX_GROUPS);
    repair_experts(call, call.shape[2]);
    call.computed = false;
    call.first = call.second = call.d = {};
    call.second_values = {};
    call.values.kind = "normal";
}

void repair_activation(Call& call) {
    forget_routing(call);
    const bool backward = call.verb == "activate_backward";
    if (call.activation > MXQ_ACTIVATION_SWIGLU_CLAMPED) {
        call.gate_layout = 0;
        if (backward) call.activation = 0;
    }
    if (call.activation != MXQ_ACTIVATION_SWIGLU_CLAMPED) {
        const Call plain;
        call.clamp_alpha = plain.clamp_alpha, call.clamp_limit = plain.clamp_limit, call.clamp_addend = plain.clamp_addend;
    }
    if (!backward) call.bias_gradient = call.weight_gradient = false, call.d = {}, call.second_values = {};
    make_plain_matrix(call.d);
    if (!backward) call.d = {};
    if (!call.groups) {
        call.d.grouped = false;
        return;
    }
    // Plain tensors have groups without padding; one of all tensors has them, and a quantized result always.
    Side &in = call.first, &out = call.second;
    in.rowwise = 1;
    if (out.plain()) out.rowwise = 1;
    if (!out.plain() || !in.grouped) out.grouped = true;
}

}  // namespace

void repair_layer(Call& call) {
    if (!call.is_layer()) return forget_layer(call);
    call.is_routed() ? repair_routed(call) : repair_activation(call);
}

}  // namespace search
