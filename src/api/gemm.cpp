#include "api/guard.h"
#include "api/verb.h"

using namespace mxq;

mxq_status mxq_gemm(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b,
                    const mxq_tensor* d, void* workspace, uint64_t workspace_bytes, void* stream) {
    return guard("mxq_gemm", [&] {
        validate_call(context, stream);
        const auto problem = validate_gemm(*context, options, a, b, d, Check::Execute);
        const Call call{*context, implementation_of(options), {a, b, d}};
        run_verb(verbs::gemm, call, problem, d->elements() == 0, {workspace, workspace_bytes}, stream);
    });
}

mxq_status mxq_gemm_query(mxq_context* context, const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b,
                          const mxq_tensor* d, mxq_plan** plan) {
    if (plan) *plan = nullptr;
    return guard("mxq_gemm_query", [&] {
        validate_call(context, nullptr);
        const auto problem = validate_gemm(*context, options, a, b, d, Check::Query);
        query_verb(verbs::gemm, {*context, implementation_of(options), {a, b, d}}, problem, plan);
    });
}
