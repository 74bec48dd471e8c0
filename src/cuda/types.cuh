// Turns formats and options, which are known at run time, into types of elements and scale rules of numerics/.
#pragma once
#include "core/problem.h"
#include "numerics/convert.h"
#include "numerics/e8m0.h"

namespace mxq::cuda {

// Whether software converts codes on the chip that is compiled for. That takes more registers than the instructions of sm_89
// and later.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr bool kConvertsInSoftware = true;
#else
constexpr bool kConvertsInSoftware = false;
#endif

// Calls body(E{}) on the device, with the type of an element that all threads of a warp have.
template <class Body>
__device__ __forceinline__ void with_codes(Element element, const Body& body) {
    static_assert(kElementCount == 5, "the elements are listed below");
    switch (element) {
        case Element::E4M3: return body(E4M3{});
        case Element::E5M2: return body(E5M2{});
        case Element::E2M3: return body(E2M3{});
        case Element::E3M2: return body(E3M2{});
        default: return body(E2M1{});
    }
}

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
