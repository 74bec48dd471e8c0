#include "api/guard.h"
#include "api/verb.h"

using namespace mxq;

mxq_status mxq_combine_backward(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                                const mxq_tensor* d_out, const mxq_tensor* in, const mxq_tensor* d_in,
                                const mxq_tensor* d_weights, void* workspace, uint64_t workspace_bytes, void* stream) {
    return guard("mxq_combine_backward", [&] {
        validate_call(context, stream);
        const auto problem =
            validate_combine_backward(*context, options, routing, {d_out, in, d_in, d_weights}, Check::Execute);
        const Call call{*context, implementation_of(options), {d_out, in, d_in}};
        run_verb(verbs::combine_backward, call, problem, problem.tokens == 0, {workspace, workspace_bytes}, stream);
    });
}

mxq_status mxq_combine_backward_query(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                                      const mxq_tensor* d_out, const mxq_tensor* in, const mxq_tensor* d_in,
                                      const mxq_tensor* d_weights, mxq_plan** plan) {
    if (plan) *plan = nullptr;
    return guard("mxq_combine_backward_query", [&] {
        validate_call(context, nullptr);
        const auto problem =
            validate_combine_backward(*context, options, routing, {d_out, in, d_in, d_weights}, Check::Query);
        query_verb(verbs::combine_backward, {*context, implementation_of(options), {d_out, in, d_in}}, problem, plan);
    });
}
