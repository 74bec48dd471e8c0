// The exported verbs: each validates its arguments to a problem, which runs or is asked about.
#include "api/guard.h"
#include "api/verb.h"

using namespace mxq;

namespace {

// Runs the problem that validate(check) returns.
template <class Problem, class Options, class Validate>
mxq_status run(const char* function, const Verb<Problem>& verb, mxq_context* context, const Options* options,
               const Tensors& tensors, const Workspace& workspace, void* stream, const Validate& validate) {
    return guard(function, [&] {
        validate_call(context, stream);
        const Problem problem = validate(Check::Execute);
        run_verb(verb, {*context, implementation_of(options), tensors}, problem, workspace, stream);
    });
}

// Stores the plan of the problem that validate(check) returns, or NULL.
template <class Problem, class Options, class Validate>
mxq_status query(const char* function, const Verb<Problem>& verb, mxq_context* context, const Options* options,
                 const Tensors& tensors, mxq_plan** plan, const Validate& validate) {
    if (plan) *plan = nullptr;
    return guard(function, [&] {
        validate_call(context, nullptr);
        const Problem problem = validate(Check::Query);
        const mxq_plan_s made = plan_of(verb, {*context, implementation_of(options), tensors}, problem);
        if (plan) *plan = new mxq_plan_s(made);
    });
}

}  // namespace

mxq_status mxq_quantize(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                        const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_quantize", verbs::quantize, context, options, {in, out}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_quantize(*context, options, in, out, check); });
}

mxq_status mxq_quantize_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                              const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_quantize_query", verbs::quantize, context, options, {in, out}, plan,
                 [&](Check check) { return validate_quantize(*context, options, in, out, check); });
}

mxq_status mxq_requantize(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                          const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_requantize", verbs::requantize, context, options, {in, out}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_requantize(*context, options, in, out, check); });
}

mxq_status mxq_requantize_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_requantize_query", verbs::requantize, context, options, {in, out}, plan,
                 [&](Check check) { return validate_requantize(*context, options, in, out, check); });
}

mxq_status mxq_dequantize(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                          const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_dequantize", verbs::dequantize, context, options, {in, out}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_dequantize(*context, options, in, out, check); });
}

mxq_status mxq_dequantize_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_dequantize_query", verbs::dequantize, context, options, {in, out}, plan,
                 [&](Check check) { return validate_dequantize(*context, options, in, out, check); });
}

mxq_status mxq_convert(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                       const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_convert", verbs::convert, context, options, {in, out}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_convert(*context, options, in, out, check); });
}

mxq_status mxq_convert_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                             const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_convert_query", verbs::convert, context, options, {in, out}, plan,
                 [&](Check check) { return validate_convert(*context, options, in, out, check); });
}

mxq_status mxq_amax(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in, const mxq_tensor* out,
                    void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_amax", verbs::amax, context, options, {in, out}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_amax(*context, options, in, out, check); });
}

mxq_status mxq_amax_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                          const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_amax_query", verbs::amax, context, options, {in, out}, plan,
                 [&](Check check) { return validate_amax(*context, options, in, out, check); });
}

mxq_status mxq_swizzle_scales(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                              const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_swizzle_scales", verbs::swizzle_scales, context, options, {in, out}, {workspace, workspace_bytes},
               stream, [&](Check check) { return validate_swizzle(*context, options, in, out, true, check); });
}

mxq_status mxq_swizzle_scales_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                    const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_swizzle_scales_query", verbs::swizzle_scales, context, options, {in, out}, plan,
                 [&](Check check) { return validate_swizzle(*context, options, in, out, true, check); });
}

mxq_status mxq_unswizzle_scales(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_unswizzle_scales", verbs::unswizzle_scales, context, options, {in, out}, {workspace, workspace_bytes},
               stream, [&](Check check) { return validate_swizzle(*context, options, in, out, false, check); });
}

mxq_status mxq_unswizzle_scales_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                      const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_unswizzle_scales_query", verbs::unswizzle_scales, context, options, {in, out}, plan,
                 [&](Check check) { return validate_swizzle(*context, options, in, out, false, check); });
}

mxq_status mxq_pad_groups(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                          const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_pad_groups", verbs::pad_groups, context, options, {in, out}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_pad(*context, options, in, out, true, check); });
}

mxq_status mxq_pad_groups_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_pad_groups_query", verbs::pad_groups, context, options, {in, out}, plan,
                 [&](Check check) { return validate_pad(*context, options, in, out, true, check); });
}

mxq_status mxq_unpad_groups(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                            const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_unpad_groups", verbs::unpad_groups, context, options, {in, out}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_pad(*context, options, in, out, false, check); });
}

