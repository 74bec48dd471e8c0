// The CPU implementation of route: counts the choices of each expert, then gives each choice the next row of its expert.
#include <algorithm>
#include <vector>

#include "core/context.h"
#include "core/groups.h"
#include "cpu/implementations.h"

namespace mxq::cpu {
namespace {

// Returns the expert of a choice among those of this rank, or -1 where it is dropped. Refuses ids out of range.
int64_t local_expert(const RouteProblem& problem, int64_t choice) {
    const int64_t id = read_integer(problem.ids, problem.id_type, choice);
    if (id < -1 || id >= problem.experts)
        fail(MXQ_STATUS_INVALID_ARGUMENT,
             "routing.ids[%lld] is %lld, expected 0 to %d, or -1 for a choice that is dropped; check the router's ids",
             (long long)choice, (long long)id, problem.experts - 1);
    const int64_t local = id - problem.first;
    return local >= 0 && local < problem.count ? local : -1;
}

// Returns the first row of each expert and, as one more, the number of all rows.
std::vector<int32_t> first_rows(const RouteProblem& problem) {
    std::vector<int32_t> first(size_t(problem.count) + 1);
    for (int64_t i = 0; i < problem.rows(); i++)
        if (const int64_t expert = local_expert(problem, i); expert >= 0) first[size_t(expert) + 1]++;
    for (size_t e = 1; e < first.size(); e++) first[e] += first[e - 1];
    return first;
}

void run(const Context&, const RouteProblem& problem, const Launch&) {
    std::vector<int32_t> next = first_rows(problem);
    std::copy(next.begin() + 1, next.end(), problem.ends);
    const int64_t rows = problem.rows(), taken = next.back();
    for (int64_t i = 0; i < rows; i++) {
        const int64_t expert = local_expert(problem, i);
        const int32_t row = expert < 0 ? -1 : next[size_t(expert)]++;
        problem.choice_rows[i] = row;
        if (row < 0) continue;
        problem.row_tokens[row] = int32_t(i / problem.choices);
        if (problem.row_weights) problem.row_weights[row] = problem.weights.at(i);
    }
    std::fill(problem.row_tokens + taken, problem.row_tokens + rows, -1);
    if (problem.row_weights) std::fill(problem.row_weights + taken, problem.row_weights + rows, 0.0f);
    if (problem.dropped) *problem.dropped = 0;
}

}  // namespace

const RouteImplementation route = {.name = "cpu", .declines = needs_cpu, .run = run};

}  // namespace mxq::cpu
