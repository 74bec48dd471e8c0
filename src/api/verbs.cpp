// The exported verbs: each validates its arguments to a problem, which runs or is asked about.
#include <type_traits>

#include "api/guard.h"
#include "api/verb.h"

using namespace mxq;

namespace {

// The context of a call, and the exported function that got it.
struct Caller {
    Caller(mxq_context* given, const char* name = __builtin_FUNCTION()) : context(given), function(name) {}

    mxq_context* const context;
    const char* const function;
};

// Returns the tensors among the arguments of a verb, as many as the log names.
template <class... Arguments>
Tensors tensors_of(const Arguments&... arguments) {
    Tensors tensors{};
    size_t count = 0;
    const auto take = [&]<class Argument>(const Argument& argument) {
        if constexpr (std::is_convertible_v<Argument, const mxq_tensor*>)
            if (count < tensors.size()) tensors[count++] = argument;
    };
    (take(arguments), ...);
    return tensors;
}

// Runs the problem that validate(context, options, arguments..., check) returns.
template <class Problem, class Options, class Validate, class... Arguments>
mxq_status run(const Verb<Problem>& verb, const Validate& validate, const Caller& caller, const Options* options,
               const Workspace& workspace, void* stream, const Arguments&... arguments) {
    return guard(caller.function, [&] {
        validate_call(caller.context, stream);
        const Problem problem = validate(*caller.context, options, arguments..., Check::Execute);
        run_verb(verb, {*caller.context, implementation_of(options), tensors_of(arguments...)}, problem, workspace, stream);
    });
}

// Stores the plan of the problem that validate returns so, or NULL.
template <class Problem, class Options, class Validate, class... Arguments>
mxq_status query(const Verb<Problem>& verb, const Validate& validate, const Caller& caller, const Options* options,
                 mxq_plan** plan, const Arguments&... arguments) {
    if (plan) *plan = nullptr;
    return guard(caller.function, [&] {
        validate_call(caller.context, nullptr);
        const Problem problem = validate(*caller.context, options, arguments..., Check::Query);
        const mxq_plan_s made = plan_of(verb, {*caller.context, implementation_of(options), {}}, problem);
        if (plan) *plan = new mxq_plan_s(made);
    });
}

}  // namespace

mxq_status mxq_quantize(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                        const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::quantize, validate_quantize, context, options, {workspace, workspace_bytes}, stream, in, out);
}

mxq_status mxq_quantize_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                              const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::quantize, validate_quantize, context, options, plan, in, out);
}

mxq_status mxq_requantize(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                          const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::requantize, validate_requantize, context, options, {workspace, workspace_bytes}, stream, in, out);
}

mxq_status mxq_requantize_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::requantize, validate_requantize, context, options, plan, in, out);
}

mxq_status mxq_dequantize(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                          const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::dequantize, validate_dequantize, context, options, {workspace, workspace_bytes}, stream, in, out);
}

mxq_status mxq_dequantize_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::dequantize, validate_dequantize, context, options, plan, in, out);
}

mxq_status mxq_convert(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                       const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::convert, validate_convert, context, options, {workspace, workspace_bytes}, stream, in, out);
}

mxq_status mxq_convert_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                             const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::convert, validate_convert, context, options, plan, in, out);
}

mxq_status mxq_amax(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in, const mxq_tensor* out,
                    void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::amax, validate_amax, context, options, {workspace, workspace_bytes}, stream, in, out);
}

mxq_status mxq_amax_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                          const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::amax, validate_amax, context, options, plan, in, out);
}

mxq_status mxq_swizzle_scales(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                              const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::swizzle_scales, validate_swizzle, context, options, {workspace, workspace_bytes}, stream, in, out,
               true);
}

mxq_status mxq_swizzle_scales_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                    const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::swizzle_scales, validate_swizzle, context, options, plan, in, out, true);
}

mxq_status mxq_unswizzle_scales(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::unswizzle_scales, validate_swizzle, context, options, {workspace, workspace_bytes}, stream, in, out,
               false);
}

mxq_status mxq_unswizzle_scales_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                      const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::unswizzle_scales, validate_swizzle, context, options, plan, in, out, false);
}

