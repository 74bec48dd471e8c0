// An implementation of a verb: its name, when it declines, what it needs, its run. Kernels include this header, so it
// includes little: parsing headers once for each chip dominates the compile time of a small kernel.
#pragma once
#include <cstdint>

#include "core/context_type.h"
#include "core/error.h"
#include "core/layer_problem.h"
#include "dispatch/reason.h"

namespace mxq {

struct Prepared;              // dispatch/prepared.h
struct RoutedProductProblem;  // core/routed_problem.h
struct RoutedCombineProblem;

// What a run gets in addition to its problem. The workspace is as large as was asked for.
struct Launch {
    void* workspace;
    void* stream;
    const void* state = nullptr;  // of Prepared
    bool follows = false;         // the kernel before in the stream is of the same call
};

template <class Problem>
struct Implementation {
    const char* name;
    // Returns why it does not take the problem, as "needs ..., found ..."; empty: it takes it.
    Reason (*declines)(const Context&, const Problem&) = nullptr;
    uint64_t (*workspace_bytes)(const Context&, const Problem&) = nullptr;  // NULL: none
    void (*run)(const Context&, const Problem&, const Launch&) = nullptr;
    void (*load)(const Context&) = nullptr;  // loads what a run needs before a stream is captured; NULL: nothing
    // Returns the class of a product's error bound on the context's device, MXQ_BOUND_*; NULL: none.
    int32_t (*bound)(const Context&, const Problem&) = nullptr;
    // Replaces declines and workspace_bytes where these and the run need one costly description of the problem.
    Prepared (*prepare)(const Context&, const Problem&) = nullptr;
    // Which strides and lists of the operands it takes. Dispatch declines all other problems for it.
    Addresses reads = Addresses::Dense;
    // Whether it takes MN-major operands of a product. Without it, dispatch declines them in the same way.
    bool reads_across = false;
    // Returns whether it reads the rows by index of a problem that has some. Without it dispatch gathers them into memory first.
    bool (*reads_by_index)(const Problem&) = nullptr;
    // Returns whether the bits of each row of D depend on no other row of A. NULL: it cannot promise that, and dispatch declines
    // for it where rows must be invariant. Then nothing else that it declines for may depend on the number of rows.
    bool (*keeps_rows)(const Problem&) = nullptr;
};

using QuantizeImplementation = Implementation<QuantizeProblem>;
using DequantizeImplementation = Implementation<DequantizeProblem>;
using AmaxImplementation = Implementation<AmaxProblem>;
using PadImplementation = Implementation<PadProblem>;
using ConvertImplementation = Implementation<ConvertProblem>;
using SwizzleImplementation = Implementation<SwizzleProblem>;
using ActivateImplementation = Implementation<ActivateProblem>;
using GemmImplementation = Implementation<GemmProblem>;
using RouteImplementation = Implementation<RouteProblem>;
using RoutedProductImplementation = Implementation<RoutedProductProblem>;
using RoutedCombineImplementation = Implementation<RoutedCombineProblem>;
using GatherImplementation = Implementation<GatherProblem>;
using CombineImplementation = Implementation<CombineProblem>;
using CombineBackwardImplementation = Implementation<CombineBackwardProblem>;

// For keeps_rows of those that always do.
inline bool keeps_all_rows(const GemmProblem&) { return true; }

// For bound of those that have one class on every device.
template <int32_t class_of_bound, class Problem>
int32_t bound_is(const Context&, const Problem&) {
    return class_of_bound;
}

// Returns why an implementation that always uses all SMs declines a product.
inline Reason needs_no_limit(const GemmProblem& p) {
    if (p.sm_count == 0) return {};
    return [count = p.sm_count] {
        return format_text("cannot keep to %d multiprocessors, which mxq_gemm_options_set_sm_count asks for", count);
    };
}

}  // namespace mxq
