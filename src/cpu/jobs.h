// Shares several work items, such as groups, among threads as if they were one.
#pragma once
#include <vector>

#include "cpu/partition.h"

namespace mxq::cpu {

// A work item that is done for each rectangle of a grid.
template <class Work>
struct Job {
    Work work;
    Grid grid;
    int64_t first;  // index of its first rectangle among those of all jobs

    int64_t last() const { return first + grid.count(); }
};

// Appends a job, whose rectangles follow those of the jobs before.
template <class Work>
void add_job(std::vector<Job<Work>>& jobs, const Work& work, const Grid& grid) {
    jobs.push_back({work, grid, jobs.empty() ? 0 : jobs.back().last()});
}

// Calls body(work, rectangle, worker) for every rectangle of every job.
template <class Work, class Body>
void for_each_rectangle(ThreadPool& pool, const std::vector<Job<Work>>& jobs, const Body& body) {
    const int64_t count = jobs.empty() ? 0 : jobs.back().last();
    int64_t elements = 0;
    for (const auto& job : jobs) elements += job.grid.matrices * job.grid.rows * job.grid.cols;
    for_each_index(pool, count, elements, [&](int64_t index, int worker) {
        const auto& job = *std::prev(std::upper_bound(jobs.begin(), jobs.end(), index,
                                                      [](int64_t i, const Job<Work>& other) { return i < other.first; }));
        body(job.work, job.grid.at(index - job.first), worker);
    });
}

}  // namespace mxq::cpu
