// The implementations of the steps of an expert layer with few tokens (core/routed_problem.h). They stand apart from
// implementations.def, whose problems every kernel knows.
#pragma once
#include "core/routed_problem.h"
#include "dispatch/implementation.h"

namespace mxq {

using RoutedProductImplementation = Implementation<RoutedProductProblem>;
using RoutedCombineImplementation = Implementation<RoutedCombineProblem>;

namespace cuda {
extern const RoutedProductImplementation mma_bf16_rows_activate, mma_bf16_rows_routed;
extern const RoutedCombineImplementation combine_choices;
}  // namespace cuda

}  // namespace mxq
