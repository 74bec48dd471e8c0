// Getters of options return what setters set, and before that the defaults.
#include "says.h"

#include <functional>

using testing::ok;

namespace {

constexpr auto invalid = MXQ_STATUS_INVALID_ARGUMENT;

using ContextOptions = testing::Handle<mxq_context_options, mxq_context_options_destroy>;

// Calls a getter of one value and returns it.
template <class Options, class T>
T value(mxq_status (*get)(const Options*, T*), const Options* options) {
    T out{};
    ok(get(options, &out));
    return out;
}

template <class Options>
std::string text(mxq_status (*get)(const Options*, const char**), const Options* options) {
    return value(get, options);
}

void run_here(void*, int32_t count, mxq_task task, void* data) {
    for (int32_t i = 0; i < count; ++i) task(data, i);
}

ContextOptions context_options() {
    ContextOptions options;
    ok(mxq_context_options_create(options.out()));
    return options;
}
testing::QuantizeOptions quantize_options() {
    testing::QuantizeOptions options;
    ok(mxq_quantize_options_create(options.out()));
    return options;
}
testing::GemmOptions gemm_options() {
    testing::GemmOptions options;
    ok(mxq_gemm_options_create(options.out()));
    return options;
}

}  // namespace

TEST_CASE("getters of options: a context's, first as they are by default", "[cpu]") {
    const auto made = context_options();
    mxq_context_options* const options = made;
    const auto parallel_for = [&] {
        mxq_parallel_for function = nullptr;
        void* user = &function;
        ok(mxq_context_options_get_parallel_for(options, &function, &user));
        return std::pair(function, user);
    };
    CHECK(value(mxq_context_options_get_threads, options) == 0);
    CHECK(value(mxq_context_options_get_own_threads, options) == 0);
    CHECK(parallel_for() == std::pair<mxq_parallel_for, void*>(nullptr, nullptr));
    CHECK(text(mxq_context_options_get_cublaslt_path, options) == "");

    int user = 0;
    ok(mxq_context_options_set_threads(options, 7));
    ok(mxq_context_options_set_own_threads(options, 1));
    CHECK(value(mxq_context_options_get_own_threads, options) == 1);
    ok(mxq_context_options_set_own_threads(options, 0));
    CHECK(value(mxq_context_options_get_own_threads, options) == 0);
    ok(mxq_context_options_set_parallel_for(options, run_here, &user));
    ok(mxq_context_options_set_cublaslt_path(options, "/a/path"));
    CHECK(value(mxq_context_options_get_threads, options) == 7);
    CHECK(parallel_for() == std::pair<mxq_parallel_for, void*>(run_here, &user));
    CHECK(text(mxq_context_options_get_cublaslt_path, options) == "/a/path");
    ok(mxq_context_options_set_cublaslt_path(options, nullptr));
    CHECK(text(mxq_context_options_get_cublaslt_path, options) == "");
}

