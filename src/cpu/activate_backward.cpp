// The CPU implementation of activate_backward: gradients as activate and quantize store their values, then the sums.
#include "core/context.h"
#include "core/group_view.h"
#include "core/groups.h"
#include "cpu/activate.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"

namespace mxq::cpu {
namespace {

// The sums of chunks of kRectangleRows rows of each expert or group, and of them all.
struct BiasSums {
    const std::vector<Job<ActivateProblem>>& jobs;
    int64_t cols, count = 0;  // count: of chunks
    std::vector<int64_t> first;  // chunk of each expert or group, and one more
    std::vector<float> chunks;

    BiasSums(const std::vector<Job<ActivateProblem>>& of, const std::vector<int64_t>& rows, int64_t columns)
        : jobs(of), cols(columns) {
        for (const int64_t of_one : rows) first.push_back(count), count += ceil_div(of_one, kRectangleRows);
        first.push_back(count);
        chunks.resize(size_t(count * cols));
    }
    float* at(int64_t one, const Rectangle& region) {
        return &chunks[size_t((first[size_t(one)] + region.row / kRectangleRows) * cols + region.col)];
    }
    void store(int64_t one, float* to) const {
        std::fill_n(to, cols, 0.0f);
        for (int64_t chunk = first[size_t(one)]; chunk < first[size_t(one) + 1]; chunk++)
            for (int64_t i = 0; i < cols; i++) to[i] = add_rn(to[i], chunks[size_t(chunk * cols + i)]);
        for (int64_t i = 0; i < cols; i++) to[i] = from_float<float>(to[i]);
    }
};

std::vector<int64_t> rows_of_all(const ActivateProblem& problem) {
    const Source& source = problem.quantize.source;
    if (!problem.quantize.grouped.set()) return std::vector<int64_t>(size_t(source.matrices), source.rows);
    std::vector<int64_t> rows;
    for (const Group& group : read_groups(problem.quantize.grouped, "out")) rows.push_back(group.rows);
    return rows;
}

void store_bias_gradient(const Engine& engine, const ActivateProblem& problem) {
    const Scratch scratch(engine.scratch());
    const std::vector<Job<ActivateProblem>> jobs = jobs_of(problem);
    BiasSums sums(jobs, rows_of_all(problem), problem.quantize.source.cols);
    for_each_rectangle(engine.pool(), jobs, [&](const ActivateProblem& one, const Rectangle& region, int worker) {
        engine.kernels().sum_gradients(one, region, scratch.of(worker), sums.at(one.first_bias + region.matrix, region));
    });
    const int64_t count = int64_t(sums.first.size()) - 1;
    for_each_index(engine.pool(), count, count * sums.cols,
                   [&](int64_t one, int) { sums.store(one, problem.bias_gradient + one * sums.cols); });
}

void store_weight_gradients(const Engine& engine, const ActivateProblem& problem) {
    for (const Job<ActivateProblem>& job : jobs_of(problem)) {
        const ActivateProblem& one = job.work;
        const Source& source = one.quantize.source;
        const int64_t rows = source.matrices * source.rows;
        for_each_index(engine.pool(), rows, rows * source.cols, [&](int64_t row, int) {
            one.weight_gradient[row] = engine.kernels().weight_gradient(one, row / source.rows, row % source.rows);
        });
    }
}

void run(const Context& context, const ActivateProblem& problem, const Launch&) {
    run_activate(context, problem);
    if (problem.bias_gradient) store_bias_gradient(*context.cpu, problem);
    if (problem.weight_gradient) store_weight_gradients(*context.cpu, problem);
}

}  // namespace

const ActivateImplementation activate_backward = {
    .name = "cpu", .declines = needs_cpu, .run = run, .reads = Addresses::Listed};

}  // namespace mxq::cpu
