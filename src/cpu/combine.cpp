// The CPU implementation of combine.
#include "core/context.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"
#include "cpu/partition.h"

namespace mxq::cpu {
namespace {

void run(const Context& context, const CombineProblem& problem, const Launch&) {
    constexpr int64_t height = 16, width = 4096;  // of a rectangle
    const Engine& engine = *context.cpu;
    const Grid grid{1, problem.tokens, problem.out.cols, height, width};
    const Scratch scratch(engine.scratch());
    for_each_index(engine.pool(), grid.count(), grid.rows * grid.cols * problem.choices, [&](int64_t index, int worker) {
        engine.kernels().combine(problem, grid.at(index), scratch.of(worker));
    });
}

}  // namespace

const CombineImplementation combine = {.name = "cpu", .declines = needs_cpu, .run = run};

}  // namespace mxq::cpu
