// From format numbers to the types that kernels are compiled for, and from options known at run time to numerics.
#pragma once
#include "core/problem.h"
#include "numerics/convert.h"
#include "numerics/e8m0.h"

namespace mxq::cuda {

// Calls body(plain, element) with a value of each type.
template <class Body>
void with_types(int32_t plain_format, Element element, const Body& body) {
    with_element(element, [&](auto code) { with_plain(plain_format, [&](auto plain) { body(plain, code); }); });
}

// Calls body(plain, element) for every pair that with_types knows.
template <class Body>
void with_all_types(const Body& body) {
    for (int32_t plain : {MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16})
        for (const Element element : kElements) with_types(plain, element, body);
}

// Returns how the scales of an MX problem are made from maxima.
inline ScaleSteps scale_steps_of(const QuantizeProblem& problem) {
    ScaleSteps steps{};
    with_element(problem.format->element,
                 [&]<class E>(E) { steps = scale_steps<E>(problem.scale_rounding, problem.nonfinite); });
    return steps;
}

// Turns block maxima, as bits, into scale bytes.
template <class E, int count>
__device__ __forceinline__ void scales_of(uint32_t (&values)[count], ScaleRounding rounding, Nonfinite policy) {
    const ScaleSteps steps = scale_steps<E>(rounding, policy);
#pragma unroll
    for (int i = 0; i < count; i++) values[i] = scale_of(values[i], steps);
}

}  // namespace mxq::cuda
