// Every exported function without memory: each of its allocations fails once.
#include "allocations.h"

#include "../abi/tasks.h"
#include "../every_function.h"

#include <algorithm>
#include <set>

TEST_CASE("out of memory: every exported function, which then works") {
    const testing::Context context = testing::cpu_context(3);
    testing::EveryFunction every(context);
    std::set<std::string> called;
    int failures = 0;
    for (const testing::Function& function : every.functions()) {
        INFO(function.name);
        REQUIRE(function.call() == MXQ_STATUS_OK);  // the context keeps the memory that its first calls worked in
        const testing::Bytes before = every.memory();
        bool is_done = false;
        failures += fault::fail_each_allocation(
            [&] {
                const mxq_status status = function.call();
                is_done = status == MXQ_STATUS_OK;
                return status;
            },
            [&] { return is_done || every.memory() == before; });
        CHECK(function.call() == MXQ_STATUS_OK);
        called.insert(function.name);
    }
    const std::vector<std::string> declared = testing::EveryFunction::declared();
    CHECK(std::vector<std::string>(called.begin(), called.end()) == declared);
    CHECK(declared.size() >= 221);
    CHECK(failures >= 60);
}

TEST_CASE("leaks: 1,000 cycles of every function leave no memory, thread or file") {
    const auto files = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
    const testing::Context context = testing::cpu_context(2);
    testing::EveryFunction every(context);
    for (const testing::Function& function : every.functions()) REQUIRE(function.call() == MXQ_STATUS_OK);
    const long before = fault::live;
    const auto files_before = files();
    const size_t threads_before = testing::task_count();
    int failed = 0;
    for (int cycle = 0; cycle < 1000; ++cycle)
        for (const testing::Function& function : every.functions()) failed += function.call() != MXQ_STATUS_OK;
    CHECK(failed == 0);
    const long after = fault::live;
    CHECK(after == before);
    CHECK(files() == files_before);
    CHECK(testing::task_count_falls_to(threads_before) == threads_before);
}
