// The CPU implementation of convert.
#include "core/context.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"
#include "cpu/partition.h"

namespace mxq::cpu {
namespace {

void run(const Context& context, const ConvertProblem& problem, const Launch&) {
    const Engine& engine = *context.cpu;
    const bool stream = streams(problem.out);
    const Scratch scratch(engine.scratch());
    for_each_rectangle(engine.pool(), grid_of(problem.out, false), [&](const Rectangle& region, int worker) {
        engine.kernels().convert(problem, region, stream, scratch.of(worker));
    });
}

}  // namespace

const ConvertImplementation convert = {.name = "cpu", .declines = needs_cpu, .run = run, .reads = Addresses::Listed};

}  // namespace mxq::cpu
