// The CUDA backend as the dispatch lists see it: an implementation, its kernel and its file have one name. In a build
// without CUDA, unavailable.cpp stands in for all of them.
#pragma once
#include "dispatch/implementation.h"

namespace mxq::cuda {

extern const QuantizeImplementation quantize_rowwise;           // quantize_rowwise.cu
extern const QuantizeImplementation quantize_tile;              // quantize_tile.cu
extern const QuantizeImplementation quantize_fp4;               // quantize_fp4.cu
extern const QuantizeImplementation quantize_fp4_pairs;         // quantize_fp4_pairs.cu
extern const QuantizeImplementation requantize_tile;            // requantize_tile.cu
extern const AmaxImplementation amax;                           // amax.cu
extern const DequantizeImplementation dequantize_rowwise;       // dequantize_rowwise.cu
extern const DequantizeImplementation dequantize_columnwise;    // dequantize_columnwise.cu
extern const PadImplementation pad_groups;                      // pad_groups.cu
extern const SwizzleImplementation swizzle_scales;              // swizzle_scales.cu
extern const GemmImplementation cublaslt_grouped;               // cublaslt_grouped.cpp
extern const GemmImplementation cublaslt;                       // cublaslt_gemm.cpp
extern const GemmImplementation cublaslt_grouped_rebase;        // cublaslt_rebase.cpp
extern const GemmImplementation cublaslt_rebase;                // cublaslt_rebase.cpp
extern const GemmImplementation mma_bf16;                       // mma_bf16.cu

}  // namespace mxq::cuda
