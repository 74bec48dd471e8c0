#include "api/guard.h"
#include "api/verb.h"

using namespace mxq;

mxq_status mxq_unswizzle_scales(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, void* workspace, uint64_t workspace_bytes, void* stream) {
    return guard("mxq_unswizzle_scales", [&] {
        validate_call(context, stream);
        const auto problem = validate_swizzle(*context, options, in, out, false, Check::Execute);
        const Call call{*context, implementation_of(options), {in, out}};
        const bool nothing = in->elements() == 0 && !problem.grouped.set();  // groups without rows may have scales
        run_verb(verbs::unswizzle_scales, call, problem, nothing, {workspace, workspace_bytes}, stream);
    });
}

mxq_status mxq_unswizzle_scales_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                                      const mxq_tensor* out, mxq_plan** plan) {
    if (plan) *plan = nullptr;
    return guard("mxq_unswizzle_scales_query", [&] {
        validate_call(context, nullptr);
        const auto problem = validate_swizzle(*context, options, in, out, false, Check::Query);
        query_verb(verbs::unswizzle_scales, {*context, implementation_of(options), {in, out}}, problem, plan);
    });
}
