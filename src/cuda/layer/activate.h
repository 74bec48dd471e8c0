// Launches the kernels of an activation and of its gradients. `activate` and `activate_backward` load them.
#pragma once
#include "core/context_type.h"
#include "core/problem.h"
#include "dispatch/implementation.h"

namespace mxq::cuda {

// Stores what an activation makes as plain numbers. Rows in no group are left as they are.
void launch_activate(const Context& context, const ActivatedMatrix& from, const GroupedRows& grouped, const PlainMatrix& out,
                     const Launch& call);

// Stores the gradients of gates and ups as plain numbers. Rows in no group are left as they are.
void launch_gradients(const Context& context, const ActivateProblem& problem, const PlainMatrix& out, void* stream);

// Stores the gradients of biases and of weights of rows, as far as they are wanted. `chunks` has bias_chunk_bytes.
void launch_gradient_sums(const Context& context, const ActivateProblem& problem, void* chunks, void* stream);
uint64_t bias_chunk_bytes(const ActivateProblem& problem);

}  // namespace mxq::cuda
