// Every exported function leaves the caller's floating-point environment, errno, locale and signal mask as they were, and runs
// in many threads that share contexts.
#include "caller.h"

#include <set>
#include <thread>

TEST_CASE("contracts: no function changes the caller's floating-point environment, errno, locale or signal mask", "[cpu]") {
    std::set<std::string> called;
    for (const int32_t threads : {1, 3}) {
        const testing::Context context = testing::cpu_context(threads);
        testing::EveryFunction every(context);
        for (const testing::Function& function : every.functions()) {
            INFO(function.name);
            CHECK(testing::changed_by(function) == "");
            called.insert(function.name);
        }
    }
    CHECK(std::vector<std::string>(called.begin(), called.end()) == testing::EveryFunction::declared());
}

TEST_CASE("contracts: a refused call changes none of these either", "[cpu]") {
    int refused = 0;
    const auto check = [&](const char* name, const std::function<mxq_status()>& call) {
        INFO(name);
        CHECK(testing::changed_by({name, [&] { return call() == MXQ_STATUS_OK ? MXQ_STATUS_INTERNAL_ERROR : MXQ_STATUS_OK; }}) == "");
        ++refused;
    };
    testing::Context context;
    testing::Tensor tensor;
    check("a device", [&] { return mxq_context_create(77, 0, nullptr, context.out()); });
    check("an ordinal", [&] { return mxq_context_create(MXQ_DEVICE_CPU, 5, nullptr, context.out()); });
    check("a CUDA device", [&] { return mxq_context_create(MXQ_DEVICE_CUDA, 4000, nullptr, context.out()); });
    check("a shape", [&] { return mxq_tensor_create_2d(MXQ_FORMAT_F32, -1, 1, tensor.out()); });
    check("a verb", [] { return mxq_quantize(testing::any_context(), nullptr, nullptr, nullptr, nullptr, 0, nullptr); });
    CHECK(refused == 5);
}

// Run under ThreadSanitizer, too: ./tests/sanitize.sh thread.
TEST_CASE("contracts: every function in many threads that share two contexts", "[cpu]") {
    const testing::Context first = testing::cpu_context(2), second = testing::cpu_context(3);
    constexpr size_t thread_count = 6;
    std::vector<std::string> complaints(thread_count);
    const auto work = [&](size_t number) {
        try {
            testing::EveryFunction every(number % 2 ? first : second);
            for (int round = 0; round < 3; ++round)
                for (const testing::Function& function : every.functions())
                    if (function.call() != MXQ_STATUS_OK) complaints[number] = function.name + ": " + mxq_last_error();
        } catch (const std::exception& error) {
            complaints[number] = error.what();
        }
    };
    std::vector<std::thread> threads;
    for (size_t i = 0; i < thread_count; ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
    CHECK(complaints == std::vector<std::string>(thread_count));
}

TEST_CASE("contracts: no verb is missing among them") {
    std::set<std::string> verbs, with_query;
    const testing::Context context = testing::cpu_context(1);
    const testing::EveryFunction every(context);
    for (const testing::Function& function : every.functions())
        if (function.is_verb) verbs.insert(function.name);
    for (const std::string& name : testing::EveryFunction::declared())
        if (name.ends_with("_query")) with_query.insert(name.substr(0, name.size() - 6));
    CHECK(verbs == with_query);
    CHECK(verbs.size() == 17);
}
