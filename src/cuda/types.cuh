// From format numbers to the types that kernels are compiled for, and from options known at run time to numerics.
#pragma once
#include "mxq/mxq.h"
#include "numerics/convert.h"
#include "numerics/e8m0.h"

namespace mxq::cuda {

// Calls body(plain, element) with a value of each format's type.
template <class Body>
void with_types(int32_t plain_format, int32_t format, const Body& body) {
    const auto with_element = [&](auto plain) {
        if (format == MXQ_FORMAT_MXFP8_E4M3) body(plain, E4M3{});
        if (format == MXQ_FORMAT_MXFP8_E5M2) body(plain, E5M2{});
    };
    if (plain_format == MXQ_FORMAT_F32) with_element(float{});
    if (plain_format == MXQ_FORMAT_F16) with_element(F16{});
    if (plain_format == MXQ_FORMAT_BF16) with_element(Bf16{});
}

// Calls body(plain, element) for every pair that with_types knows.
template <class Body>
void with_all_types(const Body& body) {
    for (int32_t plain : {MXQ_FORMAT_F32, MXQ_FORMAT_F16, MXQ_FORMAT_BF16})
        for (int32_t format : {MXQ_FORMAT_MXFP8_E4M3, MXQ_FORMAT_MXFP8_E5M2}) with_types(plain, format, body);
}

template <class E, ScaleRounding rounding, int count>
__device__ __forceinline__ void scales_of_rounding(uint32_t (&values)[count], Nonfinite policy) {
#pragma unroll
    for (int i = 0; i < count; i++)
        values[i] = policy == Nonfinite::Saturate ? scale_of<E, rounding, Nonfinite::Saturate>(values[i])
                                                  : scale_of<E, rounding, Nonfinite::Propagate>(values[i]);
}

// Turns block maxima (magnitude bits) into scale bytes: one uniform branch for all of them.
template <class E, int count>
__device__ __forceinline__ void scales_of(uint32_t (&values)[count], ScaleRounding rounding, Nonfinite policy) {
    switch (rounding) {
        case ScaleRounding::Floor: return scales_of_rounding<E, ScaleRounding::Floor>(values, policy);
        case ScaleRounding::Ceil: return scales_of_rounding<E, ScaleRounding::Ceil>(values, policy);
        case ScaleRounding::Even: return scales_of_rounding<E, ScaleRounding::Even>(values, policy);
        case ScaleRounding::Rceil: return scales_of_rounding<E, ScaleRounding::Rceil>(values, policy);
    }
}

}  // namespace mxq::cuda