TEST_CASE("getters of options: quantize, first as they are by default", "[cpu]") {
    const auto made = quantize_options();
    mxq_quantize_options* const options = made;
    const auto seed_offset = [&] {
        uint64_t bytes = 1;
        const uint64_t* pointer = &bytes;
        ok(mxq_quantize_options_get_stochastic_rounding(options, &pointer, &bytes));
        return std::pair(pointer, bytes);
    };
    CHECK(value(mxq_quantize_options_get_scale_rounding, options) == MXQ_SCALE_ROUNDING_RCEIL);
    CHECK(value(mxq_quantize_options_get_nonfinite, options) == MXQ_NONFINITE_PROPAGATE);
    CHECK(value(mxq_quantize_options_get_four_over_six, options) == MXQ_FOUR_OVER_SIX_NONE);
    CHECK(value(mxq_quantize_options_get_undo_hadamard, options) == 1);
    CHECK(seed_offset() == std::pair<const uint64_t*, uint64_t>(nullptr, 0));
    CHECK(value(mxq_quantize_options_get_compute_amax, options) == 1);
    CHECK(value(mxq_quantize_options_get_power_of_two_scales, options) == 0);
    CHECK(value(mxq_quantize_options_get_amax_epsilon, options) == 0);
    CHECK(value(mxq_quantize_options_get_source_part, options) == 0);
    CHECK(text(mxq_quantize_options_get_implementation, options) == "");

    const uint64_t numbers[2] = {};
    ok(mxq_quantize_options_set_scale_rounding(options, MXQ_SCALE_ROUNDING_EVEN));
    ok(mxq_quantize_options_set_nonfinite(options, MXQ_NONFINITE_SATURATE));
    ok(mxq_quantize_options_set_four_over_six(options, MXQ_FOUR_OVER_SIX_MSE));
    CHECK(value(mxq_quantize_options_get_four_over_six, options) == MXQ_FOUR_OVER_SIX_MSE);
    ok(mxq_quantize_options_set_four_over_six(options, MXQ_FOUR_OVER_SIX_NONE));
    ok(mxq_quantize_options_set_undo_hadamard(options, 0));
    ok(mxq_quantize_options_set_stochastic_rounding(options, numbers, 16));
    ok(mxq_quantize_options_set_compute_amax(options, 0));
    ok(mxq_quantize_options_set_power_of_two_scales(options, 1));
    ok(mxq_quantize_options_set_amax_epsilon(options, 0.5f));
    ok(mxq_quantize_options_set_source_part(options, MXQ_PART_COLUMNWISE));
    ok(mxq_quantize_options_set_implementation(options, "cpu"));
    CHECK(value(mxq_quantize_options_get_scale_rounding, options) == MXQ_SCALE_ROUNDING_EVEN);
    CHECK(value(mxq_quantize_options_get_nonfinite, options) == MXQ_NONFINITE_SATURATE);
    CHECK(value(mxq_quantize_options_get_four_over_six, options) == MXQ_FOUR_OVER_SIX_NONE);
    CHECK(value(mxq_quantize_options_get_undo_hadamard, options) == 0);
    CHECK(seed_offset() == std::pair<const uint64_t*, uint64_t>(numbers, 16));
    CHECK(value(mxq_quantize_options_get_compute_amax, options) == 0);
    CHECK(value(mxq_quantize_options_get_power_of_two_scales, options) == 1);
    CHECK(value(mxq_quantize_options_get_amax_epsilon, options) == 0.5f);
    CHECK(value(mxq_quantize_options_get_source_part, options) == MXQ_PART_COLUMNWISE);
    CHECK(text(mxq_quantize_options_get_implementation, options) == "cpu");
}

TEST_CASE("getters of options: gemm, first as they are by default", "[cpu]") {
    const auto made = gemm_options();
    mxq_gemm_options* const options = made;
    const auto transposes = [&] {
        int32_t a = -1, b = -1;
        ok(mxq_gemm_options_get_transpose(options, &a, &b));
        return std::pair(a, b);
    };
    const auto bias = [&] {
        int32_t format = -1;
        const void* pointer = &format;
        uint64_t bytes = 1;
        ok(mxq_gemm_options_get_bias(options, &format, &pointer, &bytes));
        return std::tuple(format, pointer, bytes);
    };
    CHECK(transposes() == std::pair(MXQ_TRANSPOSE_N, MXQ_TRANSPOSE_T));
    CHECK(value(mxq_gemm_options_get_alpha, options) == 1);
    CHECK(value(mxq_gemm_options_get_beta, options) == 0);
    CHECK(value(mxq_gemm_options_get_accumulate, options) == 0);
    CHECK(bias() == std::tuple<int32_t, const void*, uint64_t>(0, nullptr, 0));
    CHECK(value(mxq_gemm_options_get_exact_products, options) == 0);
    CHECK(value(mxq_gemm_options_get_sm_count, options) == 0);
    CHECK(value(mxq_gemm_options_get_row_invariant, options) == 0);
    CHECK(text(mxq_gemm_options_get_implementation, options) == "");

    const float numbers[3] = {};
    ok(mxq_gemm_options_set_transpose(options, MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N));
    ok(mxq_gemm_options_set_alpha(options, 2));
    ok(mxq_gemm_options_set_beta(options, 3));
    CHECK(value(mxq_gemm_options_get_beta, options) == 3);
    ok(mxq_gemm_options_set_beta(options, 0));
    ok(mxq_gemm_options_set_accumulate(options, 1));
    ok(mxq_gemm_options_set_bias(options, MXQ_FORMAT_F32, numbers, 12));
    ok(mxq_gemm_options_set_exact_products(options, 1));
    ok(mxq_gemm_options_set_sm_count(options, 5));
    ok(mxq_gemm_options_set_row_invariant(options, 1));
    ok(mxq_gemm_options_set_implementation(options, "mma_bf16"));
    CHECK(transposes() == std::pair(MXQ_TRANSPOSE_T, MXQ_TRANSPOSE_N));
    CHECK(value(mxq_gemm_options_get_alpha, options) == 2);
    CHECK(value(mxq_gemm_options_get_beta, options) == 0);
    CHECK(value(mxq_gemm_options_get_accumulate, options) == 1);
    CHECK(bias() == std::tuple<int32_t, const void*, uint64_t>(MXQ_FORMAT_F32, numbers, 12));
    CHECK(value(mxq_gemm_options_get_exact_products, options) == 1);
    CHECK(value(mxq_gemm_options_get_sm_count, options) == 5);
    CHECK(value(mxq_gemm_options_get_row_invariant, options) == 1);
    CHECK(text(mxq_gemm_options_get_implementation, options) == "mma_bf16");
}

