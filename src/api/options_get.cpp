// Getters of options, one for each setter.
#include "api/guard.h"
#include "api/put.h"
#include "core/options.h"

using namespace mxq;

mxq_status mxq_context_options_get_threads(const mxq_context_options* options, int32_t* threads) {
    return with(options, [&](auto& o) { put(threads, o.threads); });
}

mxq_status mxq_context_options_get_own_threads(const mxq_context_options* options, int32_t* own) {
    return with(options, [&](auto& o) { put(own, o.own_threads); });
}

mxq_status mxq_context_options_get_parallel_for(const mxq_context_options* options, mxq_parallel_for* parallel_for,
                                                void** user) {
    return with(options, [&](auto& o) {
        put(parallel_for, o.parallel_for);
        put(user, o.user);
    });
}

mxq_status mxq_context_options_get_cublaslt_path(const mxq_context_options* options, const char** path) {
    return with(options, [&](auto& o) { put(path, o.cublaslt_path.c_str()); });
}

mxq_status mxq_quantize_options_get_scale_rounding(const mxq_quantize_options* options, int32_t* rounding) {
    return with(options, [&](auto& o) { put(rounding, o.scale_rounding); });
}

mxq_status mxq_quantize_options_get_nonfinite(const mxq_quantize_options* options, int32_t* policy) {
    return with(options, [&](auto& o) { put(policy, o.nonfinite); });
}

mxq_status mxq_quantize_options_get_four_over_six(const mxq_quantize_options* options, int32_t* mode) {
    return with(options, [&](auto& o) { put(mode, o.four_over_six); });
}

mxq_status mxq_quantize_options_get_undo_hadamard(const mxq_quantize_options* options, int32_t* undo) {
    return with(options, [&](auto& o) { put(undo, o.undo_hadamard); });
}

mxq_status mxq_quantize_options_get_stochastic_rounding(const mxq_quantize_options* options, const uint64_t** seed_offset,
                                                        uint64_t* bytes) {
    return with(options, [&](auto& o) {
        put(seed_offset, o.seed_offset);
        put(bytes, o.seed_offset ? 2 * sizeof(uint64_t) : 0);
    });
}

mxq_status mxq_quantize_options_get_compute_amax(const mxq_quantize_options* options, int32_t* compute) {
    return with(options, [&](auto& o) { put(compute, o.compute_amax); });
}

mxq_status mxq_quantize_options_get_power_of_two_scales(const mxq_quantize_options* options, int32_t* power_of_two) {
    return with(options, [&](auto& o) { put(power_of_two, o.power_of_two); });
}

mxq_status mxq_quantize_options_get_amax_epsilon(const mxq_quantize_options* options, float* epsilon) {
    return with(options, [&](auto& o) { put(epsilon, o.epsilon); });
}

mxq_status mxq_quantize_options_get_source_part(const mxq_quantize_options* options, int32_t* part) {
    return with(options, [&](auto& o) { put(part, o.source_part); });
}

mxq_status mxq_quantize_options_get_implementation(const mxq_quantize_options* options, const char** name) {
    return with(options, [&](auto& o) { put(name, o.implementation.c_str()); });
}

mxq_status mxq_gemm_options_get_transpose(const mxq_gemm_options* options, int32_t* a, int32_t* b) {
    return with(options, [&](auto& o) {
        put(a, o.transpose_a);
        put(b, o.transpose_b);
    });
}

mxq_status mxq_gemm_options_get_alpha(const mxq_gemm_options* options, float* alpha) {
    return with(options, [&](auto& o) { put(alpha, o.alpha); });
}

mxq_status mxq_gemm_options_get_beta(const mxq_gemm_options* options, float* beta) {
    return with(options, [&](auto& o) { put(beta, o.beta); });
}

mxq_status mxq_gemm_options_get_accumulate(const mxq_gemm_options* options, int32_t* accumulate) {
    return with(options, [&](auto& o) { put(accumulate, o.accumulate); });
}

mxq_status mxq_gemm_options_get_bias(const mxq_gemm_options* options, int32_t* format, const void** bias, uint64_t* bytes) {
    return with(options, [&](auto& o) { put(format, bias, bytes, o.bias); });
}

mxq_status mxq_gemm_options_get_exact_products(const mxq_gemm_options* options, int32_t* exact) {
    return with(options, [&](auto& o) { put(exact, o.exact_products); });
}

mxq_status mxq_gemm_options_get_sm_count(const mxq_gemm_options* options, int32_t* count) {
    return with(options, [&](auto& o) { put(count, o.sm_count); });
}

mxq_status mxq_gemm_options_get_row_invariant(const mxq_gemm_options* options, int32_t* row_invariant) {
    return with(options, [&](auto& o) { put(row_invariant, o.row_invariant); });
}

mxq_status mxq_gemm_options_get_implementation(const mxq_gemm_options* options, const char** name) {
    return with(options, [&](auto& o) { put(name, o.implementation.c_str()); });
}
