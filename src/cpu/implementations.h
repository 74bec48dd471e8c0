// The CPU backend as the dispatch lists see it. Every one is called `cpu`.
#pragma once
#include "dispatch/implementation.h"

namespace mxq::cpu {

extern const QuantizeImplementation quantize;         // quantize.cpp
extern const DequantizeImplementation dequantize;     // dequantize.cpp
extern const SwizzleImplementation swizzle_scales;    // swizzle_scales.cpp
extern const GemmImplementation gemm;                 // gemm.cpp

}  // namespace mxq::cpu
