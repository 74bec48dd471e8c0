// Holds what kernels receive for the steps of an expert layer with few tokens, each of which does what several verbs do. All
// but the last read ids themselves, so that they start before the routing is written.
#pragma once
#include "core/layer_problem.h"

namespace mxq {

// A product whose rows are those of a routing: the first, of tokens by index, which is then activated, or the second, of
// what the first made. With ids the second stores rows in the order of choices.
struct RoutedProductProblem {
    GemmProblem product;
    RouteProblem route;    // the groups of its rows, where `computed` is not set
    bool computed;         // another library computed the routing, before the call begins
    bool activates;        // the first product
    ActivatedMatrix from;  // what is activated: D of the product, rounded to its type, which is not written
    PlainMatrix out;       // the result of the activation
};

// The ids of all choices, by which a kernel tells those that are dropped.
struct ChoiceIds {
    const void* ids;
    int32_t type;          // MXQ_TYPE_*
    int32_t first, count;  // the experts of this rank
};

// Sums the rows of each token's choices, which are in the order of choices: choice_rows are not read.
struct RoutedCombineProblem {
    CombineProblem combine;
    ChoiceIds ids;
};

inline Addresses addresses_of(const RoutedProductProblem& p) { return addresses_of(p.product); }
inline bool reads_across(const RoutedProductProblem& p) { return reads_across(p.product); }
inline bool is_row_invariant(const RoutedProductProblem& p) { return p.product.row_invariant; }

}  // namespace mxq
