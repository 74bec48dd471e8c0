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
    // Where memory breaks the rule, which a CPU context reads and a device does not: returns the problem with such memory,
    // or nothing where it has no place for it. On CUDA its values must not lead outside of the buffers.
    std::function<std::optional<Problem>(const Problem&, int64_t)> change = {};
    bool device_answers = false;  // the changed problem has what a device then leaves behind
};

// Returns the rules about arguments, which broken_arguments.cpp holds.
const std::vector<Rule>& argument_rules();

// Returns the names of the rules that suit a call.
std::vector<std::string> rules_for(const Call& call);
const Rule& rule_of(const std::string& name);

}  // namespace search

#endif
