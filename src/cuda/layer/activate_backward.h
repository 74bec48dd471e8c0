// Launches the kernels of an activation's gradients. `activate_backward` loads them.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"

namespace mxq::cuda {

// Stores the gradients of gates and ups as plain numbers. Rows in no group are left as they are.
void launch_gradients(const Context& context, const ActivateProblem& problem, const PlainMatrix& out, void* stream);

// Stores the gradients of biases and of weights of rows, as far as they are wanted. `chunks` has bias_chunk_bytes.
void launch_gradient_sums(const Context& context, const ActivateProblem& problem, void* chunks, void* stream);
uint64_t bias_chunk_bytes(const ActivateProblem& problem);

}  // namespace mxq::cuda
