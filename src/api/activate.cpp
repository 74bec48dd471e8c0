#include "api/guard.h"
#include "api/verb.h"

using namespace mxq;

mxq_status mxq_activate(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* in, const mxq_tensor* out,
                        void* workspace, uint64_t workspace_bytes, void* stream) {
    return guard("mxq_activate", [&] {
        validate_call(context, stream);
        const auto problem = validate_activate(*context, options, in, out, Check::Execute);
        const Call call{*context, implementation_of(options), {in, out}};
        run_verb(verbs::activate, call, problem, is_nothing(problem), {workspace, workspace_bytes}, stream);
    });
}

mxq_status mxq_activate_query(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* in,
                              const mxq_tensor* out, mxq_plan** plan) {
    if (plan) *plan = nullptr;
    return guard("mxq_activate_query", [&] {
        validate_call(context, nullptr);
        const auto problem = validate_activate(*context, options, in, out, Check::Query);
        query_verb(verbs::activate, {*context, implementation_of(options), {in, out}}, problem, plan);
    });
}

mxq_status mxq_activate_backward(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* gradient,
                                 const mxq_tensor* in, const mxq_tensor* out, void* workspace, uint64_t workspace_bytes,
                                 void* stream) {
    return guard("mxq_activate_backward", [&] {
        validate_call(context, stream);
        const auto problem = validate_activate_backward(*context, options, gradient, in, out, Check::Execute);
        const Call call{*context, implementation_of(options), {gradient, in, out}};
        run_verb(verbs::activate_backward, call, problem, is_nothing(problem), {workspace, workspace_bytes}, stream);
    });
}

mxq_status mxq_activate_backward_query(mxq_context* context, const mxq_activate_options* options, const mxq_tensor* gradient,
                                       const mxq_tensor* in, const mxq_tensor* out, mxq_plan** plan) {
    if (plan) *plan = nullptr;
    return guard("mxq_activate_backward_query", [&] {
        validate_call(context, nullptr);
        const auto problem = validate_activate_backward(*context, options, gradient, in, out, Check::Query);
        query_verb(verbs::activate_backward, {*context, implementation_of(options), {gradient, in, out}}, problem, plan);
    });
}
