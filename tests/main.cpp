// Runs the cases and ends with one line that says how many passed, failed and were skipped.
//   mxq_tests --long   runs the long tier alone; every other argument is Catch2's.
#define CATCH_CONFIG_RUNNER
#include "catch.h"

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

int passed = 0, failed = 0, skipped = 0;

#if MXQ_CATCH_VERSION == 3
using ListenerBase = Catch::EventListenerBase;
const std::string& case_name(const Catch::TestCaseStats& stats) { return stats.testInfo->name; }
#else
using ListenerBase = Catch::TestEventListenerBase;
const std::string& case_name(const Catch::TestCaseStats& stats) { return stats.testInfo.name; }
#endif

struct Count : ListenerBase {
    using ListenerBase::ListenerBase;

    void testCaseStarting(const Catch::TestCaseInfo&) override { testing::skip_reason.clear(); }
    void testCaseEnded(const Catch::TestCaseStats& stats) override {
        if (stats.totals.assertions.failed) {
            ++failed;
        } else if (!testing::skip_reason.empty()) {
            ++skipped;
            std::printf("skipped: %s: %s\n", case_name(stats).c_str(), testing::skip_reason.c_str());
        } else {
            ++passed;
        }
    }
};
CATCH_REGISTER_LISTENER(Count)

}  // namespace

int main(int argc, char** argv) {
    std::vector<const char*> arguments(argv, argv + argc);
    for (auto& argument : arguments)
        if (std::strcmp(argument, "--long") == 0) argument = "[long]";

    Catch::Session session;
    int result = session.applyCommandLine(static_cast<int>(arguments.size()), arguments.data());
    if (result == 0) result = session.run();
    std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return result != 0 || failed != 0;
}