mxq_status mxq_unpad_groups_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                  const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_unpad_groups_query", verbs::unpad_groups, context, options, {in, out}, plan,
                 [&](Check check) { return validate_pad(*context, options, in, out, false, check); });
}

mxq_status mxq_gemm(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b,
                    const mxq_tensor* d, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_gemm", verbs::gemm, context, options, {a, b, d}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_gemm(*context, options, a, b, d, check); });
}

mxq_status mxq_gemm_query(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b,
                          const mxq_tensor* d, mxq_plan** plan) {
    return query("mxq_gemm_query", verbs::gemm, context, options, {a, b, d}, plan,
                 [&](Check check) { return validate_gemm(*context, options, a, b, d, check); });
}

mxq_status mxq_grouped_gemm(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b,
                            const mxq_tensor* d, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_grouped_gemm", verbs::grouped_gemm, context, options, {a, b, d}, {workspace, workspace_bytes}, stream,
               [&](Check check) {
                   GemmProblem problem = validate_grouped_gemm(*context, options, a, b, d, check);
                   if (problem.host_ends && context->is_capturing(stream))
                       problem.host_ends = nullptr;  // a replay may have other ends
                   return problem;
               });
}

mxq_status mxq_grouped_gemm_query(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a,
                                  const mxq_tensor* b, const mxq_tensor* d, mxq_plan** plan) {
    return query("mxq_grouped_gemm_query", verbs::grouped_gemm, context, options, {a, b, d}, plan,
                 [&](Check check) { return validate_grouped_gemm(*context, options, a, b, d, check); });
}

mxq_status mxq_activate(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* in,
                        const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_activate", verbs::activate, context, options, {in, out}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_activate(*context, options, in, out, check); });
}

mxq_status mxq_activate_query(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* in,
                              const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_activate_query", verbs::activate, context, options, {in, out}, plan,
                 [&](Check check) { return validate_activate(*context, options, in, out, check); });
}

mxq_status mxq_activate_backward(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* gradient,
                                 const mxq_tensor* in, const mxq_tensor* out, void* workspace, uint64_t workspace_bytes,
                                 void* stream) {
    return run("mxq_activate_backward", verbs::activate_backward, context, options, {gradient, in, out},
               {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_activate_backward(*context, options, gradient, in, out, check); });
}

mxq_status mxq_activate_backward_query(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* gradient,
                                       const mxq_tensor* in, const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_activate_backward_query", verbs::activate_backward, context, options, {gradient, in, out}, plan,
                 [&](Check check) { return validate_activate_backward(*context, options, gradient, in, out, check); });
}

mxq_status mxq_route(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing, void* workspace,
                     uint64_t workspace_bytes, void* stream) {
    return run("mxq_route", verbs::route, context, options, {}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_route(*context, options, routing, check); });
}

mxq_status mxq_route_query(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                           mxq_plan** plan) {
    return query("mxq_route_query", verbs::route, context, options, {}, plan,
                 [&](Check check) { return validate_route(*context, options, routing, check); });
}

mxq_status mxq_combine(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                       const mxq_tensor* in, const mxq_tensor* residual, const mxq_tensor* out, void* workspace,
                       uint64_t workspace_bytes, void* stream) {
    return run("mxq_combine", verbs::combine, context, options, {in, out, residual}, {workspace, workspace_bytes}, stream,
               [&](Check check) { return validate_combine(*context, options, routing, in, residual, out, check); });
}

mxq_status mxq_combine_query(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                             const mxq_tensor* in, const mxq_tensor* residual, const mxq_tensor* out, mxq_plan** plan) {
    return query("mxq_combine_query", verbs::combine, context, options, {in, out, residual}, plan,
                 [&](Check check) { return validate_combine(*context, options, routing, in, residual, out, check); });
}

mxq_status mxq_combine_backward(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                                const mxq_tensor* d_out, const mxq_tensor* in, const mxq_tensor* d_in,
                                const mxq_tensor* d_weights, void* workspace, uint64_t workspace_bytes, void* stream) {
    return run("mxq_combine_backward", verbs::combine_backward, context, options, {d_out, in, d_in},
               {workspace, workspace_bytes}, stream, [&](Check check) {
                   return validate_combine_backward(*context, options, routing, {d_out, in, d_in, d_weights}, check);
               });
}

mxq_status mxq_combine_backward_query(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                                      const mxq_tensor* d_out, const mxq_tensor* in, const mxq_tensor* d_in,
                                      const mxq_tensor* d_weights, mxq_plan** plan) {
    return query("mxq_combine_backward_query", verbs::combine_backward, context, options, {d_out, in, d_in}, plan,
                 [&](Check check) {
                     return validate_combine_backward(*context, options, routing, {d_out, in, d_in, d_weights}, check);
                 });
}
