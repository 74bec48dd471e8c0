// The implementations of the CPU backend, for the dispatch lists. Each is called `cpu`.
#pragma once
#include "core/context.h"
#include "dispatch/implementation.h"

namespace mxq::cpu {

// Declines contexts of other devices.
template <class Problem>
Reason needs_cpu(const Context& context, const Problem&) {
    return context.is_cpu() ? "" : "needs a CPU context, found a CUDA one";
}

extern const QuantizeImplementation quantize;         // quantize.cpp, from any source
extern const AmaxImplementation amax;                 // amax.cpp
extern const DequantizeImplementation dequantize;     // dequantize.cpp
extern const ConvertImplementation convert;           // convert.cpp
extern const PadImplementation pad_groups;            // pad_groups.cpp
extern const SwizzleImplementation swizzle_scales;    // swizzle_scales.cpp
extern const ActivateImplementation activate;         // activate.cpp
extern const ActivateImplementation activate_backward;  // activate_backward.cpp
extern const GemmImplementation gemm;                 // gemm.cpp
extern const RouteImplementation route;               // route.cpp
extern const GatherImplementation gather_rows;        // gather_rows.cpp
extern const CombineImplementation combine;           // combine.cpp
extern const CombineBackwardImplementation combine_backward;  // combine_backward.cpp

// Quantizes any source, for the verbs that do.
void run_quantize(const Context& context, const QuantizeProblem& problem);

}  // namespace mxq::cpu
