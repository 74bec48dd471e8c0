// Rules of the contract, each with a way to break it, so that the library must refuse the call.
#ifndef MXQ_TESTS_SEARCH_BROKEN_H
#define MXQ_TESTS_SEARCH_BROKEN_H

#include "bound.h"

#include <functional>

namespace search {

struct Rule {
    std::string name;
    mxq_status status;   // that the call must return
    bool query_refuses;  // too, with the same status; otherwise it succeeds
    // Breaks the rule in one of the places that the call has for it. Returns false if it has none.
    std::function<bool(Bound&, int64_t)> apply;
};

std::vector<std::string> broken_rules();
const Rule& rule_of(const std::string& name);

}  // namespace search

#endif
