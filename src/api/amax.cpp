#include "api/guard.h"
#include "api/verb.h"

using namespace mxq;

mxq_status mxq_amax(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in, const mxq_tensor* out,
                    void* workspace, uint64_t workspace_bytes, void* stream) {
    return guard("mxq_amax", [&] {
        validate_call(context, stream);
        const auto problem = validate_amax(options, in, out, Check::Execute);
        run_verb(amax_implementations, *context, problem, false, wanted(options), workspace, workspace_bytes,
                 stream);
    });
}

mxq_status mxq_amax_query(mxq_context* context, const mxq_quantize_options* options, const mxq_tensor* in,
                          const mxq_tensor* out, mxq_plan** plan) {
    if (plan) *plan = nullptr;
    return guard("mxq_amax_query", [&] {
        validate_call(context, nullptr);
        const auto problem = validate_amax(options, in, out, Check::Query);
        query_verb(amax_implementations, *context, problem, wanted(options), plan);
    });
}
