// The CPU implementation of gather_rows: copies rows by index, which are known to be in range.
#include <cstring>

#include "core/context.h"
#include "core/groups.h"
#include "cpu/engine.h"
#include "cpu/implementations.h"
#include "cpu/partition.h"

namespace mxq::cpu {
namespace {

void run(const Context& context, const GatherProblem& problem, const Launch&) {
    constexpr int64_t rows_of_work = 16;
    const int64_t count = problem.row_bytes == 0 ? 0 : ceil_div(problem.rows, rows_of_work);  // rows of no bytes may be at NULL
    for_each_index(context.cpu->pool(), count, problem.rows * problem.row_bytes / 2, [&](int64_t index, int /*worker*/) {
        const int64_t last = std::min(problem.rows, (index + 1) * rows_of_work);
        for (int64_t row = index * rows_of_work; row < last; row++) {
            uint8_t* const to = problem.to + row * problem.to_stride;
            const int64_t from = read_row_index(problem.by_index, row);
            if (from < 0)
                std::memset(to, 0, size_t(problem.row_bytes));
            else
                std::memcpy(to, problem.from + from * problem.from_stride, size_t(problem.row_bytes));
        }
    });
}

}  // namespace

const GatherImplementation gather_rows = {.name = "cpu", .declines = needs_cpu, .run = run};

}  // namespace mxq::cpu
