// Runs a call by every implementation that takes it, and compares.
#ifndef MXQ_TESTS_SEARCH_CHECK_H
#define MXQ_TESTS_SEARCH_CHECK_H

#include "bound.h"

namespace search {

// Counts the runs of all calls by verb and implementation, for the summary at the end.
struct Counts {
    int64_t calls = 0, refused = 0, failed = 0;
    std::map<std::string, int64_t> runs;  // by "verb implementation"
};

// Returns whether the call's implementation takes it on one of the runners, without making its values and results.
bool may_take(const Call& call, std::vector<Runner>& runners);

// Returns "" where the call does what the contract says on every runner, else what it does not.
std::string check_call(const Call& call, std::vector<Runner>& runners, Counts& counts);

}  // namespace search

#endif
