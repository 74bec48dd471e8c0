// The CPU implementation of activate: to quantized parts as quantize does from another source, to plain numbers row by row.
#include "cpu/activate.h"

#include "core/group_view.h"
#include "core/groups.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"

namespace mxq::cpu {
namespace {

ActivateProblem problem_of_group(const ActivateProblem& problem, const GroupStart& start, int64_t rows) {
    ActivateProblem group = problem;
    group.quantize.source = group_of(problem.quantize.source, start, rows);
    group.first_bias = start.index;
    if (!problem.quantizes) group.out = rows_of(problem.out, start.codes, rows);
    if (problem.weight_gradient) group.weight_gradient += start.codes;
    return group;
}

Grid grid_of_rows(const ActivateProblem& problem) {
    const Source& source = problem.quantize.source;
    return grid_of(source.matrices, source.rows, source.cols, false);
}

void run(const Context& context, const ActivateProblem& problem, const Launch&) { run_activate(context, problem); }

}  // namespace

std::vector<Job<ActivateProblem>> jobs_of(const ActivateProblem& problem) {
    std::vector<Job<ActivateProblem>> jobs;
    if (!problem.quantize.grouped.set()) {
        add_job(jobs, problem, grid_of_rows(problem));
        return jobs;
    }
    for (const Group& group : read_groups(problem.quantize.grouped, "out")) {
        if (group.rows == 0) continue;
        const ActivateProblem one = problem_of_group(problem, {group.index, group.row, group.row, 0}, group.rows);
        add_job(jobs, one, grid_of_rows(one));
    }
    return jobs;
}

void run_activate(const Context& context, const ActivateProblem& problem) {
    if (problem.quantizes) {
        if (!is_nothing(problem.quantize)) run_quantize(context, problem.quantize);
        return;
    }
    const Engine& engine = *context.cpu;
    const bool stream = streams(problem.out);
    const Scratch scratch(engine.scratch());
    for_each_rectangle(engine.pool(), jobs_of(problem), [&](const ActivateProblem& one, const Rectangle& region, int worker) {
        engine.kernels().activate(one, region, stream, scratch.of(worker));
    });
}

const ActivateImplementation activate = {.name = "cpu", .declines = needs_cpu, .run = run, .reads = Addresses::Listed};

}  // namespace mxq::cpu
