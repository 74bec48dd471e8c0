// The CPU implementation of convert.
#include "core/context.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"
#include "cpu/jobs.h"

namespace mxq::cpu {
namespace {

Reason declines(const Context& context, const ConvertProblem&) {
    return context.is_cpu() ? "" : "needs a CPU context, found a CUDA one";
}

void run(const Context& context, const ConvertProblem& problem, const Launch&) {
    const Engine& engine = *context.cpu;
    const PlainMatrix& out = problem.out;
    const int64_t bytes = out.matrices * out.rows * out.cols * (find_format(out.format)->bits / 8);
    std::vector<Job<ConvertProblem>> jobs;
    add_job(jobs, problem, grid_of(out, false));
    const Scratch scratch(engine.scratch());
    for_each_rectangle(engine.pool(), jobs, [&](const ConvertProblem& one, const Rectangle& region, int worker) {
        engine.kernels().convert(one, region, bytes >= kStreamBytes, scratch.of(worker));
    });
}

}  // namespace

const ConvertImplementation convert = {.name = "cpu", .declines = declines, .run = run, .reads = Addresses::Listed};

}  // namespace mxq::cpu
