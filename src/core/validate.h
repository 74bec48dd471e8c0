// Checks a verb's arguments and turns descriptors into the views that kernels receive. Throws Error; touches no memory.
#pragma once
#include "core/context.h"
#include "core/options.h"
#include "core/problem.h"

namespace mxq {

// A query may leave pointers and parts open; what is set is checked all the same.
enum class Check { Execute, Query };

QuantizeProblem validate_quantize(const mxq_quantize_options* options, const mxq_tensor* in, const mxq_tensor* out,
                                  Check check);
QuantizeProblem validate_requantize(const mxq_quantize_options* options, const mxq_tensor* in, const mxq_tensor* out,
                                    Check check);
AmaxProblem validate_amax(const mxq_quantize_options* options, const mxq_tensor* in, const mxq_tensor* out, Check check);
DequantizeProblem validate_dequantize(const mxq_quantize_options* options, const mxq_tensor* in, const mxq_tensor* out,
                                      Check check);
SwizzleProblem validate_swizzle(const mxq_quantize_options* options, const mxq_tensor* in, const mxq_tensor* out,
                                bool to_swizzled, Check check);
PadProblem validate_pad(const mxq_quantize_options* options, const mxq_tensor* in, const mxq_tensor* out, bool pads,
                        Check check);
GemmProblem validate_gemm(const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b, const mxq_tensor* d,
                          Check check);
GemmProblem validate_grouped_gemm(const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b,
                                  const mxq_tensor* d, Check check);

// A context must be there, and only a CUDA one has streams.
void validate_call(const mxq_context* context, const void* stream);

}  // namespace mxq
