// The bound of every element of a product, by the class that the implementation names.
#ifndef MXQ_TESTS_SEARCH_BOUNDS_H
#define MXQ_TESTS_SEARCH_BOUNDS_H

#include "problem.h"

namespace search {

// Returns "" if the values of a piece, (rows, n), keep the bound that the implementation promises.
std::string check_piece(const Problem& problem, const Piece& piece, const oracle::Floats& values,
                        const oracle::Promise& promise);

}  // namespace search

#endif
