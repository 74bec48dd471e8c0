// The CPU implementation of activate: to quantized parts as quantize does from another source, to plain numbers row by row.
#include "core/context.h"
#include "core/group_view.h"
#include "core/groups.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"
#include "cpu/jobs.h"
#include "cpu/quantize.h"

namespace mxq::cpu {
namespace {

Reason declines(const Context& context, const ActivateProblem&) {
    return context.is_cpu() ? "" : "needs a CPU context, found a CUDA one";
}

// Returns a group as a problem of its own.
ActivateProblem problem_of_group(const ActivateProblem& problem, const GroupStart& start, int64_t rows) {
    ActivateProblem group = problem;
    Source& source = group.quantize.source;
    source.activated = group_of(source.activated, start, rows);
    source.rows = rows;
    group.out = rows_of(problem.out, start.codes, rows);
    return group;
}

std::vector<Job<ActivateProblem>> jobs_of(const ActivateProblem& problem) {
    std::vector<Job<ActivateProblem>> jobs;
    if (!problem.quantize.grouped.set()) {
        add_job(jobs, problem, grid_of(problem.out, false));
        return jobs;
    }
    for (const Group& group : read_groups(problem.quantize.grouped, "out")) {
        if (group.rows == 0) continue;
        const ActivateProblem one = problem_of_group(problem, {group.index, group.row, group.row, 0}, group.rows);
        add_job(jobs, one, grid_of(one.out, false));
    }
    return jobs;
}

void run(const Context& context, const ActivateProblem& problem, const Launch&) {
    if (problem.quantizes) return run_quantize(context, problem.quantize);
    const Engine& engine = *context.cpu;
    const PlainMatrix& out = problem.out;
    const int64_t bytes = out.matrices * out.rows * out.cols * (find_format(out.format)->bits / 8);
    const Scratch scratch(engine.scratch());
    for_each_rectangle(engine.pool(), jobs_of(problem), [&](const ActivateProblem& one, const Rectangle& region, int worker) {
        engine.kernels().activate(one, region, bytes >= kStreamBytes, scratch.of(worker));
    });
}

}  // namespace

const ActivateImplementation activate = {.name = "cpu", .declines = declines, .run = run, .reads = Addresses::Listed};

}  // namespace mxq::cpu
