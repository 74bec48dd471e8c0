// activate_quantize: an activation to any quantized format: `activate` to F32 in the workspace, and from there the
// implementation of quantize that dispatch takes, in its own workspace behind. The numbers in F32 are not rounded, so the bytes
// are those of a kernel that does both.
#include "cuda/implementations.h"
#include "cuda/launch.h"
#include "cuda/layer/activate.h"
#include "dispatch/choice.h"

namespace mxq::cuda {
namespace {

// The quantize of what the activation makes, with pointers as if the workspace began at 0.
struct Steps {
    QuantizeProblem quantize;
    uint64_t bytes;  // of the activation's result
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

void run(const Context& context, const ActivateProblem& problem, const Launch& call) {
    const Steps& steps = *static_cast<const Steps*>(call.state);
    uint8_t* const at = static_cast<uint8_t*>(call.workspace);
    QuantizeProblem quantize = steps.quantize;
    quantize.source.plain.data = at;
    launch_activate(context, problem.quantize.source.activated, quantize.grouped, quantize.source.plain, call);
    const Prepared& prepared = steps.choice.prepared;
    void* const workspace = prepared.workspace_bytes ? at + steps.bytes : nullptr;
    if (!is_nothing(quantize)) steps.choice.implementation->run(context, quantize, {workspace, call.stream, prepared.state.get()});
}

}  // namespace

// Nothing to load: activate and quantize do.
const ActivateImplementation activate_quantize = {.name = "activate_quantize", .run = run, .prepare = prepare_steps};

}  // namespace mxq::cuda
