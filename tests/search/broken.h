// Rules of the contract, each with a way to break it, so that the library must refuse the call.
#ifndef MXQ_TESTS_SEARCH_BROKEN_H
#define MXQ_TESTS_SEARCH_BROKEN_H

#include "bound.h"

#include <functional>

namespace search {

struct Rule {
    std::string name;
    std::function<bool(const Call&)> suits;  // returns whether calls like this one may have a place to break it
    mxq_status status;                       // that the call must return
    bool query_refuses;                      // too, with the same status; otherwise it succeeds
    // Breaks the rule in one of the places that the call has for it. Returns false if it has none.
    std::function<bool(Bound&, int64_t)> apply;
};

// Returns the rules about arguments, which broken_arguments.cpp holds.
const std::vector<Rule>& argument_rules();

// Returns the names of the rules that suit a call.
std::vector<std::string> rules_for(const Call& call);
const Rule& rule_of(const std::string& name);

// Returns the problem with ends that are out of order or past the rows. A CPU context refuses them; on CUDA they must not
// lead outside of the buffers.
Problem with_wrong_ends(const Problem& problem, int64_t at);

}  // namespace search

#endif
