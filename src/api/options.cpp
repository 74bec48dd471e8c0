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

void require_one_addend(bool accumulate, float beta) {
    if (accumulate && beta != 0)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "options have accumulate and a beta of %g, expected one of them; call mxq_gemm_options_set_accumulate or "
             "mxq_gemm_options_set_beta with 0 first",
             double(beta));
}

}  // namespace

mxq_status mxq_quantize_options_create(mxq_quantize_options** out) { return create(out); }

void mxq_quantize_options_destroy(mxq_quantize_options* options) { destroy(options); }

mxq_status mxq_quantize_options_set_scale_rounding(mxq_quantize_options* options, int32_t rounding) {
    return with(options, [&](auto& o) {
        if (rounding < MXQ_SCALE_ROUNDING_FLOOR || rounding > MXQ_SCALE_ROUNDING_RCEIL)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "rounding is %d, expected MXQ_SCALE_ROUNDING_FLOOR (1) to RCEIL (4)",
                 rounding);
        o.scale_rounding = ScaleRounding(rounding);
        o.scale_rounding_set = true;
    });
}

mxq_status mxq_quantize_options_set_nonfinite(mxq_quantize_options* options, int32_t policy) {
    return with(options, [&](auto& o) {
        if (policy != MXQ_NONFINITE_PROPAGATE && policy != MXQ_NONFINITE_SATURATE)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "policy is %d, expected MXQ_NONFINITE_PROPAGATE (1) or SATURATE (2)", policy);
        o.nonfinite = Nonfinite(policy);
        o.nonfinite_set = true;
    });
}

mxq_status mxq_quantize_options_set_four_over_six(mxq_quantize_options* options, int32_t mode) {
    return with(options, [&](auto& o) {
        if (mode < MXQ_FOUR_OVER_SIX_NONE || mode > MXQ_FOUR_OVER_SIX_MSE)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "mode is %d, expected MXQ_FOUR_OVER_SIX_NONE (0), MAE (1) or MSE (2)", mode);
        require_one_rounding(FourOverSix(mode), o.seed_offset);
        o.four_over_six = FourOverSix(mode);
    });
}

mxq_status mxq_quantize_options_set_undo_hadamard(mxq_quantize_options* options, int32_t undo) {
    return set_flag(options, "undo", undo, &mxq_quantize_options_s::undo_hadamard);
}

mxq_status mxq_quantize_options_set_stochastic_rounding(mxq_quantize_options* options, const uint64_t* seed_offset,
                                                        uint64_t bytes) {
    return with(options, [&](auto& o) {
        buffer_of(seed_offset, bytes, "seed_offset");
        if (seed_offset && bytes != 2 * sizeof(uint64_t))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "bytes is %llu, expected exactly 16: the seed and the offset, a uint64 each",
                 (unsigned long long)bytes);
        require_one_rounding(o.four_over_six, seed_offset);
        o.seed_offset = seed_offset;
    });
}

mxq_status mxq_quantize_options_set_compute_amax(mxq_quantize_options* options, int32_t compute) {
    return with(options, [&](auto& o) {
        require_flag(compute, "compute");
        o.compute_amax = compute == 1;
        o.compute_amax_set = true;
    });
}

mxq_status mxq_quantize_options_set_power_of_two_scales(mxq_quantize_options* options, int32_t power_of_two) {
    return set_flag(options, "power_of_two", power_of_two, &mxq_quantize_options_s::power_of_two);
}

mxq_status mxq_quantize_options_set_amax_epsilon(mxq_quantize_options* options, float epsilon) {
    return with(options, [&](auto& o) {
        if (!(epsilon >= 0 && epsilon <= FLT_MAX))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "epsilon is %g, expected a finite number, 0 or more", double(epsilon));
        o.epsilon = epsilon;
    });
}

mxq_status mxq_quantize_options_set_source_part(mxq_quantize_options* options, int32_t part) {
    return with(options, [&](auto& o) {
        if (part < 0 || part > MXQ_PART_COLUMNWISE)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "part is %d, expected MXQ_PART_ROWWISE (1) or COLUMNWISE (2), or 0 for the default", part);
        o.source_part = part;
    });
}

mxq_status mxq_quantize_options_set_implementation(mxq_quantize_options* options, const char* name) {
    return with(options, [&](auto& o) { o.implementation = name ? name : ""; });
}

mxq_status mxq_gemm_options_create(mxq_gemm_options** out) { return create(out); }

void mxq_gemm_options_destroy(mxq_gemm_options* options) { destroy(options); }

mxq_status mxq_gemm_options_set_transpose(mxq_gemm_options* options, int32_t a, int32_t b) {
    return with(options, [&](auto& o) {
        const auto known = [](int32_t t) { return t == MXQ_TRANSPOSE_N || t == MXQ_TRANSPOSE_T; };
        if (!known(a) || !known(b))
            fail(MXQ_STATUS_INVALID_ARGUMENT, "transposes are (%d, %d), expected MXQ_TRANSPOSE_N (1) or MXQ_TRANSPOSE_T (2)",
                 a, b);
        o.transpose_a = a;
        o.transpose_b = b;
    });
}

mxq_status mxq_gemm_options_set_accumulate(mxq_gemm_options* options, int32_t accumulate) {
    return with(options, [&](auto& o) {
        require_flag(accumulate, "accumulate");
        require_one_addend(accumulate == 1, o.beta);
        o.accumulate = accumulate == 1;
    });
}

mxq_status mxq_gemm_options_set_alpha(mxq_gemm_options* options, float alpha) {
    return with(options, [&](auto& o) {
        require_finite(alpha, "alpha");
        o.alpha = alpha;
    });
}

mxq_status mxq_gemm_options_set_beta(mxq_gemm_options* options, float beta) {
    return with(options, [&](auto& o) {
        require_finite(beta, "beta");
        require_one_addend(o.accumulate, beta);
        o.beta = beta;
    });
}

mxq_status mxq_gemm_options_set_bias(mxq_gemm_options* options, int32_t format, const void* bias, uint64_t bytes) {
    return with(options, [&](auto& o) { o.bias = numbers_of(format, bias, bytes, "bias"); });
}

mxq_status mxq_gemm_options_set_exact_products(mxq_gemm_options* options, int32_t exact) {
    return set_flag(options, "exact", exact, &mxq_gemm_options_s::exact_products);
}

mxq_status mxq_gemm_options_set_sm_count(mxq_gemm_options* options, int32_t count) {
    return with(options, [&](auto& o) {
        if (count < 0 || count > kMostMultiprocessors)
            fail(MXQ_STATUS_INVALID_ARGUMENT, "count is %d, expected 1 to %d multiprocessors, or 0 for all", count,
                 kMostMultiprocessors);
        o.sm_count = count;
    });
}

mxq_status mxq_gemm_options_set_row_invariant(mxq_gemm_options* options, int32_t row_invariant) {
    return set_flag(options, "row_invariant", row_invariant, &mxq_gemm_options_s::row_invariant);
}

mxq_status mxq_gemm_options_set_implementation(mxq_gemm_options* options, const char* name) {
    return with(options, [&](auto& o) { o.implementation = name ? name : ""; });
}
