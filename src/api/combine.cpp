#include "api/guard.h"
#include "api/verb.h"

using namespace mxq;

mxq_status mxq_combine(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                       const mxq_tensor* in, const mxq_tensor* residual, const mxq_tensor* out, void* workspace,
                       uint64_t workspace_bytes, void* stream) {
    return guard("mxq_combine", [&] {
        validate_call(context, stream);
        const auto problem = validate_combine(*context, options, routing, in, residual, out, Check::Execute);
        const Call call{*context, implementation_of(options), {in, out, residual}};
        run_verb(verbs::combine, call, problem, out->elements() == 0, {workspace, workspace_bytes}, stream);
    });
}

mxq_status mxq_combine_query(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                             const mxq_tensor* in, const mxq_tensor* residual, const mxq_tensor* out, mxq_plan** plan) {
    if (plan) *plan = nullptr;
    return guard("mxq_combine_query", [&] {
        validate_call(context, nullptr);
        const auto problem = validate_combine(*context, options, routing, in, residual, out, Check::Query);
        query_verb(verbs::combine, {*context, implementation_of(options), {in, out, residual}}, problem, plan);
    });
}