TEST_CASE("getters of options: outputs may be NULL, and other handles are refused by name", "[cpu]") {
    const auto context = context_options();
    const auto quantize = quantize_options();
    const auto gemm = gemm_options();
    using Get = std::function<mxq_status(void*)>;
    const auto of_context = [](auto get) -> Get {
        return [=](void* o) { return get(static_cast<mxq_context_options*>(o)); };
    };
    const auto of_quantize = [](auto get) -> Get {
        return [=](void* o) { return get(static_cast<mxq_quantize_options*>(o)); };
    };
    const auto of_gemm = [](auto get) -> Get { return [=](void* o) { return get(static_cast<mxq_gemm_options*>(o)); }; };
    const Get of_contexts[] = {of_context([](auto* o) { return mxq_context_options_get_threads(o, nullptr); }),
                               of_context([](auto* o) { return mxq_context_options_get_own_threads(o, nullptr); }),
                               of_context([](auto* o) { return mxq_context_options_get_parallel_for(o, nullptr, nullptr); }),
                               of_context([](auto* o) { return mxq_context_options_get_cublaslt_path(o, nullptr); })};
    const Get of_quantizes[] = {
        of_quantize([](auto* o) { return mxq_quantize_options_get_scale_rounding(o, nullptr); }),
        of_quantize([](auto* o) { return mxq_quantize_options_get_nonfinite(o, nullptr); }),
        of_quantize([](auto* o) { return mxq_quantize_options_get_four_over_six(o, nullptr); }),
        of_quantize([](auto* o) { return mxq_quantize_options_get_undo_hadamard(o, nullptr); }),
        of_quantize([](auto* o) { return mxq_quantize_options_get_stochastic_rounding(o, nullptr, nullptr); }),
        of_quantize([](auto* o) { return mxq_quantize_options_get_compute_amax(o, nullptr); }),
        of_quantize([](auto* o) { return mxq_quantize_options_get_power_of_two_scales(o, nullptr); }),
        of_quantize([](auto* o) { return mxq_quantize_options_get_amax_epsilon(o, nullptr); }),
        of_quantize([](auto* o) { return mxq_quantize_options_get_source_part(o, nullptr); }),
        of_quantize([](auto* o) { return mxq_quantize_options_get_implementation(o, nullptr); })};
    const Get of_gemms[] = {of_gemm([](auto* o) { return mxq_gemm_options_get_transpose(o, nullptr, nullptr); }),
                            of_gemm([](auto* o) { return mxq_gemm_options_get_alpha(o, nullptr); }),
                            of_gemm([](auto* o) { return mxq_gemm_options_get_beta(o, nullptr); }),
                            of_gemm([](auto* o) { return mxq_gemm_options_get_accumulate(o, nullptr); }),
                            of_gemm([](auto* o) { return mxq_gemm_options_get_bias(o, nullptr, nullptr, nullptr); }),
                            of_gemm([](auto* o) { return mxq_gemm_options_get_exact_products(o, nullptr); }),
                            of_gemm([](auto* o) { return mxq_gemm_options_get_sm_count(o, nullptr); }),
                            of_gemm([](auto* o) { return mxq_gemm_options_get_row_invariant(o, nullptr); }),
                            of_gemm([](auto* o) { return mxq_gemm_options_get_implementation(o, nullptr); })};
    int ran = 0;
    const auto check = [&](const Get& get, void* right, void* wrong) {
        CHECK(get(right) == MXQ_STATUS_OK);
        MXQ_REFUSED(get(nullptr), invalid, "_get_", "options is NULL");
        MXQ_REFUSED(get(wrong), invalid, "options is ", "expected");
        ++ran;
    };
    mxq_context_options* const c = context;
    mxq_quantize_options* const q = quantize;
    mxq_gemm_options* const g = gemm;
    for (const Get& get : of_contexts) check(get, c, q);
    for (const Get& get : of_quantizes) check(get, q, g);
    for (const Get& get : of_gemms) check(get, g, c);
    CHECK(ran == 23);
}
