// The verbs of expert layers.
#include "check.h"
#include "targets.h"

#include <iterator>

namespace fuzz {

namespace {

struct Choices {
    int64_t tokens = 0;
    int32_t choices = 1, experts = 1;
    // Returns -1 where there are more than a call here has.
    int64_t rows() const {
        if (tokens < 0 || tokens > 1024 || choices < 0 || choices > 16) return -1;
        return tokens * choices;
    }
};

Choices draw_choices(Input& in) {
    return {in.seldom(32) ? in.wild() : in.below(40), in.seldom(32) ? in.wild32() : 1 + in.below(4),
            in.seldom(32) ? in.wild32() : 1 + in.below(5)};
}

void give_weights(Scene& scene, mxq_routing* routing, const Choices& of) {
    const mxq_format format = scene.in.seldom(8) ? scene.in.below(6) : scene.in.below(2) ? MXQ_FORMAT_F32 : MXQ_FORMAT_BF16;
    const Buffer weights = scene.memory.take(static_cast<uint64_t>(of.rows()) * (format == MXQ_FORMAT_F32 ? 4 : 2), false,
                                             16, 0, scene.in.byte());
    mxq_routing_set_weights(routing, format, weights.address, weights.bytes);
}

// Gives the memory for mxq_route, or arrays that are mostly right.
void give_arrays(Scene& scene, mxq_routing* routing, const Choices& of, bool computed) {
    if (!computed) {
        uint64_t bytes = 0;
        mxq_routing_required_bytes(routing, &bytes);
        if (scene.in.seldom(16) && bytes > 0) --bytes;
        const Buffer memory = scene.memory.take(bytes, true, 256, scene.in.seldom(16) ? 16 : 0);
        mxq_routing_set_memory(routing, memory.address, memory.bytes);
        return;
    }
    scene.groups = of.experts;
    scene.type = MXQ_TYPE_INT32;
    const Buffer ends = make_ends(scene, of.rows()), tokens = make_integers(scene, of.rows(), MXQ_TYPE_INT32, of.tokens);
    const Buffer rows = make_integers(scene, of.rows(), MXQ_TYPE_INT32, of.rows());
    const Buffer weights = scene.in.below(2) ? make_factors(scene, rows.bytes, false) : Buffer();
    const auto numbers = [](const Buffer& buffer) { return reinterpret_cast<const int32_t*>(buffer.address); };
    mxq_routing_set_computed(routing, numbers(ends), ends.bytes, numbers(tokens), tokens.bytes, numbers(rows), rows.bytes,
                             reinterpret_cast<const float*>(weights.address), weights.bytes);
}

Routing make_routing(Scene& scene, const Choices& of) {
    Input& in = scene.in;
    mxq_routing* made = nullptr;
    const mxq_status status = mxq_routing_create(of.tokens, of.choices, of.experts, &made);
    require((status == MXQ_STATUS_OK) == (made != nullptr), "a routing that was refused is NULL");
    Routing routing(made);
    if (!made || of.rows() < 0) return routing;
    if (in.seldom(4)) mxq_routing_set_local_experts(made, in.below(4), in.seldom(8) ? in.wild32() : in.below(4));
    if (in.below(2)) give_weights(scene, made, of);
    if (!in.seldom(16)) {
        const mxq_type type = 1 + in.below(2);
        const Buffer ids = make_integers(scene, of.rows(), type, of.experts);
        mxq_routing_set_ids(made, ids.address, ids.bytes, type);
    }
    give_arrays(scene, made, of, in.seldom(4));
    if (in.seldom(8)) {
        const Buffer dropped = scene.memory.take(4, true);
        mxq_routing_set_dropped(made, reinterpret_cast<int32_t*>(dropped.address), dropped.bytes);
    }
    return routing;
}

// Fills a routing that mxq_route takes, so that the verbs after it have rows.
void route_first(Scene& scene, const mxq_routing* routing) {
    if (!scene.in.seldom(8)) mxq_route(contexts()[0], nullptr, routing, nullptr, 0, nullptr);
}

}  // namespace

void route(Input& in) {
    Scene scene(in);
    const QuantizeOptions options = in.seldom(8) ? make_quantize_options(scene) : nullptr;
    const Routing routing = make_routing(scene, draw_choices(in));
    check_call(scene, {"mxq_route",
                       [&](mxq_context* context, mxq_plan** plan) {
                           return mxq_route_query(context, options.get(), routing.get(), plan);
                       },
                       [&](mxq_context* context, void* workspace, uint64_t bytes) {
                           return mxq_route(context, options.get(), routing.get(), workspace, bytes, nullptr);
                       }});
}

namespace {

void combine_forward(Scene& scene, const mxq_quantize_options* options, const mxq_routing* routing, const Shape& of_rows,
                     const Shape& of_tokens) {
    const Tensor in = make_tensor(scene, Role::plain, Use::read, of_rows),
                 out = make_tensor(scene, Role::plain, Use::written, of_tokens);
    const Tensor residual = scene.in.below(2) ? make_tensor(scene, Role::plain, Use::read, of_tokens) : nullptr;
    check_call(scene, {"mxq_combine",
                       [&](mxq_context* context, mxq_plan** plan) {
                           return mxq_combine_query(context, options, routing, in.get(), residual.get(), out.get(), plan);
                       },
                       [&](mxq_context* context, void* workspace, uint64_t bytes) {
                           return mxq_combine(context, options, routing, in.get(), residual.get(), out.get(), workspace,
                                              bytes, nullptr);
                       }});
}

void combine_back(Scene& scene, const mxq_quantize_options* options, const mxq_routing* routing, const Shape& of_rows,
                  const Shape& of_tokens, int32_t choices) {
    const bool no_in = scene.in.seldom(4), no_d_in = scene.in.seldom(4), no_weights = scene.in.seldom(4);
    const Tensor d_out = make_tensor(scene, Role::plain, Use::read, of_tokens);
    const Tensor in = no_in ? nullptr : make_tensor(scene, Role::plain, Use::read, of_rows);
    const Tensor d_in = no_d_in ? nullptr : make_tensor(scene, Role::plain, Use::written, of_rows);
    const Tensor d_weights =
        no_weights ? nullptr : make_tensor(scene, Role::plain, Use::written, {0, of_tokens.rows, choices});
    check_call(scene, {"mxq_combine_backward",
                       [&](mxq_context* context, mxq_plan** plan) {
                           return mxq_combine_backward_query(context, options, routing, d_out.get(), in.get(), d_in.get(),
                                                             d_weights.get(), plan);
                       },
                       [&](mxq_context* context, void* workspace, uint64_t bytes) {
                           return mxq_combine_backward(context, options, routing, d_out.get(), in.get(), d_in.get(),
                                                       d_weights.get(), workspace, bytes, nullptr);
                       }});
}

}  // namespace

void combine(Input& in) {
    Scene scene(in);
    const QuantizeOptions options = in.seldom(8) ? make_quantize_options(scene) : nullptr;
    const Choices of = draw_choices(in);
    const Routing routing = make_routing(scene, of);
    const int64_t width = in.below(70);
    const Shape of_rows{0, of.rows(), width}, of_tokens{0, of.tokens, width};
    route_first(scene, routing.get());
    if (in.below(2))
        combine_forward(scene, options.get(), routing.get(), of_rows, of_tokens);
    else
        combine_back(scene, options.get(), routing.get(), of_rows, of_tokens, of.choices);
}

namespace {

// Draws rows and a width that mostly is the right one.
void check_activate(Input& in, bool backward) {
    Scene scene(in);
    Shape narrow;
    if (in.seldom(4)) narrow.experts = in.below(4);
    narrow.rows = scene.size();
    narrow.cols = scene.size();
    if (in.below(2) && !narrow.experts) scene.draw_groups(narrow.rows);
    Shape wide = narrow;
    if (!in.seldom(4) && wide.cols > 0 && wide.cols < INT32_MAX) wide.cols *= 2;
    const int64_t matrices = narrow.experts ? narrow.experts : 1;
    const int64_t all_rows = narrow.rows > 0 && narrow.rows < 65536 ? matrices * narrow.rows : 1;
    const ActivateOptions options =
        make_activate_options(scene, wide.cols > 0 && wide.cols < 65536 ? wide.cols * matrices : 1, all_rows, backward);
    const Tensor x = make_tensor(scene, Role::plain, Use::read, wide);
    if (!backward) {
        const Tensor out = make_tensor(scene, Role::any, Use::written, narrow);
        check_call(scene, {"mxq_activate",
                           [&](mxq_context* context, mxq_plan** plan) {
                               return mxq_activate_query(context, options.get(), x.get(), out.get(), plan);
                           },
                           [&](mxq_context* context, void* workspace, uint64_t bytes) {
                               return mxq_activate(context, options.get(), x.get(), out.get(), workspace, bytes, nullptr);
                           }});
        return;
    }
    const Tensor gradient = make_tensor(scene, Role::plain, Use::read, narrow),
                 out = make_tensor(scene, Role::any, Use::written, wide);
    check_call(scene, {"mxq_activate_backward",
                       [&](mxq_context* context, mxq_plan** plan) {
                           return mxq_activate_backward_query(context, options.get(), gradient.get(), x.get(), out.get(),
                                                              plan);
                       },
                       [&](mxq_context* context, void* workspace, uint64_t bytes) {
                           return mxq_activate_backward(context, options.get(), gradient.get(), x.get(), out.get(),
                                                        workspace, bytes, nullptr);
                       }});
}

}  // namespace

void activate(Input& in) { check_activate(in, false); }
void activate_backward(Input& in) { check_activate(in, true); }

void expert_layer(Input& in) {
    Scene scene(in);
    const Choices of = draw_choices(in);
    const Routing routing = make_routing(scene, of);
    constexpr int64_t widths[] = {8, 16, 32, 33, 64, 96, 1, 128};
    const int64_t width = in.seldom(16) ? scene.size() : widths[in.below(std::size(widths))];
    const int64_t inner = in.seldom(16) ? in.below(70) : widths[in.below(std::size(widths))];
    int32_t first = 0, local = of.experts;
    if (routing) mxq_routing_get_local_experts(routing.get(), &first, &local);
    if (local <= 0 || local > 16) local = of.experts > 0 && of.experts <= 16 ? of.experts : 1;
    scene.groups = local;
    const LayerOptions options = make_layer_options(scene, 2 * inner, width);
    scene.groups = 0;
    const Tensor x = make_tensor(scene, Role::plain, Use::read, {0, of.tokens, width});
    const Tensor gate_up = make_tensor(scene, Role::any, Use::read, {local, in.seldom(8) ? inner : 2 * inner, width});
    const Tensor down = make_tensor(scene, Role::any, Use::read, {local, width, inner});
    const Tensor out = make_tensor(scene, Role::plain, Use::written, {0, of.tokens, width});
    if (in.seldom(4) && options) {
        const Tensor residual = make_tensor(scene, Role::plain, Use::read, {0, of.tokens, width});
        mxq_expert_layer_options_set_residual(options.get(), residual.get());
    }
    if (of.rows() < 0) {  // the call would ask for the memory between its steps before it looks at pointers
        mxq_expert_layer_query(contexts()[0], options.get(), x.get(), routing.get(), gate_up.get(), down.get(), out.get(),
                               nullptr);
        return;
    }
    check_call(scene, {"mxq_expert_layer",
                       [&](mxq_context* context, mxq_plan** plan) {
                           return mxq_expert_layer_query(context, options.get(), x.get(), routing.get(), gate_up.get(),
                                                         down.get(), out.get(), plan);
                       },
                       [&](mxq_context* context, void* workspace, uint64_t bytes) {
                           return mxq_expert_layer(context, options.get(), x.get(), routing.get(), gate_up.get(), down.get(),
                                                   out.get(), workspace, bytes, nullptr);
                       }});
}

}  // namespace fuzz
