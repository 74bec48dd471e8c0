// The creation and destruction of contexts, and what each refusal says.
#include "says.h"

using testing::ok;

namespace {

void* const not_null = reinterpret_cast<void*>(16);

}  // namespace

TEST_CASE("context: unknown device types, ordinals and thread counts are refused") {
    for (int32_t type : {-1, 0, 3, 4}) {
        auto* context = static_cast<mxq_context*>(not_null);
        MXQ_REFUSED(mxq_context_create(type, 0, nullptr, &context), MXQ_STATUS_INVALID_ARGUMENT, "mxq_context_create", "device_type",
                    std::to_string(type), "MXQ_DEVICE_CPU", "MXQ_DEVICE_CUDA");
        CHECK(context == nullptr);
    }
    for (int32_t ordinal : {-1, 1}) {
        auto* context = static_cast<mxq_context*>(not_null);
        MXQ_REFUSED(mxq_context_create(MXQ_DEVICE_CPU, ordinal, nullptr, &context), MXQ_STATUS_INVALID_ARGUMENT, "ordinal",
                    std::to_string(ordinal), "0");
        CHECK(context == nullptr);
    }
    MXQ_REFUSED(mxq_context_create(MXQ_DEVICE_CUDA, -1, nullptr, nullptr), MXQ_STATUS_INVALID_ARGUMENT, "out is NULL");

    testing::Handle<mxq_context_options, mxq_context_options_destroy> options;
    ok(mxq_context_options_create(options.out()));
    for (int32_t threads : {-1, 1025})
        MXQ_REFUSED(mxq_context_options_set_threads(options, threads), MXQ_STATUS_INVALID_ARGUMENT, "threads", std::to_string(threads), "1024");
    for (int32_t threads : {0, 1, 2}) CHECK(mxq_context_options_set_threads(options, threads) == MXQ_STATUS_OK);
    MXQ_REFUSED(mxq_context_options_set_threads(nullptr, 1), MXQ_STATUS_INVALID_ARGUMENT, "options", "NULL");
    MXQ_REFUSED(mxq_context_options_create(nullptr), MXQ_STATUS_INVALID_ARGUMENT, "out", "NULL");
}

TEST_CASE("context: says what it is") {
    auto context = testing::cpu_context(3);
    std::string description = mxq_context_description(context);
    CHECK(description.find("CPU, 3 threads") == 0);
    CHECK(mxq_context_description(nullptr) == std::string());
    if (testing::cuda()) CHECK(std::string(mxq_context_description(testing::cuda()->context)).find("CUDA 0, ") == 0);
}

TEST_CASE("context: a CUDA context that cannot be says why") {
    auto* context = static_cast<mxq_context*>(not_null);
#ifdef MXQ_TESTS_CUDA
    std::string word = testing::cuda() ? "999" : "";
    MXQ_REFUSED(mxq_context_create(MXQ_DEVICE_CUDA, 999, nullptr, &context), MXQ_STATUS_NO_DEVICE, "mxq_context_create", word);
    std::string message = mxq_last_error();
    CHECK((message.find("driver") != std::string::npos || message.find("device") != std::string::npos));
#else
    MXQ_REFUSED(mxq_context_create(MXQ_DEVICE_CUDA, 0, nullptr, &context), MXQ_STATUS_NO_DEVICE, "mxq_context_create", "without CUDA");
#endif
    CHECK(context == nullptr);
}

TEST_CASE("context: a path of cuBLASLt goes before all else") {
    testing::Handle<mxq_context_options, mxq_context_options_destroy> options;
    ok(mxq_context_options_create(options.out()));
    ok(mxq_context_options_set_cublaslt_path(options, "/nowhere/libcublasLt.so.13"));
    testing::Context cpu;
    ok(mxq_context_create(MXQ_DEVICE_CPU, 0, options, cpu.out()));
    CHECK(mxq_context_cublaslt(cpu) == std::string("not used by the CPU backend"));
    if (!testing::cuda()) return;
    testing::Context none, found;
    ok(mxq_context_create(MXQ_DEVICE_CUDA, 0, options, none.out()));
    CHECK(std::string(mxq_context_cublaslt(none)).find("needs libcublasLt.so.13 or .12 at the path in the options, found none (") == 0);
    ok(mxq_context_options_set_cublaslt_path(options, nullptr));
    ok(mxq_context_create(MXQ_DEVICE_CUDA, 0, options, found.out()));
    CHECK(mxq_context_cublaslt(found) == std::string(mxq_context_cublaslt(testing::cuda()->context)));
}

TEST_CASE("context: destroying NULL does nothing") {
    mxq_context_destroy(nullptr);
    mxq_context_options_destroy(nullptr);
    mxq_tensor_destroy(nullptr);
    mxq_quantize_options_destroy(nullptr);
    mxq_gemm_options_destroy(nullptr);
    mxq_plan_destroy(nullptr);
    CHECK(mxq_plan_implementation(nullptr) == std::string());
    CHECK(mxq_plan_workspace_bytes(nullptr) == 0);
}

// Creates, uses and destroys many contexts: they share nothing that the destruction of one could break.
TEST_CASE("context: many at once") {
    for (int round = 0; round < 3; ++round) {
        std::vector<testing::Context> contexts;
        for (int32_t threads = 1; threads <= 8; ++threads) contexts.push_back(testing::cpu_context(threads));
        for (auto& context : contexts) {
            float x[64] = {};
            uint8_t codes[64], scales[2] = {9, 9};
            auto in = testing::make_tensor(MXQ_FORMAT_F32, {std::nullopt, 2, 32}), out = testing::make_quantized({}, {std::nullopt, 2, 32}, false);
            ok(mxq_tensor_set_data(in, x, sizeof x));
            ok(mxq_tensor_set_part(out, MXQ_PART_ROWWISE, codes, sizeof codes, scales, sizeof scales));
            CHECK(mxq_quantize(context, nullptr, in, out, nullptr, 0, nullptr) == MXQ_STATUS_OK);
            CHECK(scales[1] == 0);
        }
    }
}
