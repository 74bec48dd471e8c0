// The CPU implementation of dequantize: experts as they are, or each group as a matrix of its own.
#include "core/context.h"
#include "cpu/engine.h"
#include "core/group_view.h"
#include "core/groups.h"
#include "cpu/given_numbers.h"
#include "cpu/implementations.h"
#include "cpu/jobs.h"

namespace mxq::cpu {
namespace {

using Jobs = std::vector<Job<DequantizeProblem>>;

void add(Jobs& jobs, const DequantizeProblem& problem) { add_job(jobs, problem, grid_of(problem.out, problem.columnwise)); }

// Returns a job for each group that has rows, or one job for all experts.
Jobs jobs_of(const DequantizeProblem& problem) {
    Jobs jobs;
    if (!problem.grouped.set()) {
        add(jobs, problem);
        return jobs;
    }
    const std::vector<Group> groups = read_groups(problem.grouped, "in");
    const std::vector<GroupStart> in = group_starts(groups, problem.in.units);
    const std::vector<GroupStart> out = group_starts(groups, {problem.out.group_unit, 1});
    jobs.reserve(groups.size());
    for (size_t g = 0; g < groups.size(); g++) {
        if (groups[g].rows == 0) continue;
        DequantizeProblem one = problem;
        one.in = part_of_group(problem.in, in[g], groups[g].rows);
        one.out = rows_of(problem.out, out[g].codes, groups[g].rows);
        add(jobs, one);
    }
    return jobs;
}

void run(const Context& context, const DequantizeProblem& problem, const Launch&) {
    const Engine& engine = *context.cpu;
    const bool stream = streams(problem.out);
    const Jobs jobs = jobs_of(problem);
    require_decodable(problem.in, problem.grouped, "in");
    const Scratch scratch(engine.scratch());
    if (problem.grouped.set())
        for (const auto& [one, grid, first] : jobs)
            clear_rows(one.out, one.out.rows, round_up(one.out.rows, one.out.group_unit));
    for_each_rectangle(engine.pool(), jobs, [&](const DequantizeProblem& one, const Rectangle& region, int worker) {
        engine.kernels().dequantize(one, region, stream, scratch.of(worker));
    });
}

}  // namespace

const DequantizeImplementation dequantize = {.name = "cpu", .declines = needs_cpu, .run = run, .reads = Addresses::Listed};

}  // namespace mxq::cpu
