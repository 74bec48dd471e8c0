// Draws calls: the seed and the number of a call determine all of it.
#ifndef MXQ_TESTS_SEARCH_DRAW_H
#define MXQ_TESTS_SEARCH_DRAW_H

#include "call.h"

namespace search {

extern const std::vector<std::string> verbs;

// Returns a call of this verb, or of any verb for "".
Call draw_call(uint64_t seed, int64_t number, const std::string& verb);

}  // namespace search

#endif
