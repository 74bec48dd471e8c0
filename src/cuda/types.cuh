// Makes the scale rules of numerics/ from the options of a problem, which are known at run time.
#pragma once
#include "core/problem.h"
#include "numerics/convert.h"
#include "numerics/e8m0.h"

namespace mxq::cuda {

// Returns how the scales of an MX problem are made from maxima.
inline ScaleSteps scale_steps_of(const QuantizeProblem& problem) {
    ScaleSteps steps{};
    with_element(problem.format->element,
                 [&]<class E>(E) { steps = scale_steps<E>(problem.scale_rounding, problem.nonfinite); });
    return steps;
}

// Converts block maxima, as bits, to scale bytes.
template <class E, int count>
__device__ __forceinline__ void scales_of(uint32_t (&values)[count], ScaleRounding rounding, Nonfinite policy) {
    const ScaleSteps steps = scale_steps<E>(rounding, policy);
#pragma unroll
    for (int i = 0; i < count; i++) values[i] = scale_of(values[i], steps);
}

}  // namespace mxq::cuda
