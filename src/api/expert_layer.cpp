// The expert layer as the verbs that make it up.
#include "core/expert_layer.h"

#include <algorithm>

#include "api/guard.h"
#include "api/verb.h"
#include "cpu/given_numbers.h"

using namespace mxq;

namespace {

RoutedProductProblem first_routed(const Context& context, const Layer& l, Check check) {
    return validate_routed_product(context, &l.first_product, &l.activation, &l.routing,
                                   {&l.rows, &l.gate_up, &l.hidden, &l.activated}, check);
}

RoutedProductProblem second_routed(const Context& context, const Layer& l, Check check) {
    return validate_routed_product(context, &l.second_product, nullptr, &l.routing,
                                   {&l.activated, &l.down, &l.products, nullptr}, check);
}

// Which steps are one launch for several verbs.
struct Fused {
    bool first = false;   // route, the first product and the activation
    bool second = false;  // the second product reads ids, so that it starts early
    std::string reason;   // why not
};

// Returns why a problem of a routed product is not taken; empty: it is taken.
std::string reason_to_decline(const Verb<RoutedProductProblem>& verb, const Context& context,
                              const RoutedProductProblem& problem) {
    const auto choice = ask(verb, context, problem, {});
    return choice.implementation ? "" : text_of(choice.declined());
}

// Returns whether MXQ_IMPL names the implementation of a verb that would be fused.
bool names_steps(const Context& context) {
    for (const char* verb : {verbs::route.name, verbs::grouped_gemm.name, verbs::activate.name, verbs::combine.name})
        if (!wanted(context, verb, {}).name.empty()) return true;
    return false;
}

// Single verbs say what is wrong with wrong arguments.
Fused fuse(const Context& context, const Layer& l) try {
    Fused fused;
    if (context.is_cpu() || l.quantizes() || names_steps(context)) return fused;
    fused.reason = reason_to_decline(verbs::activated_product, context, first_routed(context, l, Check::Query));
    fused.first = fused.reason.empty();
    fused.second = fused.first &&
                   reason_to_decline(verbs::routed_product, context, second_routed(context, l, Check::Query)).empty();
    return fused;
} catch (const Error&) {
    return {};
}

// Calls each(verb, what, tensors, validate) for every step up to the activation, where validate(check) returns its problem.
template <class Each>
void for_each_first_step(const Context& context, const Layer& l, const Each& each) {
    if (l.routes())
        each(verbs::route, "the routing", Tensors{},
             [&](Check check) { return validate_route(context, nullptr, &l.routing, check); });
    if (l.quantizes())
        each(verbs::quantize, "rows of x", Tensors{&l.rows, &l.quantized},
             [&](Check check) { return validate_quantize(context, &l.options.quantize, &l.rows, &l.quantized, check); });
    const mxq_tensor& entering = l.quantizes() ? l.quantized : l.rows;
    each(verbs::grouped_gemm, "rows of x (a) by gate_up (b)", Tensors{&entering, &l.gate_up, &l.hidden}, [&](Check check) {
        return validate_grouped_gemm(context, &l.first_product, &entering, &l.gate_up, &l.hidden, check);
    });
    each(verbs::activate, "the first product", Tensors{&l.hidden, &l.activated},
         [&](Check check) { return validate_activate(context, &l.activation, &l.hidden, &l.activated, check); });
}

// Calls it for every step. Fused ones have the name of the product or the sum in them.
template <class Each>
void for_each_step(const Context& context, const Layer& l, const Fused& fused, const Each& each) {
    if (fused.first)
        each(verbs::activated_product, "rows of x (a) by gate_up (b)", Tensors{&l.rows, &l.gate_up, &l.activated},
             [&](Check check) { return first_routed(context, l, check); });
    else
        for_each_first_step(context, l, each);
    const char* const second = "the activation (a) by down (b)";
    const Tensors of_second{&l.activated, &l.down, &l.products};
    if (fused.second)
        each(verbs::routed_product, second, of_second, [&](Check check) { return second_routed(context, l, check); });
    else
        each(verbs::grouped_gemm, second, of_second, [&](Check check) {
            return validate_grouped_gemm(context, &l.second_product, &l.activated, &l.down, &l.products, check);
        });
    const auto combine = [&](Check check) {
        return validate_combine(context, nullptr, &l.weighted, &l.products, &l.out, l.residual(), check);
    };
    const Tensors of_combine{&l.products, &l.out, l.residual()};
    if (fused.second && l.routes())
        each(verbs::routed_combine, "the second product", of_combine,
             [&](Check check) { return RoutedCombineProblem{combine(check), l.ids()}; });
    else
        each(verbs::combine, "the second product", of_combine, combine);
}

// Runs body, and says in a failure which step failed.
template <class Body>
void name_step(const char* verb, const char* what, const Body& body) {
    try {
        body();
    } catch (const Error& error) {
        throw Error(error.status(), std::string(verb) + " of " + what + ": " + error.what());
    }
}

void append(std::string& text, const char* separator, const std::string& more) {
    text += (text.empty() ? "" : separator) + more;
}

// Returns the plan of all steps, whose workspace follows the memory between the steps.
mxq_plan_s plan_of_steps(const Context& context, const Layer& layer, const Fused& fused) {
    mxq_plan_s all;
    all.reason = fused.reason;
    for_each_step(context, layer, fused, [&](const auto& verb, const char* what, const Tensors& tensors, const auto& validate) {
        name_step(verb.name, what, [&] {
            const mxq_plan_s one = plan_of(verb, {context, "", tensors}, validate(Check::Query));
            append(all.implementation, ", ", one.implementation);
            if (!one.reason.empty()) append(all.reason, "; ", std::string(verb.name) + ": " + one.reason);
            all.workspace_bytes = std::max(all.workspace_bytes, one.workspace_bytes);
            all.bound = std::max(all.bound, one.bound);
        });
    });
    return all;
}

uint64_t workspace_bytes_of(const Context& context, const Layer& layer, const mxq_plan_s& steps) {
    return context.is_cpu() ? 0 : layer.bytes() + steps.workspace_bytes;
}

// Refuses numbers of weights that only a CPU reads. The other operands are made by the steps.
template <class Problem>
void require_weights(const Context&, const Problem&) {}
void require_weights(const Context& context, const GemmProblem& p) {
    if (context.is_cpu() && !is_nothing(p)) cpu::require_decodable(p.b, {}, "b");
}

// Refuses missing and overlapping buffers and wrong numbers of all steps, before the first writes anything.
void validate_steps(const Context& context, const Layer& layer, const Fused& fused) {
    for_each_step(context, layer, fused, [&](const auto& verb, const char* what, const Tensors&, const auto& validate) {
        name_step(verb.name, what, [&] { require_weights(context, validate(Check::Prepare)); });
    });
}

void run_steps(const Context& context, const Layer& layer, const Fused& fused, const Workspace& workspace, void* stream) {
    bool follows = false;
    for_each_step(context, layer, fused, [&](const auto& verb, const char* what, const Tensors& tensors, const auto& validate) {
        name_step(verb.name, what, [&] {
            const auto problem = validate(Check::Execute);
            run_verb(verb, {context, "", tensors, follows}, problem, workspace, stream);
            follows |= !is_nothing(problem);
        });
    });
}

void run_layer(const Context& context, Layer& layer, const Workspace& given, void* stream) {
    const Fused fused = fuse(context, layer);
    const mxq_plan_s steps = plan_of_steps(context, layer, fused);
    check_workspace(workspace_bytes_of(context, layer, steps), given.memory, given.bytes);
    const HostMemory host(context.is_cpu() ? layer.bytes() : 0);
    layer.place(context.is_cpu() ? host.get() : given.memory);
    validate_steps(context, layer, fused);
    const uint64_t used = context.is_cpu() ? 0 : layer.bytes();
    const uint64_t left = context.is_cpu() ? 0 : steps.workspace_bytes;
    void* const memory = left == 0 ? nullptr : static_cast<uint8_t*>(given.memory) + used;
    run_steps(context, layer, fused, {memory, left}, stream);
}

}  // namespace

mxq_status mxq_expert_layer(mxq_context* context, const mxq_expert_layer_options* options, const mxq_tensor* x,
                            const mxq_routing* routing, const mxq_tensor* gate_up, const mxq_tensor* down,
                            const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return guard("mxq_expert_layer", [&] {
        validate_call(context, stream);
        Layer layer({options, x, routing, gate_up, down, out});
        run_layer(*context, layer, {workspace, workspace_bytes}, stream);
    });
}

mxq_status mxq_expert_layer_query(mxq_context* context, const mxq_expert_layer_options* options, const mxq_tensor* x,
                                  const mxq_routing* routing, const mxq_tensor* gate_up, const mxq_tensor* down,
                                  const mxq_tensor* out, mxq_plan** plan) {
    if (plan) *plan = nullptr;
    return guard("mxq_expert_layer_query", [&] {
        validate_call(context, nullptr);
        const Layer layer({options, x, routing, gate_up, down, out});
        mxq_plan_s steps = plan_of_steps(*context, layer, fuse(*context, layer));
        steps.workspace_bytes = workspace_bytes_of(*context, layer, steps);
        if (plan) *plan = new mxq_plan_s(steps);
    });
}