mxq_status mxq_pad_groups(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                          const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::pad_groups, validate_pad, context, options, {workspace, workspace_bytes}, stream, in, out, true);
}

mxq_status mxq_pad_groups_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::pad_groups, validate_pad, context, options, plan, in, out, true);
}

mxq_status mxq_unpad_groups(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                            const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::unpad_groups, validate_pad, context, options, {workspace, workspace_bytes}, stream, in, out, false);
}

mxq_status mxq_unpad_groups_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                  const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::unpad_groups, validate_pad, context, options, plan, in, out, false);
}

mxq_status mxq_gemm(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b,
                    const mxq_tensor* d, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::gemm, validate_gemm, context, options, {workspace, workspace_bytes}, stream, a, b, d);
}

mxq_status mxq_gemm_query(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b,
                          const mxq_tensor* d, mxq_plan** plan) {
    return query(verbs::gemm, validate_gemm, context, options, plan, a, b, d);
}

mxq_status mxq_grouped_gemm(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b,
                            const mxq_tensor* d, void* workspace, uint64_t workspace_bytes, void* stream) {
    const auto validate = [stream](const Context& on, auto... given) {
        GemmProblem problem = validate_grouped_gemm(on, given...);
        if (problem.host_ends && on.is_capturing(stream)) problem.host_ends = nullptr;  // a replay may have other ends
        return problem;
    };
    return run(verbs::grouped_gemm, validate, context, options, {workspace, workspace_bytes}, stream, a, b, d);
}

mxq_status mxq_grouped_gemm_query(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a,
                                  const mxq_tensor* b, const mxq_tensor* d, mxq_plan** plan) {
    return query(verbs::grouped_gemm, validate_grouped_gemm, context, options, plan, a, b, d);
}

mxq_status mxq_activate(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* in,
                        const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::activate, validate_activate, context, options, {workspace, workspace_bytes}, stream, in, out);
}

mxq_status mxq_activate_query(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* in,
                              const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::activate, validate_activate, context, options, plan, in, out);
}

mxq_status mxq_activate_backward(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* gradient,
                                 const mxq_tensor* in, const mxq_tensor* out, void* workspace, uint64_t workspace_bytes,
                                 void* stream) {
    return run(verbs::activate_backward, validate_activate_backward, context, options, {workspace, workspace_bytes}, stream,
               gradient, in, out);
}

mxq_status mxq_activate_backward_query(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* gradient,
                                       const mxq_tensor* in, const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::activate_backward, validate_activate_backward, context, options, plan, gradient, in, out);
}

mxq_status mxq_route(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing, void* workspace,
                     uint64_t workspace_bytes, void* stream) {
    return run(verbs::route, validate_route, context, options, {workspace, workspace_bytes}, stream, routing);
}

mxq_status mxq_route_query(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                           mxq_plan** plan) {
    return query(verbs::route, validate_route, context, options, plan, routing);
}

mxq_status mxq_combine(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                       const mxq_tensor* in, const mxq_tensor* residual, const mxq_tensor* out, void* workspace,
                       uint64_t workspace_bytes, void* stream) {
    return run(verbs::combine, validate_combine, context, options, {workspace, workspace_bytes}, stream, routing, in, out,
               residual);
}

mxq_status mxq_combine_query(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                             const mxq_tensor* in, const mxq_tensor* residual, const mxq_tensor* out, mxq_plan** plan) {
    return query(verbs::combine, validate_combine, context, options, plan, routing, in, out, residual);
}

mxq_status mxq_combine_backward(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                                const mxq_tensor* d_out, const mxq_tensor* in, const mxq_tensor* d_in,
                                const mxq_tensor* d_weights, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run(verbs::combine_backward, validate_combine_backward, context, options, {workspace, workspace_bytes}, stream,
               routing, d_out, in, d_in, d_weights);
}

mxq_status mxq_combine_backward_query(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                                      const mxq_tensor* d_out, const mxq_tensor* in, const mxq_tensor* d_in,
                                      const mxq_tensor* d_weights, mxq_plan** plan) {
    return query(verbs::combine_backward, validate_combine_backward, context, options, plan, routing, d_out, in, d_in,
                 d_weights);
}
