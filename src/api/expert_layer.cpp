// The expert layer as the verbs that make it up.
#include "core/expert_layer.h"

#include <algorithm>

#include "api/guard.h"
#include "api/verb.h"
#include "cpu/given_numbers.h"

using namespace mxq;

namespace {

template <class Problem>
bool writes_nothing(const Problem& problem) {
    if constexpr (requires { is_nothing(problem); })
        return is_nothing(problem);
    else
        return false;
}
bool writes_nothing(const GemmProblem& p) { return p.d.matrices * p.d.rows * p.d.cols == 0; }
bool writes_nothing(const CombineProblem& p) { return p.out.rows * p.out.cols == 0; }

// Calls each(verb, what, tensors, validate) for every step, where validate(check) returns its problem.
template <class Each>
void for_each_step(const Context& context, const Layer& l, const Each& each) {
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
    each(verbs::grouped_gemm, "the activation (a) by down (b)", Tensors{&l.activated, &l.down, &l.products},
         [&](Check check) {
             return validate_grouped_gemm(context, &l.second_product, &l.activated, &l.down, &l.products, check);
         });
    each(verbs::combine, "the second product", Tensors{&l.products, &l.out, l.residual()}, [&](Check check) {
        return validate_combine(context, nullptr, &l.weighted, &l.products, l.residual(), &l.out, check);
    });
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
mxq_plan_s plan_of_steps(const Context& context, const Layer& layer) {
    mxq_plan_s all;
    for_each_step(context, layer, [&](const auto& verb, const char* what, const Tensors& tensors, const auto& validate) {
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
    if (context.is_cpu() && !writes_nothing(p)) cpu::require_decodable(p.b, {}, "b");
}

// Refuses missing and overlapping buffers and wrong numbers of all steps, before the first writes anything.
void validate_steps(const Context& context, const Layer& layer) {
    for_each_step(context, layer, [&](const auto& verb, const char* what, const Tensors&, const auto& validate) {
        name_step(verb.name, what, [&] { require_weights(context, validate(Check::Prepare)); });
    });
}

void run_steps(const Context& context, const Layer& layer, const Workspace& workspace, void* stream) {
    bool follows = false;
    for_each_step(context, layer, [&](const auto& verb, const char* what, const Tensors& tensors, const auto& validate) {
        name_step(verb.name, what, [&] {
            const auto problem = validate(Check::Execute);
            run_verb(verb, {context, "", tensors, follows}, problem, writes_nothing(problem), workspace, stream);
            follows |= !writes_nothing(problem);
        });
    });
}

void run_layer(const Context& context, Layer& layer, const Workspace& given, void* stream) {
    const mxq_plan_s steps = plan_of_steps(context, layer);
    check_workspace(workspace_bytes_of(context, layer, steps), given.memory, given.bytes);
    const HostMemory host(context.is_cpu() ? layer.bytes() : 0);
    layer.place(context.is_cpu() ? host.get() : given.memory);
    validate_steps(context, layer);
    const uint64_t used = context.is_cpu() ? 0 : layer.bytes();
    const uint64_t left = context.is_cpu() ? 0 : steps.workspace_bytes;
    void* const memory = left == 0 ? nullptr : static_cast<uint8_t*>(given.memory) + used;
    run_steps(context, layer, {memory, left}, stream);
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
        mxq_plan_s steps = plan_of_steps(*context, layer);
        steps.workspace_bytes = workspace_bytes_of(*context, layer, steps);
        if (plan) *plan = new mxq_plan_s(steps);
    });
}
