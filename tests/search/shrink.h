// Makes a failing call smaller while it still fails.
#ifndef MXQ_TESTS_SEARCH_SHRINK_H
#define MXQ_TESTS_SEARCH_SHRINK_H

#include "call.h"

#include <functional>

namespace search {

// Returns the simplest call found for which `fails` holds, while `may_go_on` does.
Call shrink(const Call& call, const std::function<bool(const Call&)>& fails, const std::function<bool()>& may_go_on);

}  // namespace search

#endif
