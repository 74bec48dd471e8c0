#include "core/options.h"

#include "api/guard.h"

using namespace mxq;

mxq_status mxq_quantize_options_create(mxq_quantize_options** out) {
    return guard_create("mxq_quantize_options_create", out, [] { return new mxq_quantize_options_s; });
}

void mxq_quantize_options_destroy(mxq_quantize_options* options) { delete options; }

mxq_status mxq_quantize_options_set_scale_rounding(mxq_quantize_options* options, int32_t rounding) {
    return guard("mxq_quantize_options_set_scale_rounding", [&] {
        require_handle(options, "options");
        if (rounding < MXQ_SCALE_ROUNDING_FLOOR || rounding > MXQ_SCALE_ROUNDING_RCEIL)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "rounding is %d, expected MXQ_SCALE_ROUNDING_FLOOR (1) to RCEIL (4)", rounding);
        options->scale_rounding = ScaleRounding(rounding);
        options->scale_rounding_set = true;
    });
}

mxq_status mxq_quantize_options_set_nonfinite(mxq_quantize_options* options, int32_t policy) {
    return guard("mxq_quantize_options_set_nonfinite", [&] {
        require_handle(options, "options");
        if (policy != MXQ_NONFINITE_PROPAGATE && policy != MXQ_NONFINITE_SATURATE)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "policy is %d, expected MXQ_NONFINITE_PROPAGATE (1) or SATURATE (2)", policy);
        options->nonfinite = Nonfinite(policy);
        options->nonfinite_set = true;
    });
}

mxq_status mxq_quantize_options_set_implementation(mxq_quantize_options* options, const char* name) {
    return guard("mxq_quantize_options_set_implementation", [&] {
        require_handle(options, "options").implementation = name ? name : "";
    });
}

mxq_status mxq_gemm_options_create(mxq_gemm_options** out) {
    return guard_create("mxq_gemm_options_create", out, [] { return new mxq_gemm_options_s; });
}

void mxq_gemm_options_destroy(mxq_gemm_options* options) { delete options; }

mxq_status mxq_gemm_options_set_transpose(mxq_gemm_options* options, int32_t a, int32_t b) {
    return guard("mxq_gemm_options_set_transpose", [&] {
        require_handle(options, "options");
        const auto known = [](int32_t t) { return t == MXQ_TRANSPOSE_N || t == MXQ_TRANSPOSE_T; };
        if (!known(a) || !known(b))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "transposes are (%d, %d), expected MXQ_TRANSPOSE_N (1) or MXQ_TRANSPOSE_T (2)", a,
                 b);
        options->transpose_a = a;
        options->transpose_b = b;
    });
}

mxq_status mxq_gemm_options_set_accumulate(mxq_gemm_options* options, int32_t accumulate) {
    return guard("mxq_gemm_options_set_accumulate", [&] {
        require_handle(options, "options");
        if (accumulate != 0 && accumulate != 1)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "accumulate is %d, expected 0 or 1", accumulate);
        options->accumulate = accumulate == 1;
    });
}

mxq_status mxq_gemm_options_set_implementation(mxq_gemm_options* options, const char* name) {
    return guard("mxq_gemm_options_set_implementation", [&] {
        require_handle(options, "options").implementation = name ? name : "";
    });
}

const char* mxq_plan_implementation(const mxq_plan* plan) { return plan ? plan->implementation.c_str() : ""; }

uint64_t mxq_plan_workspace_bytes(const mxq_plan* plan) { return plan ? plan->workspace_bytes : 0; }

void mxq_plan_destroy(mxq_plan* plan) { delete plan; }
