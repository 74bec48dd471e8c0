// Maxima of quantized sources whose codes amax_codes.cu takes.
#pragma once
#include "cuda/quantize/amax.h"

namespace mxq::cuda {

void load_amax_codes();

// Returns whether the source of a problem without a transform is of such codes.
bool takes_amax_codes(const QuantizeProblem& problem);

// Raises the maxima, which are zeroed, as launch_amax describes; false: there is nothing to read, and no kernel.
bool run_amax_codes(const Context& context, const QuantizeProblem& problem, float* rowwise, float* columnwise,
                    int scope_stride, bool propagates, const Launch& call, Start start);

}  // namespace mxq::cuda
