#include "core/options.h"

#include <cfloat>

#include "api/guard.h"
#include "api/take.h"

using namespace mxq;

namespace {

void require_one_rounding(FourOverSix mode, const uint64_t* seed_offset) {
    if (seed_offset && mode != FourOverSix::None)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options have stochastic rounding and four-over-six, expected one of them; call "
             "mxq_quantize_options_set_stochastic_rounding with NULL, or set MXQ_FOUR_OVER_SIX_NONE, first");
}

}  // namespace

mxq_status mxq_quantize_options_create(mxq_quantize_options** out) {
    return guard_create("mxq_quantize_options_create", out, [] { return new mxq_quantize_options_s; });
}

void mxq_quantize_options_destroy(mxq_quantize_options* options) {
    destroy("mxq_quantize_options_destroy", options, "options");
}

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

mxq_status mxq_quantize_options_set_four_over_six(mxq_quantize_options* options, int32_t mode) {
    return guard("mxq_quantize_options_set_four_over_six", [&] {
        require_handle(options, "options");
        if (mode < MXQ_FOUR_OVER_SIX_NONE || mode > MXQ_FOUR_OVER_SIX_MSE)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "mode is %d, expected MXQ_FOUR_OVER_SIX_NONE (0), MAE (1) or MSE (2)", mode);
        require_one_rounding(FourOverSix(mode), options->seed_offset);
        options->four_over_six = FourOverSix(mode);
    });
}

mxq_status mxq_quantize_options_set_undo_hadamard(mxq_quantize_options* options, int32_t undo) {
    return guard("mxq_quantize_options_set_undo_hadamard", [&] {
        require_handle(options, "options");
        require_flag(undo, "undo");
        options->undo_hadamard = undo == 1;
    });
}

mxq_status mxq_quantize_options_set_stochastic_rounding(mxq_quantize_options* options, const uint64_t* seed_offset,
                                                        uint64_t bytes) {
    return guard("mxq_quantize_options_set_stochastic_rounding", [&] {
        require_handle(options, "options");
        buffer_of(seed_offset, bytes, "seed_offset");
        if (seed_offset && bytes != 2 * sizeof(uint64_t))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "bytes is %llu, expected exactly 16: the seed and the offset, a uint64 each",
                 (unsigned long long)bytes);
        require_one_rounding(options->four_over_six, seed_offset);
        options->seed_offset = seed_offset;
    });
}

mxq_status mxq_quantize_options_set_compute_amax(mxq_quantize_options* options, int32_t compute) {
    return guard("mxq_quantize_options_set_compute_amax", [&] {
        require_handle(options, "options");
        require_flag(compute, "compute");
        options->compute_amax = compute == 1;
        options->compute_amax_set = true;
    });
}

mxq_status mxq_quantize_options_set_power_of_two_scales(mxq_quantize_options* options, int32_t power_of_two) {
    return guard("mxq_quantize_options_set_power_of_two_scales", [&] {
        require_handle(options, "options");
        require_flag(power_of_two, "power_of_two");
        options->power_of_two = power_of_two == 1;
    });
}

mxq_status mxq_quantize_options_set_amax_epsilon(mxq_quantize_options* options, float epsilon) {
    return guard("mxq_quantize_options_set_amax_epsilon", [&] {
        require_handle(options, "options");
        if (!(epsilon >= 0 && epsilon <= FLT_MAX))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "epsilon is %g, expected a finite number, 0 or more", double(epsilon));
        options->epsilon = epsilon;
    });
}

mxq_status mxq_quantize_options_set_source_part(mxq_quantize_options* options, int32_t part) {
    return guard("mxq_quantize_options_set_source_part", [&] {
        require_handle(options, "options");
        if (part < 0 || part > MXQ_PART_COLUMNWISE)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "part is %d, expected MXQ_PART_ROWWISE (1) or COLUMNWISE (2), or 0 for the default", part);
        options->source_part = part;
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

void mxq_gemm_options_destroy(mxq_gemm_options* options) { destroy("mxq_gemm_options_destroy", options, "options"); }

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

namespace {

void require_one_addend(bool accumulate, float beta) {
    if (accumulate && beta != 0)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options have accumulate and a beta of %g, expected one of them; call mxq_gemm_options_set_accumulate or "
             "mxq_gemm_options_set_beta with 0 first",
             double(beta));
}

}  // namespace

mxq_status mxq_gemm_options_set_accumulate(mxq_gemm_options* options, int32_t accumulate) {
    return guard("mxq_gemm_options_set_accumulate", [&] {
        require_handle(options, "options");
        require_flag(accumulate, "accumulate");
        require_one_addend(accumulate == 1, options->beta);
        options->accumulate = accumulate == 1;
    });
}

namespace {

void require_finite(float value, const char* name) {
    if (!(value >= -FLT_MAX && value <= FLT_MAX))
        fail(MXQ_STATUS_INVALID_ARGUMENT, "%s is %g, expected a finite number", name, double(value));
}

}  // namespace

mxq_status mxq_gemm_options_set_alpha(mxq_gemm_options* options, float alpha) {
    return guard("mxq_gemm_options_set_alpha", [&] {
        require_handle(options, "options");
        require_finite(alpha, "alpha");
        options->alpha = alpha;
    });
}

mxq_status mxq_gemm_options_set_beta(mxq_gemm_options* options, float beta) {
    return guard("mxq_gemm_options_set_beta", [&] {
        require_handle(options, "options");
        require_finite(beta, "beta");
        require_one_addend(options->accumulate, beta);
        options->beta = beta;
    });
}

mxq_status mxq_gemm_options_set_bias(mxq_gemm_options* options, int32_t format, const void* bias, uint64_t bytes) {
    return guard("mxq_gemm_options_set_bias", [&] {
        require_handle(options, "options");
        const Format* known = find_format(format);
        const bool clears = format == 0 && !bias;
        if (!clears && (!known || known->quantized()))
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "format is %d, expected MXQ_FORMAT_F32 (1), F16 (2) or BF16 (3), or 0 with NULL for no bias", format);
        options->bias = buffer_of(bias, bytes, "bias");
        options->bias_format = format;
    });
}

mxq_status mxq_gemm_options_set_exact_products(mxq_gemm_options* options, int32_t exact) {
    return guard("mxq_gemm_options_set_exact_products", [&] {
        require_handle(options, "options");
        require_flag(exact, "exact");
        options->exact_products = exact == 1;
    });
}

mxq_status mxq_gemm_options_set_sm_count(mxq_gemm_options* options, int32_t count) {
    return guard("mxq_gemm_options_set_sm_count", [&] {
        require_handle(options, "options");
        if (count < 0 || count > kMostMultiprocessors)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "count is %d, expected 1 to %d multiprocessors, or 0 for all", count,
                 kMostMultiprocessors);
        options->sm_count = count;
    });
}

mxq_status mxq_gemm_options_set_row_invariant(mxq_gemm_options* options, int32_t row_invariant) {
    return guard("mxq_gemm_options_set_row_invariant", [&] {
        require_handle(options, "options");
        require_flag(row_invariant, "row_invariant");
        options->row_invariant = row_invariant == 1;
    });
}

mxq_status mxq_gemm_options_set_implementation(mxq_gemm_options* options, const char* name) {
    return guard("mxq_gemm_options_set_implementation", [&] {
        require_handle(options, "options").implementation = name ? name : "";
    });
}
