// activate_quantize, activate_backward_quantize: an activation, or its gradient, to any quantized format. `activate` or
// `activate_backward` stores F32 in the workspace, and the implementation of quantize that dispatch takes reads it, in its own
// workspace behind. The numbers in F32 are not rounded, so the bytes are those of a kernel that does both.
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/layer/activate.h"
#include "dispatch/choice.h"

namespace mxq::cuda {
namespace {

// The quantize of the numbers in F32, with pointers as if the workspace began at 0.
struct Steps {
    QuantizeProblem quantize;
    uint64_t bytes;  // of the numbers
    Choice<QuantizeProblem> choice;
};

Prepared prepare_steps(const Context& context, const ActivateProblem& problem) {
    if (Reason reason = needs_cuda(context); !reason.empty()) return {reason, 0, nullptr};
    if (!problem.quantizes) return {"needs a quantized out, found a plain one", 0, nullptr};
    const Source& source = problem.quantize.source;
    const auto steps = std::make_shared<Steps>(Steps{problem.quantize, 0, {}});
    steps->quantize.source = plain_source(
        {nullptr, MXQ_FORMAT_F32, source.matrices, source.rows, source.cols, source.cols, 1, Addresses::Dense});
    steps->bytes = uint64_t(round_up(source.matrices * source.rows * source.cols * int64_t(sizeof(float)), 256));
    steps->choice = ask(verbs::quantize, context, steps->quantize, {});
    if (!steps->choice.implementation) return {"no implementation of quantize takes the result", 0, nullptr};
    return {{}, steps->bytes + steps->choice.prepared.workspace_bytes, steps};
}

// The sums of the gradients of biases follow the workspace of quantize.
Prepared prepare_backward(const Context& context, const ActivateProblem& problem) {
    Prepared prepared = prepare_steps(context, problem);
    if (!prepared.declines.empty()) return prepared;
    prepared.workspace_bytes = uint64_t(round_up(int64_t(prepared.workspace_bytes), 256)) + bias_chunk_bytes(problem);
    return prepared;
}

// Quantizes the numbers in the workspace once `store` has launched what stores them.
template <class Store>
void run_steps(const Context& context, const Launch& call, const Store& store) {
    const Steps& steps = *static_cast<const Steps*>(call.state);
    uint8_t* const at = static_cast<uint8_t*>(call.workspace);
    QuantizeProblem quantize = steps.quantize;
    quantize.source.plain.data = at;
    store(quantize.source.plain);
    const Prepared& prepared = steps.choice.prepared;
    void* const workspace = prepared.workspace_bytes ? at + steps.bytes : nullptr;
    if (!is_nothing(quantize))
        steps.choice.implementation->run(context, quantize, {workspace, call.stream, prepared.state.get()});
}

void run(const Context& context, const ActivateProblem& problem, const Launch& call) {
    run_steps(context, call, [&](const PlainMatrix& numbers) {
        launch_activate(context, problem.quantize.source.activated, problem.quantize.grouped, numbers, call);
    });
}

void run_backward(const Context& context, const ActivateProblem& problem, const Launch& call) {
    run_steps(context, call,
              [&](const PlainMatrix& numbers) { launch_gradients(context, problem, numbers, call.stream); });
    const Steps& steps = *static_cast<const Steps*>(call.state);
    const int64_t chunks = round_up(int64_t(steps.bytes + steps.choice.prepared.workspace_bytes), 256);
    launch_gradient_sums(context, problem, static_cast<uint8_t*>(call.workspace) + chunks, call.stream);
}

}  // namespace

// Nothing to load: activate, activate_backward and quantize do.
const ActivateImplementation activate_quantize = {.name = "activate_quantize", .run = run, .prepare = prepare_steps};
const ActivateImplementation activate_backward_quantize = {
    .name = "activate_backward_quantize", .run = run_backward, .prepare = prepare_backward};

}  // namespace mxq::cuda
