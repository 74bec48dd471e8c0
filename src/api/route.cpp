#include "api/guard.h"
#include "api/verb.h"

using namespace mxq;

mxq_status mxq_route(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing, void* workspace,
                     uint64_t workspace_bytes, void* stream) {
    return guard("mxq_route", [&] {
        validate_call(context, stream);
        const auto problem = validate_route(*context, options, routing, Check::Execute);
        const Call call{*context, implementation_of(options), {}};
        run_verb(verbs::route, call, problem, false, {workspace, workspace_bytes}, stream);
    });
}

mxq_status mxq_route_query(mxq_context* context, const mxq_quantize_options* options, const mxq_routing* routing,
                           mxq_plan** plan) {
    if (plan) *plan = nullptr;
    return guard("mxq_route_query", [&] {
        validate_call(context, nullptr);
        const auto problem = validate_route(*context, options, routing, Check::Query);
        query_verb(verbs::route, {*context, implementation_of(options), {}}, problem, plan);
    });
}
