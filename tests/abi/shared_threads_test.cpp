// Contexts with the same number of threads share them, unless they ask for threads of their own.
#include "../cases.h"
#include "says.h"
#include "tasks.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

using testing::ok;

namespace {

constexpr int32_t threads = 5;  // no other test keeps a context with as many

testing::Context own_context() {
    testing::Handle<mxq_context_options, mxq_context_options_destroy> options;
    testing::Context context;
    ok(mxq_context_options_create(options.out()));
    ok(mxq_context_options_set_threads(options, threads));
    ok(mxq_context_options_set_own_threads(options, 1));
    ok(mxq_context_create(MXQ_DEVICE_CPU, 0, options, context.out()));
    return context;
}

// Returns whether a quantize that is large enough for every thread gives the bytes of the oracle.
bool quantizes(mxq_context* context, uint64_t seed) {
    const testing::Dims dims{std::nullopt, 512, 640};
    const oracle::Floats values = cases::values(cases::Values::normal, dims.shape().count(), seed);
    const oracle::Part expected = oracle::quantize({}, values, dims.shape(), MXQ_PART_ROWWISE, false);
    testing::Bytes codes(expected.codes.size()), scales(expected.scales.size());
    auto in = testing::make_tensor(MXQ_FORMAT_F32, dims), out = testing::make_quantized({}, dims, false);
    ok(mxq_tensor_set_const_data(in, values.data(), values.size() * 4));
    ok(mxq_tensor_set_part(out, MXQ_PART_ROWWISE, codes.data(), codes.size(), scales.data(), scales.size()));
    return mxq_quantize(context, nullptr, in, out, nullptr, 0, nullptr) == MXQ_STATUS_OK && codes == expected.codes && scales == expected.scales;
}

}  // namespace

TEST_CASE("shared threads: 400 contexts have the threads of one, which end with the last", "[cpu]") {
    const size_t before = testing::task_count();
    std::vector<testing::Context> contexts;
    contexts.reserve(400);
    for (int i = 0; i < 400; ++i) contexts.push_back(testing::cpu_context(threads));
    CHECK(testing::tasks().size() == before + threads - 1);
    contexts.erase(contexts.begin(), contexts.begin() + 399);
    CHECK(testing::tasks().size() == before + threads - 1);
    CHECK(quantizes(contexts[0], 1));
    contexts.clear();
    CHECK(testing::task_count_falls_to(before) == before);
}

TEST_CASE("shared threads: another number, or threads of its own, and a context shares none", "[cpu]") {
    const size_t before = testing::task_count();
    const testing::Context shared = testing::cpu_context(threads), more = testing::cpu_context(threads + 1);
    CHECK(testing::tasks().size() == before + (threads - 1) + threads);
    const testing::Context own = own_context(), other = own_context();
    CHECK(testing::tasks().size() == before + 3 * (threads - 1) + threads);
    for (const auto* context : {&shared, &more, &own, &other}) CHECK(quantizes(*context, 2));
}

// Threads inherit the affinity of the one that starts them, so a context of a pinned thread must not get those of another.
TEST_CASE("shared threads: not between threads of different affinity", "[cpu]") {
    cpu_set_t all;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    if (CPU_COUNT(&all) < 2) MXQ_SKIP("one core");
    const size_t before = testing::task_count();
    const testing::Context shared = testing::cpu_context(threads);
    testing::Context pinned;
    std::string defaults;
    std::thread([&] {
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
            if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        pinned = testing::cpu_context(threads);
        defaults = mxq_context_description(testing::cpu_context(0));
    }).join();
    CHECK(testing::task_count_falls_to(before + 2 * (threads - 1)) == before + 2 * (threads - 1));
    CHECK(defaults.find("CPU, 1 thread,") == 0);
    CHECK(quantizes(pinned, 3));
}

TEST_CASE("shared threads: contexts come, work and go in many threads at once", "[cpu]") {
    const size_t before = testing::task_count();
    std::atomic<int> good{0};
    std::vector<std::thread> hosts;
    hosts.reserve(4);
    for (int i = 0; i < 4; ++i)
        hosts.emplace_back([&] {
            for (int round = 0; round < 25; ++round) {
                const testing::Context first = testing::cpu_context(threads);
                const testing::Context second = testing::cpu_context(threads + round % 2);
                good += quantizes(first, 4) && quantizes(second, 4);
            }
        });
    for (auto& host : hosts) host.join();
    CHECK(good == 100);
    CHECK(testing::task_count_falls_to(before) == before);
}

// Other threads create and destroy contexts all the while, so that many children are made in the midst of that.
TEST_CASE("shared threads: a forked child creates contexts with threads of its own", "[cpu]") {
#if defined(MXQ_TESTS_TSAN)
    MXQ_SKIP("the thread sanitizer ends a forked child that starts threads");
#elif defined(__SANITIZE_ADDRESS__)
    MXQ_SKIP("a lock of the address sanitizer's allocator stays held in a forked child");
#endif
    testing::Context parents = testing::cpu_context(threads);
    std::atomic<bool> done{false};
    std::vector<std::thread> hosts;
    hosts.reserve(2);
    for (int i = 0; i < 2; ++i)
        hosts.emplace_back([&] {
            while (!done) testing::cpu_context(threads + 1);
        });
    int good = 0;
    for (int i = 0; i < 40 && good == i; ++i) {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            alarm(60);
            const size_t before = testing::task_count();
            bool right = before == 1;
            {
                const testing::Context first = testing::cpu_context(threads), second = testing::cpu_context(threads);
                right = right && testing::tasks().size() == before + threads - 1;
                if (i % 8 == 0) right = right && quantizes(first, 5) && quantizes(parents, 5);
            }
            mxq_context_destroy(parents);
            _exit(right && testing::task_count_falls_to(before) == before ? 0 : 1);
        }
        int status = 0;
        good += waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    done = true;
    for (auto& host : hosts) host.join();
    CHECK(good == 40);
    CHECK(quantizes(parents, 6));
}
