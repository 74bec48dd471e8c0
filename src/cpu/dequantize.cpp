// The CPU implementation of dequantize: experts as they are, or each group as a matrix of its own.
#include <cstring>

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

Reason declines(const Context& context, const DequantizeProblem&) {
    return context.is_cpu() ? "" : "needs a CPU context, found a CUDA one";
}

// Returns the bytes of a plain element.
int64_t element_bytes(const PlainMatrix& matrix) { return find_format(matrix.format)->bits / 8; }

// Appends the job of a problem without groups, or of one group.
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

// Clears the output's padding below the rows of a group.
void clear_padding(const PlainMatrix& out) {
    const int64_t bytes = element_bytes(out);
    for (int64_t row = out.rows; row < round_up(out.rows, out.group_unit); row++)
        std::memset(static_cast<char*>(out.data) + row * out.row_stride * bytes, 0, size_t(out.cols * bytes));
}

void run(const Context& context, const DequantizeProblem& problem, const Launch&) {
    const Engine& engine = *context.cpu;
    const PlainMatrix& out = problem.out;
    const bool stream = out.matrices * out.rows * out.cols * element_bytes(out) >= kStreamBytes;
    const Jobs jobs = jobs_of(problem);
    require_decodable(problem.in, problem.grouped, "in");
    const Scratch scratch(engine.scratch());
    if (problem.grouped.set())
        for (const auto& job : jobs) clear_padding(job.work.out);
    for_each_rectangle(engine.pool(), jobs, [&](const DequantizeProblem& one, const Rectangle& region, int worker) {
        engine.kernels().dequantize(one, region, stream, scratch.of(worker));
    });
}

}  // namespace

const DequantizeImplementation dequantize = {.name = "cpu", .declines = declines, .run = run, .reads = Addresses::Listed};

}  // namespace mxq::cpu
