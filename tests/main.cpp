// Runs the test cases, and ends with one line that says how many passed, failed and were skipped.
//   mxq_tests --long        runs the long tier alone
//   mxq_tests --shard 2/5   runs the second of five parts of the cases, so that several processes can share them
// Every other argument goes to Catch2.
#define CATCH_CONFIG_RUNNER
#include "catch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
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

struct Shard {
    size_t number = 1, count = 1;
};

// Removes --long and --shard from the arguments and leaves the rest to Catch2. Returns false if the shard is not a valid one.
bool read_arguments(std::vector<const char*>& arguments, Shard& shard) {
    std::vector<const char*> rest;
    for (size_t i = 0; i < arguments.size(); ++i) {
        if (std::strcmp(arguments[i], "--shard") == 0) {
            if (++i == arguments.size() || std::sscanf(arguments[i], "%zu/%zu", &shard.number, &shard.count) != 2) return false;
        } else {
            rest.push_back(std::strcmp(arguments[i], "--long") == 0 ? "[long]" : arguments[i]);
        }
    }
    arguments = rest;
    return shard.number >= 1 && shard.number <= shard.count;
}

// Returns the cases of a shard. All cases are shuffled before they are divided, since slow ones stand side by side.
std::vector<std::string> names_of(const Catch::Config& config, Shard shard) {
    std::vector<std::string> all, names;
    for (const auto& test : Catch::filterTests(Catch::getAllTestCasesSorted(config), config.testSpec(), config))
        all.push_back(test.getTestCaseInfo().name);
    std::shuffle(all.begin(), all.end(), std::mt19937(1));
    for (size_t i = shard.number - 1; i < all.size(); i += shard.count) names.push_back(all[i]);
    return names;
}

// Returns a Catch2 filter that matches this name only, with the comma that ends a filter.
std::string filter_of(const std::string& name) {
    std::string filter;
    for (char c : name) {
        if (std::strchr("\\,[", c)) filter += '\\';
        filter += c;
    }
    return filter + ',';
}

int run_shard(Catch::Session& session, Shard shard) {
    const auto names = names_of(session.config(), shard);
    if (names.empty()) return 0;
    auto data = session.configData();
    data.testsOrTags.clear();
    for (const auto& name : names) data.testsOrTags.push_back(filter_of(name));
    session.useConfigData(data);
    const int result = session.run();
    const int ran = passed + failed + skipped;
    if (static_cast<size_t>(ran) == names.size()) return result;
    std::printf("the shard has %zu cases, but %d ran\n", names.size(), ran);
    ++failed;
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<const char*> arguments(argv, argv + argc);
    Shard shard;
    if (!read_arguments(arguments, shard)) {
        std::fprintf(stderr, "--shard: expected number/count, such as 2/5\n");
        return 2;
    }
    Catch::Session session;
    int result = session.applyCommandLine(static_cast<int>(arguments.size()), arguments.data());
    if (result == 0) result = shard.count > 1 ? run_shard(session, shard) : session.run();
    std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return result != 0 || failed != 0;
}
