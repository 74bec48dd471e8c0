// Products in double precision, fast enough for every call of the search.
#ifndef MXQ_TESTS_SEARCH_SUMS_H
#define MXQ_TESTS_SEARCH_SUMS_H

#include "problem.h"

namespace search {

// Returns what oracle::product(a, k, b, k, ...) does, but for `aligned`, which add_aligned sets for two F16 operands.
std::vector<oracle::Element> product(const PieceOperand& a, const PieceOperand& b, int64_t k);
void add_aligned(std::vector<oracle::Element>& sums, const PieceOperand& a, const PieceOperand& b, int64_t k);

// Adds what oracle::add_rebase_errors does.
void add_rebase_errors(std::vector<oracle::Element>& sums, const PieceOperand& a, const oracle::Floats& a_errors,
                       const PieceOperand& b, const oracle::Floats& b_errors, int64_t k);

}  // namespace search

#endif
