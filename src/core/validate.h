// Checks a verb's arguments and turns descriptors into the views that kernels receive. Throws Error where it refuses them;
// touches no memory of a tensor.
#pragma once
#include "core/context.h"
#include "core/options.h"
#include "core/routed_problem.h"

namespace mxq {

// A query may leave pointers and parts unset; whatever is set is checked as for an execution. Prepare checks what an execution
// does, but for what memory holds, which steps before it have yet to write.
enum class Check { Execute, Query, Prepare };

QuantizeProblem validate_quantize(const Context& context, const mxq_quantize_options* options, const mxq_tensor* in,
                                  const mxq_tensor* out, Check check);
QuantizeProblem validate_requantize(const Context& context, const mxq_quantize_options* options, const mxq_tensor* in,
                                    const mxq_tensor* out, Check check);
AmaxProblem validate_amax(const Context& context, const mxq_quantize_options* options, const mxq_tensor* in,
                          const mxq_tensor* out, Check check);
DequantizeProblem validate_dequantize(const Context& context, const mxq_quantize_options* options, const mxq_tensor* in,
                                      const mxq_tensor* out, Check check);
ConvertProblem validate_convert(const Context& context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, Check check);
SwizzleProblem validate_swizzle(const Context& context, const mxq_quantize_options* options, const mxq_tensor* in,
                                const mxq_tensor* out, bool to_swizzled, Check check);
PadProblem validate_pad(const Context& context, const mxq_quantize_options* options, const mxq_tensor* in,
                        const mxq_tensor* out, bool pads, Check check);
GemmProblem validate_gemm(const Context& context, const mxq_gemm_options* options, const mxq_tensor* a, const mxq_tensor* b,
                          const mxq_tensor* d, Check check);
GemmProblem validate_grouped_gemm(const Context& context, const mxq_gemm_options* options, const mxq_tensor* a,
                                  const mxq_tensor* b, const mxq_tensor* d, Check check);

RouteProblem validate_route(const Context& context, const mxq_quantize_options* options, const mxq_routing* routing,
                            Check check);

// The tensors of a product of an expert layer. `activated` is NULL where its D is not activated; otherwise D is not written.
struct RoutedProductTensors {
    const mxq_tensor *a, *b, *d, *activated;
};
RoutedProductProblem validate_routed_product(const Context& context, const mxq_gemm_options* product,
                                             const mxq_activate_options* activation, const mxq_routing* routing,
                                             const RoutedProductTensors& tensors, Check check);

CombineProblem validate_combine(const Context& context, const mxq_quantize_options* options, const mxq_routing* routing,
                                const mxq_tensor* in, const mxq_tensor* out, const mxq_tensor* residual, Check check);

ActivateProblem validate_activate_backward(const Context& context, const mxq_activate_options* options,
                                           const mxq_tensor* gradient, const mxq_tensor* in, const mxq_tensor* out,
                                           Check check);
ActivateProblem validate_activate(const Context& context, const mxq_activate_options* options, const mxq_tensor* in,
                                  const mxq_tensor* out, Check check);

// `in`, d_in and d_weights may be NULL.
CombineBackwardProblem validate_combine_backward(const Context& context, const mxq_quantize_options* options,
                                                 const mxq_routing* routing, const mxq_tensor* d_out_tensor,
                                                 const mxq_tensor* in, const mxq_tensor* d_in,
                                                 const mxq_tensor* d_weights_tensor, Check check);

// Requires a context, and no stream on a CPU context.
void validate_call(const mxq_context* context, const void* stream);

}  // namespace mxq
