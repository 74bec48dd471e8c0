// Choices among few.
#ifndef MXQ_TESTS_SEARCH_PICK_H
#define MXQ_TESTS_SEARCH_PICK_H

#include <iterator>

#include "call.h"

namespace search {

// Returns one of a list.
template <class List>
auto pick(cases::Random& random, const List& list) {
    return list[static_cast<size_t>(random.below(static_cast<int64_t>(std::size(list))))];
}

// Returns true once in n times.
inline bool one_in(cases::Random& random, int64_t n) { return random.below(n) == 0; }

}  // namespace search

#endif
