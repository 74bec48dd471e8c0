#include "api/guard.h"
#include "api/verb.h"

using namespace mxq;

mxq_status mxq_unpad_groups(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                            const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return guard("mxq_unpad_groups", [&] {
        validate_call(context, stream);
        const auto problem = validate_pad(*context, options, in, out, false, Check::Execute);
        const Call call{*context, implementation_of(options), {in, out}};
        run_verb(verbs::unpad_groups, call, problem, in->groups.count == 0, {workspace, workspace_bytes}, stream);
    });
}

mxq_status mxq_unpad_groups_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                  const mxq_tensor* out, mxq_plan** plan) {
    if (plan) *plan = nullptr;
    return guard("mxq_unpad_groups_query", [&] {
        validate_call(context, nullptr);
        const auto problem = validate_pad(*context, options, in, out, false, Check::Query);
        query_verb(verbs::unpad_groups, {*context, implementation_of(options), {in, out}}, problem, plan);
    });
}
